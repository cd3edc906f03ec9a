"""Normalisation of the aggregated scores S over the whole generation batch."""

import torch
from torch import Tensor


BATCH_NORMS = ("sequence", "token", "none")


def normalize_batch(
    scores_N: Tensor, scorable_N: Tensor | None, kind: str, eps: float, lengths_N: Tensor | None
) -> Tensor:
    """(S - mean) / (std + eps) over the rollouts that some reward scored (None: all of them); the others get 0.

    `"sequence"` counts each rollout once (TRL). `"token"` counts it by its completion's tokens and divides by
    sqrt(var + 1e-8), whatever eps is, as verl's `masked_whiten` and the published DARA and GDPO code do. Both use the
    sample variance. Fewer than two rollouts (tokens) have no variance: all advantages are 0.
    """
    weights_N = torch.ones_like(scores_N)
    if kind == "token" and lengths_N is not None:
        weights_N = lengths_N.to(scores_N)
    if scorable_N is not None:
        weights_N = weights_N * scorable_N
        scores_N = scores_N * scorable_N
    if kind == "none":
        return scores_N
    total = weights_N.sum()
    mean = (weights_N * scores_N).sum() / total.clamp(min=1)
    centered_N = scores_N - mean
    bessel = total / (total - 1).clamp(min=1)
    variance = (weights_N * centered_N.square()).sum() / total.clamp(min=1) * bessel
    scale = (variance + 1e-8).sqrt() if kind == "token" else variance.sqrt() + eps
    advantages_N = centered_N / torch.where((variance > 0) & (total > 1), scale, torch.inf)
    return advantages_N if scorable_N is None else advantages_N * scorable_N
