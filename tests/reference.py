"""DARA and its kin once more in plain Python: loops over lists, from the equations, sharing no code with ours."""

import math


def group_advantages(rewards, num_generations, eps):
    """A[n][k], I[b][k] for rewards[n][k], where None is "does not apply"."""
    count, num_rewards = len(rewards), len(rewards[0])
    advantages = [[0.0] * num_rewards for _ in range(count)]
    active = [[False] * num_rewards for _ in range(count // num_generations)]
    for b in range(count // num_generations):
        rows = range(b * num_generations, (b + 1) * num_generations)
        for k in range(num_rewards):
            scored = [n for n in rows if rewards[n][k] is not None]
            values = [rewards[n][k] for n in scored]
            if len(set(values)) < 2:
                continue
            active[b][k] = True
            mean = math.fsum(values) / len(values)
            std = math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (len(values) - 1))
            for n in scored:
                advantages[n][k] = (rewards[n][k] - mean) / (std + eps)
    return advantages, active


def dara_weights(active, max_weight):
    num_rewards = len(active[0])
    density = [sum(row[k] for row in active) / len(active) for k in range(num_rewards)]
    top = max(density)
    return [min(max_weight, math.sqrt(top / d)) if d > 0 else 1.0 for d in density]


def normalize(scores, kept, eps):
    values = [s for s, keep in zip(scores, kept, strict=True) if keep]
    if len(values) < 2 or len(set(values)) < 2:
        return [0.0] * len(scores)
    mean = math.fsum(values) / len(values)
    std = math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (len(values) - 1))
    return [(s - mean) / (std + eps) if keep else 0.0 for s, keep in zip(scores, kept, strict=True)]


def normalize_tokens(scores, kept, lengths):
    """Every rollout written out as often as it has tokens; one without tokens has no advantage."""
    tokens = [s for s, keep, m in zip(scores, kept, lengths, strict=True) if keep for _ in range(m)]
    if len(tokens) < 2 or len(set(tokens)) < 2:
        return [0.0] * len(scores)
    mean = math.fsum(tokens) / len(tokens)
    variance = math.fsum((t - mean) ** 2 for t in tokens) / (len(tokens) - 1)
    return [
        (s - mean) / math.sqrt(variance + 1e-8) if keep and m else 0.0
        for s, keep, m in zip(scores, kept, lengths, strict=True)
    ]


def aggregate(rewards, num_generations, method, alpha, max_weight=5.0, static=None, eps=1e-4, lengths=None):
    kept = [any(r is not None for r in row) for row in rewards]
    if method == "grpo":
        totals = [
            [math.fsum(a * r for a, r in zip(alpha, row, strict=True) if r is not None) if keep else None]
            for row, keep in zip(rewards, kept, strict=True)
        ]
        return [row[0] for row in group_advantages(totals, num_generations, eps)[0]]
    advantages, active = group_advantages(rewards, num_generations, eps)
    if method == "gdpo":
        weights = [1.0] * len(alpha)
    else:
        weights = static if method.startswith("static") else dara_weights(active, max_weight)
    scores = []
    for row in advantages:
        total = 0.0
        for a, w, x in zip(alpha, weights, row, strict=True):
            total += a * (x + (w - 1) * max(x, 0.0)) if method.endswith("_asym") else a * w * x
        scores.append(total)
    return normalize(scores, kept, eps) if lengths is None else normalize_tokens(scores, kept, lengths)
