"""An inspection as tables and text."""

from typing import TYPE_CHECKING

from .figures import Inspection, RewardFigures
from .sentences import percent, shown


if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

PLAIN_WIDTH = 120  # where there is no terminal


def print_inspection(inspection: Inspection, by_step: bool, console: "Console | None" = None) -> None:
    """Prints the tables, what was read, and the three sentences; plain text where there is no terminal."""
    from rich.console import Console
    from rich.text import Text

    if console is None:
        console = Console()
        if not console.is_terminal:
            console = Console(width=PLAIN_WIDTH)
    for line in _header(inspection):
        console.print(Text(line))
    console.print(_reward_table("Each reward, mean over the generation batches", [("", inspection.rewards)]))
    if by_step:
        rows = [(str(batch.step), batch.rewards) for batch in inspection.batches]
        console.print(_reward_table("Each reward, by step", rows))
    if inspection.pairs:
        console.print(_pair_table(inspection))
    for sentence in inspection.sentences:
        console.print(Text(sentence))


def _header(inspection: Inspection) -> list[str]:
    said = "inferred from the prompts" if inspection.num_generations_inferred else "as given"
    lines = [
        f"{len(inspection.batches)} generation batches, {inspection.groups} groups of {inspection.num_generations} "
        f"rollouts ({said})."
    ]
    if inspection.repeated_steps:
        lines.append(f"{len(inspection.repeated_steps)} steps held the batch of the step before; counted once.")
    if inspection.incomplete_groups:
        lines.append(f"{inspection.incomplete_groups} groups are cut off at a table's edge; left out.")
    if inspection.logged_advantages is not None:
        names = ", ".join(inspection.logged_advantages)
        lines.append(f"The logged advantages are those of: {names or 'no method known here, with these settings'}.")
    return lines + [f"Note: {shown(note)}" for note in inspection.notes]


def _reward_table(title: str, parts: "list[tuple[str, tuple[RewardFigures, ...]]]") -> "Table":
    steps = any(step for step, _ in parts)
    columns = ["reward", "mean", "applicable", "density", "energy", "ratio", "weight", "at cap"]
    table = _table(title, ["step", *columns] if steps else columns)
    for step, rewards in parts:
        for figures in rewards:
            row = [
                shown(figures.name),
                number(figures.mean),
                percent(figures.applicable),
                f"{figures.density:.3f}",
                number(figures.energy),
                f"{figures.energy_ratio:.3f}",
                f"{figures.weight:.2f}",
                percent(figures.at_cap),
            ]
            _add_row(table, [step, *row] if steps else row)
    return table


def _pair_table(inspection: Inspection) -> "Table":
    table = _table(
        "Each pair: rollouts that it pulls in opposite directions",
        ["reward", "and", "of those both tell apart", "of all", "correlation"],
    )
    for pair in inspection.pairs:
        share = pair.opposite_share_of_both
        row = [
            shown(pair.first),
            shown(pair.second),
            "-" if share is None else percent(share),
            percent(pair.opposite_share_of_all),
            "-" if pair.correlation is None else f"{pair.correlation:.2f}",
        ]
        _add_row(table, row)
    return table


def _table(title: str, headings: list[str]) -> "Table":
    from rich.box import SIMPLE
    from rich.table import Table

    table = Table(title=title, box=SIMPLE, title_justify="left")
    for heading in headings:
        is_name = heading in ("reward", "and")
        table.add_column(heading, justify="left" if is_name else "right", overflow="fold", no_wrap=not is_name)
    return table


def _add_row(table: "Table", cells: list[str]) -> None:
    from rich.text import Text

    table.add_row(*map(Text, cells))


def number(value: float | None) -> str:
    """Three digits, or a dash."""
    return "-" if value is None else f"{value:.3g}"
