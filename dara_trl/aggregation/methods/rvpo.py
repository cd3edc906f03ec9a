"""RVPO (arXiv 2605.05750): a soft minimum over the rewards in the place of their mean."""

import torch

from ..groups import GroupSignals, per_reward
from .base import Contributions, Method, MethodSettings, mean_over_active


def rvpo(signals: GroupSignals, settings: MethodSettings) -> Contributions:
    """S = -(1/kappa) · ln(sum_k a_k · exp(-kappa · A_k)), a_k = alpha_k / sum_l alpha_l; kappa < 1e-6 is the mean.

    The paper has alpha = 1 and raises kappa from 0.5 to 2 over the training; here it is constant, as no state is
    kept between steps. A reward that does not apply, or is inactive, counts with A = 0: so a reward that is the same
    for all rollouts changes S (`lacks`).

    S is not a sum. As its contribution a reward is given p_k · A_k, with p_k = dS/dA_k its share in the soft minimum
    (these shares sum to 1); `weights_K` is the mean of p_k / a_k over the rollouts of its active groups: 1 as in the
    mean, more where the reward is the one that fails.
    """
    kappa = settings.risk_aversion if settings.risk_aversion >= 1e-6 else 0.0
    advantages_KGB = signals.advantages_KGB
    counted_K = signals.priorities_K > 0
    shares_K = signals.priorities_K / signals.priorities_K.max().clamp(min=1e-30)
    shares_K = shares_K / shares_K.sum().clamp(min=1e-30)
    lowest_GB = advantages_KGB.masked_fill(~per_reward(counted_K), torch.inf).amin(dim=0)
    lowest_GB = torch.where(counted_K.any(), lowest_GB, 0.0)
    # From the lowest upwards, so that exp cannot overflow.
    above_KGB = (advantages_KGB - lowest_GB) * per_reward(counted_K)
    if kappa == 0:
        mean_above_GB = (per_reward(shares_K) * above_KGB).sum(dim=0)
        relative_KGB = torch.ones_like(above_KGB)
    else:
        # expm1 and log1p are exact where the logarithm is near 0, logsumexp where a tiny share has the lowest.
        decay_GB = (per_reward(shares_K) * torch.expm1(-kappa * above_KGB)).sum(dim=0)
        logarithm_GB = torch.logsumexp(per_reward(shares_K.log()) - kappa * above_KGB, dim=0)
        logarithm_GB = torch.where(decay_GB > -0.5, torch.log1p(decay_GB), logarithm_GB)
        mean_above_GB = -logarithm_GB / kappa
        relative_KGB = torch.exp(-kappa * above_KGB - logarithm_GB)
    relative_KGB = relative_KGB * per_reward(counted_K)
    return Contributions(
        contributions_KGB=per_reward(shares_K) * relative_KGB * advantages_KGB,
        weights_K=mean_over_active(relative_KGB.mean(dim=1), signals),
        scores_GB=lowest_GB + mean_above_GB,
    )


RVPO = Method(
    rvpo,
    paper="arXiv 2605.05750",
    equation="S = -(1/κ) ln(Σ αₖ exp(-κAₖ) / Σ αₗ), batch normalisation",
    helps="constraints that must all hold: a success cannot make up for a failure",
    hurts="what is rare and good in one reward alone is hardly praised; every further reward dilutes the others",
    reads=("risk_aversion", "batch_norm", "advantage_clip", "eps"),
    lacks=("dead",),
)
