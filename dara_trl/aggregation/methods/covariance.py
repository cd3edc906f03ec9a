"""Covariance-aware calibration for `dara_sym`: equal *marginal* energies, given how the rewards correlate."""

import math

import torch
from torch import Tensor

from ..groups import GroupSignals


SWEEPS, PRECISION = 1000, 1e-12


def covariance_weights(signals: GroupSignals, max_weight: float) -> tuple[Tensor, Tensor]:
    """Weights w for which each reward adds the same to the energy of S = sum_k c_k · A_k, c_k = alpha_k · w_k.

    With M_kl = sum over the batch of A_k · A_l the energy of S is sum_k c_k · (M c)_k, and the k-th summand is
    reward k's marginal energy. The weights make it alpha_k² times one constant: the equal risk contributions of
    portfolio theory. If no rewards correlate, that is w_k = sqrt(E_ref / E_k), DARA's own. Rewards that say the same
    share one weight's worth of energy; rewards that conflict are raised. The smallest w is 1, and the cap comes
    last: where it binds, the marginal energies differ. Rewards without energy or with priority 0 have w = 1.

    Ours, from no paper. Returns the weights, and where the cap held them down.
    """
    advantages_KN = signals.advantages_KGB.flatten(1).cpu().double()
    moments_KK = advantages_KN @ advantages_KN.t()
    counted = ((signals.energy_K > 0) & (signals.priorities_K > 0)).nonzero().flatten().tolist()
    size = [math.sqrt(moments_KK[k, k]) for k in counted]
    priorities = [float(signals.priorities_K[k]) for k in counted]
    correlation = [
        [float(moments_KK[k, m]) / size[i] / size[j] for j, m in enumerate(counted)] for i, k in enumerate(counted)
    ]
    x = _equal_marginal_energies(correlation, [(a / max(priorities)) ** 2 for a in priorities])
    raw = [value / a / s for value, a, s in zip(x, priorities, size, strict=True)]
    uncapped_K = torch.ones_like(signals.density_K)
    for k, weight in zip(counted, raw, strict=True):
        uncapped_K[k] = weight / min(raw)
    return uncapped_K.clamp(max=max_weight), (uncapped_K >= max_weight) & (uncapped_K > 1)


def _equal_marginal_energies(correlation: list[list[float]], budgets: list[float]) -> list[float]:
    """x > 0 with x_k · (C x)_k = b_k, by cyclical coordinate descent on the convex x'Cx/2 - sum_k b_k · ln x_k."""
    x = [math.sqrt(b) for b in budgets]
    for _ in range(SWEEPS):
        change = 0.0
        for k, row in enumerate(correlation):
            others = sum(c * v for j, (c, v) in enumerate(zip(row, x, strict=True)) if j != k)
            root = math.sqrt(others * others + 4 * budgets[k])
            # Of the two equal forms, the one that does not subtract nearly equal numbers.
            new = 2 * budgets[k] / (others + root) if others > 0 else (root - others) / 2
            change = max(change, abs(new - x[k]) / new)
            x[k] = new
        if change < PRECISION:
            break
    return x
