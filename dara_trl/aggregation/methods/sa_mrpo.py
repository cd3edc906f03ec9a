"""SA-MRPO (arXiv 2608.16072): weigh each reward by how far it is from its ceiling."""

from ..groups import GroupSignals
from .base import Contributions, Method, MethodSettings, amplify, reward_position


def sa_mrpo(signals: GroupSignals, settings: MethodSettings) -> Contributions:
    """S = sum_k alpha_k · (1 - s_k)^gamma · A_k, s_k = (batch mean - lowest) / (highest - lowest possible value).

    gamma = 0 is `gdpo`. The paper has no code.
    """
    saturation_K = reward_position(signals, settings).flatten(1).nanmean(dim=1).nan_to_num(nan=0.0)
    weights_K = (1 - saturation_K).clamp(min=0) ** settings.saturation_exponent
    return Contributions(amplify(signals, weights_K, positive_only=False), weights_K)


SA_MRPO = Method(
    sa_mrpo,
    paper="arXiv 2608.16072",
    equation="S = Σ αₖ(1 - sₖ)^γ Aₖ, sₖ = (mean - lowest) / (highest - lowest); batch normalisation",
    helps="an easy reward that is nearly solved leaves the update to the hard one",
    hurts="a solved reward may be unlearnt; a ceiling that cannot be reached",
    reads=("reward_ranges", "saturation_exponent", "batch_norm", "advantage_clip", "eps"),
)
