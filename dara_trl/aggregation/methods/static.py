"""Fixed weights in place of DARA's (the ablation of arXiv 2610.00574, with weights 1 and 5)."""

from ..groups import GroupSignals
from .base import Contributions, MethodSettings, amplify


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
