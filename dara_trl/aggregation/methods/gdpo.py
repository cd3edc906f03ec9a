"""GDPO (arXiv 2601.05242): normalise each reward within its group, then sum."""

import torch

from ..groups import GroupSignals, per_reward
from .base import Contributions, MethodSettings


def gdpo(signals: GroupSignals, settings: MethodSettings) -> Contributions:
    """S = sum_k alpha_k · A_k."""
    return Contributions(
        contributions_KGB=per_reward(signals.priorities_K) * signals.advantages_KGB,
        weights_K=torch.ones_like(signals.density_K),
    )
