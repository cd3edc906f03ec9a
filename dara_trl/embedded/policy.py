"""Names of embedded policies, and the tiny one: a Llama with two layers, made ready for RL by a short warm start.

The warm start imitates badly made demonstrations: content often right, format almost never. So the format reward is
sparse and correctness dense when RL begins, the situation that density-aware aggregation is for. Its content is right
at first, because a model of this size does not find out that values are copied from the request where many are wrong.

A Llama, not a Qwen2: for a Qwen2 checkpoint, transformers puts Qwen's own tokenizer in the place of ours.
"""

import random
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerBase

from . import tokenizer, world
from .cache import cached_folder


PREFIX = "embedded:"
NAMES = ("embedded:tiny", "embedded:smollm2")

# Raise it when the training below changes; the world, the tokenizer and `Recipe` are in the cache's key by themselves.
FORMAT_VERSION = 1


@dataclass(frozen=True)
class Recipe:
    """How the tiny policy is made.

    Attributes:
        steps: optimiser steps of the warm start.
        clean_steps: how many of them, from the first, have right content.
        batch_size: demonstrations per step.
        learning_rate: its peak.
        good: chance of each of three format habits to be right in a demonstration.
        err: chance of each content slot to be wrong in a later demonstration.
        careless: the same where the first two format habits are right; None is `err`.
        rambling: chance of one more thought after each, in every demonstration.
        seed: of the weights and the demonstrations.
    """

    steps: int = 500
    clean_steps: int = 350
    batch_size: int = 64
    learning_rate: float = 5e-3
    good: float = 0.23
    err: float = 0.3
    careless: float | None = None
    rambling: float = 0.0
    seed: int = 0


def resolve_model(name_or_path: str) -> str:
    """The local folder of an embedded model, which `from_pretrained` can load; it is built at the first call.

    Args:
        name_or_path (`str`): `"embedded:tiny"`, `"embedded:smollm2"`, or anything else, which is returned unchanged.
            Fields of [`Recipe`] can follow: `"embedded:tiny:seed=1,err=0.4"`.

    Raises:
        ValueError: an unknown `embedded:` name, or a recipe that has no such field or value.
        ImportError: `embedded:smollm2` without the package that carries it.
        OSError: the cache folder cannot be written.
    """
    if not name_or_path.startswith(PREFIX):
        return name_or_path
    name, _, settings = name_or_path.partition(":tiny:")
    if name_or_path == "embedded:tiny" or (settings and f"{name}:" == PREFIX):
        return str(tiny_policy(_recipe(settings)))
    if name_or_path == "embedded:smollm2":
        from .smollm2 import smollm2

        return str(smollm2())
    raise ValueError(f"Unknown embedded model {name_or_path!r}. Known: {', '.join(NAMES)}.")


def _recipe(settings: str) -> Recipe:
    types = {"steps": int, "clean_steps": int, "batch_size": int, "seed": int}
    names = [field.name for field in fields(Recipe)]
    values: dict[str, Any] = {}
    for setting in filter(None, settings.split(",")):
        name, _, value = setting.partition("=")
        if name not in names:
            raise ValueError(f"embedded:tiny has no setting {name!r}. Known: {', '.join(names)}.")
        try:
            values[name] = types.get(name, float)(value)
        except ValueError:
            raise ValueError(f"embedded:tiny: {name} must be a number, not {value!r}.") from None
    return Recipe(**values)


def tiny_policy(recipe: Recipe | None = None) -> Path:
    """The tiny policy's folder; trained, in one to two minutes on one core, unless the cache has it.

    Raises:
        OSError: the cache folder cannot be written.
    """
    recipe = recipe or Recipe()
    rng = random.Random(0)
    sample = [
        (example.prompt, example.answer, _demonstration(example, rng, recipe, clean=False))
        for example in world.examples("train", 64)
    ]
    key = [FORMAT_VERSION, asdict(recipe), tokenizer.vocabulary(), tokenizer.CHAT_TEMPLATE, sample]
    return cached_folder("tiny", key, lambda folder: _build(folder, recipe), cost="one to two minutes")


def _build(folder: Path, recipe: Recipe) -> None:
    tokens = tokenizer.build_tokenizer()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.seed)
        model = LlamaForCausalLM(_config(tokens))
    _warm_start(model, tokens, recipe)
    model.eval().save_pretrained(folder)
    tokens.save_pretrained(folder)


def _config(tokens: PreTrainedTokenizerBase) -> LlamaConfig:
    return LlamaConfig(
        vocab_size=len(tokens),
        hidden_size=64,
        intermediate_size=192,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=512,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=tokens.eos_token_id,
        pad_token_id=tokens.pad_token_id,
    )


def _warm_start(model: LlamaForCausalLM, tokens: PreTrainedTokenizerBase, recipe: Recipe) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=recipe.learning_rate, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, recipe.learning_rate, total_steps=recipe.steps, pct_start=0.1
    )
    rng = random.Random(recipe.seed)
    examples = world.examples("train", recipe.steps * recipe.batch_size, seed=recipe.seed + 1)
    model.train()
    for step in tqdm(range(recipe.steps), desc="embedded:tiny warm start", disable=None, leave=False):
        batch = examples[step * recipe.batch_size : (step + 1) * recipe.batch_size]
        completions = [_demonstration(one, rng, recipe, clean=step < recipe.clean_steps) for one in batch]
        ids_NT, labels_NT = _tokenized([one.prompt for one in batch], completions, tokens)
        model(input_ids=ids_NT, labels=labels_NT).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()


def _demonstration(example: world.Example, rng: random.Random, recipe: Recipe, *, clean: bool) -> str:
    err, careless = (0.0, None) if clean else (recipe.err, recipe.careless)
    return world.demonstration(example, rng, recipe.good, err, careless=careless, rambling=recipe.rambling)


def _tokenized(
    prompts: list[list[dict[str, str]]], completions: list[str], tokens: PreTrainedTokenizerBase
) -> tuple[Tensor, Tensor]:
    """Token ids and labels, shape (N, T), padded on the right; only the completion is learnt."""
    rendered = [tokens.apply_chat_template(one, tokenize=False, add_generation_prompt=True) for one in prompts]
    prompt_ids = tokens(rendered).input_ids
    completion_ids = tokens([completion + tokens.eos_token for completion in completions]).input_ids
    rows = [torch.tensor(prompt + completion) for prompt, completion in zip(prompt_ids, completion_ids, strict=True)]
    ids_NT = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=tokens.pad_token_id)
    labels_NT = ids_NT.clone()
    for labels_T, prompt, row in zip(labels_NT, prompt_ids, rows, strict=True):
        labels_T[: len(prompt)] = -100
        labels_T[len(row) :] = -100
    return ids_NT, labels_NT
