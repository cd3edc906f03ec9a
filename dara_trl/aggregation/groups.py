"""What every method starts from: each reward normalised within its group, and how much signal that leaves.

Inside the package a batch is laid out (K, G, B): reductions over a group then run along contiguous rows, several times
faster than over TRL's (B, G, K).
"""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor


@dataclass(frozen=True)
class GroupSignals:
    """Per-reward view of one generation batch (notation of the DARA paper, arXiv 2610.00574).

    Attributes:
        rewards_KGB: raw rewards r; NaN where a reward does not apply to a rollout.
        advantages_KGB: group advantages A = (r - mu) / (sigma + eps), clipped if the user says so; exactly 0 where a
            reward does not apply and in every inactive group.
        active_KB: True where reward k tells at least two rollouts of group i apart (I in the paper).
        scorable_KB: number of rollouts of group i to which reward k applies.
        std_KB: sample standard deviation sigma in the reward's own units; 0 in inactive groups.
        density_K: active-group density pi, the share of all B groups that are active.
        energy_K: advantage energy E, the sum of A squared over the batch. Equals B·pi·(G-1) for eps = 0 when every
            reward applies everywhere.
        priorities_K: the user's reward weights alpha.
        has_nan: whether any reward is NaN.
    """

    rewards_KGB: Tensor
    advantages_KGB: Tensor
    active_KB: Tensor
    scorable_KB: Tensor
    std_KB: Tensor
    density_K: Tensor
    energy_K: Tensor
    priorities_K: Tensor
    has_nan: bool


@dataclass(frozen=True)
class NormalizedGroups:
    """Result of `normalize_groups`; fields as in `GroupSignals`."""

    normalized_KGB: Tensor
    active_KB: Tensor
    scorable_KB: Tensor
    std_KB: Tensor


def normalize_groups(
    values_KGB: Tensor, eps: float, *, has_nan: bool, magnitude_KB: Tensor | None = None
) -> NormalizedGroups:
    """(x - mean) / (std + eps) of each channel in each group over its non-NaN rollouts; 0 where there is no signal.

    A group is active where its spread (max - min) exceeds a few roundings of its magnitude. The printed test
    `sum |A| > tau` is not used: in floating point a constant group of 0.1 has a non-zero sigma and passes it.
    Values are scaled to the size of 1 before they are squared, so that neither 1e-30 nor 1e30 under- or overflows.
    """
    num_rollouts = values_KGB.shape[1]
    if has_nan:
        high_KB = values_KGB.nan_to_num(nan=-torch.inf).amax(dim=1)
        low_KB = values_KGB.nan_to_num(nan=torch.inf).amin(dim=1)
        scorable_KGB = (~values_KGB.isnan()).to(values_KGB.dtype)
        scorable_KB = scorable_KGB.sum(dim=1)
    else:
        high_KB, low_KB = values_KGB.amax(dim=1), values_KGB.amin(dim=1)
        scorable_KB = torch.full_like(high_KB, num_rollouts)
    spread_KB = high_KB - low_KB
    if magnitude_KB is None:
        magnitude_KB = torch.maximum(high_KB.abs(), low_KB.abs())
    active_KB = spread_KB > 4 * torch.finfo(values_KGB.dtype).eps * magnitude_KB
    # Scaling by a power of two rounds nothing, so what follows rounds as TRL's own lines do. Scaling an inactive group
    # by infinity makes it exactly 0.
    unit_KB = torch.where(active_KB, power_of_two(spread_KB), torch.inf)

    x_KGB = values_KGB / unit_KB.unsqueeze(1)
    if has_nan:
        x_KGB = x_KGB.masked_fill_(scorable_KGB == 0, 0.0)
    mean_KB = x_KGB.sum(dim=1) / scorable_KB.clamp(min=1)
    x_KGB.sub_(mean_KB.unsqueeze(1))
    if has_nan:
        x_KGB.mul_(scorable_KGB)
    bessel_KB = scorable_KB / (scorable_KB - 1).clamp(min=1)
    std_KB = ((x_KGB * x_KGB).sum(dim=1) / scorable_KB.clamp(min=1) * bessel_KB).sqrt()
    x_KGB.div_(torch.where(active_KB, std_KB + eps / unit_KB, 1.0).unsqueeze(1))
    std_KB = torch.where(active_KB, std_KB * unit_KB, 0.0)
    return NormalizedGroups(x_KGB, active_KB, scorable_KB, std_KB)


def group_signals(
    rewards_NK: Tensor, num_generations: int, priorities_K: Tensor, eps: float, *, has_nan: bool
) -> GroupSignals:
    """Group advantages, activity, density and energy of every reward."""
    rewards_KGB = rewards_NK.view(-1, num_generations, rewards_NK.shape[1]).permute(2, 1, 0)
    rewards_KGB = rewards_KGB.clone(memory_format=torch.contiguous_format)  # never the caller's own memory
    groups = normalize_groups(rewards_KGB, eps, has_nan=has_nan)
    return GroupSignals(
        rewards_KGB=rewards_KGB,
        advantages_KGB=groups.normalized_KGB,
        active_KB=groups.active_KB,
        scorable_KB=groups.scorable_KB,
        std_KB=groups.std_KB,
        density_K=groups.active_KB.to(rewards_NK.dtype).mean(dim=1),
        energy_K=energy(groups.normalized_KGB),
        priorities_K=priorities_K,
        has_nan=has_nan,
    )


def clip_advantages(signals: GroupSignals, limit: float) -> GroupSignals:
    """No group advantage larger than `limit` in size."""
    clipped_KGB = signals.advantages_KGB.clamp(-limit, limit)
    return replace(signals, advantages_KGB=clipped_KGB, energy_K=energy(clipped_KGB))


def power_of_two(values: Tensor) -> Tensor:
    """A power of two near each positive value: dividing by it rounds nothing."""
    limit = math.frexp(torch.finfo(values.dtype).max)[1] - 8
    return torch.ldexp(torch.ones_like(values), torch.frexp(values)[1].clamp(-limit, limit))


def energy(channels_KGB: Tensor) -> Tensor:
    """Advantage energy of each channel: the sum of squares over the batch, shape (K,)."""
    return (channels_KGB * channels_KGB).sum(dim=(1, 2))


def per_reward(values_K: Tensor) -> Tensor:
    """(K,) as (K, 1, 1), to multiply a (K, G, B) batch."""
    return values_K.view(-1, 1, 1)
