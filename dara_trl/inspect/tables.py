"""Reads the completions that TRL logged: one `LoggedTable` a step, without the text of the completions.

What TRL 1.6 to 1.16 write: `completions/completions_<step>.parquet`, one file a logged step, holding the last
`generation_batch_size` rows that were generated, group after group. In training that is exactly one whole generation
batch; steps that train on it again (num_iterations, steps_per_generation) write the same rows once more. Batches
between two logged steps are in no file. An evaluation appends its rows and then writes the step's file anew, so that
they push out those of training. Prompts are text before TRL 1.16 and messages (lists of dicts) in it.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..telemetry import TABLE_COLUMNS


if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    import pyarrow as pa

    Array = np.ndarray[Any, Any]


LARGEST = 1e30  # larger rewards overflow the float32 in which TRL computes


class InspectError(ValueError):
    """The completions cannot be worked with; the message names file and column and says what would be right."""


@dataclass(frozen=True)
class LoggedTable:
    """The rows of one step.

    Attributes:
        source: where they come from, for messages.
        step: the step in which they were logged.
        runs: how many consecutive rows share a prompt, in order.
        prompts: a digest of the prompts, equal for equal prompts in the same order.
        rewards_NK: NaN where a reward did not apply.
        advantages_N: as logged; None without such a column.
        completions: reads the completions, only needed where all else is equal; None without such a column.
    """

    source: str
    step: int
    runs: tuple[int, ...]
    prompts: int
    rewards_NK: "Array"
    advantages_N: "Array | None"
    completions: "Callable[[], list[str]] | None"

    def repeats(self, other: "LoggedTable") -> bool:
        """Whether this is the same generation batch, logged again."""
        import numpy as np

        if self.prompts != other.prompts or not np.array_equal(self.rewards_NK, other.rewards_NK, equal_nan=True):
            return False
        mine, others = self.advantages_N, other.advantages_N
        if mine is not None and others is not None and not np.array_equal(mine, others, equal_nan=True):
            return False
        return self.completions is None or other.completions is None or self.completions() == other.completions()


def parquet_files(paths: Iterable[str | Path]) -> list[Path]:
    """The files, and those of the folders (a run's own folder or its `completions`), each once."""
    files: dict[Path, Path] = {}
    for path in map(Path, paths):
        if path.is_dir():
            found = sorted((path / "completions").glob("*.parquet")) or sorted(path.glob("*.parquet"))
            if not found:
                raise InspectError(
                    f"{path}: holds neither completions/*.parquet nor *.parquet. TRL writes them to the run's "
                    "output_dir with log_completions=True."
                )
        elif path.is_file():
            found = [path]
        else:
            raise InspectError(f"{path}: no such file or folder.")
        files.update((file.resolve(), file) for file in found)
    if not files:
        raise InspectError("no file given.")
    return list(files.values())


def read_tables(paths: Iterable[str | Path], rewards: Sequence[str] | None) -> tuple[list[str], list[LoggedTable]]:
    """Names of the rewards, and the tables by step; reads file by file, only the columns that are needed."""
    import pyarrow.parquet as pq

    files = parquet_files(paths)
    schemas = {file: _guarded(file, lambda file: pq.read_schema(file)) for file in files}
    if rewards is None:
        names = list(dict.fromkeys(name for schema in schemas.values() for name in _numeric(schema)))
    else:
        names = list(rewards)
    for file, schema in schemas.items():
        _check_columns(str(file), schema.names, names, rewards is not None)
    tables = []
    for file, schema in schemas.items():
        tables += _file_tables(file, schema, names)
    return names, _by_step(tables)


def _file_tables(file: Path, schema: "pa.Schema", names: list[str]) -> list[LoggedTable]:
    import pyarrow.parquet as pq

    columns = [name for name in ("step", "prompt", "advantage", *names) if name in schema.names]
    table = _guarded(file, lambda file: pq.read_table(file, columns=columns))

    def completions() -> list[str]:
        return [_key(value) for value in pq.read_table(file, columns=["completion"])["completion"].to_pylist()]

    return _split(
        str(file),
        table["step"].to_pylist(),
        table["prompt"].to_pylist(),
        {name: _arrow_numbers(file, name, table[name]) for name in names},
        _arrow_numbers(file, "advantage", table["advantage"]) if "advantage" in columns else None,
        completions if "completion" in schema.names else None,
    )


def frame_tables(
    frame: "pd.DataFrame", rewards: Sequence[str] | None, source: str = "the table"
) -> tuple[list[str], list[LoggedTable]]:
    """The same from a table in memory; several steps may follow each other in it."""
    import pandas as pd

    if rewards is None:
        names = [
            str(name)
            for name, dtype in frame.dtypes.items()
            if name not in TABLE_COLUMNS
            and pd.api.types.is_numeric_dtype(dtype)
            and not pd.api.types.is_bool_dtype(dtype)
        ]
    else:
        names = list(rewards)
    _check_columns(source, [str(name) for name in frame.columns], names, rewards is not None)

    def numbers(name: str) -> "Array":
        try:
            return pd.to_numeric(frame[name]).to_numpy(dtype="float64", na_value=float("nan"))
        except (ValueError, TypeError) as error:
            raise _not_numeric(source, name, str(frame[name].dtype)) from error

    completions = None if "completion" not in frame.columns else lambda: [_key(value) for value in frame["completion"]]
    advantages = numbers("advantage") if "advantage" in frame.columns else None
    tables = _split(
        source,
        frame["step"].tolist(),
        frame["prompt"].tolist(),
        {name: numbers(name) for name in names},
        advantages,
        completions,
    )
    return names, _by_step(tables)


def whole_numbered(paths: Iterable[str | Path], names: Sequence[str]) -> list[str]:
    """Those of the columns that hold integers in some file: TRL writes every reward as a float."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schemas = [pq.read_schema(file) for file in parquet_files(paths)]
    return [name for name in names if any(pa.types.is_integer(schema.field(name).type) for schema in schemas)]


def empty_columns(paths: Iterable[str | Path], names: Sequence[str]) -> list[str]:
    """Columns besides these that have no value in any file: a reward that never applied looks like that."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schemas = [pq.read_schema(file) for file in parquet_files(paths)]
    empty = [field.name for schema in schemas for field in schema if pa.types.is_null(field.type)]
    return [name for name in dict.fromkeys(empty) if name not in names and name not in TABLE_COLUMNS]


def _split(
    source: str,
    steps: list[Any],
    prompts: list[Any],
    rewards: "dict[str, Array]",
    advantages_N: "Array | None",
    completions: Callable[[], list[str]] | None,
) -> list[LoggedTable]:
    import numpy as np

    if not steps:
        raise InspectError(f"{source}: has no rows; leave it out.")
    if any(not isinstance(step, int | float) or step != step or step != int(step) for step in steps):
        raise InspectError(f"{source}: column 'step' must hold whole numbers.")
    rewards_NK = np.stack(list(rewards.values()), axis=1)
    for name, values in rewards.items():
        bad = np.flatnonzero(np.isinf(values) | (np.abs(values) > LARGEST))
        if bad.size:
            raise InspectError(
                f"{source}: column {name!r} is {values[bad[0]]} in row {bad[0]}. Rewards must be finite and at most "
                f"{LARGEST:g} in size, or empty (None) where they do not apply."
            )
    keys = [_key(prompt) for prompt in prompts]
    tables, start = [], 0
    for step, rows in groupby(steps):
        stop = start + sum(1 for _ in rows)
        tables.append(
            LoggedTable(
                source=source,
                step=int(step),
                runs=tuple(sum(1 for _ in run) for _, run in groupby(keys[start:stop])),
                prompts=hash(tuple(keys[start:stop])),
                rewards_NK=rewards_NK[start:stop],
                advantages_N=None if advantages_N is None else advantages_N[start:stop],
                completions=None if completions is None else _part(completions, start, stop),
            )
        )
        start = stop
    return tables


def _part(completions: Callable[[], list[str]], start: int, stop: int) -> Callable[[], list[str]]:
    return lambda: completions()[start:stop]


def _by_step(tables: list[LoggedTable]) -> list[LoggedTable]:
    tables = sorted(tables, key=lambda table: table.step)
    for one, other in pairwise(tables):
        if one.step == other.step:
            raise InspectError(
                f"{one.source} and {other.source}: both hold step {one.step}. Give the files of one run, in which a "
                "step's rows stand together."
            )
    return tables


def _numeric(schema: "pa.Schema") -> list[str]:
    from pyarrow import types

    return [
        field.name
        for field in schema
        if field.name not in TABLE_COLUMNS
        and (types.is_integer(field.type) or types.is_floating(field.type) or types.is_decimal(field.type))
        and not field.name.startswith("__index_level_")
    ]


def _check_columns(source: str, columns: list[str], names: list[str], chosen: bool) -> None:
    for needed in ("step", "prompt"):
        if needed not in columns:
            raise InspectError(
                f"{source}: has no column {needed!r} (it has {_listed(columns)}). A table of completions as TRL logs "
                "it has step, prompt, completion, one column for each reward, and advantage."
            )
    if not names:
        raise InspectError(
            f"{source}: has no column of rewards, that is of numbers besides step and advantage (it has "
            f"{_listed(columns)})."
        )
    for name in names:
        if name in TABLE_COLUMNS:
            raise InspectError(f"{source}: column {name!r} is TRL's own, not a reward.")
        if names.count(name) > 1:
            raise InspectError(f"{source}: the reward {name!r} is named twice.")
        if columns.count(name) > 1:
            raise InspectError(f"{source}: has two columns {name!r}; rename one.")
        if name not in columns:
            raise InspectError(
                f"{source}: has no column {name!r} (it has {_listed(columns)}). "
                + (
                    "The rewards must be columns of every file."
                    if chosen
                    else "Other files have it: give the files of one run, or choose the rewards with --rewards."
                )
            )


def _listed(columns: list[str]) -> str:
    return ", ".join(map(repr, columns)) or "none"


def _guarded(file: Path, read: Callable[[Path], Any]) -> Any:
    import pyarrow as pa

    try:
        return read(file)
    except (pa.ArrowException, ValueError) as error:
        raise InspectError(f"{file}: is not a readable parquet file ({str(error).splitlines()[0]}).") from error
    except OSError as error:
        raise InspectError(f"{file}: cannot be read ({error.strerror or error}).") from error


def _arrow_numbers(file: Path, name: str, column: "pa.ChunkedArray") -> "Array":
    import pyarrow as pa

    kind = column.type
    if not (pa.types.is_null(kind) or pa.types.is_primitive(kind) or pa.types.is_decimal(kind)):
        raise _not_numeric(str(file), name, str(kind))
    try:
        return column.cast(pa.float64()).to_numpy()
    except pa.ArrowException as error:
        raise _not_numeric(str(file), name, str(kind)) from error


def _not_numeric(source: str, name: str, kind: str) -> InspectError:
    return InspectError(
        f"{source}: column {name!r} is of type {kind}, not of numbers. Choose the columns of rewards with --rewards."
    )


def _key(value: Any) -> str:
    """Text that is equal for equal prompts (or completions), be they text or messages."""
    return value if isinstance(value, str) else repr(_plain(value))


def _plain(value: Any) -> Any:
    if hasattr(value, "tolist"):  # pandas reads a conversation as an array of dicts
        value = value.tolist()
    if isinstance(value, dict):  # parquet adds the keys that other messages have, empty
        return {key: _plain(entry) for key, entry in sorted(value.items()) if entry is not None}
    return [_plain(entry) for entry in value] if isinstance(value, list | tuple) else value
