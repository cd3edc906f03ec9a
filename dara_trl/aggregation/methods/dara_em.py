"""Energy-matched, re-centred asymmetric DARA: our own repair of the published asymmetric form (docs/dara_em.md)."""

import torch

from ..groups import GroupSignals, energy, per_reward
from .base import Contributions, MethodSettings


def dara_em(signals: GroupSignals, settings: MethodSettings) -> Contributions:
    """S = sum_k alpha_k · (A_k + (w_k - 1) · (max(A_k, 0) - its group's mean)).

    w_k = clip(sqrt(max(0, E_ref - E_k⁻) / E_k⁺), 1, w_max), with E_k^± the energies of A_k's positive and negative
    parts and E_ref the largest energy of a reward that is trained on. Below the cap the amplified channel, before its
    group means are taken off, has the energy E_ref exactly. Without the means no group's boost is charged to the
    other groups by the batch normalisation.
    """
    positive_KGB = signals.advantages_KGB.clamp(min=0)
    positive_energy_K = energy(positive_KGB)
    negative_energy_K = energy(signals.advantages_KGB.clamp(max=0))
    reference = torch.where(signals.priorities_K > 0, signals.energy_K, 0.0).max()
    room_K = (reference - negative_energy_K).clamp(min=0)
    uncapped_K = torch.where(positive_energy_K > 0, (room_K / positive_energy_K).sqrt(), 1.0).clamp(min=1.0)
    weights_K = uncapped_K.clamp(max=settings.max_weight)

    # Only the boost is centred: A has no group mean, and a weight of 1 then leaves it bit for bit.
    mean_KB = positive_KGB.sum(dim=1) / signals.scorable_KB.clamp(min=1)
    boost_KGB = (positive_KGB - mean_KB.unsqueeze(1)).mul_(per_reward(weights_K - 1))
    if signals.has_nan:
        boost_KGB.masked_fill_(signals.rewards_KGB.isnan(), 0.0)
    return Contributions(
        contributions_KGB=boost_KGB.add_(signals.advantages_KGB).mul_(per_reward(signals.priorities_K)),
        weights_K=weights_K,
        at_cap_K=(uncapped_K >= settings.max_weight) & (uncapped_K > 1),
    )
