"""How embedded policies are made: a small Llama, and supervised steps on demonstrations.

A Llama, not a Qwen2: for a Qwen2 checkpoint, transformers puts Qwen's own tokenizer in the place of ours.
"""

from collections.abc import Iterable
from pathlib import Path

import torch
from torch import Tensor
from tqdm import tqdm
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerBase

from .tokenizer import build_tokenizer


Conversation = list[dict[str, str]]


def build(
    folder: Path,
    batches: Iterable[tuple[list[Conversation], list[str]]],
    *,
    name: str,
    heads: int,
    steps: int,
    learning_rate: float,
    seed: int,
) -> None:
    """Trains a policy on batches of prompts and completions, and saves it and its tokenizer."""
    tokens = build_tokenizer()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = LlamaForCausalLM(_config(tokens, heads))
    optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, learning_rate, total_steps=steps, pct_start=0.1)
    model.train()
    for prompts, completions in tqdm(batches, total=steps, desc=f"{name} warm start", disable=None, leave=False):
        ids_NT, labels_NT = _tokenized(prompts, completions, tokens)
        model(input_ids=ids_NT, labels=labels_NT).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
    model.eval().save_pretrained(folder)
    tokens.save_pretrained(folder)


def _config(tokens: PreTrainedTokenizerBase, heads: int) -> LlamaConfig:
    return LlamaConfig(
        vocab_size=len(tokens),
        hidden_size=64,
        intermediate_size=192,
        num_hidden_layers=2,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        max_position_embeddings=512,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=tokens.eos_token_id,
        pad_token_id=tokens.pad_token_id,
    )


def _tokenized(
    prompts: list[Conversation], completions: list[str], tokens: PreTrainedTokenizerBase
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
