"""GDPO (arXiv 2601.05242): normalise each reward within its group, then sum."""

import torch

from ..groups import GroupSignals, per_reward
from .base import Contributions, Method, MethodSettings


def gdpo(signals: GroupSignals, settings: MethodSettings) -> Contributions:
    """S = sum_k alpha_k · A_k."""
    return Contributions(
        contributions_KGB=per_reward(signals.priorities_K) * signals.advantages_KGB,
        weights_K=torch.ones_like(signals.density_K),
    )


GDPO = Method(
    gdpo,
    paper="arXiv 2601.05242",
    equation="S = Σ αₖAₖ, batch normalisation",
    helps="rewards on different scales; combinations that a sum cannot tell apart",
    hurts="a reward active in few groups has little energy",
    reads=("batch_norm", "advantage_clip", "eps"),
)
