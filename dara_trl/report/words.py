"""Numbers and findings as text, the same for the page and the terminal."""

from collections.abc import Sequence
from dataclasses import dataclass

from .results import LAST_VALUES, RULES, Comparison, RuleTable, Setting, ThresholdTable, ValuesTable
from .thresholds import Reached


SIGNIFICANT = 0.05


@dataclass(frozen=True)
class Finding:
    """A sentence, and one more for each method that is compared to the baseline."""

    head: str
    items: tuple[str, ...]


def number(value: float) -> str:
    text = f"{value:.3g}"
    return ("0" if float(text) == 0 else text).replace("-", "\N{MINUS SIGN}")


def signed(value: float) -> str:
    return number(value) if value <= 0 else f"+{number(value)}"


def span(ends: tuple[float, float] | tuple[Reached, Reached] | None) -> str:
    if ends is None:
        return "\N{EN DASH}"
    low, high = (str(end) if isinstance(end, Reached) else number(end) for end in ends)
    return low if low == high and low.startswith(">") else f"{low} to {high}"


def p_value(comparison: Comparison) -> str:
    if comparison.p is None:
        return "no test"
    shown = "< 0.0001" if comparison.p < 0.0001 else f"{comparison.p:.2g}"
    return shown if comparison.test == "exact" else f"{shown} (Monte Carlo)"


def ratio(comparison: Comparison) -> str:
    if comparison.ratio is None:
        return "\N{EN DASH}"
    dagger = " †" if comparison.censored else ""
    ends = f" ({span(comparison.ratio_interval)})" if comparison.ratio_interval else ""
    return f"{comparison.bound}{' ' if comparison.bound else ''}{number(comparison.ratio)}{ends}{dagger}"


def difference(comparison: Comparison) -> str:
    ends = f" ({span(comparison.difference_interval)})" if comparison.difference_interval else ""
    dagger = " †" if comparison.censored else ""
    return f"{signed(comparison.median_difference)}{ends}{dagger}"


def verdict(comparison: Comparison, less: str, more: str) -> str:
    """What the test allows to say; a difference is claimed from p < 0.05 on only."""
    if comparison.p is None:
        return "no test with one pair, so no difference is claimed"
    p = p_value(comparison)
    p = f"p {p}" if p.startswith("<") else f"p = {p}"
    pairs = f"{comparison.pairs} pairs"
    if comparison.p < SIGNIFICANT:
        return f"{less if comparison.mean_difference < 0 else more} ({p}, {pairs})"
    if comparison.smallest_p is not None and comparison.smallest_p >= SIGNIFICANT:
        return f"no difference shown ({p}; {pairs} cannot give less than {comparison.smallest_p:.2g})"
    return f"no difference shown ({p}, {pairs})"


def findings(setting: Setting) -> list[Finding]:
    """The tables of one setting in sentences: the thresholds by each rule, then the final values."""
    found = []
    for table in setting.thresholds:
        for rule in table.rules:
            if rule.rule != "smoothed":
                found.append(_threshold_finding(table, rule, setting.baseline))
    for values in setting.values:
        found.append(_values_finding(values, setting.baseline))
    return found


def _threshold_finding(table: ThresholdTable, rule: RuleTable, baseline: str | None) -> Finding:
    reached = sorted((row for row in rule.rows if row.result.reached), key=lambda row: row.result.step)
    missed = [row for row in rule.rows if not row.result.reached]
    head = f"{table.reward} ≥ {table.threshold:g}, {RULES[rule.rule]}: "
    if not reached:
        head += f"no method reached it ({listed([f'{row.label} {row.result}' for row in missed])})."
    else:
        first = [row.label for row in reached if row.result.step == reached[0].result.step]
        others = [f"{row.label} {row.result}" for row in reached[len(first) :]]
        only = len(rule.rows) == 1
        head += f"{listed(first)} {'at' if only else 'first, at'} step {reached[0].result}"
        head += f"; then {listed(others)}." if others else "."
        if missed:
            head += f" Not reached: {listed([f'{row.label} ({row.result})' for row in missed])}."
    items = []
    for row in rule.rows:
        if (comparison := row.comparison) is not None:
            times = f"{ratio(comparison)} times the steps of {baseline}, " if comparison.ratio is not None else ""
            text = f"{row.label}: {times}{verdict(comparison, 'fewer steps', 'more steps')}"
            if comparison.censored:
                text += f"; † {comparison.censored} of {2 * comparison.pairs} runs not there, counted as last step + 1"
            items.append(text + ".")
    return Finding(head, tuple(items))


def _values_finding(table: ValuesTable, baseline: str | None) -> Finding:
    span_text = "last evaluation" if table.which == "held-out" else f"mean of the last {LAST_VALUES} training steps"
    medians = listed([f"{row.label} {number(row.median)}" for row in table.rows])
    items = [
        f"{row.label}: {difference(row.comparison)} to {baseline}, {verdict(row.comparison, 'lower', 'higher')}."
        for row in table.rows
        if row.comparison is not None
    ]
    return Finding(f"{table.reward} at the end ({span_text}): {medians}.", tuple(items))


def listed(items: Sequence[str]) -> str:
    return " and ".join([", ".join(items[:-1]), items[-1]]) if len(items) > 1 else "".join(items)


def printable(text: str) -> str:
    """Without control characters, for a terminal."""
    return "".join(c if c.isprintable() else "�" for c in text)
