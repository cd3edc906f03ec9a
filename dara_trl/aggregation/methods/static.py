"""Fixed weights in place of DARA's (the ablation of arXiv 2610.00574, with weights 1 and 5)."""

from ..groups import GroupSignals
from .base import Contributions, Method, MethodSettings, amplify


def _static(signals: GroupSignals, settings: MethodSettings, *, positive_only: bool) -> Contributions:
    weights_K = settings.static_weights_K
    if weights_K is None:
        raise ValueError("This method needs static_weights, one for each reward.")
    return Contributions(amplify(signals, weights_K, positive_only=positive_only), weights_K)


def static_sym(signals: GroupSignals, settings: MethodSettings) -> Contributions:
    """S = sum_k alpha_k · w_k · A_k with the user's w."""
    return _static(signals, settings, positive_only=False)


def static_asym(signals: GroupSignals, settings: MethodSettings) -> Contributions:
    """S = sum_k alpha_k · (A_k + (w_k - 1) · max(A_k, 0)) with the user's w."""
    return _static(signals, settings, positive_only=True)


_READS = ("static_weights", "batch_norm", "advantage_clip", "eps")

STATIC_SYM = Method(
    static_sym,
    paper="arXiv 2610.00574",
    equation="S = Σ αₖwₖAₖ with your w; batch normalisation",
    helps="a reward whose weight you know",
    hurts="the weight stays when the reward is no longer rare",
    reads=_READS,
)
STATIC_ASYM = Method(
    static_asym,
    paper="arXiv 2610.00574",
    equation="S = Σ αₖ(Aₖ + (wₖ - 1)·max(Aₖ, 0)) with your w; batch normalisation",
    helps="as `static_sym`",
    hurts="as `static_sym`: the paper and our study lose correctness with a weight of 5",
    reads=_READS,
)
