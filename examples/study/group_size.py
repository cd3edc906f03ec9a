"""Density against group size: measured on the embedded policy, beside q_G(p) = 1 - p^G - (1-p)^G.

    python examples/study/group_size.py docs/study/group_size

Samples 32 rollouts for each of 256 held-out requests from three policies, in groups of 4, 8, 16 and 32.
"""

import json
import sys
from pathlib import Path

import torch
from matplotlib.figure import Figure
from transformers import AutoModelForCausalLM, AutoTokenizer

from dara_trl import aggregate
from dara_trl.embedded.policy import resolve_model
from dara_trl.embedded.world import tool_calling_dataset
from dara_trl.rewards.toolrl import format_reward, think_length_reward


SIZES = (4, 8, 16, 32)
PROMPTS = 256
POLICIES = {
    "format, sparse (good=0.2)": ("embedded:tiny:seed=1,good=0.2", "format"),
    "format, common (good=0.6)": ("embedded:tiny:seed=1,good=0.6", "format"),
    "length, near saturation": ("embedded:tiny:seed=1,good=1,rambling=0.32", "length"),
}


def rewards(name: str, kind: str) -> torch.Tensor:
    """(prompts, 32) rewards of sampled rollouts."""
    data = tool_calling_dataset("test", PROMPTS)
    folder = resolve_model(name)
    tokens, model = AutoTokenizer.from_pretrained(folder), AutoModelForCausalLM.from_pretrained(folder)
    found = []
    for start in range(0, PROMPTS, 16):
        prompts, answers = data["prompt"][start : start + 16], data["answer"][start : start + 16]
        inputs = tokens.apply_chat_template(
            prompts, add_generation_prompt=True, return_tensors="pt", return_dict=True, padding=True
        )
        ids = model.generate(**inputs, do_sample=True, max_new_tokens=64, num_return_sequences=max(SIZES), top_k=0)
        texts = tokens.batch_decode(ids[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True)
        truths = [answer for answer in answers for _ in range(max(SIZES))]
        scores = format_reward(texts, truths) if kind == "format" else think_length_reward(texts, max_words=12)
        found.append(torch.tensor(scores).view(-1, max(SIZES)))
    return torch.cat(found)


def main() -> None:
    target = Path(sys.argv[1])
    torch.manual_seed(0)
    results = {}
    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.subplots()
    for color, (label, (name, kind)) in zip(("#0072b2", "#d55e00", "#009e73"), POLICIES.items(), strict=True):
        scores = rewards(name, kind)
        p = scores.mean().item()
        measured = [aggregate(scores.view(-1, 1), num_generations=size).density_K.item() for size in SIZES]
        expected = [1 - p**size - (1 - p) ** size for size in SIZES]
        rows = zip(SIZES, measured, expected, strict=True)
        results[label] = {"p": p, **{f"G={size}": {"measured": m, "q_G(p)": q} for size, m, q in rows}}
        axes.plot(SIZES, measured, marker="o", color=color, label=f"{label}: p = {p:.3f}")
        axes.plot(SIZES, expected, linestyle="--", marker="x", color=color)
    axes.set_xscale("log", base=2)
    axes.set_xticks(SIZES, [str(size) for size in SIZES])
    axes.set_xlabel("rollouts per group, G")
    axes.set_ylabel("density")
    axes.set_ylim(0, 1.02)
    axes.set_title("Active-group density: measured (solid), $q_G(p)$ at the mean success rate (dashed)", fontsize=10)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=9)
    target.parent.mkdir(parents=True, exist_ok=True)
    for suffix in (".png", ".svg"):
        figure.savefig(target.with_suffix(suffix), dpi=120)
    target.with_suffix(".json").write_text(json.dumps(results, indent=1) + "\n")
    print(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
