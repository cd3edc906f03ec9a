"""GRPO (arXiv 2402.03300): sum the rewards, then normalise the sum within its group."""

import torch

from ..groups import GroupSignals, normalize_groups, per_reward
from .base import Contributions, Method, MethodSettings


def grpo(signals: GroupSignals, settings: MethodSettings) -> Contributions:
    """S = (R - mean(R)) / (std(R) + eps) with R = sum_k alpha_k · r_k, as in TRL's `sum_then_normalize`.

    The sum is linear, so reward k contributes alpha_k · (r_k - mean(r_k)) / (std(R) + eps). A reward that does not
    apply to a rollout counts as 0 in its sum. `scale_rewards` chooses the std: the group's, the batch's, or none.

    A reward's scale is its priority, and where it does not always apply a constant added to it matters (`lacks`).
    """
    weighted_KGB = per_reward(signals.priorities_K) * signals.rewards_KGB
    if signals.has_nan:
        unscorable_GB = weighted_KGB.isnan().all(dim=0)
        weighted_KGB = weighted_KGB.nan_to_num(nan=0.0).masked_fill(unscorable_GB, torch.nan)
    total_1GB = weighted_KGB.sum(dim=0, keepdim=True)
    # Summands that cancel leave rounding noise of their own size, so a spread is measured against them.
    magnitude_1B = weighted_KGB.abs().nan_to_num(nan=0.0).amax(dim=1).sum(dim=0, keepdim=True)
    groups = normalize_groups(total_1GB, settings.eps, has_nan=signals.has_nan, magnitude_KB=magnitude_1B)

    if settings.scale_rewards == "group":
        scale_B = groups.std_KB[0] + settings.eps
    elif settings.scale_rewards == "batch":
        scored_N = total_1GB[~total_1GB.isnan()]
        std = scored_N.std() if scored_N.numel() > 1 else scored_N.new_zeros(())
        scale_B = (std + settings.eps).expand_as(groups.std_KB[0])
    else:
        scale_B = torch.ones_like(groups.std_KB[0])
    # Division, as the inverse of a tiny scale overflows; by infinity where there is no signal.
    divisor_B = torch.where(groups.active_KB[0] & (scale_B > 0), scale_B, torch.inf)
    centered_KGB = weighted_KGB - weighted_KGB.nanmean(dim=1, keepdim=True)
    return Contributions(
        contributions_KGB=(centered_KGB / divisor_B).nan_to_num(nan=0.0),
        weights_K=torch.ones_like(signals.density_K),
        batch_normalize=False,
    )


GRPO = Method(
    grpo,
    paper="arXiv 2402.03300",
    equation="S = (R - mean R) / (std R + ε) in each group, R = Σ αₖrₖ; no batch normalisation",
    helps="one reward, or rewards whose scales are their priorities",
    hurts="different combinations with one sum are one; a large-scale reward drowns the others",
    reads=("scale_rewards",),  # in training, eps is TRL's
    lacks=("scale", "shift"),
)
