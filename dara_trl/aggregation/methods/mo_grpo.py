"""MO-GRPO (arXiv 2509.22047): the sum of the group advantages, as it is."""

from dataclasses import replace

from ..groups import GroupSignals
from .base import Contributions, Method, MethodSettings
from .gdpo import gdpo


def mo_grpo(signals: GroupSignals, settings: MethodSettings) -> Contributions:
    """S = sum_k alpha_k · A_k, without batch normalisation: `gdpo` with batch_norm="none".

    The paper normalises each reward by its variance in the group and sums. Its code was not to be had: we divide by
    the sample std, as TRL does; the population std gives sqrt(G / (G - 1)) times as much, for all rollouts alike.
    """
    return replace(gdpo(signals, settings), batch_normalize=False)


MO_GRPO = Method(
    mo_grpo,
    paper="arXiv 2509.22047",
    equation="S = Σ αₖAₖ, no batch normalisation",
    helps="as `gdpo`; a batch of few active groups is not scaled up",
    hurts="as `gdpo`; advantages grow with the number of rewards",
    reads=("advantage_clip", "eps"),
)
