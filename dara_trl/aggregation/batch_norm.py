"""Normalisation of the aggregated scores S over the whole generation batch."""

import torch
from torch import Tensor

from .groups import power_of_two


BATCH_NORMS = ("sequence", "token", "none")


def normalize_batch(
    scores_N: Tensor, scorable_N: Tensor | None, magnitude: Tensor, kind: str, eps: float, lengths_N: Tensor | None
) -> Tensor:
    """(S - mean) / (std + eps) over the rollouts that some reward scored (None: all of them); the others get 0.

    `"sequence"` counts each rollout once (TRL). `"token"` counts it by its completion's tokens and divides by
    sqrt(var + 1e-8), whatever eps is, as verl's `masked_whiten` and the published DARA and GDPO code do; a rollout
    without tokens gets 0. Both use the sample variance. Fewer than two rollouts (tokens) have no variance: all
    advantages are 0. So are they where S varies by no more than the rounding of its summands, whose size is
    `magnitude`: a small eps would blow that noise up into advantages.
    """
    weights_N = torch.ones_like(scores_N)
    if kind == "token" and lengths_N is not None:
        weights_N = lengths_N.to(scores_N)
    if scorable_N is not None:
        weights_N = weights_N * scorable_N
        scores_N = scores_N * scorable_N
    if kind == "none":
        return scores_N
    unit = power_of_two(magnitude)  # neither huge nor tiny priorities over- or underflow when squared
    scores_N = scores_N / unit
    counted_N = weights_N > 0
    spread = scores_N.masked_fill(~counted_N, -torch.inf).max() - scores_N.masked_fill(~counted_N, torch.inf).min()
    total = weights_N.sum()
    has_signal = (spread > 16 * torch.finfo(scores_N.dtype).eps * magnitude / unit) & (total > 1)

    mean = (weights_N * scores_N).sum() / total.clamp(min=1)
    centered_N = scores_N - mean
    bessel = total / (total - 1).clamp(min=1)
    variance = (weights_N * centered_N.square()).sum() / total.clamp(min=1) * bessel
    scale = (variance + 1e-8 / unit / unit).sqrt() if kind == "token" else variance.sqrt() + eps / unit
    return centered_N / torch.where(has_signal, scale, torch.inf) * counted_N
