r"""Loads mathematics problems with references, as published: DeepScaleR, MATH, GSM8K, and the benchmarks' files."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Any

from ..rewards.math import as_latex, last_boxed
from .files import load_rows, refuse, shown


if TYPE_CHECKING:
    from datasets import Dataset

__all__ = ["load_math"]

INSTRUCTION = "Please reason step by step, and put your final answer within \\boxed{}."
_PROBLEM = ("problem", "question")
_ANSWER = ("answer", "final_answer", "solution")

logger = logging.getLogger(__name__)


def load_math(
    source: str | os.PathLike[str],
    *,
    split: str = "train",
    limit: int | None = None,
    instruction: str = INSTRUCTION,
) -> Dataset:
    r"""
    Load mathematics problems into TRL's conversational form.

    Read are a column `problem` or `question` (in any case) with `answer` (DeepScaleR, MATH-500, AIME, AMC; a list in
    Minerva's and OlympiadBench's files; after `####` in GSM8K) or `final_answer` (OlympiadBench), or else the last
    `\boxed{…}` of a `solution` (MATH); and verl's form (`prompt` messages, `reward_model` with `ground_truth`).

    Args:
        source (`str` or `os.PathLike`):
            A `.parquet`, `.json` or `.jsonl` file, as a local path or an `http(s)://` or `hf://` URL; or a folder or
            Hub dataset id, such as `agentica-org/DeepScaleR-Preview-Dataset`.
        split (`str`, *optional*, defaults to `"train"`):
            The split of a folder or Hub dataset. A single file has one split, `"train"`.
        limit (`int`, *optional*):
            How many rows to load, from the first; all by default.
        instruction (`str`, *optional*):
            Follows each problem, after a blank line; an empty text adds nothing. Not used with verl's messages, which
            have their own. Defaults to the request to reason step by step and to box the answer.

    Returns:
        [`~datasets.Dataset`] with the columns `prompt`, a list of `{"role", "content"}` messages, and `answer`, the
        reference as a text; several answers stand in one text, separated by commas. Rows that have no reference
        are left out, and a warning names them.

    Raises:
        `FileNotFoundError`: If `source` is a local path where nothing is.
        `ValueError`: If `source` is a file of another kind, cannot be read or is empty, columns are missing, or a row
            has no problem, or no row has a reference.
    """
    from datasets import Dataset

    raw = load_rows(source, split, limit)
    columns = {column.lower(): column for column in reversed(raw.column_names)}
    verl = {"prompt", "reward_model"} <= set(columns)
    problem_column = next((columns[name] for name in _PROBLEM if name in columns), None)
    answer_columns = [columns[name] for name in _ANSWER if name in columns]
    if not verl and (problem_column is None or not answer_columns):
        raise ValueError(
            f"{str(source)!r} has no mathematics problems that can be read: it needs a column `problem` or "
            "`question`, and `answer`, `final_answer` or `solution` (or verl's `prompt` and `reward_model`); "
            f"found {sorted(raw.column_names)}."
        )
    rows, problems, without = [], [], []
    for index, row in enumerate(raw):
        if verl:
            messages, problem = _messages(row[columns["prompt"]])
            reward_model = row[columns["reward_model"]]
            answers = [reward_model.get("ground_truth") if isinstance(reward_model, dict) else None]
        else:
            messages, problem = _question(row[problem_column], instruction)
            answers = [_given(row[column], column.lower()) for column in answer_columns]
        answer = next((text for text in map(_text, answers) if text), None)
        if problem:
            problems.append(f"row {index}: {problem}")
        elif answer is None:
            without.append(index)
        else:
            rows.append({"prompt": messages, "answer": answer})
    refuse(problems, len(raw), source)
    if not rows:
        raise ValueError(f"No row of {str(source)!r} has a reference answer.")
    if without:
        first = ", ".join(map(str, without[:5])) + (", …" if len(without) > 5 else "")
        logger.warning("%d of %d rows of %r have no reference and are left out: row %s.",
                       len(without), len(raw), str(source), first)  # fmt: skip
    return Dataset.from_list(rows)


def _given(value: Any, column: str) -> Any:
    """What a column gives as the reference: all of it, or what follows GSM8K's mark, or a solution's box."""
    if not isinstance(value, str):
        return value
    if column == "solution":
        return last_boxed(value)
    return value.rpartition("####")[2].replace(",", "") if "\n#### " in f"\n{value}" else value


def _text(answer: Any) -> str | None:
    """A reference as a text, or None where there is none."""
    if answer is None or isinstance(answer, (dict, bool)):
        return None
    if isinstance(answer, (list, tuple)) and (not answer or any(_text(one) is None for one in answer)):
        return None
    return as_latex(answer) or None


def _question(problem: Any, instruction: str) -> tuple[list[dict[str, str]], str | None]:
    if not isinstance(problem, str) or not problem.strip():
        return [], f"the problem is not a text, or empty: {shown(problem)}"
    text = f"{problem}\n\n{instruction}" if instruction else problem
    return [{"role": "user", "content": text}], None


def _messages(prompt: Any) -> tuple[list[dict[str, str]], str | None]:
    if not isinstance(prompt, list) or not prompt:
        return [], f"the prompt is not a list of messages: {shown(prompt)}"
    for message in prompt:
        if not isinstance(message, dict) or not all(isinstance(message.get(key), str) for key in ("role", "content")):
            return [], f"a prompt message has no text role and content: {shown(message)}"
    return [{"role": message["role"], "content": message["content"]} for message in prompt], None
