"""Means over cases with their 95 % intervals."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


RESAMPLES = 2000
SEED = 0


@dataclass(frozen=True)
class Estimate:
    """A mean, and its percentile bootstrap interval of 95 %. All in shares of 1."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{100 * self.value:.1f} ({100 * self.low:.1f} to {100 * self.high:.1f})"


def estimate(groups: Mapping[str, Sequence[float]], weights: Mapping[str, float] | None = None) -> Estimate:
    """The mean over groups of each group's mean; one group gives a plain mean. `weights` have the sum 1.

    The cases of each group are drawn again with replacement, 2,000 times with a fixed seed. A case is a problem, whose
    value is already the mean over its samples.

    Raises:
        ValueError: a group is empty, or there is none.
    """
    import numpy as np

    if not groups or not all(len(values) for values in groups.values()):
        raise ValueError("Every group needs at least one case.")
    generator = np.random.default_rng(SEED)
    resampled = np.zeros(RESAMPLES)
    shares = {name: 1 / len(groups) if weights is None else weights[name] for name in groups}
    for name, values in groups.items():
        cases = np.asarray(values, dtype=float)
        for start in range(0, RESAMPLES, 200):  # 200 at a time: a set of 5,000 problems needs 8 MB
            drawn = generator.integers(len(cases), size=(200, len(cases)))
            resampled[start : start + 200] += shares[name] * cases[drawn].mean(axis=1)
    low, high = np.quantile(resampled, [0.025, 0.975])
    value = sum(shares[name] * float(np.mean(values)) for name, values in groups.items())
    return Estimate(value, float(low), float(high))
