"""Middle floor: what is logged about each generation batch, and the warnings it deserves. Needs no trainer."""

import math
import warnings
from collections.abc import Callable, Sequence
from functools import partial

import torch

from .aggregation import AggregationResult


# TRL writes these columns into the completions table; a reward of the same name would overwrite one.
TABLE_COLUMNS = ("step", "prompt", "completion", "advantage", "image")


def batch_metrics(result: AggregationResult, reward_names: Sequence[str]) -> dict[str, float]:
    """Flat metrics of one generation batch, by name.

    `dara/density`, `dara/energy`, `dara/weight`, `dara/calibrated_energy`, `dara/active_groups`, `dara/applicable`,
    `dara/energy_ratio` and `dara/weight_at_cap`, each `/<reward>`, `dara/frac_groups_without_signal` and
    `dara/frac_rollouts_dropped`. The energy ratio is to the strongest reward before any weight; 0 where no reward has
    energy. Weight and calibrated energy are defined in [`AggregationResult`].
    """
    strongest = result.energy_K.max()
    columns = {
        "density": result.density_K,
        "energy": result.energy_K,
        "weight": result.weights_K,
        "calibrated_energy": result.calibrated_energy_K,
        "active_groups": result.active_BK.sum(dim=0),
        "applicable": result.applicable_K,
        "energy_ratio": torch.where(strongest > 0, result.energy_K / strongest, 0.0),
        "weight_at_cap": result.at_cap_K,
    }
    shares = [(~result.signal_B).to(strongest).mean(), result.dropped_N.to(strongest).mean()]
    # One tensor, so that a result on a GPU costs one transfer.
    table = torch.stack([column.to(strongest) for column in columns.values()])
    values = torch.cat([table.flatten(), torch.stack(shares)]).tolist()
    names = [f"dara/{column}/{name}" for column in columns for name in reward_names]
    names += ["dara/frac_groups_without_signal", "dara/frac_rollouts_dropped"]
    return dict(zip(names, values, strict=True))


class SignalWarnings:
    """Warns once each about a batch without signal, and rewards that apply nowhere, drown in rounding, or in eps.

    With eps None (a method that does not divide by each reward's own std) the last is left out.
    """

    def __init__(self, reward_names: Sequence[str], eps: float | None) -> None:
        self.reward_names = reward_names
        self.eps = eps
        self._no_signal_said = False
        self._inapplicable_said = False
        self._rounded_said = False
        self._swallowed_said = False

    def check(self, result: AggregationResult, step: int) -> None:
        """Looks at one training batch; `step` is only quoted."""
        if not self._no_signal_said and not result.signal_B.any():
            self._no_signal_said = True
            rewards_KN = result.signals.rewards_KGB.flatten(1)
            means = ", ".join(
                f"{name}={row.nanmean():.3g}" for name, row in zip(self.reward_names, rewards_KN, strict=True)
            )
            warnings.warn(
                f"Step {step}: no reward that counts told two rollouts of any prompt apart in this batch, so every "
                f"advantage is 0 and nothing was learnt from it (mean rewards: {means}). Likely causes: completions "
                "truncated at max_completion_length before they can earn a reward (see completions/clipped_ratio), a "
                "reward function that always returns the same value, or rollouts that do not differ (temperature too "
                "low). Said once; dara/frac_groups_without_signal has every step.",
                stacklevel=2,
            )
        nowhere = [name for name, share in zip(self.reward_names, result.applicable_K, strict=True) if share == 0]
        if nowhere and not self._inapplicable_said:
            self._inapplicable_said = True
            warnings.warn(
                f"Step {step}: {', '.join(nowhere)} gave None or NaN for every rollout of this batch, so it trained "
                "nothing. Said once; dara/applicable has every step.",
                stacklevel=2,
            )
        if not self._rounded_said:
            rounded_K = _rounded_groups(result)
            for name, count in zip(self.reward_names, rounded_K.tolist(), strict=True):
                if count and not self._rounded_said:
                    self._rounded_said = True
                    warnings.warn(
                        f"Step {step}: in {count} groups reward {name!r} differs by no more than four roundings of "
                        "its size, which counts as equal. If these differences mean something, take a constant off "
                        "the reward: they are small beside it. Said once.",
                        stacklevel=2,
                    )
        if not self._swallowed_said and self.eps is not None:
            for k, name in enumerate(self.reward_names):
                share = _energy_share(result, k, self.eps)
                if share < 0.9 and result.signals.priorities_K[k] > 0 and not self._swallowed_said:
                    self._swallowed_said = True
                    factor = _sufficient_factor(result, k, self.eps)
                    warnings.warn(
                        f"Step {step}: eps={self.eps:g} swallows {1 - share:.0%} of the advantage energy of reward "
                        f"{name!r}, because its values differ too little within a group. "
                        + (f"Multiply the reward by {factor:g} or more, or l" if factor < math.inf else "L")
                        + "ower aggregation_eps. Said once.",
                        stacklevel=2,
                    )


def _rounded_groups(result: AggregationResult) -> torch.Tensor:
    """Number of groups, for each reward, whose rewards differ but count as equal."""
    rewards_KGB = result.signals.rewards_KGB
    high_KB = rewards_KGB.nan_to_num(nan=-torch.inf).amax(dim=1)
    low_KB = rewards_KGB.nan_to_num(nan=torch.inf).amin(dim=1)
    return ((high_KB > low_KB) & ~result.signals.active_KB).sum(dim=1)


def _energy_share(result: AggregationResult, k: int, eps: float) -> float:
    """Energy of reward k before any clipping, as a share of what it would be with eps = 0 (1 where it has none)."""
    active_B = result.signals.active_KB[k]
    freedom_B = result.signals.scorable_KB[k][active_B].double() - 1
    std_B = result.signals.std_KB[k][active_B].double()
    possible = freedom_B.sum()
    return float((freedom_B * (std_B / (std_B + eps)).square()).sum() / possible) if possible > 0 else 1.0


def _sufficient_factor(result: AggregationResult, k: int, eps: float) -> float:
    """Smallest power of ten c for which c times the reward keeps at least 0.9 of its energy in this batch."""
    active_B = result.signals.active_KB[k]
    freedom_B = result.signals.scorable_KB[k][active_B].double() - 1
    std_B = result.signals.std_KB[k][active_B].double()
    for exponent in range(1, 40):
        scaled_B = std_B * 10.0**exponent
        if (freedom_B * (scaled_B / (scaled_B + eps)).square()).sum() >= 0.9 * freedom_B.sum():
            return 10.0**exponent
    return math.inf


def partial_name(func: Callable) -> str:
    """Name of the function that a `functools.partial` (of a partial, ...) wraps."""
    while isinstance(func, partial):
        func = func.func
    return getattr(func, "__name__", type(func).__name__)


def unique_reward_names(names: Sequence[str]) -> list[str]:
    """Names that no two rewards share: `name`, `name_2`, ... in order.

    Raises:
        ValueError: a name that would overwrite a column of the completions table.
    """
    for k, name in enumerate(names):
        if name in TABLE_COLUMNS:
            raise ValueError(
                f"Reward {k} is named {name!r}, which is a column of the completions table. Rename the function, or "
                "set its __name__."
            )
    unique: list[str] = []
    for name in names:
        candidate, suffix = name, 2
        # A later reward's own name is not taken from it: [a, a, a_2] gives [a, a_3, a_2].
        while candidate in unique or (candidate != name and candidate in names):
            candidate, suffix = f"{name}_{suffix}", suffix + 1
        unique.append(candidate)
    return unique
