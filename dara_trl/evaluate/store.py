"""What an evaluation has answered so far, one line a case, so that a killed one goes on where it was."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from ..cli import CommandError
from ..json_text import parse_json


class Store:
    """
    A folder with `settings.json` and `answers.jsonl`. One process at a time.

    Args:
        folder (`Path`): is created.
        settings (`dict`): all that the answers depend on. A folder that was begun with others is refused.

    Raises:
        CommandError: other settings, a file that cannot be read, or another process works on the folder.
    """

    def __init__(self, folder: Path, settings: Mapping[str, Any]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._lock = FileLock(folder / ".lock", timeout=0)
        try:
            self._lock.acquire()
        except Timeout:
            raise CommandError(f"{folder} is being written by another process.") from None
        self._path = folder / "answers.jsonl"
        given = json.loads(json.dumps(settings))
        written = folder / "settings.json"
        if written.is_file():
            found = read_json(written)
            changed = [key for key in {**found, **given} if found.get(key) != given.get(key)]
            if changed:
                shown = "; ".join(f"{key} was {found.get(key)!r}, now {given.get(key)!r}" for key in changed)
                raise CommandError(f"{folder} has answers of another evaluation ({shown}). Give another --output.")
        else:
            write_json(written, given)
        self.answers = read_answers(folder)
        if self._path.is_file():
            self._drop_torn_line()
        self._file = self._path.open("a", encoding="utf-8")

    def _drop_torn_line(self) -> None:
        content = self._path.read_bytes()
        if content and not content.endswith(b"\n"):
            with self._path.open("r+b") as file:
                file.truncate(content.rfind(b"\n") + 1)

    def append(self, key: str, answer: Mapping[str, Any]) -> None:
        """Writes a case's answer; it is on the disk when this returns."""
        # A lone surrogate in a model's text would not go into UTF-8; ASCII takes anything.
        self._file.write(json.dumps({"key": key, **answer}) + "\n")
        self._file.flush()
        os.fsync(self._file.fileno())
        self.answers[key] = dict(answer)

    def close(self) -> None:
        """Lets others at the folder."""
        self._file.close()
        self._lock.release()


def read_answers(folder: Path) -> dict[str, dict[str, Any]]:
    """The answers in a folder by key; a last line that was cut off is not there.

    Raises:
        CommandError: a line within the file cannot be read; names it.
    """
    path = folder / "answers.jsonl"
    answers = {}
    lines = path.read_bytes().split(b"\n") if path.is_file() else []
    for number, line in enumerate(lines, 1):
        if not line.strip() or number == len(lines):
            continue
        try:
            row = parse_json(line)
            answers[row.pop("key")] = row
        except (ValueError, KeyError, AttributeError, TypeError) as error:
            raise CommandError(f"{path}, line {number}: not an answer of an evaluation ({error!r}).") from error
    return answers


def read_json(path: Path) -> Any:
    """A JSON file. Raises CommandError, which names it, if it cannot be read."""
    try:
        return parse_json(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise CommandError(f"{path} is not JSON: {error}") from error


def write_json(path: Path, value: Any) -> None:
    """Writes a JSON file, whole or not at all."""
    new = path.with_name(f".{path.name}.new")
    new.write_text(json.dumps(value, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    new.replace(path)
