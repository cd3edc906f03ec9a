"""Middle floor: what a run did, from its log history: a short table and a figure. Needs no trainer."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any


if TYPE_CHECKING:
    from rich.table import Table

LogHistory = Sequence[Mapping[str, Any]]

WINDOW = 3


def reward_names(history: LogHistory) -> list[str]:
    """The rewards of a run, in their order, by the densities that were logged."""
    prefix = "dara/density/"
    return list(dict.fromkeys(key.removeprefix(prefix) for row in history for key in row if key.startswith(prefix)))


def curve(history: LogHistory, key: str) -> tuple[list[int], list[float]]:
    """Steps and values of one logged figure; rows without it are left out."""
    rows = [row for row in history if row.get(key) is not None and "step" in row]
    return [int(row["step"]) for row in rows], [float(row[key]) for row in rows]


def steps_to_threshold(history: LogHistory, reward: str, threshold: float) -> int | None:
    """First logged step at which the mean of the last 3 logged values of a reward is at least `threshold`, or None."""
    steps, values = curve(history, f"rewards/{reward}/mean")
    for i in range(WINDOW - 1, len(values)):
        if sum(values[i - WINDOW + 1 : i + 1]) / WINDOW >= threshold:
            return steps[i]
    return None


def summary_table(history: LogHistory, thresholds: Mapping[str, float] | None = None) -> "Table":
    """First and last mean, density and weight of each reward, and the steps that it took to its threshold.

    Args:
        history: `trainer.state.log_history`, or the same from `trainer_state.json`.
        thresholds: the mean to be reached, by reward name; rewards without one have an empty last column.

    Raises:
        ValueError: the history holds no figures of a training with `DARAGRPOTrainer`.
    """
    from rich.box import SIMPLE
    from rich.table import Table

    names = reward_names(history)
    if not names:
        raise ValueError("The log history has no dara/density figures: was it written by DARAGRPOTrainer?")
    table = Table(title="First and last logged values", box=SIMPLE)
    for heading in ("reward", "mean", "density", "weight", "steps to threshold"):
        table.add_column(heading, justify="left" if heading == "reward" else "right", no_wrap=True)
    for name in names:
        threshold = (thresholds or {}).get(name)
        reached = "" if threshold is None else f"{steps_to_threshold(history, name, threshold) or 'not reached'}"
        table.add_row(
            name,
            _first_and_last(history, f"rewards/{name}/mean"),
            _first_and_last(history, f"dara/density/{name}"),
            _first_and_last(history, f"dara/weight/{name}"),
            reached if threshold is None else f"{threshold:g}: {reached}",
        )
    return table


def _first_and_last(history: LogHistory, key: str) -> str:
    _, values = curve(history, key)
    return f"{values[0]:.3g} → {values[-1]:.3g}" if values else "-"


def plot(history: LogHistory, path: str | Path) -> Path:
    """Draws rewards, densities, energy ratios and weights over the steps into one picture.

    Args:
        history: `trainer.state.log_history`, or the same from `trainer_state.json`.
        path: where to write; the ending chooses the format (`.png`, `.svg`, ...).

    Raises:
        ValueError: the history holds no figures of a training with `DARAGRPOTrainer`.
    """
    from matplotlib.figure import Figure

    names = reward_names(history)
    if not names:
        raise ValueError("The log history has no dara/density figures: was it written by DARAGRPOTrainer?")
    panels = {
        "mean reward": "rewards/{}/mean",
        "density (share of active groups)": "dara/density/{}",
        "energy, relative to the strongest reward": "dara/energy_ratio/{}",
        "weight": "dara/weight/{}",
    }
    figure = Figure(figsize=(11, 7), layout="constrained")
    for axes, (title, key) in zip(figure.subplots(2, 2).flat, panels.items(), strict=True):
        for name in names:
            axes.plot(*curve(history, key.format(name)), marker=".", label=name)
        axes.set_title(title)
        axes.set_xlabel("step")
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.grid(alpha=0.3)
    figure.axes[0].legend()
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    return path
