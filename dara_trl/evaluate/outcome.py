"""What an evaluation shows at its end: a table for each measure, and a figure."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .store import write_json


def publish(results: Mapping[str, Any], folder: Path, *, as_json: bool) -> None:
    """Writes `results.json`, and prints it, or shows what it holds."""
    write_json(folder / "results.json", results)
    if as_json:
        print(json.dumps(results, indent=1, allow_nan=False))
    else:
        show(results, folder)


def show(results: Mapping[str, Any], folder: Path) -> None:
    """Prints the tables, and draws `results.png` and `results.svg` where matplotlib is installed."""
    from rich.box import SIMPLE
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from ..report.evaluations import draw_evaluation, evaluation

    one = evaluation(results)
    console = Console() if sys.stdout.isatty() else Console(width=200)
    console.print(one.lead, markup=False, highlight=False)
    for found in one.tables:
        table = Table(title=found.title, box=SIMPLE, title_justify="left")
        table.add_column("model", overflow="fold")
        for column in found.columns:
            table.add_column(column, justify="right")
        for row in found.rows:
            table.add_row(Text(row.label), *map(Text, row.cells))
        console.print(table)
    for note in one.notes:
        console.print(note, markup=False, highlight=False)
    places = [folder / "results.json"]
    try:
        drawn = draw_evaluation(one)
    except ImportError:
        console.print("No figure: pip install 'dara-trl[report]'", markup=False)
    else:
        for (theme, form), content in drawn.data.items():
            if theme == "light":
                places.append(folder / f"results.{form}")
                places[-1].write_bytes(content)
    console.print("Written: " + ", ".join(map(str, places)), markup=False, highlight=False, soft_wrap=True)
