"""DARA (arXiv 2610.00574): weigh each reward by how rarely its groups are active in this batch."""

import torch
from torch import Tensor

from ..groups import GroupSignals
from .base import Contributions, Method, MethodSettings, amplify
from .covariance import covariance_weights
from .gd2po import filter_conflicts


def density_weights(density_K: Tensor, priorities_K: Tensor, max_weight: float) -> tuple[Tensor, Tensor]:
    """w_k = min(w_max, sqrt(pi_ref / pi_k)), 1 where pi_k = 0, and where the cap held it down.

    pi_ref is the largest density of a reward that is trained on: one of priority 0 is only watched and sets no
    standard (the paper has positive priorities only).
    """
    reference = torch.where(priorities_K > 0, density_K, 0.0).max()
    uncapped_K = torch.where(density_K > 0, (reference / density_K).sqrt(), 1.0).clamp(min=1.0)
    return uncapped_K.clamp(max=max_weight), (uncapped_K >= max_weight) & (uncapped_K > 1)


def _dara(signals: GroupSignals, settings: MethodSettings, *, positive_only: bool) -> Contributions:
    if settings.calibration == "covariance" and not positive_only:
        weights_K, at_cap_K = covariance_weights(signals, settings.max_weight)
    else:
        weights_K, at_cap_K = density_weights(signals.density_K, signals.priorities_K, settings.max_weight)
    out = Contributions(amplify(signals, weights_K, positive_only=positive_only), weights_K, at_cap_K=at_cap_K)
    if settings.conflict_filter == "none":
        return out
    return filter_conflicts(signals, out, settings, settings.conflict_filter)  # the weights are the whole batch's


def dara_sym(signals: GroupSignals, settings: MethodSettings) -> Contributions:
    """S = sum_k alpha_k · w_k · A_k: every reward gets the energy of the densest one, until the cap.

    With `calibration="covariance"` the weights are those of `covariance_weights`.
    """
    return _dara(signals, settings, positive_only=False)


def dara_asym(signals: GroupSignals, settings: MethodSettings) -> Contributions:
    """S = sum_k alpha_k · (A_k + (w_k - 1) · max(A_k, 0)): only what a rare reward praises is amplified.

    The energy is bounded, not equalised: E_k <= calibrated energy <= w_k² · E_k for alpha_k = 1.
    """
    return _dara(signals, settings, positive_only=True)


_READS = ("max_weight", "conflict_filter", "snr_threshold", "batch_norm", "advantage_clip", "eps")

DARA_SYM = Method(
    dara_sym,
    paper="arXiv 2610.00574",
    equation="S = Σ αₖwₖAₖ, wₖ = min(w_max, √(π_ref / πₖ)); batch normalisation",
    helps="a reward that tells rollouts apart in few groups",
    hurts="rare noise is amplified like rare signal; little to gain in large groups",
    reads=("calibration", *_READS),
)
DARA_ASYM = Method(
    dara_asym,
    paper="arXiv 2610.00574",
    equation="S = Σ αₖ(Aₖ + (wₖ - 1)·max(Aₖ, 0)), the same w; batch normalisation",
    helps="the same, and rare failures are not punished harder",
    hurts="near saturation most of the boost is missing, as what is rare is then a failure",
    reads=_READS,
)
