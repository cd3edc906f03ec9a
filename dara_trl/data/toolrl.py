"""Loads ToolRL's tool-calling data, as published, for training with TRL."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..rewards.toolrl import ground_truth_blocks, parse_calls
from .files import load_rows, refuse, shown


if TYPE_CHECKING:
    from datasets import Dataset

__all__ = ["load_toolrl"]

_VERL_COLUMNS = {"prompt", "reward_model"}
_SFT_COLUMNS = {"instruction", "input", "output"}


def load_toolrl(source: str | os.PathLike[str], *, split: str = "train", limit: int | None = None) -> Dataset:
    """
    Load ToolRL data into TRL's conversational form.

    Both published forms are read: verl's (columns `prompt` and `reward_model`, whose `ground_truth` is the answer) and
    the SFT form (`instruction`, `input` and `output`: system message, user message and answer).

    Args:
        source (`str` or `os.PathLike`):
            A `.parquet`, `.json` or `.jsonl` file, as a local path or an `http(s)://` or `hf://` URL; or a folder or
            Hub dataset id. What ends like a file or starts with `/`, `./`, `../` or `~` is never looked up on the Hub.
        split (`str`, *optional*, defaults to `"train"`):
            The split of a folder or Hub dataset. A single file has one split, `"train"`.
        limit (`int`, *optional*):
            How many rows to load, from the first; all by default.

    Returns:
        [`~datasets.Dataset`] with the columns `prompt`, a list of `{"role", "content"}` messages, and `answer`, a text
        in ToolRL's format.

    Raises:
        `FileNotFoundError`: If `source` is a local path where nothing is.
        `ValueError`: If `source` is a file of another kind, cannot be read or is empty, columns are missing, or rows
            cannot be used: no row is dropped in silence.

    Source: ToolRL (https://huggingface.co/papers/2504.13958).
    """
    from datasets import Dataset

    raw = load_rows(source, split, limit)
    convert = _converter(set(raw.column_names), source)
    rows, problems = [], []
    for index, raw_row in enumerate(raw):
        row = convert(raw_row)
        problem = _problem(row)
        if problem:
            problems.append(f"row {index}: {problem}")
            continue
        messages = [{"role": message["role"], "content": message["content"]} for message in row["prompt"]]
        rows.append({"prompt": messages, "answer": row["answer"]})
    refuse(problems, len(raw), source)
    return Dataset.from_list(rows)


def _converter(columns: set[str], source: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    if columns >= _VERL_COLUMNS:
        return _from_verl
    if columns >= _SFT_COLUMNS:
        return _from_sft
    needs = " or ".join(
        f"the columns {sorted(wanted)} (missing: {sorted(wanted - columns)})"
        for wanted in (_VERL_COLUMNS, _SFT_COLUMNS)
    )
    raise ValueError(f"{str(source)!r} is not in a ToolRL form: it needs {needs}; found {sorted(columns)}.")


def _from_verl(row: dict[str, Any]) -> dict[str, Any]:
    reward_model = row["reward_model"]
    answer = reward_model.get("ground_truth") if isinstance(reward_model, dict) else None
    return {"prompt": row["prompt"], "answer": answer}


def _from_sft(row: dict[str, Any]) -> dict[str, Any]:
    system = {"role": "system", "content": row["instruction"]}
    return {"prompt": [system, {"role": "user", "content": row["input"]}], "answer": row["output"]}


def _problem(row: dict[str, Any]) -> str | None:
    """Why the rewards cannot use a row, if so."""
    prompt, answer = row["prompt"], row["answer"]
    if not isinstance(prompt, list) or not prompt:
        return f"the prompt is not a list of messages but {shown(prompt)}"
    for message in prompt:
        if not isinstance(message, dict) or not all(
            isinstance(message.get(key), str) and message[key] for key in ("role", "content")
        ):
            return f"a prompt message has no text role and content: {shown(message)}"
    if not isinstance(answer, str) or not answer.strip():
        return f"the ground truth is not a text, or empty: {shown(answer)}"
    if not any(tag in answer for tag in ("<think>", "<tool_call>", "<response>")):
        return f"the ground truth has no <think>, <tool_call> or <response>: {shown(answer)}"
    blocks = ground_truth_blocks(answer)
    if "<tool_call>" in blocks and parse_calls(blocks) is None:
        return (
            f"the ground truth's tool calls are not one JSON object a line, with name and parameters: {shown(blocks)}"
        )
    return None
