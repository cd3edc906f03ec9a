"""What `dara-trl compare` shows while it works."""

import time

from rich.box import SIMPLE
from rich.table import Table
from rich.text import Text

from ..summary import reward_names
from .runner import Job, Runner


def status_table(runner: Runner) -> Table:
    """The runs in progress, each reward's mean and density, and the time that is left for each run."""
    done, failed = len(runner.finished), len(runner.failed)
    table = Table(
        title=f"{done} of {len(runner.grid.runs)} runs finished"
        + (f", {failed} failed" if failed else "")
        + f", {len(runner.waiting)} waiting",
        box=SIMPLE,
    )
    rewards = list(dict.fromkeys(name for job in runner.running for name in reward_names(job.rows[-50:])))
    table.add_column("run", overflow="fold")
    table.add_column("step", justify="right", no_wrap=True)
    for name in rewards:
        table.add_column(Text(f"{name}\nmean (density)"), justify="right")
    table.add_column("left", justify="right", no_wrap=True)
    for job in runner.running:
        last = _latest(job)
        cells = [
            f"{_number(last.get(f'rewards/{name}/mean'))} ({_number(last.get(f'dara/density/{name}'))})"
            for name in rewards
        ]
        table.add_row(Text(job.run.name), _step(last), *cells, _left(job, last))
    return table


def _latest(job: Job) -> dict:
    return next((row for row in reversed(job.rows) if "loss" in row), {})


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


def _step(last: dict) -> str:
    return f"{last['step']}/{last['max_steps']}" if last else "starting"


def _left(job: Job, last: dict) -> str:
    first = next((row["step"] for row in job.rows if "loss" in row), None)
    if job.first_row is None or first is None or last["step"] <= first:
        return "-"
    seconds = (time.monotonic() - job.first_row) / (last["step"] - first) * (last["max_steps"] - last["step"])
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
