"""The HTML page: one file that needs no network, with the figures inside. Every text in it is escaped."""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import _version
from . import statistics, words
from .evaluations import Evaluation
from .figures import MOST_POINTS, Drawn
from .results import LAST_VALUES, RULES, Options, Setting
from .thresholds import TOLERANCE


@dataclass(frozen=True)
class Section:
    """A setting, its figures, and the file name of each figure by its name."""

    result: Setting
    figures: Sequence[Drawn]
    files: Mapping[str, str]


def render(
    sections: Sequence[Section],
    notes: Sequence[str],
    options: Options,
    evaluations: Sequence[tuple[Evaluation, Drawn, str]] = (),
) -> str:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    rewards = list(dict.fromkeys(name for section in sections for name in section.result.rewards))
    runs = [run for section in sections for group in section.result.groups.values() for run in group]
    return environment.get_template("page.html.j2").render(
        title=f"Training with {words.listed(rewards)}",
        run_count=len(runs),
        settings=[
            {
                "result": section.result,
                "findings": words.findings(section.result),
                "figures": [_embedded(figure, section.files[figure.name]) for figure in section.figures],
            }
            for section in sections
        ],
        page_notes=notes,
        evaluations=[
            {
                "title": one.title,
                "lead": one.lead,
                "notes": one.notes,
                "tables": one.tables,
                "figure": _embedded(figure, file),
            }
            for one, figure, file in evaluations
        ],
        rule_names=RULES,
        rule_captions=captions(options),
        definitions=definitions(options),
        last_values=LAST_VALUES,
        version=_version.__version__,
        string=str,
        number=words.number,
        span=words.span,
        difference=words.difference,
        ratio=words.ratio,
        p_value=words.p_value,
    )


def _embedded(figure: Drawn, file: str) -> dict[str, Any]:
    def url(theme: str) -> str:
        return "data:image/svg+xml;base64," + base64.b64encode(figure.data[theme, "svg"]).decode()

    return {
        "title": figure.title,
        "caption": figure.caption,
        "light": url("light"),
        "dark": url("dark"),
        "file": file,
        "narrow": figure.narrow,
    }


def captions(options: Options) -> dict[str, str]:
    return {
        "median": "First step at which the median over seeds is at least the threshold. Difference and p are over "
        "each seed's own first step; the ratio is of the steps shown, over paired seeds.",
        "lasting": f"First step from which the mean of the last {options.window} values is at least the threshold for "
        f"{options.stay} values in a row; median over seeds.",
        "smoothed": "First step at which the mean of the last 3 values is at least the threshold; median over seeds.",
        "held_out": "First evaluation at which the held-out mean is at least the threshold; median over seeds.",
    }


def definitions(options: Options) -> list[tuple[str, str]]:
    window, stay = options.window, options.stay
    return [
        (
            "Values",
            "Training values are each reward's mean over the rollouts of a logged step; held-out values those of an "
            "evaluation. NaN, null and missing values are no value at that step, never 0. A value counts as at least "
            f"the threshold from {TOLERANCE:g} (relative, above 1) below it on, because logs keep 32-bit numbers.",
        ),
        (
            "Median rule",
            "The first step at which the median over the seeds of a method is at least the threshold. Only steps at "
            "which every run of the method has a value count. Beside it, for each seed, the first step at which that "
            "seed's value is at least the threshold.",
        ),
        (
            "Lasting rule",
            f"For each seed, the first logged step at which the mean over the last {window} values is at least the "
            f"threshold, there and at the following values, {stay} in all. Steps without a value are passed over: the "
            "mean reaches further back, and the stay goes on to the next value. If the log ends before the stay is "
            "over, the threshold is not reached; “held from” then names the step from which it held when the log "
            "ended, and a longer run might have given that step. Then the median over seeds.",
        ),
        (
            "Smoothed rule",
            "For each seed, the first step at which the mean of the last 3 values is at least the threshold. Then the "
            "median over seeds.",
        ),
        (
            "Held-out rule",
            "For each seed, the first evaluation at which the held-out mean is at least the threshold; it can be no "
            "finer than the evaluations are. Then the median over seeds. Shown where runs have evaluations.",
        ),
        (
            "Not reached",
            "“> 60” means not reached by the last step, 60. Such a run stays in: it counts as larger than every "
            "number. Of an even number of seeds, the median is the mean of the middle two; where the upper was not "
            "reached it is “>” and the lower one.",
        ),
        (
            "95 % interval",
            f"Percentile bootstrap over seeds, {statistics.RESAMPLES:,} resamples with a fixed seed, the same ones "
            "for groups of the same size. With few seeds (fewer than about 8) such an interval is too narrow; for one "
            "seed there is none.",
        ),
        (
            "Difference, ratio and p",
            "Against the baseline, over the seeds that both have in the same setting. Both runs of a pair are cut at "
            "the last step that both logged (for the median rule's ratio, all runs at the last step that all logged), "
            "and a threshold not reached until then counts as one step more (†). The difference is the median of the "
            "paired differences, negative for fewer steps or a lower value. The ratio is of the two medians; “<” or "
            "“>” says that a median was not reached, so that the ratio is a bound. By "
            "the lasting rule it is no bound, since the log may have ended before the stay did. p is of the two-sided "
            f"sign-flip permutation test on the mean paired difference: all flips to {statistics.EXACT_UP_TO} pairs, "
            f"{statistics.FLIPS:,} random ones (Monte Carlo, fixed seed) beyond. n pairs cannot give a p below "
            "2/2^n. “No difference shown” is no proof that there is none. p values are not corrected for the number "
            "of comparisons on this page.",
        ),
        (
            "Density, energy, weight",
            "Density: the share of all groups in which a reward tells at least two rollouts apart. Energy: the sum of "
            "the squared group advantages; relative to the strongest reward before any weight, and relative to the "
            "largest contribution after weight and priority. Weight: what the method multiplies a reward's advantages "
            "with, at most the cap.",
        ),
        (
            "Figures",
            f"Curves of more than {MOST_POINTS} steps are drawn through evenly spaced ones. The tables use all steps.",
        ),
    ]
