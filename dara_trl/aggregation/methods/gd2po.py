"""GD2PO (arXiv 2606.16771): leave out the rollouts that one reward praises and another blames."""

from dataclasses import replace

import torch

from ..groups import GroupSignals
from .base import Contributions, Method, MethodSettings
from .gdpo import gdpo


def filter_conflicts(signals: GroupSignals, out: Contributions, settings: MethodSettings, kind: str) -> Contributions:
    """`out` without the rollouts whose rewards conflict, and with each group scaled by the share that is kept.

    A rollout conflicts if some A_k > 1e-8 and some A_k < -1e-8, among the rewards of priority above 0. `"hard"` drops
    it; `"snr"` only if also |sum_k c_k| / sum_k |c_k| < snr_threshold, c the contributions (weights and priorities
    included; GD2PO has none). A dropped rollout has no advantage and no part in the batch's statistics.

    The share multiplies the advantages after batch normalisation, as in the published DARA code; GD2PO's own code
    multiplies S before it. Its 1e-8 in the ratio's denominator is left out, as that is never 0 here. A reward within
    four roundings of its group's mean is neutral: in float32 0.3 is not quite the mean of 0.2, 0.3 and 0.4.
    """
    size_KB = signals.rewards_KGB.nan_to_num(nan=0.0).abs().amax(dim=1)
    rounding_KB = 4 * torch.finfo(size_KB.dtype).eps * size_KB / (signals.std_KB + settings.eps)
    neutral_K1B = rounding_KB.clamp(min=1e-8).unsqueeze(1)
    counted_K11 = (signals.priorities_K > 0).view(-1, 1, 1)
    praised_GB = ((signals.advantages_KGB > neutral_K1B) & counted_K11).any(dim=0)
    blamed_GB = ((signals.advantages_KGB < -neutral_K1B) & counted_K11).any(dim=0)
    dropped_GB = praised_GB & blamed_GB
    if kind == "snr":
        total_GB = out.contributions_KGB.sum(dim=0).abs()
        dropped_GB = dropped_GB & (total_GB < settings.snr_threshold * out.contributions_KGB.abs().sum(dim=0))
    scored_B = (~signals.rewards_KGB.isnan().all(dim=0)).sum(dim=0)
    return replace(
        out,
        contributions_KGB=out.contributions_KGB.masked_fill(dropped_GB, 0.0),
        kept_GB=~dropped_GB,
        group_scale_B=1 - dropped_GB.sum(dim=0).to(size_KB) / scored_B.clamp(min=1),
    )


def gd2po_hard(signals: GroupSignals, settings: MethodSettings) -> Contributions:
    """S = sum_k alpha_k · A_k over the rollouts without conflict; `weights_K` is 1."""
    return filter_conflicts(signals, gdpo(signals, settings), settings, "hard")


def gd2po_snr(signals: GroupSignals, settings: MethodSettings) -> Contributions:
    """The same, but a conflicting rollout is dropped only where its rewards nearly cancel.

    The threshold is 0.8 in the authors' tool-calling scripts; 0.2 is the default of their code.
    """
    return filter_conflicts(signals, gdpo(signals, settings), settings, "snr")


GD2PO_HARD = Method(
    gd2po_hard,
    paper="arXiv 2606.16771",
    equation="`gdpo` without rollouts that some reward praises and another blames, times the group's kept share",
    helps="rewards that are often at odds within one rollout",
    hurts="the more rewards, the more is thrown away; a lasting conflict is never learnt from",
    reads=("batch_norm", "advantage_clip", "eps"),
)
GD2PO_SNR = Method(
    gd2po_snr,
    paper="arXiv 2606.16771",
    equation="the same, but only where also |Σ αₖAₖ| < τ Σ |αₖAₖ|",
    helps="as `gd2po_hard`, with three rewards and more",
    hurts="as `gd2po_hard`, less",
    reads=("snr_threshold", "batch_norm", "advantage_clip", "eps"),
)
