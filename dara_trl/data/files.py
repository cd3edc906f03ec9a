"""Rows out of a file, URL, folder or Hub dataset; no row that cannot be used is dropped in silence."""

from __future__ import annotations

import glob
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any


if TYPE_CHECKING:
    from datasets import Dataset

_READERS = {".parquet": "parquet", ".json": "json", ".jsonl": "json"}


def load_rows(source: str | os.PathLike[str], split: str, limit: int | None) -> Dataset:
    """The first `limit` rows of a `.parquet`, `.json` or `.jsonl` file, a URL of one, a folder or a Hub dataset id.

    Raises:
        FileNotFoundError: `source` is a local path where nothing is.
        ValueError: `source` is a file of another kind, cannot be read or is empty, or `limit` is not positive.
        TypeError: `split` is not a text.
    """
    from datasets import load_dataset
    from datasets.exceptions import DatasetGenerationError

    if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool) or limit < 1):
        raise ValueError(f"`limit` must be a positive int or None, got {limit!r}.")
    if not isinstance(split, str):
        raise TypeError(f"`split` must be a str, got {split!r}.")
    arguments = _load_arguments(os.fspath(source))
    try:
        raw = load_dataset(**arguments, split=split)
    except (ValueError, StopIteration, DatasetGenerationError) as error:  # datasets names neither file nor reason
        reason = error.__cause__ or str(error) or "no data"
        raise ValueError(f"`source` {str(source)!r} cannot be loaded with split {split!r}: {reason}") from error
    return raw if limit is None else raw.select(range(min(limit, len(raw))))


def refuse(problems: list[str], total: int, source: Any) -> None:
    """Raises a ValueError that shows the first problems, if there are any."""
    if problems:
        first = "; ".join(problems[:5]) + ("; ..." if len(problems) > 5 else "")
        raise ValueError(f"{len(problems)} of {total} rows of {str(source)!r} cannot be used: {first}")


def shown(value: Any) -> str:
    """A value, cut short for a message."""
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _load_arguments(source: str) -> dict[str, Any]:
    """What `datasets.load_dataset` needs to read `source`."""
    if not source:
        raise ValueError("`source` must be a path, a URL or a Hub dataset id, got an empty text.")
    is_url = source.startswith(("http://", "https://", "hf://"))
    suffix = Path(source.partition("?")[0] if is_url else source).suffix.lower()
    path = Path(source).expanduser()
    if not is_url and not path.exists():
        if suffix in _READERS or source.startswith(("/", "./", "../", "~")):
            raise FileNotFoundError(f"`source` {source!r} does not exist (looked at {str(path.absolute())!r}).")
        return {"path": source}
    if not is_url and path.is_dir():
        return {"path": str(path)}
    if suffix not in _READERS:
        raise ValueError(f"`source` must be a .parquet, .json or .jsonl file, got {source!r}.")
    # datasets takes a path for a pattern
    return {"path": _READERS[suffix], "data_files": {"train": source if is_url else glob.escape(str(path))}}
