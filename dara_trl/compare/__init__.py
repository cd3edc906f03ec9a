"""Top floor: `dara-trl compare`, a grid of methods, settings and seeds, trained one process a run.

`grid` reads the YAML file, `runner` starts and collects the runs, `table` shows them.
"""

import argparse
import fnmatch
import os
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from filelock import FileLock, Timeout

from ..cli import CommandError
from .grid import FIELDS, load_grid


__all__ = ["add_arguments", "run"]

TAIL = 15  # lines of a failed run's log that are shown


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = "fields of the grid file:\n" + "\n".join(f"  {name:<12} {text}" for name, text in FIELDS.items())
    parser.add_argument("grid", type=Path, help="the grid, a YAML file")
    parser.add_argument("--jobs", type=int, default=1, help="runs at once (default: 1)")
    parser.add_argument(
        "--only", metavar="PATTERN", help="only runs whose name setting/method/seed matches: 'a/*/seed1'"
    )
    parser.add_argument("--devices", nargs="+", help="CUDA_VISIBLE_DEVICES of each job: --jobs 2 --devices 0,1 2,3")
    parser.add_argument("--dry-run", action="store_true", help="list the runs and what state they are in")


def run(args: argparse.Namespace) -> int:
    """Trains what is not trained yet. Returns 1 if a run failed."""
    from rich.console import Console
    from rich.live import Live

    from .runner import Failure, Runner
    from .table import status_table

    grid = load_grid(args.grid)
    if args.only is not None:
        chosen = [one for one in grid.runs if fnmatch.fnmatchcase(one.name, args.only)]
        if not chosen:
            raise CommandError(f"--only {args.only!r} matches none of the runs, such as {grid.runs[0].name}.")
        grid = replace(grid, runs=chosen)
    if args.jobs < 1:
        raise CommandError(f"--jobs must be at least 1, not {args.jobs}.")
    if args.devices is not None and len(args.devices) != args.jobs:
        raise CommandError(f"--devices needs one entry for each of the {args.jobs} jobs, not {len(args.devices)}.")

    console = Console()
    runner = Runner(grid, args.jobs, args.devices)
    if args.dry_run:
        for one in grid.runs:
            console.print(f"{'finished' if one in runner.finished else 'to do':<9} {one.name}", highlight=False)
        return 0
    # Without a limit, each of several processes starts a thread per core.
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // args.jobs)))
    grid.output_dir.mkdir(parents=True, exist_ok=True)
    lock = FileLock(grid.output_dir / ".compare.lock", blocking=False)
    signal.signal(signal.SIGTERM, _stop)
    try:
        with lock, Live(console=console, auto_refresh=False, transient=True) as live:
            try:
                while runner.unfinished:
                    for ended in runner.step():
                        if isinstance(ended, Failure):
                            console.print(f"FAILED: {ended.run.name}", highlight=False)
                        else:
                            console.print(f"finished: {ended.name}", highlight=False)
                    if console.is_terminal:
                        live.update(status_table(runner), refresh=True)
                    time.sleep(0.5)
            finally:
                runner.close()
    except Timeout:
        raise CommandError(f"another compare works in {grid.output_dir}: wait for it, or end it.") from None
    except KeyboardInterrupt:
        console.print("Stopped. The same command goes on where it was.")
        return 130
    for failure in runner.failed:
        lines = failure.log.read_text(encoding="utf-8", errors="replace").splitlines()[-TAIL:]
        console.print(f"\nFAILED: {failure.run.name} ({failure.reason}). The end of {failure.log}:", highlight=False)
        console.print("\n".join(f"  {line}" for line in lines), markup=False, highlight=False)
    console.print(
        f"{len(runner.finished)} of {len(grid.runs)} runs finished in {grid.output_dir}. "
        f"Next: dara-trl report {grid.output_dir}",
        highlight=False,
        soft_wrap=True,
    )
    return 1 if runner.failed else 0


def _stop(*_: object) -> NoReturn:
    raise KeyboardInterrupt
