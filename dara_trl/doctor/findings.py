"""What the doctor has to say, and how it is shown: a table in a terminal, else plain text, or JSON."""

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from typing import Literal


@dataclass(frozen=True)
class Finding:
    """One thing that was checked.

    Args:
        level: `"ok"`, `"warning"` (it will run, but look) or `"error"` (it will not, or not do what the recipe says).
        check: what was checked.
        found: what was found.
        advice: what to do. Never empty for a warning or an error.
    """

    level: Literal["ok", "warning", "error"]
    check: str
    found: str
    advice: str = ""

    def __post_init__(self) -> None:
        if self.level != "ok" and not self.advice:
            raise ValueError(f"a finding must say what to do: {self.check}: {self.found}")


def as_json(findings: Sequence[Finding]) -> str:
    """The findings as one JSON object, with the number of errors and warnings."""
    fields = {
        "errors": sum(one.level == "error" for one in findings),
        "warnings": sum(one.level == "warning" for one in findings),
        "findings": [asdict(one) for one in findings],
    }
    return json.dumps(fields, indent=1)


def as_text(findings: Sequence[Finding]) -> str:
    """The findings as lines: level, check and what was found; below them what to do."""
    lines = []
    for one in findings:
        lines.append(f"{one.level:<8}{_printable(one.check)}: {_printable(one.found)}")
        if one.advice:
            lines.append(f"{'':<8}  -> {_printable(one.advice)}")
    return "\n".join([*lines, _summary(findings)])


def show(findings: Sequence[Finding]) -> None:
    """Prints a table if stdout is a terminal and rich is there, else plain text."""
    if not sys.stdout.isatty() or find_spec("rich") is None:
        print(as_text(findings))
        return
    from rich.box import SIMPLE
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    styles = {"ok": "green", "warning": "yellow", "error": "bold red"}
    table = Table(box=SIMPLE)
    for heading in ("", "check", "found -> what to do"):
        table.add_column(heading, no_wrap=heading == "")
    for one in findings:
        found = Text(_printable(one.found))
        if one.advice:
            found.append(f"\n-> {_printable(one.advice)}", style="italic")
        table.add_row(Text(one.level, style=styles[one.level]), Text(_printable(one.check)), found)
    console = Console()
    console.print(table)
    console.print(_summary(findings), highlight=False)


def short(value: object, limit: int = 80) -> str:
    """`repr` of what a user's file holds, cut to `limit` characters."""
    text = repr(value)
    return text if len(text) <= limit else text[: limit - 3] + "..."


def _summary(findings: Sequence[Finding]) -> str:
    counts = [sum(one.level == level for one in findings) for level in ("error", "warning")]
    return f"{counts[0]} error{'' if counts[0] == 1 else 's'}, {counts[1]} warning{'' if counts[1] == 1 else 's'}"


def _printable(text: str) -> str:
    """Names come from files: control characters would steer the terminal."""
    return "".join(letter if letter.isprintable() else " " for letter in text)
