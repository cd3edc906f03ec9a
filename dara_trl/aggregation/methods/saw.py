"""SAW (arXiv 2606.07705): weigh each reward by its coefficient of variation in the batch."""

import torch

from ..groups import GroupSignals, normalize_groups
from .base import Contributions, Method, MethodSettings, amplify, reward_position


def saw(signals: GroupSignals, settings: MethodSettings) -> Contributions:
    """S = sum_k alpha_k · w_k · A_k with w_k = K · CV_k / sum_l CV_l, CV_k = std / mean over the whole batch.

    Rewards are counted from their lowest possible value, so that the mean is positive; std is the sample's. All
    weights are 1 where no reward varies. Rewards of priority 0 count neither in K nor in the sum. The authors' code
    has alpha = 1 and 1e-8 in both denominators, which is left out here: it guards 0 / 0 only.
    """
    position_KGB = reward_position(signals, settings)
    num_rewards = position_KGB.shape[0]
    # The whole batch as one group: constant but for rounding is constant.
    whole = normalize_groups(position_KGB.reshape(num_rewards, -1, 1), 0.0, has_nan=signals.has_nan)
    mean_K = position_KGB.flatten(1).nanmean(dim=1)
    variation_K = torch.where(whole.active_KB[:, 0], whole.std_KB[:, 0] / mean_K, 0.0)
    counted_K = signals.priorities_K > 0
    total = (variation_K * counted_K).sum()
    weights_K = torch.where(total > 0, counted_K.sum() * variation_K / total, 1.0)
    return Contributions(amplify(signals, weights_K, positive_only=False), weights_K)


SAW = Method(
    saw,
    paper="arXiv 2606.07705",
    equation="S = Σ αₖwₖAₖ, wₖ = K·CVₖ / Σ CVₗ, CV = std / mean of the batch; batch normalisation",
    helps="a reward that is rarely earned, or mostly not yet",
    hurts="a reward near its ceiling: its failures lose weight; differences between prompts count as information",
    reads=("reward_ranges", "batch_norm", "advantage_clip", "eps"),
)
