"""All methods once more in plain Python: loops over lists, from the equations, sharing no code with ours.

The small constants of the peers' published codes are kept here (DVAO and SAW 1e-8), though ours does without.
"""

import math


def group_rows(rewards, num_generations):
    return [range(start, start + num_generations) for start in range(0, len(rewards), num_generations)]


def group_advantages(rewards, num_generations, eps):
    """A[n][k], I[b][k] for rewards[n][k], where None is "does not apply"."""
    count, num_rewards = len(rewards), len(rewards[0])
    advantages = [[0.0] * num_rewards for _ in range(count)]
    active = [[False] * num_rewards for _ in range(count // num_generations)]
    for b, rows in enumerate(group_rows(rewards, num_generations)):
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


def deviations(rewards, rows, k):
    """r - mu of reward k for each rollout of the group; 0 where it does not apply or does not vary."""
    values = [rewards[n][k] for n in rows if rewards[n][k] is not None]
    if len(set(values)) < 2:
        return [0.0 for _ in rows], len(values)
    mean = math.fsum(values) / len(values)
    return [0.0 if rewards[n][k] is None else rewards[n][k] - mean for n in rows], len(values)


def dara_weights(active, max_weight):
    num_rewards = len(active[0])
    density = [sum(row[k] for row in active) / len(active) for k in range(num_rewards)]
    top = max(density)
    return [min(max_weight, math.sqrt(top / d)) if d > 0 else 1.0 for d in density]


def dvao(rewards, num_generations, alpha):
    scores = []
    for rows in group_rows(rewards, num_generations):
        total, denominator = [0.0 for _ in rows], 1e-8
        for k, a in enumerate(alpha):
            centered, count = deviations(rewards, rows, k)
            denominator += a / len(alpha) * math.sqrt(math.fsum(c * c for c in centered) / max(count, 1))
            total = [t + a / len(alpha) * c for t, c in zip(total, centered, strict=True)]
        scores += [t / denominator for t in total]
    return scores


def corr_grpo(rewards, num_generations, alpha):
    scores = []
    for rows in group_rows(rewards, num_generations):
        weighted = [[a * c for c in deviations(rewards, rows, k)[0]] for k, a in enumerate(alpha)]
        norms = [math.sqrt(math.fsum(c * c for c in column)) for column in weighted]
        correlations = 0.0
        for one, norm in zip(weighted, norms, strict=True):
            for other, other_norm in zip(weighted, norms, strict=True):
                if norm > 0 and other_norm > 0:
                    correlations += math.fsum(c * d for c, d in zip(one, other, strict=True)) / norm / other_norm
        denominator = math.sqrt(max(correlations, 0.0) + 1e-6)
        scores += [math.fsum(column[j] for column in weighted) / denominator for j in range(len(rows))]
    return scores


def saw_weights(rewards, ranges):
    variations = []
    for k, (low, _) in enumerate(ranges):
        values = [row[k] - low for row in rewards if row[k] is not None]
        if len(set(values)) < 2:
            variations.append(0.0)
            continue
        mean = math.fsum(values) / len(values)
        std = math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (len(values) - 1))
        variations.append(std / (abs(mean) + 1e-8))
    total = math.fsum(variations)
    return [len(ranges) * v / (total + 1e-8) if total > 0 else 1.0 for v in variations]


def saturation_weights(rewards, ranges, gamma):
    weights = []
    for k, (low, high) in enumerate(ranges):
        values = [row[k] for row in rewards if row[k] is not None]
        saturation = (math.fsum(values) / len(values) - low) / (high - low) if values else 0.0
        weights.append(max(1 - saturation, 0.0) ** gamma)
    return weights


def soft_minimum(row, alpha, kappa):
    return -math.log(math.fsum(a * math.exp(-kappa * x) for a, x in zip(alpha, row, strict=True)) / sum(alpha)) / kappa


def dropped_by(kind, row, summands, threshold):
    """Whether GD2PO's filter drops a rollout with group advantages `row`, of whose `summands` S is the sum."""
    if kind == "none" or not (max(row) > 1e-8 and min(row) < -1e-8):
        return False
    sizes = math.fsum(abs(c) for c in summands)
    return kind == "hard" or abs(math.fsum(summands)) / (sizes + 1e-8) < threshold


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


def aggregate(
    rewards,
    num_generations,
    method,
    alpha,
    max_weight=5.0,
    static_weights=None,
    reward_ranges=None,
    saturation_exponent=0.5,
    risk_aversion=1.0,
    conflict_filter="none",
    snr_threshold=0.8,
    advantage_clip=0.0,
    eps=1e-4,
    lengths=None,
):
    scored = [any(r is not None for r in row) for row in rewards]
    if method == "grpo":
        totals = [
            [math.fsum(a * r for a, r in zip(alpha, row, strict=True) if r is not None) if keep else None]
            for row, keep in zip(rewards, scored, strict=True)
        ]
        return [row[0] for row in group_advantages(totals, num_generations, eps)[0]]
    if method in ("dvao", "corr_grpo"):
        return {"dvao": dvao, "corr_grpo": corr_grpo}[method](rewards, num_generations, alpha)
    advantages, active = group_advantages(rewards, num_generations, eps)
    if advantage_clip:
        advantages = [[max(-advantage_clip, min(advantage_clip, x)) for x in row] for row in advantages]
    if method == "rvpo":
        scores = [soft_minimum(row, alpha, risk_aversion) for row in advantages]
        return normalize(scores, scored, eps) if lengths is None else normalize_tokens(scores, scored, lengths)
    if method.startswith("static"):
        weights = static_weights
    elif method.startswith("dara"):
        weights = dara_weights(active, max_weight)
    elif method == "saw":
        weights = saw_weights(rewards, reward_ranges)
    elif method == "sa_mrpo":
        weights = saturation_weights(rewards, reward_ranges, saturation_exponent)
    else:
        weights = [1.0] * len(alpha)
    conflict_filter = {"gd2po_hard": "hard", "gd2po_snr": "snr"}.get(method, conflict_filter)
    scores, kept = [], []
    for row, keep in zip(advantages, scored, strict=True):
        summands = [
            a * (x + (w - 1) * max(x, 0.0)) if method.endswith("_asym") else a * w * x
            for a, w, x in zip(alpha, weights, row, strict=True)
        ]
        scores.append(math.fsum(summands))
        kept.append(keep and not dropped_by(conflict_filter, row, summands, snr_threshold))
    if method == "mo_grpo":
        return scores
    result = normalize(scores, kept, eps) if lengths is None else normalize_tokens(scores, kept, lengths)
    for rows in group_rows(rewards, num_generations):
        count = sum(scored[n] for n in rows)
        for n in rows:
            result[n] *= sum(kept[m] for m in rows) / count if count else 0.0
    return result
