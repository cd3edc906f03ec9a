"""Random rewards of several kinds: sparse, of a few values, dense, constant; some do not apply. What methods need."""

import math
import random

import torch

from dara_trl import METHODS


def random_rewards(rng: random.Random, groups: int, size: int, num_rewards: int, none_rate: float) -> list[list]:
    kinds = [
        lambda: float(rng.random() < 0.2),
        lambda: rng.choice([-3.0, -0.5, 0.75, 3.0]),
        lambda: rng.gauss(0, 1),
        lambda: 0.3,
    ]
    return [
        [None if rng.random() < none_rate else kinds[k % 4]() for k in range(num_rewards)]
        for _ in range(groups * size)
    ]


def tensor(rewards: list[list]) -> torch.Tensor:
    return torch.tensor([[math.nan if r is None else r for r in row] for row in rewards], dtype=torch.float64)


STATIC = [1.0, 5.0, 2.0, 3.0]


def options(method: str, rewards_NK: torch.Tensor) -> dict:
    """What the method cannot do without: weights, and as ranges those of the data."""
    give = {"static_weights": lambda: STATIC[: rewards_NK.shape[1]], "reward_ranges": lambda: ranges(rewards_NK)}
    return {name: give[name]() for name in METHODS[method].needs}


def ranges(rewards_NK: torch.Tensor) -> list[tuple[float, float]]:
    pairs = []
    for column in rewards_NK.double().t():
        values = column[~column.isnan()]
        low, high = (float(values.min()), float(values.max())) if len(values) else (0.0, 1.0)
        if low == high:
            low, high = (min(low, 0.0), max(high, 0.0)) if low else (0.0, 1.0)
        pairs.append((low, high))
    return pairs
