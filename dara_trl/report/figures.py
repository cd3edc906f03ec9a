"""The figures of one setting, light and dark, as SVG and PNG. The same input gives the same bytes."""

import io
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from .results import Setting
from .sources import Run
from .thresholds import Curve, common_steps


if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DEFAULT_CAP = 5.0  # aggregation_max_weight
MOST_POINTS = 600  # a curve; more would only make the page heavy

# Okabe and Ito's colours, which colour-blind readers tell apart; the yellow is darkened for a light ground. A second
# round of methods is dashed.
LIGHT = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#222222", "#8f7f00")
DARK = ("#4aa8e0", "#ff8a3d", "#2fc79a", "#e39ac4", "#f2b632", "#8fd0f5", "#f0f0f0", "#d9cc3c")
STYLES = ("-", (0, (5, 1.5)), (0, (1, 1.2)))

THEMES: dict[str, dict[str, Any]] = {
    "light": {"ground": "#ffffff", "ink": "#1f2328", "faint": "#6e7781", "grid": "#d8dee4", "colours": LIGHT},
    "dark": {"ground": "#161b22", "ink": "#e6edf3", "faint": "#9da7b1", "grid": "#30363d", "colours": DARK},
}


@dataclass(frozen=True)
class Drawn:
    """One figure: its name in file names, what it shows in words, and its bytes by (theme, format)."""

    name: str
    title: str
    caption: str
    narrow: bool  # one column of panels
    data: dict[tuple[str, str], bytes]


def draw(setting: Setting) -> list[Drawn]:
    """Every figure for which the setting's runs logged something."""
    figures = []
    for name, title, caption, panels in _contents(setting):
        data = {}
        for theme in THEMES:
            for form, content in _render(setting, panels, theme).items():
                data[theme, form] = content
        figures.append(Drawn(name, title, caption, _columns(panels) == 1, data))
    return figures


@dataclass(frozen=True)
class _Panel:
    """One set of axes: for each method its curves, one a run, and what else is drawn."""

    title: str
    ylabel: str
    curves: dict[str, list[Curve]]
    lines: tuple[tuple[float, str], ...] = ()  # horizontal, with their text
    ylim: tuple[float | None, float | None] = (None, None)
    marks: dict[str, list[int]] | None = None  # steps at the cap, by method
    dots: bool = False
    nested: bool = False
    columns: int = 0  # panels in a row, 0: as many as fit


def _contents(setting: Setting) -> Iterator[tuple[str, str, str, list[_Panel]]]:
    band = (
        "Line: median over seeds, at the steps that all runs of the method logged. Band: between the quartiles over "
        "seeds (none for one seed)."
    )
    thresholds: dict[str, list[float]] = {}
    for table in setting.thresholds:
        thresholds.setdefault(table.reward, []).append(table.threshold)
    dashed = " Dashed: the threshold." if thresholds else ""
    lines = {name: tuple((x, f"{x:g}") for x in values) for name, values in thresholds.items()}

    def panels(key: str, ylabel: str, **more: Any) -> list[_Panel]:
        keys = {name: key.replace("{}", name) for name in setting.rewards}
        made = [_Panel(name, ylabel, _curves(setting, partial(Run.curve, key=keys[name])), **more) for name in keys]
        return [panel for panel in made if panel.curves]

    def with_thresholds(made: list[_Panel]) -> list[_Panel]:
        return [replace(panel, lines=lines.get(panel.title, ())) for panel in made]

    if made := with_thresholds(panels("rewards/{}/mean", "mean reward")):
        text = f"Mean of each reward over the rollouts of a step. {band}{dashed}"
        yield "rewards", "Rewards in training", text, made
    if made := with_thresholds(panels("eval_rewards/{}/mean", "mean reward, held out", dots=True)):
        text = f"Mean of each reward over the completions of an evaluation. {band}{dashed}"
        yield "held_out", "Held-out rewards", text, made
    if made := panels("dara/density/{}", "density", ylim=(-0.02, 1.04)):
        yield (
            "density",
            "Density",
            (
                "Share of all groups in which the reward tells at least two rollouts apart (active-group density). "
                + band
            ),
            made,
        )
    if made := _energy_panels(setting):
        yield (
            "energy",
            "Energy relative to the strongest reward",
            (
                "Sum of the squared group advantages of a reward, divided by that of the reward with the most at that "
                "step (the line at 1). Left: before any weight. Right: what each reward contributes after weight and "
                "priority, relative to the largest contribution. " + band
            ),
            made,
        )
    if made := _weight_panels(setting):
        yield (
            "weights",
            "Weights",
            (
                "The weight that the method gave to each reward. Dashed: the cap; the marks above it are the steps at "
                "which at least one run of that method was at the cap. " + band
            ),
            made,
        )


def _curves(setting: Setting, curve: Callable[[Run], Curve]) -> dict[str, list[Curve]]:
    curves = {label: [curve(run) for run in runs] for label, runs in setting.groups.items()}
    with_values = {label: [one for one in many if len(one[0])] for label, many in curves.items()}
    return {label: many for label, many in with_values.items() if many}


