r"""Rewards for mathematics: is the last `\boxed{…}` right, and is the completion short enough?

The comparison is math-verify's, in worker processes: its own time limits need SIGALRM, which works in no thread but
the main one, and hostile LaTeX hangs it without them.
"""

import importlib.util
from collections import OrderedDict
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from .workers import WorkerPool, default_workers


REMEMBERED = 65_536  # comparisons
_pools: dict[int, WorkerPool] = {}
_known: OrderedDict[tuple[str, str, float], float] = OrderedDict()


def correctness_reward(
    completions: Sequence[Any],
    answer: Sequence[Any],
    *,
    num_workers: int | None = None,
    time_limit: float = 5.0,
    **kwargs: Any,
) -> list[float | None]:
    r"""
    1 if the completion's last `\boxed{…}` equals the reference by math-verify, else 0.

    Equal pairs are compared once, and remembered: a `gate` on this reward costs nothing more.

    Args:
        completions (sequence of N): texts, or lists of chat messages, of which the last one counts.
        answer (sequence of N): references: LaTeX with or without `$`, a number, or a list of answers, all of which are
            asked for. `None` where there is none: the reward does not apply.
        num_workers (`int`, *optional*): worker processes. Default: one for each core of this process, 8 at most.
        time_limit (`float`, *optional*, defaults to 5.0): seconds of wall clock for one answer. One that takes longer,
            or kills its worker, scores 0.

    Returns:
        N rewards, 0.0 or 1.0, or None.

    Raises:
        ImportError: math-verify is not installed.
        ValueError: another number of references than of completions, or a setting out of its range.
    """
    if importlib.util.find_spec("math_verify") is None:
        raise ImportError("The math rewards compare with math-verify: pip install 'dara-trl[math]'")
    if len(answer) != len(completions):
        raise ValueError(f"answer has {len(answer)} references for {len(completions)} completions.")
    workers = default_workers() if num_workers is None else num_workers
    if not isinstance(workers, int) or isinstance(workers, bool) or workers < 1:
        raise ValueError(f"num_workers must be a whole number of at least 1, not {num_workers!r}.")
    if not 0 < time_limit < float("inf"):
        raise ValueError(f"time_limit must be a number of seconds above 0, not {time_limit!r}.")
    given = [last_boxed(text_of(completion)) for completion in completions]
    wanted = [None if reference is None else as_latex(reference) for reference in answer]
    keys = [
        None if box is None or reference is None else (box, reference, float(time_limit))
        for box, reference in zip(given, wanted, strict=True)
    ]
    new = [key for key in dict.fromkeys(keys) if key is not None and key not in _known]
    if new:
        pool = _pools.setdefault(workers, WorkerPool(f"{__name__}:compare", workers, warm_up=["1", "1"]))
        scores = pool.map([key[:2] for key in new], time_limit, 0.0)
        _known.update(zip(new, scores, strict=True))
    rewards = [
        None if reference is None else 0.0 if key is None else _known[key]
        for key, reference in zip(keys, wanted, strict=True)
    ]
    while len(_known) > REMEMBERED:
        _known.popitem(last=False)
    return rewards


def length_reward(
    completions: Sequence[Any], completion_ids: Sequence[Sequence[int]], *, limit: int = 4000, **kwargs: Any
) -> list[float]:
    """
    1 if the completion has at most `limit` tokens, else 0.

    GDPO's conditioned form, 1 only if it is also right: `gate(length_reward, on=correctness_reward, above=1.0)`.

    Args:
        completions (sequence of N): not looked at.
        completion_ids (sequence of N sequences of int): the completions' tokens, as TRL gives them.
        limit (`int`, *optional*, defaults to 4000): the paper's.

    Raises:
        ValueError: `limit` is not a whole number of at least 1.
    """
    if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
        raise ValueError(f"limit must be a whole number of tokens, at least 1, not {limit!r}.")
    return [float(len(ids) <= limit) for ids in completion_ids]


def text_of(completion: Any) -> str:
    """The text of a completion, or of its last message that has one."""
    if isinstance(completion, str):
        return completion
    for message in reversed(completion):
        if isinstance(message.get("content"), str):
            return message["content"]
    return ""


def last_boxed(text: str) -> str | None:
    r"""What is inside the last `\boxed{…}` whose braces are closed, or None. Takes linear time."""
    found, stack = None, []
    i = 0
    opening = "\\boxed{"
    while i < len(text):
        if text.startswith(opening, i):
            stack.append(i + len(opening))
            i += len(opening)
        elif text[i] == "\\":
            i += 2  # an escaped brace, or the start of a command
        else:
            if text[i] == "{":
                stack.append(-1)
            elif text[i] == "}" and stack:
                start = stack.pop()
                if start >= 0:
                    found = text[start:i]
            i += 1
    return found


def as_latex(reference: Any) -> str:
    """A reference as it would stand in the box: without `$`, 142.0 as 142, a list separated by commas."""
    if isinstance(reference, (list, tuple)):
        return ", ".join(as_latex(one) for one in reference)
    if isinstance(reference, float) and reference.is_integer():
        reference = int(reference)
    text = str(reference).strip()
    if len(text) > 1 and text.startswith("$") and text.endswith("$") and text.count("$") == 2:
        text = text[1:-1].strip()
    return text


def compare(pair: Sequence[str]) -> float:
    """1.0 if the two are the same by math-verify, without any time limit: what the workers do."""
    from math_verify import verify

    given, reference = pair
    try:
        wanted = _parsed(reference)
        return float(bool(wanted) and bool(verify(wanted, _parsed(given), timeout_seconds=None)))
    except (Exception, RecursionError, MemoryError):
        return 0.0


@lru_cache(maxsize=4096)
def _parsed(answer: str) -> Any:
    import logging

    from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse

    logging.getLogger("math_verify").setLevel(logging.CRITICAL)
    configs = [LatexExtractionConfig(boxed_match_priority=0), ExprExtractionConfig()]
    return parse("\\boxed{" + answer + "}", extraction_config=configs, parsing_timeout=None)
