"""Middle floor: `dara-trl report`, the logs of any runs as one HTML page with tables, tests and figures.

`readers` knows the file forms, `sources` finds the runs, `thresholds` and `statistics` are the mathematics, `results`
makes the tables of it, `figures` and `page` show them. Needs neither torch nor a trainer.
"""

import argparse
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..cli import CommandError
from . import words
from .evaluations import Evaluation, draw_evaluation, read_evaluation
from .page import Section, render
from .results import RULES, Options, Setting, analyse, as_json
from .sources import load_runs


if TYPE_CHECKING:
    from rich.table import Table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "runs",
        nargs="+",
        metavar="RUN",
        help="a run's folder or log, a folder of runs, or LABEL=PATH. Known are run.json with metrics.jsonl, "
        "trainer_state.json, W&B offline files, TensorBoard events and verl's metrics.jsonl",
    )
    parser.add_argument("--output", type=Path, default=Path("report"), help="folder to write into (default: report)")
    parser.add_argument(
        "--threshold",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="the mean that a reward is to reach; repeatable, in place of the thresholds in run.json",
    )
    parser.add_argument(
        "--baseline", metavar="LABEL", help="what the others are compared to (default: run.json's, gdpo, the first)"
    )
    parser.add_argument(
        "--window", type=_positive, default=10, help="lasting rule: values in the trailing mean (default: 10)"
    )
    parser.add_argument("--stay", type=_positive, default=20, help="lasting rule: values that it holds (default: 20)")
    parser.add_argument("--partial", action="store_true", help="include unfinished runs (folders named *.partial)")
    parser.add_argument(
        "--evaluation",
        type=Path,
        action="append",
        default=[],
        metavar="FOLDER",
        help="--output of a `dara-trl eval`, shown beside the training; repeatable",
    )
    parser.add_argument("--json", action="store_true", help="print the results as JSON instead of the table")


def run(args: argparse.Namespace) -> int:
    missing = [name for name in ("jinja2", "matplotlib", "rich") if not _importable(name)]
    if missing:
        raise CommandError(f"{', '.join(missing)} missing; pip install 'dara-trl[report]'")
    options = Options(
        thresholds=tuple(_threshold(text) for text in args.threshold),
        baseline=args.baseline,
        window=args.window,
        stay=args.stay,
    )
    runs, notes = load_runs(args.runs, args.partial)
    settings = analyse(runs, options)
    evaluations = [read_evaluation(path) for path in args.evaluation]
    page = _write(args.output, settings, notes, options, evaluations)
    for note in notes:
        print(words.printable(note), file=sys.stderr)
    if args.json:
        results = {"options": options, "settings": settings, "notes": notes, "page": str(page)}
        print(json.dumps(as_json(results), indent=1, allow_nan=False))
    else:
        _print(settings, page)
    return 0


def _importable(name: str) -> bool:
    from importlib.util import find_spec

    return find_spec(name) is not None


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not at least 1")
    return value


def _threshold(text: str) -> tuple[str, float]:
    name, equals, value = text.rpartition("=")
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not (equals and name and math.isfinite(number)):
        raise CommandError(f"--threshold {text}: expected NAME=VALUE with a number, such as format_reward=0.8")
    return name, number


def _write(
    folder: Path,
    settings: Sequence[Setting],
    notes: Sequence[str],
    options: Options,
    evaluations: Sequence[Evaluation],
) -> Path:
    from .figures import Drawn, draw, file_stem

    try:
        (folder / "figures").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CommandError(f"--output {folder}: {error}") from error
    taken: set[str] = set()

    def save(name: str, figure: Drawn) -> str:
        stem = file_stem(name, figure.name, taken)
        for (theme, form), content in figure.data.items():
            end = "" if theme == "light" else f"-{theme}"
            (folder / "figures" / f"{stem}{end}.{form}").write_bytes(content)
        return f"figures/{stem}.svg"

    sections = []
    for setting in settings:
        figures = draw(setting)
        files = {figure.name: save(setting.name, figure) for figure in figures}
        sections.append(Section(setting, figures, files))
    page = folder / "report.html"
    shown = [(one, figure, save("evaluation", figure)) for one in evaluations for figure in [draw_evaluation(one)]]
    page.write_text(render(sections, notes, options, shown), encoding="utf-8", errors="replace")
    return page


def _print(settings: Sequence[Setting], page: Path) -> None:
    from rich.console import Console

    console = Console()
    if not console.is_terminal:
        console = Console(width=200)
    for setting in settings:
        if setting.thresholds:
            console.print(_table(setting))
        else:
            console.print(f"{words.printable(setting.name)}: no thresholds (--threshold NAME=VALUE)", markup=False)
    console.print(f"Page: {page}", markup=False, highlight=False, soft_wrap=True)


def _table(setting: Setting) -> "Table":
    from rich.box import SIMPLE
    from rich.table import Table
    from rich.text import Text

    compared = setting.baseline is not None
    title = setting.name + (f", against {setting.baseline}" if compared else "")
    table = Table(title=Text(words.printable(title)), box=SIMPLE, title_justify="left")
    table.add_column("threshold", overflow="fold")
    table.add_column("rule", no_wrap=True)
    table.add_column("method", overflow="fold")
    for heading in ["seeds", "step", "95 % interval"] + ["ratio", "p"] * compared:
        table.add_column(heading, justify="right", no_wrap=True)
    for threshold in setting.thresholds:
        for rule in threshold.rules:
            name = f"{threshold.reward} ≥ {threshold.threshold:g}"
            for i, row in enumerate(rule.rows):
                last = i == len(rule.rows) - 1
                cells = [name, RULES[rule.rule].removesuffix(" rule")] if i == 0 else ["", ""]
                cells += [row.label, str(len(row.seeds)), str(row.result), words.span(row.interval)]
                if row.comparison is not None:
                    cells += [words.ratio(row.comparison), words.p_value(row.comparison)]
                table.add_row(*(Text(words.printable(cell)) for cell in cells), end_section=last)
    return table