def _energy_panels(setting: Setting) -> list[_Panel]:
    panels = []
    for name in setting.rewards:
        before = _curves(setting, partial(Run.curve, key=f"dara/energy_ratio/{name}"))
        after = _curves(setting, partial(calibrated_ratio, name=name))
        if before and after:
            for text, curves in (("before calibration", before), ("after calibration", after)):
                panels.append(
                    _Panel(
                        f"{name}\n{text}",
                        "energy ratio",
                        curves,
                        lines=((1.0, ""),),
                        ylim=(-0.02, 1.08),
                        columns=2,
                        nested=True,
                    )
                )
    return panels


def calibrated_ratio(run: Run, name: str) -> Curve:
    """Calibrated energy of a reward relative to the largest of the run's rewards at each step."""
    prefix = "dara/calibrated_energy/"
    energies = [dict(zip(*run.curve(key), strict=True)) for key in run.series if key.startswith(prefix)]
    points = [
        (step, value / largest)
        for step, value in zip(*run.curve(prefix + name), strict=True)
        if (largest := max(energy.get(step, 0.0) for energy in energies)) > 0
    ]
    return [step for step, _ in points], [value for _, value in points]


def cap_of(run: Run) -> float:
    value = run.config.get("aggregation_max_weight")
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else DEFAULT_CAP


def _weight_panels(setting: Setting) -> list[_Panel]:
    panels: list[_Panel] = []
    caps = sorted({cap_of(run) for runs in setting.groups.values() for run in runs})
    for name in setting.rewards:
        curves = _curves(setting, partial(Run.curve, key=f"dara/weight/{name}"))
        marks: dict[str, list[int]] = {}
        for label, runs in setting.groups.items():
            at_cap = set()
            for run in runs:
                steps, values = run.curve(f"dara/weight_at_cap/{name}")
                at_cap |= {step for step, value in zip(steps, values, strict=True) if value > 0}
            marks[label] = sorted(at_cap)
        if curves:
            panels.append(_Panel(name, "weight", curves, ylim=(0, None), marks=marks, nested=True))
    if not panels:
        return []
    # A cap far above every weight would flatten the curves.
    top = max(max(values) for panel in panels for many in panel.curves.values() for _, values in many)
    at_cap_anywhere = any(steps for panel in panels for steps in (panel.marks or {}).values())
    lines = tuple((cap, f"cap {cap:g}") for cap in caps if at_cap_anywhere or cap <= 3 * max(top, 1.0))
    return [replace(panel, lines=lines) for panel in panels]


def _columns(panels: Sequence[_Panel]) -> int:
    return panels[0].columns or min(len(panels), 3)


@contextmanager
def themed(look: dict[str, Any]) -> Iterator[None]:
    """Matplotlib's settings for all figures of a page."""
    import matplotlib

    settings: Any = {
        "svg.hashsalt": "dara-trl",
        "svg.fonttype": "none",
        "text.parse_math": False,
        "font.family": "sans-serif",
        "font.sans-serif": ["DejaVu Sans", "Arial", "Helvetica"],
        "font.size": 9,
        "axes.titlesize": 10,
        "axes.edgecolor": look["faint"],
        "axes.facecolor": look["ground"],
        "axes.labelcolor": look["ink"],
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.linewidth": 0.8,
        "text.color": look["ink"],
        "xtick.color": look["faint"],
        "ytick.color": look["faint"],
        "xtick.labelcolor": look["ink"],
        "ytick.labelcolor": look["ink"],
        "grid.color": look["grid"],
        "grid.linewidth": 0.6,
        "figure.facecolor": look["ground"],
        "savefig.facecolor": look["ground"],
    }
    with matplotlib.rc_context(settings), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        yield


