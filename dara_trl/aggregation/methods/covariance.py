"""Covariance-aware calibration for `dara_sym`: equal *marginal* energies, given how the rewards correlate."""

import torch
from torch import Tensor

from ..groups import GroupSignals


RIDGE = 1e-9
HIGHEST = 1e6  # a larger weight would leave float32, if there is no cap
STEPS, PRECISION = 100, 1e-12


def covariance_weights(signals: GroupSignals, max_weight: float) -> tuple[Tensor, Tensor]:
    """Weights w for which each reward adds the same to the energy of S = sum_k c_k · A_k, c_k = alpha_k · w_k.

    With M_kl = sum over the batch of A_k · A_l the energy of S is sum_k c_k · (M c)_k, and the k-th summand is
    reward k's marginal energy. The weights make it alpha_k² times one constant: the equal risk contributions of
    portfolio theory. If no rewards correlate, that is w_k = sqrt(E_ref / E_k), DARA's own. Rewards that say the same
    share one weight's worth of energy; rewards that conflict are raised. M_kk counts 1e-9 more, as there is no
    solution if some rewards cancel. The smallest w is 1, and the cap comes last: where it binds, the marginal
    energies differ. Rewards without energy or with priority 0 have w = 1.

    Ours, from no paper. Returns the weights, and where the cap held them down.
    """
    counted_K = ((signals.energy_K > 0) & (signals.priorities_K > 0)).cpu()
    uncapped_K = torch.ones_like(signals.density_K)
    if counted_K.any():
        advantages_KN = signals.advantages_KGB.flatten(1).cpu().double()[counted_K]
        priorities_K = signals.priorities_K.cpu().double()[counted_K]
        length_K = advantages_KN.norm(dim=1)
        unit_KN = advantages_KN / length_K.unsqueeze(1)
        x_K = _equal_marginal_energies(unit_KN @ unit_KN.t(), (priorities_K / priorities_K.max()).square())
        raw_K = x_K / priorities_K / length_K
        uncapped_K[counted_K.to(uncapped_K.device)] = (raw_K / raw_K.min()).clamp(max=HIGHEST).to(uncapped_K)
    return uncapped_K.clamp(max=max_weight), (uncapped_K >= max_weight) & (uncapped_K > 1)


def _equal_marginal_energies(correlation_KK: Tensor, budgets_K: Tensor) -> Tensor:
    """The x > 0 with x_k · (C x)_k = b_k: Newton's method on the convex x'Cx/2 - sum_k b_k · ln x_k."""
    correlation_KK = correlation_KK + RIDGE * torch.eye(len(budgets_K)).to(correlation_KK)

    def value(x_K: Tensor) -> float:
        return float(x_K @ correlation_KK @ x_K / 2 - (budgets_K * x_K.log()).sum())

    x_K = budgets_K.sqrt()
    for _ in range(STEPS):
        gradient_K = correlation_KK @ x_K - budgets_K / x_K
        step_K = torch.linalg.solve(correlation_KK + torch.diag(budgets_K / x_K.square()), gradient_K)
        decrease = float(gradient_K @ step_K)
        length = min(1.0, 0.9 / max(0.9, float((step_K / x_K).max())))  # x stays positive
        near = decrease < 1e-3 * float(budgets_K.min())  # Newton's full steps converge; values differ by rounding only
        while not near and length > 1e-10 and value(x_K - length * step_K) > value(x_K) - length * decrease / 4:
            length /= 2
        x_K = x_K - length * step_K
        if decrease < PRECISION * float(budgets_K.min()):
            break
    return x_K
