"""Random rewards of several kinds: sparse, of a few values, dense, constant; some do not apply."""

import math
import random

import torch


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
