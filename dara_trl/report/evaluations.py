"""The results of `dara-trl eval`: read back, as tables, and as a figure of bars."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..cli import CommandError
from ..json_text import parse_json
from .figures import THEMES, Drawn, themed, written


MEASURES = {
    "math": {
        "accuracy": "Accuracy, % (pass@1)",
        "exceed": "Over the length limit, %",
        "joint": "Right and within the limit, %",
    },
    "bfcl": {"accuracy": "Accuracy, %", "format": "Format right, %"},
}
OVERALL = {"math": "macro average", "bfcl": "average"}
TITLES = {"math": "Mathematics", "bfcl": "Function calling, BFCL-v4"}


@dataclass(frozen=True)
class Row:
    """A model's line of a table."""

    label: str
    cells: list[str]


@dataclass(frozen=True)
class Table:
    """One measure: models in rows, sets of cases in columns."""

    title: str
    columns: list[str]
    rows: list[Row]


@dataclass(frozen=True)
class Evaluation:
    """What a `results.json` holds.

    Attributes:
        kind: `math` or `bfcl`.
        values: by measure, model and column: `value`, and `low` and `high` where there is an interval, in shares of 1.
    """

    kind: str
    columns: list[str]
    values: dict[str, dict[str, dict[str, Mapping[str, float] | None]]]
    notes: list[str]
    lead: str

    @property
    def title(self) -> str:
        """What was evaluated."""
        return TITLES[self.kind]

    @property
    def tables(self) -> list[Table]:
        """One a measure."""
        return [
            Table(
                MEASURES[self.kind][measure],
                self.columns,
                [Row(label, [shown(cells[name]) for name in self.columns]) for label, cells in models.items()],
            )
            for measure, models in self.values.items()
        ]


def read_evaluation(path: Path) -> Evaluation:
    """The results in a folder, or in a file.

    Raises:
        CommandError: there are none, or they cannot be read.
    """
    path = path / "results.json" if path.is_dir() else path
    try:
        return evaluation(parse_json(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise CommandError(f"--evaluation: {error}. Expected the --output of a `dara-trl eval`.") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CommandError(f"--evaluation {path} is not what `dara-trl eval` writes ({error!r}).") from error


def evaluation(results: Mapping[str, Any]) -> Evaluation:
    """The same from the content of `results.json`."""
    kind, models = results["evaluation"], results["models"]
    names = list(dict.fromkeys(name for model in models.values() for name in model["sets"]))
    columns = [*names, OVERALL[kind]]

    def cell(model: Mapping[str, Any], column: str, measure: str) -> Mapping[str, float] | None:
        found = model["overall"] if column == OVERALL[kind] else model["sets"].get(column)
        one = None if found is None else found[measure]
        if one is not None and not all(math.isfinite(float(value)) for value in one.values()):
            raise ValueError(f"{measure} of {column} is {one!r}")
        return one

    values = {
        measure: {
            label: {column: cell(model, column, measure) for column in columns} for label, model in models.items()
        }
        for measure in MEASURES[kind]
    }
    counted = {
        "missing": "answers are missing; the same `dara-trl eval` goes on",
        "cut_by_context": "answers were cut off where the model's context ended",
    }
    notes = [
        f"{label}: {model[name]:,} {text}."
        for label, model in models.items()
        for name, text in counted.items()
        if model[name]
    ]
    return Evaluation(kind, columns, values, notes, _lead(kind, results, models))


def _lead(kind: str, results: Mapping[str, Any], models: Mapping[str, Any]) -> str:
    drawn = list(
        dict.fromkeys(
            f"temperature {model['settings']['temperature']:g}, top-p {model['settings']['top_p']:g}, "
            f"at most {model['settings']['max_new_tokens']:,} tokens"
            for model in models.values()
        )
    )
    if kind == "bfcl":
        limits = {model["settings"]["limit"] for model in models.values()} - {None}
        part = f"; only the first {' or '.join(map(str, sorted(limits)))} cases of each category" if limits else ""
        return f"{'; '.join(drawn)}; the official checkers{part}."
    samples = list(dict.fromkeys(str(model["settings"]["samples"]) for model in models.values()))
    return (
        f"{' or '.join(samples)} answers to each problem, {'; '.join(drawn)}; an answer that was cut off is wrong; "
        f"length limit {results['length_limit']:,} tokens."
    )


def shown(found: Mapping[str, float] | None) -> str:
    """A share as per cent with its interval."""
    if found is None:
        return "-"
    interval = f" ({100 * found['low']:.1f} to {100 * found['high']:.1f})" if "low" in found else ""
    return f"{100 * found['value']:.1f}{interval}"


def draw_evaluation(one: Evaluation) -> Drawn:
    """One panel a measure, a group of bars a set, a bar a model with its interval."""
    data = {(theme, form): content for theme in THEMES for form, content in _bars(one, theme).items()}
    caption = "Bars: models; lines: 95 % intervals." if one.kind == "math" else "Bars: models."
    return Drawn(one.kind, one.title, caption, False, data)


def _bars(one: Evaluation, theme: str) -> dict[str, bytes]:
    from matplotlib.figure import Figure

    look = THEMES[theme]
    labels = list(next(iter(one.values.values())))
    with themed(look):
        width = min(16.0, max(7.0, 1.2 + 0.3 * len(one.columns) * (len(labels) + 1)))
        figure = Figure(figsize=(width, 2.5 * len(one.values) + 0.5), layout="constrained")
        panels = figure.subplots(len(one.values), 1, squeeze=False).flat
        for axes, (measure, models) in zip(panels, one.values.items(), strict=True):
            for place, label in enumerate(labels):
                shift = (place - (len(labels) - 1) / 2) * 0.8 / len(labels)
                bars = [(i + shift, cell) for i, name in enumerate(one.columns) if (cell := models[label][name])]
                errors = [
                    [100 * abs(cell["value"] - cell.get(end, cell["value"])) for _, cell in bars]
                    for end in ("low", "high")
                ]
                axes.bar(
                    [x for x, _ in bars],
                    [100 * cell["value"] for _, cell in bars],
                    0.8 / len(labels),
                    yerr=errors,
                    label=label,
                    color=look["colours"][place % len(look["colours"])],
                    capsize=2,
                    error_kw={"linewidth": 0.8, "ecolor": look["ink"]},
                )
            axes.set_title(MEASURES[one.kind][measure])
            axes.set_xticks(range(len(one.columns)), one.columns)
            if len(one.columns) > 6:
                axes.tick_params("x", rotation=25)
            axes.set_ylim(0, 105)
            axes.grid(axis="y")
            axes.set_axisbelow(True)
        handles = figure.axes[0].get_legend_handles_labels()
        figure.legend(*handles, loc="outside lower center", ncols=min(4, len(labels)), frameon=False)
        return written(figure)
