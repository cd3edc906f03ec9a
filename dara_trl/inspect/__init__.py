"""Middle floor: `dara-trl inspect`, what each reward supplies in the completions that any GRPO run of TRL logged.

Reading order: `tables` (what TRL writes, and reading it), `groups`, `figures`, `sentences`, `render`. In a notebook:

    from dara_trl.inspect import inspect_completions
    print(*inspect_completions(pandas.read_parquet("completions/completions_00001.parquet")).sentences)
"""

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from .figures import Batch, Collapse, Inspection, Pair, RewardFigures, Settings, inspect_tables
from .sentences import three_sentences
from .tables import InspectError, empty_columns, frame_tables, read_tables, whole_numbered


if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "Batch",
    "Collapse",
    "InspectError",
    "Inspection",
    "Pair",
    "RewardFigures",
    "inspect_completions",
    "inspect_files",
]


def inspect_completions(
    table: "pd.DataFrame",
    *,
    rewards: Sequence[str] | None = None,
    num_generations: int | None = None,
    method: str = "dara_asym",
    reward_weights: Sequence[float] | None = None,
    max_weight: float = 5.0,
    eps: float = 1e-4,
) -> Inspection:
    """What each reward supplies in a table of completions, of one step or several one after the other.

    Args:
        table (`pandas.DataFrame`): as TRL logs it: step, prompt, one column for each reward, advantage, others.
        rewards (sequence of `str`, *optional*): the columns that are rewards, in order. Default: all columns of
            numbers besides step and advantage.
        num_generations (`int`, *optional*): rollouts of a group. Default: inferred from the runs of equal prompts.
        method, reward_weights, max_weight, eps: as in [`aggregate`].

    Raises:
        InspectError: the table or a setting cannot be worked with; says what would be right.
    """
    names, tables = frame_tables(table, rewards)
    whole = [name for name in names if rewards is None and table[name].dtype.kind in "iu"]
    settings = Settings(method, reward_weights, max_weight, eps)
    return _finished(inspect_tables(names, tables, num_generations, settings, _notes(whole)))


def inspect_files(
    paths: Iterable[str | Path],
    *,
    rewards: Sequence[str] | None = None,
    num_generations: int | None = None,
    method: str = "dara_asym",
    reward_weights: Sequence[float] | None = None,
    max_weight: float = 5.0,
    eps: float = 1e-4,
) -> Inspection:
    """The same of the parquet files of one run, or of its folder; the completions' text is not read."""
    paths = list(paths)
    names, tables = read_tables(paths, rewards)
    notes = []
    if rewards is None:
        notes = _notes(whole_numbered(paths, names))
        notes += [
            f"Column {name!r} has no value in any row and is left out: if it is a reward, name all with --rewards."
            for name in empty_columns(paths, names)
        ]
    settings = Settings(method, reward_weights, max_weight, eps)
    return _finished(inspect_tables(names, tables, num_generations, settings, notes))


def _notes(whole: list[str]) -> list[str]:
    return [
        f"Column {name!r} has whole numbers, which TRL never writes for a reward: if it came from log_extra, leave it "
        "out with --rewards."
        for name in whole
    ]


def _finished(inspection: Inspection) -> Inspection:
    return replace(inspection, sentences=three_sentences(inspection))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the subcommand."""
    parser.epilog = (
        "TRL logs completions with log_completions=True, in the run's output_dir. An evaluation overwrites the file "
        "of its step with its own rows: leave those files out."
    )
    parser.add_argument("paths", nargs="+", metavar="PATH", help="parquet files, or the run's folder")
    parser.add_argument("--rewards", nargs="+", metavar="NAME", help="columns that are rewards (default: numbers)")
    parser.add_argument("--num-generations", type=int, metavar="G", help="rollouts of a group (default: inferred)")
    parser.add_argument("--method", default="dara_asym", help="whose weights to show (default: dara_asym)")
    parser.add_argument("--max-weight", type=float, default=5.0, help="cap of the weights (default: 5)")
    parser.add_argument("--reward-weights", nargs="+", type=float, metavar="W", help="priorities (default: ones)")
    parser.add_argument("--eps", type=float, default=1e-4, help="added to standard deviations (default: 1e-4)")
    parser.add_argument("--by-step", action="store_true", help="also a table by step")
    parser.add_argument("--json", action="store_true", help="everything as JSON, and nothing else")


def run(args: argparse.Namespace) -> int:
    """Prints the inspection."""
    from ..cli import CommandError

    try:
        inspection = inspect_files(
            args.paths,
            rewards=args.rewards,
            num_generations=args.num_generations,
            method=args.method,
            reward_weights=args.reward_weights,
            max_weight=args.max_weight,
            eps=args.eps,
        )
    except InspectError as error:
        raise CommandError(str(error)) from error
    if args.json:
        import json

        print(json.dumps(asdict(inspection), indent=2, allow_nan=False))
        return 0
    try:
        from .render import print_inspection

        print_inspection(inspection, args.by_step)
    except ModuleNotFoundError as error:
        raise CommandError(f"the tables need {error.name}: pip install 'dara-trl[report]', or --json.") from error
    return 0