def written(figure: "Figure") -> dict[str, bytes]:
    """A figure as SVG and PNG."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    FigureCanvasAgg(figure)
    figure.draw_without_rendering()  # finds the layout, once for both formats
    figure.set_layout_engine("none")
    files = {}
    for form, metadata in (("svg", {"Date": None}), ("png", {"Software": None})):
        buffer = io.BytesIO()
        figure.savefig(buffer, format=form, dpi=200, metadata=metadata)
        files[form] = buffer.getvalue()
    return files


def _render(setting: Setting, panels: Sequence[_Panel], theme: str) -> dict[str, bytes]:
    from matplotlib.figure import Figure

    look = THEMES[theme]
    columns = _columns(panels)
    rows = -(-len(panels) // columns)
    with themed(look):
        width = {1: 5.4, 2: 8.2}.get(columns, 10.6)
        labels = [label for label in setting.groups if any(label in panel.curves for panel in panels)]
        in_a_row = _legend_columns(labels, width)
        height = 2.75 * rows + 0.35 + 0.2 * -(-len(labels) // in_a_row)
        figure = Figure(figsize=(width, height), layout="constrained")
        grid = figure.subplots(rows, columns, squeeze=False)
        for axes, panel in zip(grid.flat, panels, strict=False):
            _fill(axes, panel, list(setting.groups), look)
        for axes in grid.flat[len(panels) :]:
            axes.remove()
        _legend(figure, list(setting.groups), labels, in_a_row, look)
        return written(figure)


def style(labels: Sequence[str], label: str, look: dict[str, Any]) -> dict[str, Any]:
    i = list(labels).index(label)
    colours = look["colours"]
    return {"color": colours[i % len(colours)], "linestyle": STYLES[i // len(colours) % len(STYLES)]}


def _fill(axes: "Axes", panel: _Panel, labels: Sequence[str], look: dict[str, Any]) -> None:
    from matplotlib.ticker import MaxNLocator

    for i, (label, curves) in enumerate(panel.curves.items()):
        steps, values = common_steps(curves)
        if not steps:
            continue
        steps, values = _thinned(steps), np.take(values, _thinned(range(len(steps))), axis=1)
        drawn = style(labels, label, look)
        low, middle, high = np.percentile(values, [25, 50, 75], axis=0)
        if len(curves) > 1:
            axes.fill_between(steps, low, high, color=drawn["color"], alpha=0.16, linewidth=0)
        marker = "o" if panel.dots or len(steps) == 1 else None
        # Curves that lie on one another stay visible: the later ones are narrower.
        width = 1.7 if not panel.nested else 2.6 - 1.4 * i / max(1, len(panel.curves) - 1)
        axes.plot(steps, middle, linewidth=width, marker=marker, markersize=3.5, zorder=3 + 0.01 * i, **drawn)
    for y, text in panel.lines:
        axes.axhline(y, color=look["ink"], linewidth=1, linestyle=(0, (4, 3)), zorder=2)
        if text:
            axes.annotate(
                text,
                (1, y),
                xycoords=("axes fraction", "data"),
                xytext=(3, 0),
                textcoords="offset points",
                va="center",
                fontsize=8,
            )
    if panel.marks:
        _mark_cap(axes, panel, labels, look)
    axes.set_title(_shown(panel.title), loc="left")
    axes.set_xlabel("step")
    axes.set_ylabel(panel.ylabel)
    axes.set_ylim(*panel.ylim)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True, steps=[1, 2, 5, 10]))
    axes.grid(axis="y")
    axes.set_axisbelow(True)


def _thinned(items: Sequence[int]) -> list[int]:
    if len(items) <= MOST_POINTS:
        return list(items)
    return [items[i] for i in np.linspace(0, len(items) - 1, MOST_POINTS).round().astype(int)]


def _mark_cap(axes: "Axes", panel: _Panel, labels: Sequence[str], look: dict[str, Any]) -> None:
    """One row of marks a method above the cap."""
    marked = {label: steps for label, steps in (panel.marks or {}).items() if steps}
    if not marked or not panel.lines:
        return
    cap = max(y for y, _ in panel.lines)
    for row, (label, every) in enumerate(marked.items()):
        steps = _thinned(every)
        axes.plot(
            steps,
            [cap * (1.08 + 0.055 * row)] * len(steps),
            linestyle="none",
            marker="|",
            markersize=4.5,
            markeredgewidth=1.2,
            color=style(labels, label, look)["color"],
            zorder=4,
        )
    axes.set_yticks([tick for tick in axes.get_yticks() if tick <= cap])


def _legend_columns(labels: Sequence[str], width: float) -> int:
    """As many as fit, in rows of the same length."""
    longest = max(len(_shown(label, 32)) for label in labels)
    fit = max(1, min(len(labels), int(width * 13 / (longest + 7))))
    return -(-len(labels) // -(-len(labels) // fit))


def _legend(
    figure: "Figure", groups: Sequence[str], labels: Sequence[str], columns: int, look: dict[str, Any]
) -> None:
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], linewidth=2, **style(groups, label, look)) for label in labels]
    # Placeholders first: matplotlib leaves out a label that begins with an underscore.
    legend = figure.legend(handles, ["x"] * len(labels), loc="outside upper left", ncols=columns, frameon=False)
    for text, label in zip(legend.get_texts(), labels, strict=True):
        text.set_text(_shown(label, 32))


def _shown(name: str, width: int = 44) -> str:
    """A name as a figure can show it: no control characters, shortened, a line break kept."""
    lines = ["".join(c if c.isprintable() else " " for c in line) for line in name.split("\n")[:2]]
    return "\n".join(line if len(line) <= width else line[: width - 1] + "…" for line in lines)


def file_stem(setting: str, figure: str, taken: set[str]) -> str:
    """A file name that no other figure has, with nothing in it that a path could be made of."""
    slug = re.sub(r"[^A-Za-z0-9]+", "_", setting).strip("_")[:60] or "setting"
    stem, i = f"{slug}-{figure}", 2
    while stem.lower() in taken:
        stem, i = f"{slug}_{i}-{figure}", i + 1
    taken.add(stem.lower())
    return stem
