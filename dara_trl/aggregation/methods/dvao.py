"""DVAO (arXiv 2605.25604): weigh each reward by its share of the group's standard deviations."""

import torch

from ..groups import GroupSignals, normalize_groups
from .base import Contributions, Method, MethodSettings, mean_over_active


def dvao(signals: GroupSignals, settings: MethodSettings) -> Contributions:
    """S = sum_k alpha_k · (r_k - mu_k) / sum_l alpha_l · sigma_l in each group; sigma is the population std.

    That is sum_k w_k · Z_k with Z_k = (r_k - mu_k) / sigma_k and w_k = alpha_k · sigma_k / sum_l alpha_l · sigma_l.
    No batch normalisation. The paper's alpha is 1/K, which is the same as any equal priorities. The published 1e-8 in
    the denominator is left out: where no reward is active S is 0 anyway, and rewards of any scale come out the same.

    Scaling one reward changes its weight: its scale is its priority (`lacks`). `weights_K` is the mean of w over the
    groups in which the reward is active.
    """
    groups = normalize_groups(signals.rewards_KGB, 0.0, has_nan=signals.has_nan)
    population_KB = ((groups.scorable_KB - 1) / groups.scorable_KB.clamp(min=1)).clamp(min=0).sqrt()
    priorities_K = signals.priorities_K / signals.priorities_K.max().clamp(min=1e-30)
    spread_KB = priorities_K.unsqueeze(1) * groups.std_KB * population_KB
    total_B = spread_KB.sum(dim=0)
    weights_KB = spread_KB / torch.where(total_B > 0, total_B, torch.inf)
    gain_KB = weights_KB / population_KB.masked_fill(population_KB == 0, 1.0)
    return Contributions(
        contributions_KGB=groups.normalized_KGB * gain_KB.unsqueeze(1),
        weights_K=mean_over_active(weights_KB, signals),
        batch_normalize=False,
    )


DVAO = Method(
    dvao,
    paper="arXiv 2605.25604",
    equation="S = Σ αₖ(rₖ - μₖ) / Σ αₗσₗ in each group, σ with divisor n; no batch normalisation",
    helps="noise of nearly constant rewards; |S| ≤ √(G - 1)",
    hurts="a reward on a small scale is drowned, as in `grpo`",
    reads=(),
    lacks=("scale",),
)
