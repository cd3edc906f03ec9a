"""CorrGRPO (arXiv 2609.36820): GRPO with correlations in the place of covariances in the denominator."""

import torch

from ..groups import GroupSignals, normalize_groups, per_reward
from .base import Contributions, Method, MethodSettings


def corr_grpo(signals: GroupSignals, settings: MethodSettings) -> Contributions:
    """S = sum_k alpha_k · (r_k - mu_k) / sqrt(sum_kl C_kl + 1e-6) in each group, C the rewards' correlations.

    C_kl = u_k · u_l with u_k the reward's deviations from its group's mean, scaled to length 1 (0 where it is
    inactive or has priority 0). So the denominator is the length of sum_k u_k, at most K. No batch normalisation.
    Formula and 1e-6 are those of the authors' code (HKUST-KnowComp/CorrGRPO, `grpo_covariance_coefficient`); `None`,
    which it does not know, counts as the group's mean.

    Where rewards are opposed the denominator may be as small as 1e-3, and with two rollouts a group they always either
    agree or are opposed. S has the rewards' unit: neither the scale of one reward nor that of all together is taken
    off (`lacks`). As in `grpo`, `weights_K` is 1.
    """
    # In float64, as the denominator may be 1e-3. What is active is still a question of the rewards' own rounding.
    priorities_K = signals.priorities_K.double()
    groups = normalize_groups(signals.rewards_KGB.double(), 0.0, has_nan=signals.has_nan)
    unit_KGB = groups.normalized_KGB * (signals.active_KB & (priorities_K > 0).unsqueeze(1)).unsqueeze(1)
    unit_KGB = unit_KGB / (groups.scorable_KB - 1).clamp(min=1).sqrt().unsqueeze(1)
    denominator_B = (unit_KGB.sum(dim=0).square().sum(dim=0) + 1e-6).sqrt()
    scale_KB = priorities_K.unsqueeze(1) * groups.std_KB * (groups.scorable_KB - 1).clamp(min=0).sqrt()
    centered_KGB = unit_KGB * scale_KB.unsqueeze(1)

    # Where the summands cancel, rounding noise of their own size is left over.
    dtype = signals.rewards_KGB.dtype
    size_KGB = per_reward(signals.priorities_K) * signals.rewards_KGB.nan_to_num(nan=0.0).abs()
    total_1GB = centered_KGB.sum(dim=0, keepdim=True).to(dtype)
    magnitude_1B = size_KGB.amax(dim=1).sum(dim=0, keepdim=True)
    active_B = normalize_groups(total_1GB, 0.0, has_nan=False, magnitude_KB=magnitude_1B).active_KB[0]
    contributions_KGB = centered_KGB / torch.where(active_B, denominator_B, torch.inf)
    limit = torch.finfo(dtype).max / 1e6  # beyond it lies only what is beyond sense
    return Contributions(
        contributions_KGB=contributions_KGB.clamp(-limit, limit).to(dtype),
        weights_K=torch.ones_like(signals.density_K),
        batch_normalize=False,
    )


CORR_GRPO = Method(
    corr_grpo,
    paper="arXiv 2609.36820",
    equation="S = Σ αₖ(rₖ - μₖ) / √(Σₖₗ Cₖₗ + 10⁻⁶) per group, C the rewards' correlations; no batch normalisation",
    helps="rewards that say the same: their common signal is not counted twice",
    hurts="rewards in conflict: up to 1,000 times as much; a large-scale reward still rules the numerator",
    reads=(),
    lacks=("scale", "joint_scale"),
)
