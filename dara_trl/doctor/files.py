"""Reads a YAML file that anybody may have written: size, depth and aliases are bounded."""

from pathlib import Path
from typing import Any

import yaml

from .findings import short


LARGEST_FILE = 1_000_000  # bytes
MOST_VALUES = 10_000  # with aliases written out


class FileError(Exception):
    """The file cannot be worked with; the message says why."""


def read_yaml(path: Path) -> dict[str, Any]:
    """The mapping of names to values in a YAML file.

    Raises:
        FileError: it is no file, not readable, not YAML, no mapping with names as keys, or far too large.
    """
    if not path.exists():
        raise FileError(f"{path} does not exist")
    if not path.is_file():
        raise FileError(f"{path} is no file")
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST_FILE + 1)
        if len(data) > LARGEST_FILE:
            raise FileError(f"{path} is larger than {LARGEST_FILE:,} bytes")
        value = yaml.safe_load(data.decode("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise FileError(f"{path} cannot be read: {error}") from error
    except (yaml.YAMLError, ValueError, TypeError) as error:  # ValueError: a date such as 2026-99-99
        raise FileError(f"{path} is not YAML: {error}") from error
    except RecursionError as error:
        raise FileError(f"{path} is nested too deep") from error
    if not isinstance(value, dict):
        raise FileError(f"{path} must be a mapping of names to values, not {short(type(value).__name__)}")
    names = [key for key in value if not isinstance(key, str)]
    if names:
        raise FileError(f"{path}: {short(names[0])} is no name; quote it")
    waiting: list[Any] = [value]
    for _ in range(MOST_VALUES):
        if not waiting:
            return value
        one = waiting.pop()
        if isinstance(one, dict):
            waiting.extend([*one.keys(), *one.values()])
        elif isinstance(one, list | tuple | set):
            waiting.extend(one)
        if len(waiting) > MOST_VALUES:
            break
    raise FileError(f"{path} holds more than {MOST_VALUES:,} values, or one that contains itself")
