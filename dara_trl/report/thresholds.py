"""When a reward reached a threshold: the rules, each on the figures that were logged. Pure functions.

A curve is (steps, values), ascending, with a value at every step in it: steps at which the figure was missing, null or
NaN are not in the curve (they carry no value, and are never taken for 0). A value reaches the threshold from
`TOLERANCE` below it on, because logs keep float32: a reward of exactly 0.7 is logged as 0.69999999.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..summary import steps_to_threshold


Curve = tuple[Sequence[int], Sequence[float]]

TOLERANCE = 1e-6


@dataclass(frozen=True)
class Reached:
    """The step at which a rule was met, or, where `reached` is False, a step that the true one lies beyond.

    A run that never gets there is censored at its last step: larger than every number, shown as "> last step".
    `held_from` is for the lasting rule: the log ended while the condition held from that step on, but too briefly.
    """

    step: float
    reached: bool = True
    held_from: int | None = None

    def __str__(self) -> str:
        text = f"{self.step:g}" if self.reached else f"> {self.step:g}"
        return text if self.held_from is None else f"{text} (held from {self.held_from})"


def _reaches(values: np.ndarray, threshold: float) -> np.ndarray:
    return values >= threshold - TOLERANCE * max(1.0, abs(threshold))


def first_step(curve: Curve, threshold: float, last_step: int) -> Reached:
    """The first step at which the value is at least the threshold."""
    steps, values = curve
    (hits,) = np.nonzero(_reaches(np.asarray(values, dtype=float), threshold))
    return Reached(steps[hits[0]]) if len(hits) else Reached(last_step, reached=False)


def lasting_step(curve: Curve, threshold: float, last_step: int, window: int = 10, stay: int = 20) -> Reached:
    """The first step from which the trailing mean is at least the threshold and stays so.

    The trailing mean at a step is over the last `window` values up to and with that step; it exists from the window-th
    value on. The rule is met at the first step s at which it is at least the threshold there and at the following
    logged values, `stay` in all with s itself. A step without a value is passed over by both: the mean reaches further
    back, and the stay goes on to the next value. If the log ends before the stay is over, the rule is not met.
    """
    steps, values = curve
    if len(values) < window:
        return Reached(last_step, reached=False)
    means = np.lib.stride_tricks.sliding_window_view(np.asarray(values, dtype=float), window).mean(axis=1)
    length = 0
    for i, holds in enumerate(_reaches(means, threshold)):
        length = length + 1 if holds else 0
        if length == stay:
            return Reached(steps[i - stay + window])
    return Reached(last_step, reached=False, held_from=steps[len(steps) - length] if length else None)


def smoothed_step(curve: Curve, threshold: float, last_step: int) -> Reached:
    """The first step at which the mean of the last 3 values is at least the threshold, as in the closing table."""
    history = [{"step": step, "rewards/r/mean": value} for step, value in zip(*curve, strict=True)]
    step = steps_to_threshold(history, "r", threshold - TOLERANCE * max(1.0, abs(threshold)))
    return Reached(last_step, reached=False) if step is None else Reached(step)


def common_steps(curves: Sequence[Curve]) -> tuple[list[int], np.ndarray]:
    """Steps at which every curve has a value, and the values (curves × steps)."""
    if not curves:
        return [], np.empty((0, 0))
    lookups = [dict(zip(*curve, strict=True)) for curve in curves]
    steps = sorted(set.intersection(*(set(lookup) for lookup in lookups)))
    return steps, np.array([[lookup[step] for step in steps] for lookup in lookups], dtype=float)


def median_step(steps: Sequence[int], values_RT: np.ndarray, threshold: float, last_step: int) -> Reached:
    """The first step at which the median over runs (rows) is at least the threshold."""
    if not len(steps):
        return Reached(last_step, reached=False)
    return first_step((steps, np.median(values_RT, axis=0)), threshold, last_step)
