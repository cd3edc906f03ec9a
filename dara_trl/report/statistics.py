"""Medians with censored values, bootstrap intervals and the permutation test. Pure functions over numpy arrays.

A step that was not reached is coded as `CENSORED` plus the step that it lies beyond, so it sorts above every number.
"""

from collections.abc import Callable, Sequence
from itertools import product

import numpy as np

from .thresholds import Reached


CENSORED = 1e12
RESAMPLES = 2000
FLIPS = 20_000
EXACT_UP_TO = 16
SEED = 0

# Takes indices of runs, (resamples × size), and returns one (coded) figure for each resample.
Statistic = Callable[[np.ndarray], np.ndarray]


def code(steps: Sequence[Reached]) -> np.ndarray:
    return np.array([step.step + (0.0 if step.reached else CENSORED) for step in steps])


def decode(value: float) -> Reached:
    return Reached(float(value - CENSORED), reached=False) if value >= CENSORED else Reached(float(value))


def coded_median(values: np.ndarray) -> np.ndarray:
    """Median along the last axis, of coded values.

    Of an even number, the mean of the middle two; where the upper of them is censored no number can be given, and the
    median is "more than the lower of them" ("> 12" for 12 and "> 45"; "> 40" for "> 40" and "> 45").
    """
    ordered = np.sort(values, axis=-1)
    size = values.shape[-1]
    lower, upper = ordered[..., (size - 1) // 2], ordered[..., size // 2]
    bound = np.where(lower >= CENSORED, lower, CENSORED + lower)
    return np.where(upper >= CENSORED, np.where(size % 2, upper, bound), (lower + upper) / 2)


def median_of(values: np.ndarray) -> Statistic:
    """The median of resampled runs, each of which has one (coded) value."""
    return lambda index: coded_median(values[index])


def resamples(size: int) -> np.ndarray:
    """The same 2,000 resamples with replacement for each group of the same size."""
    return np.random.default_rng(SEED).integers(0, size, size=(RESAMPLES, size))


def interval(statistic: Statistic, size: int) -> tuple[float, float] | None:
    """Percentile bootstrap 95 % interval; its ends are values that occurred. None for fewer than two runs."""
    if size < 2:
        return None
    figures = statistic(resamples(size))
    figures = figures[~np.isnan(figures)]
    if not len(figures):
        return None
    low, high = np.percentile(figures, [2.5, 97.5], method="inverted_cdf")
    return float(low), float(high)


def permutation_test(differences: Sequence[float]) -> tuple[float | None, str]:
    """Two-sided sign-flip test on the mean paired difference: its p, and how it was found.

    All 2^n flips up to n = 16, beyond that 20,000 seeded random ones (the observed signs are counted with them).
    Differences of 0 stay in. No p for fewer than two pairs.
    """
    values = np.asarray(differences, dtype=float)
    if len(values) < 2:
        return None, "no test: fewer than two pairs"
    observed = abs(values.sum())
    slack = 1e-12 * np.abs(values).sum()  # the same sum in another order is no smaller
    if len(values) <= EXACT_UP_TO:
        signs = np.array(list(product((1.0, -1.0), repeat=len(values))))
        return float((np.abs(signs @ values) >= observed - slack).mean()), "exact"
    signs = np.random.default_rng(SEED).choice((1.0, -1.0), size=(FLIPS, len(values)))
    extreme = int((np.abs(signs @ values) >= observed - slack).sum())
    return (extreme + 1) / (FLIPS + 1), f"Monte Carlo, {FLIPS:,} flips"


def smallest_p(pairs: int) -> float:
    """The smallest p that the test can give with so many pairs."""
    return 2.0 ** (1 - pairs) if pairs <= EXACT_UP_TO else 1 / (FLIPS + 1)
