"""`aggregate`: from the rewards of a generation batch to one advantage per rollout."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import torch
from torch import Tensor

from .batch_norm import normalize_batch
from .groups import GroupSignals, clip_advantages, energy, group_signals
from .methods import METHODS, Contributions, MethodFunction, MethodSettings
from .settings import SETTINGS


MAX_PRIORITY = 1e6  # beyond it, energies leave float32


@dataclass(frozen=True)
class AggregationResult:
    """One generation batch, aggregated. Tensors are on the rewards' device, in their dtype or, if wider, float32.

    Attributes:
        advantages_N: what the policy gradient multiplies, in the order of the rewards' rows.
        density_K: share of all B groups in which the reward tells at least two rollouts apart.
        energy_K: sum of the squared group advantages, before any weight.
        weights_K: the weight the method gave each reward; a mean where it weighs anew in every group or rollout.
        calibrated_energy_K: energy of what the reward contributes to S, priority and weight included, before
            batch normalisation; what a conflict filter drops counts as 0, and its groups as far as they are kept.
        active_BK: True where the group is active in the reward.
        applicable_K: share of groups in which the reward applied (was not NaN) to at least one rollout.
        signal_B: True where some reward contributes to the group's S.
        at_cap_K: True where the weight stands at `max_weight`.
        dropped_N: True for rollouts that a conflict filter dropped.
        signals: the per-group ingredients of all of the above.
    """

    advantages_N: Tensor
    density_K: Tensor
    energy_K: Tensor
    weights_K: Tensor
    calibrated_energy_K: Tensor
    active_BK: Tensor
    applicable_K: Tensor
    signal_B: Tensor
    at_cap_K: Tensor
    dropped_N: Tensor
    signals: GroupSignals


@torch.no_grad()
def aggregate(
    rewards_NK: Tensor,
    *,
    num_generations: int,
    method: str | MethodFunction = "dara_asym",
    reward_weights: Sequence[float] | Tensor | None = None,
    max_weight: float = 5.0,
    static_weights: Sequence[float] | Tensor | None = None,
    reward_ranges: Sequence[Sequence[float]] | Tensor | None = None,
    saturation_exponent: float = 0.5,
    risk_aversion: float = 1.0,
    conflict_filter: str = "none",
    snr_threshold: float = 0.8,
    calibration: str = "density",
    advantage_clip: float = 0.0,
    eps: float = 1e-4,
    batch_norm: str = "sequence",
    lengths_N: Tensor | None = None,
    scale_rewards: str = "group",
    reward_names: Sequence[str] | None = None,
) -> AggregationResult:
    """Aggregate several rewards into one advantage per rollout, over one whole generation batch.

    A pure function: no state between calls, bitwise the same result for the same input. A setting that the method does
    not read (`METHODS[method].reads`) changes nothing here; `DARAGRPOConfig` refuses it.

    Args:
        rewards_NK (`torch.Tensor`): floating point, shape (N, K) with N = B·G; the G rollouts of a prompt in a row.
            NaN means that the reward does not apply to that rollout.
        num_generations (`int`): G. With G = 1 all advantages are 0.
        method (`str` or callable, *optional*, defaults to `"dara_asym"`): a name in `METHODS`, or a function of
            `(GroupSignals, MethodSettings)` that returns `Contributions`.
        reward_weights (sequence of K floats, *optional*): the user's priorities alpha, at least 0. Default: ones. A
            reward of priority 0 is measured, but neither trained on nor a standard for the others' weights.
        max_weight (`float`, *optional*, defaults to 5.0): cap of the weights, at least 1. Read by `dara_*`.
        static_weights (sequence of K floats, *optional*): the weights of `static_*`.
        reward_ranges (sequence of K pairs of floats, *optional*): the lowest and the highest possible value of each
            reward. Needed by `saw` and `sa_mrpo`; a reward outside its range is an error.
        saturation_exponent (`float`, *optional*, defaults to 0.5): gamma of `sa_mrpo`.
        risk_aversion (`float`, *optional*, defaults to 1.0): kappa of `rvpo`.
        conflict_filter (`str`, *optional*, defaults to `"none"`): with `dara_*`, drop the rollouts that `gd2po_hard`
            (`"hard"`) or `gd2po_snr` (`"snr"`) would.
        snr_threshold (`float`, *optional*, defaults to 0.8): tau of `gd2po_snr` and of `conflict_filter="snr"`.
        calibration (`str`, *optional*, defaults to `"density"`): `"covariance"` makes `dara_sym` equalise the rewards'
            marginal energies, given how they correlate.
        advantage_clip (`float`, *optional*, defaults to 0.0): largest size of a reward's group advantage A, before it
            is weighed and summed; 0 is no limit. The energy is that of the clipped advantages; density and DARA's
            weights stay as they are.
        eps (`float`, *optional*, defaults to 1e-4): added to every standard deviation. TRL has 1e-4, the published
            DARA code 1e-6, the theory 0.
        batch_norm (`str`, *optional*, defaults to `"sequence"`): `"sequence"` (TRL), `"token"` (verl, the published
            DARA and GDPO code; needs `lengths_N`) or `"none"`. `grpo` has no such stage.
        lengths_N (`torch.Tensor`, *optional*): number of trained-on completion tokens of each rollout, shape (N,).
        scale_rewards (`str`, *optional*, defaults to `"group"`): the std that `grpo` divides by: `"group"`, `"batch"`
            or `"none"`.
        reward_names (sequence of K strings, *optional*): used in error messages only.

    Returns:
        [`AggregationResult`]

    Raises:
        TypeError: an argument of the wrong type.
        ValueError: an argument out of its range; names the argument or the reward. Raised before any arithmetic.
    """
    function = _method_function(method)
    has_nan = _check_rewards(rewards_NK, num_generations, reward_names)
    num_generations = int(num_generations)
    num_rollouts, num_rewards = rewards_NK.shape
    numbers = {
        "max_weight": max_weight,
        "saturation_exponent": saturation_exponent,
        "risk_aversion": risk_aversion,
        "snr_threshold": snr_threshold,
        "advantage_clip": advantage_clip,
        "eps": eps,
    }
    words = {
        "conflict_filter": conflict_filter,
        "calibration": calibration,
        "batch_norm": batch_norm,
        "scale_rewards": scale_rewards,
    }
    _check_numbers(numbers)
    _check_words(words)
    priorities = _check_weights("reward_weights", reward_weights, num_rewards)
    static = _check_weights("static_weights", static_weights, num_rewards)
    ranges = _check_ranges(reward_ranges, rewards_NK, reward_names)
    for name in METHODS[method].needs if isinstance(method, str) else ():
        if {"static_weights": static, "reward_ranges": ranges}[name] is None:
            raise ValueError(f"method={method!r} needs {name}: {SETTINGS[name].needed}, {num_rewards} in all.")
    _check_lengths(lengths_N, num_rollouts, batch_norm)

    dtype = torch.promote_types(rewards_NK.dtype, torch.float32)
    rewards_NK = rewards_NK.to(dtype)
    signals = group_signals(
        rewards_NK,
        num_generations,
        rewards_NK.new_tensor(priorities if priorities is not None else [1.0] * num_rewards),
        float(eps),
        has_nan=has_nan,
    )
    if advantage_clip > 0 and (callable(method) or "advantage_clip" in METHODS[method].reads):
        signals = clip_advantages(signals, float(advantage_clip))
    settings = MethodSettings(
        eps=float(eps),
        max_weight=float(max_weight),
        static_weights_K=None if static is None else rewards_NK.new_tensor(static),
        reward_ranges_K2=None if ranges is None else rewards_NK.new_tensor(ranges),
        saturation_exponent=float(saturation_exponent),
        risk_aversion=float(risk_aversion),
        conflict_filter=conflict_filter,
        snr_threshold=float(snr_threshold),
        calibration=calibration,
        advantage_clip=float(advantage_clip),
        scale_rewards=scale_rewards,
    )
    out = function(signals, settings)
    if not isinstance(out, Contributions):
        raise TypeError(f"method {method!r} must return Contributions, not {type(out).__name__}.")
    if callable(method):
        _check_contributions(method, out, signals)

    largest_KB = out.contributions_KGB.abs().amax(dim=1)
    scores_GB = out.contributions_KGB.sum(dim=0) if out.scores_GB is None else out.scores_GB
    counted_N = ~rewards_NK.isnan().all(dim=1) if has_nan else None
    kept_N = None if out.kept_GB is None else out.kept_GB.t().flatten()
    if kept_N is not None:
        counted_N = kept_N if counted_N is None else kept_N & counted_N
    advantages_N = normalize_batch(
        scores_GB.t().flatten(),
        counted_N,
        largest_KB.amax(dim=1).sum(),
        batch_norm if out.batch_normalize else "none",
        settings.eps,
        lengths_N,
    )
    contributions_KGB = out.contributions_KGB
    if out.group_scale_B is not None:
        advantages_N = (advantages_N.view(-1, num_generations) * out.group_scale_B.unsqueeze(1)).flatten()
        contributions_KGB = contributions_KGB * out.group_scale_B
    return AggregationResult(
        advantages_N=advantages_N,
        density_K=signals.density_K,
        energy_K=signals.energy_K,
        weights_K=out.weights_K,
        calibrated_energy_K=energy(contributions_KGB),
        active_BK=signals.active_KB.t(),
        applicable_K=(signals.scorable_KB > 0).to(dtype).mean(dim=1),
        signal_B=largest_KB.amax(dim=0) > 0,
        at_cap_K=torch.zeros_like(out.weights_K, dtype=torch.bool) if out.at_cap_K is None else out.at_cap_K,
        dropped_N=torch.zeros_like(advantages_N, dtype=torch.bool) if kept_N is None else ~kept_N,
        signals=signals,
    )


def _check_contributions(method: MethodFunction, out: Contributions, signals: GroupSignals) -> None:
    real, (_, *shape_GB) = signals.rewards_KGB.dtype, signals.rewards_KGB.shape
    for name, wanted, dtype in (
        ("contributions_KGB", signals.rewards_KGB.shape, real),
        ("weights_K", signals.density_K.shape, real),
        ("at_cap_K", signals.density_K.shape, torch.bool),
        ("scores_GB", shape_GB, real),
        ("kept_GB", shape_GB, torch.bool),
        ("group_scale_B", shape_GB[1:], real),
    ):
        given = getattr(out, name)
        if given is None and name not in ("contributions_KGB", "weights_K"):
            continue
        if not isinstance(given, Tensor) or given.shape != torch.Size(wanted) or given.dtype != dtype:
            found = f"{tuple(given.shape)}, {given.dtype}" if isinstance(given, Tensor) else type(given).__name__
            raise ValueError(f"method {method!r} returned {name} of shape {found}, not {tuple(wanted)}, {dtype}.")
        if not torch.isfinite(given).all():
            raise ValueError(f"method {method!r} returned {name} with NaN or infinite values.")


def _method_function(method: str | MethodFunction) -> MethodFunction:
    if callable(method):
        return method
    if not isinstance(method, str) or method not in METHODS:
        raise ValueError(f"Unknown method {method!r}. Known: {', '.join(METHODS)}; or pass a function.")
    return METHODS[method].function


def _check_rewards(rewards_NK: Tensor, num_generations: int, reward_names: Sequence[str] | None) -> bool:
    """Checks the rewards and says whether any is NaN."""
    if not isinstance(rewards_NK, Tensor) or not rewards_NK.is_floating_point():
        given = rewards_NK.dtype if isinstance(rewards_NK, Tensor) else type(rewards_NK).__name__
        raise TypeError(f"rewards_NK must be a floating-point tensor of shape (N, K), not {given}.")
    if rewards_NK.ndim != 2 or 0 in rewards_NK.shape:
        raise ValueError(f"rewards_NK must have shape (N, K), at least (1, 1), not {tuple(rewards_NK.shape)}.")
    if isinstance(num_generations, bool) or not isinstance(num_generations, Integral) or num_generations < 1:
        raise ValueError(f"num_generations must be an integer of at least 1, not {num_generations!r}.")
    num_rollouts, num_rewards = rewards_NK.shape
    if num_rollouts % num_generations != 0:
        raise ValueError(
            f"rewards_NK has {num_rollouts} rows, which num_generations={num_generations} does not divide: every "
            "prompt must come with all of its rollouts."
        )
    if reward_names is not None and len(reward_names) != num_rewards:
        raise ValueError(f"reward_names has {len(reward_names)} names, but rewards_NK has {num_rewards} columns.")
    # Far enough from the computing type's largest number that spreads and sums over a group cannot overflow.
    limit = torch.finfo(torch.promote_types(rewards_NK.dtype, torch.float32)).max / 1e6
    if float(rewards_NK.abs().max()) <= limit:  # False if anything is NaN
        return False
    too_large_NK = rewards_NK.isinf() | (rewards_NK.abs() > limit)
    if too_large_NK.any():
        row, k = too_large_NK.nonzero()[0].tolist()
        name = f"Reward {k}" if reward_names is None else f"Reward {k} ({reward_names[k]!r})"
        raise ValueError(
            f"{name} is {rewards_NK[row, k].item()} for rollout {row}. Rewards must be finite, at most {limit:.1e} in "
            "size; return None (NaN in the tensor) where the reward does not apply."
        )
    return True


def _check_numbers(values: dict[str, float]) -> None:
    for name, value in values.items():
        low, high = SETTINGS[name].at_least, SETTINGS[name].at_most
        assert low is not None
        # An infinite cap is none.
        limit = high if high is not None else math.inf if name == "max_weight" else torch.finfo(torch.float32).max
        if not _is_number(value) or not low <= value <= limit:
            finite = "" if name == "max_weight" else "finite "
            wanted = f"a {finite}number of at least {low:g}" if high is None else f"a number from {low:g} to {high:g}"
            raise ValueError(f"{name} must be {wanted}, not {value!r}.")


def _check_words(values: dict[str, str]) -> None:
    for name, value in values.items():
        choices = SETTINGS[name].choices
        if value not in choices:
            raise ValueError(f"{name} must be one of {', '.join(choices)}, not {value!r}.")


def _check_ranges(
    ranges: Sequence[Sequence[float]] | Tensor | None, rewards_NK: Tensor, reward_names: Sequence[str] | None
) -> list[list[float]] | None:
    """K pairs (lowest, highest), which no reward leaves by more than four roundings of its type."""
    if ranges is None:
        return None
    num_rewards = rewards_NK.shape[1]
    pairs: Any = ranges.tolist() if hasattr(ranges, "tolist") else ranges
    if not isinstance(pairs, Sequence) or isinstance(pairs, str):
        raise TypeError(f"reward_ranges must be {num_rewards} pairs (lowest, highest), not {ranges!r}.")
    if len(pairs) != num_rewards:
        raise ValueError(f"reward_ranges has {len(pairs)} pairs, but there are {num_rewards} rewards.")
    limit = torch.finfo(torch.float32).max / 1e6
    for k, pair in enumerate(pairs):
        paired = isinstance(pair, Sequence) and not isinstance(pair, str) and len(pair) == 2
        if not paired or not all(_is_number(value) for value in pair) or not -limit <= pair[0] < pair[1] <= limit:
            raise ValueError(f"reward_ranges[{k}] must be two numbers, the lowest below the highest, not {pair!r}.")
    bounds_K2 = torch.tensor(pairs, dtype=torch.float64, device=rewards_NK.device)
    slack_K = 4 * torch.finfo(rewards_NK.dtype).eps * bounds_K2.abs().amax(dim=1)
    outside_NK = (rewards_NK < bounds_K2[:, 0] - slack_K) | (rewards_NK > bounds_K2[:, 1] + slack_K)
    if outside_NK.any():
        row, k = outside_NK.nonzero()[0].tolist()
        name = f"Reward {k}" if reward_names is None else f"Reward {k} ({reward_names[k]!r})"
        low, high = pairs[k]
        raise ValueError(
            f"{name} is {rewards_NK[row, k]:g} for rollout {row}, outside its reward_ranges, {low:g} to {high:g}"
        )
    return [[float(low), float(high)] for low, high in pairs]


def _check_weights(field: str, weights: Sequence[float] | Tensor | None, num_rewards: int) -> list[float] | None:
    if weights is None:
        return None
    values = weights.tolist() if hasattr(weights, "tolist") else weights  # a tensor or an array
    if not isinstance(values, Sequence) or isinstance(values, str):
        raise TypeError(f"{field} must be a sequence of {num_rewards} numbers, one for each reward, not {weights!r}.")
    if len(values) != num_rewards:
        raise ValueError(f"{field} has {len(values)} entries, but there are {num_rewards} rewards.")
    for k, value in enumerate(values):
        if not _is_number(value) or not 0 <= value <= MAX_PRIORITY:
            raise ValueError(f"{field}[{k}] must be a number from 0 to {MAX_PRIORITY:g}, not {value!r}.")
    return [float(value) for value in values]


def _check_lengths(lengths_N: Tensor | None, num_rollouts: int, batch_norm: str) -> None:
    if lengths_N is None:
        if batch_norm == "token":
            raise ValueError("batch_norm='token' needs lengths_N, the number of completion tokens of each rollout.")
        return
    if not isinstance(lengths_N, Tensor) or lengths_N.shape != (num_rollouts,):
        given = tuple(lengths_N.shape) if isinstance(lengths_N, Tensor) else type(lengths_N).__name__
        raise ValueError(f"lengths_N must be a tensor of shape ({num_rollouts},), one length a rollout, not {given}.")
    if not ((lengths_N >= 0) & (lengths_N < torch.inf)).all():
        raise ValueError("lengths_N must be finite and at least 0.")


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)  # numpy's scalars are Real too
