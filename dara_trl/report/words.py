"""Numbers and findings as text, the same for the page and the terminal."""

from collections.abc import Sequence
from dataclasses import dataclass

from .results import (
    LAST_VALUES,
    RULES,
    Comparison,
    RuleTable,
    Setting,
    StepsRow,
    ThresholdTable,
    ValuesRow,
    ValuesTable,
)
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


def _p(comparison: Comparison) -> str:
    shown = p_value(comparison)
    return f"p {shown}" if shown.startswith("<") else f"p = {shown}"


def verdicts(rows: Sequence[StepsRow | ValuesRow], baseline: str | None, less: str, more: str) -> tuple[str, ...]:
    """What the test allows to say of each method; a difference is claimed from p < 0.05 on only."""
    shown: list[str] = []
    not_shown: dict[str, list[str]] = {}
    for row in rows:
        comparison = row.comparison
        if comparison is None:
            continue
        with_ratio = comparison.ratio is not None
        size = f"ratio {ratio(comparison)}" if with_ratio else f"difference {difference(comparison)}"
        if comparison.p is None:
            reason = f"Not tested, fewer than two pairs with {baseline}"
            not_shown.setdefault(reason, []).append(f"{row.label}, {size}")
        elif comparison.p < SIGNIFICANT:
            direction = less if comparison.mean_difference < 0 else more
            shown.append(
                f"{row.label}: {direction} than {baseline}, {size}, {_p(comparison)}, {comparison.pairs} pairs."
            )
        elif comparison.smallest_p is not None and comparison.smallest_p >= SIGNIFICANT:
            limit = f"{comparison.pairs} pairs cannot give a p below {comparison.smallest_p:.2g}"
            reason = f"No difference to {baseline} shown ({limit})"
            not_shown.setdefault(reason, []).append(f"{row.label}, {size}")
        else:
            reason = f"No difference to {baseline} shown ({comparison.pairs} pairs)"
            not_shown.setdefault(reason, []).append(f"{row.label}, {size}, {_p(comparison)}")
    items = shown + [f"{reason}: {'; '.join(those)}." for reason, those in not_shown.items()]
    if any(row.comparison is not None and row.comparison.censored for row in rows):
        items.append("†: with runs that did not reach it, each counted as one step after its last.")
    return tuple(items)


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
    return Finding(head, verdicts(rule.rows, baseline, "fewer steps", "more steps"))


def _values_finding(table: ValuesTable, baseline: str | None) -> Finding:
    span_text = "last evaluation" if table.which == "held-out" else f"mean of the last {LAST_VALUES} training steps"
    medians = listed([f"{row.label} {number(row.median)}" for row in table.rows])
    head = f"{table.reward} at the end ({span_text}): {medians}."
    return Finding(head, verdicts(table.rows, baseline, "lower", "higher"))


def listed(items: Sequence[str]) -> str:
    return " and ".join([", ".join(items[:-1]), items[-1]]) if len(items) > 1 else "".join(items)


def printable(text: str) -> str:
    """Without control characters, for a terminal."""
    return "".join(c if c.isprintable() else "�" for c in text)
