"""Keeps what was built once: a folder per recipe, checked before every use, built by one process while others wait."""

import hashlib
import json
import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from filelock import FileLock


__all__ = ["cache_root", "cached_folder"]

CHECKSUMS = "sha256.json"

logger = logging.getLogger(__name__)


def cache_root() -> Path:
    """`DARA_TRL_CACHE` if it is set, else `dara_trl` in the user's cache folder (`XDG_CACHE_HOME` or `~/.cache`)."""
    if own := os.environ.get("DARA_TRL_CACHE"):
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dara_trl"


def cached_folder(name: str, recipe: Any, build: Callable[[Path], None], *, cost: str) -> Path:
    """The folder that `build` fills, built only if it is missing or damaged.

    Safe when several processes ask at once: one builds, under a lock, and the folder appears complete or not at all.

    Args:
        name (`str`): first part of the folder's name.
        recipe: all that determines the content; anything that JSON can write. Its hash is the rest of the name.
        build (callable): gets an empty folder and writes the files into it.
        cost (`str`): what building takes, for the notice, e.g. "about a minute".

    Returns:
        `Path`: the folder, its files' SHA-256 sums checked.

    Raises:
        OSError: the cache folder cannot be written; the message names `DARA_TRL_CACHE`.
    """
    root = cache_root()
    key = hashlib.sha256(json.dumps(recipe, sort_keys=True).encode()).hexdigest()[:12]
    folder = root / f"{name}-{key}"
    if _fault(folder) is None:
        return folder
    try:
        root.mkdir(parents=True, exist_ok=True)
        lock = FileLock(root / f".{folder.name}.lock")
        lock.acquire()
    except OSError as error:
        raise OSError(
            f"Cannot write to {root}: {error}. Set DARA_TRL_CACHE to a folder that can be written."
        ) from error
    try:
        fault = _fault(folder)  # another process may have built it while this one waited
        if fault is not None:
            logger.warning("Building %s, once (%s): %s.", folder, cost, fault)
            _build(folder, build)
    finally:
        lock.release()
    return folder


def _build(folder: Path, build: Callable[[Path], None]) -> None:
    # Under the lock nobody else uses these names: what is left of them belongs to a build that was killed.
    new, old = (folder.with_name(f".{folder.name}.{state}") for state in ("new", "old"))
    for left_over in (new, old):
        shutil.rmtree(left_over, ignore_errors=True)
    new.mkdir()
    try:
        build(new)
        sums = {path.relative_to(new).as_posix(): _sha256(path) for path in sorted(new.rglob("*")) if path.is_file()}
        (new / CHECKSUMS).write_text(json.dumps(sums, indent=1), encoding="utf-8")
        if folder.exists():
            folder.replace(old)
        new.replace(folder)
    finally:
        for left_over in (new, old):
            shutil.rmtree(left_over, ignore_errors=True)


def _fault(folder: Path) -> str | None:
    """Why the folder cannot be used, or None."""
    if not folder.is_dir():
        return "not built yet"
    try:
        sums = json.loads((folder / CHECKSUMS).read_text(encoding="utf-8"))
        damaged = [name for name, wanted in sums.items() if _sha256(folder / name) != wanted]
    except (OSError, ValueError, AttributeError) as error:
        return f"cannot be read ({error})"
    return f"damaged ({', '.join(damaged)})" if damaged else None


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
