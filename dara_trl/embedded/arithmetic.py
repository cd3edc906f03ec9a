"""A tiny world of sums: a length limit that nearly every answer keeps, and correctness that is still noisy.

A problem adds three numbers; an answer works step by step and ends in a box. Demonstrations sometimes check a step in
one more line, which the limit has no room for, and sometimes add wrongly. Everything follows from the seed.
"""

import hashlib
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal


if TYPE_CHECKING:
    from datasets import Dataset

Split = Literal["train", "test"]

PROBLEM = "Compute {0}+{1}+{2}."
CHECK = "Check: "
FIRST = range(10, 60)
OTHERS = range(2, 10)
HELD_OUT = 0.2


@dataclass(frozen=True)
class Sum:
    """A problem: three numbers to add."""

    numbers: tuple[int, int, int]

    @property
    def problem(self) -> str:
        """The question as a text."""
        return PROBLEM.format(*self.numbers)

    @property
    def prompt(self) -> list[dict[str, str]]:
        """The question as a conversation."""
        return [{"role": "user", "content": self.problem}]

    @property
    def answer(self) -> str:
        """The reference."""
        return str(sum(self.numbers))


def sums(split: Split, size: int, seed: int = 0) -> list[Sum]:
    """`size` random problems. The splits share none.

    Raises:
        ValueError: `split` is neither "train" nor "test", or `size` is less than 1.
    """
    if split not in ("train", "test"):
        raise ValueError(f'split must be "train" or "test", not {split!r}.')
    if size < 1:
        raise ValueError(f"size must be at least 1, not {size}.")
    rng = random.Random(f"{split} {seed}")
    found: list[Sum] = []
    while len(found) < size:
        one = Sum((rng.choice(FIRST), rng.choice(OTHERS), rng.choice(OTHERS)))
        if (hashlib.sha256(one.problem.encode()).digest()[0] < 256 * HELD_OUT) == (split == "test"):
            found.append(one)
    return found


def arithmetic_dataset(split: Split, size: int, seed: int = 0) -> "Dataset":
    """The world as a dataset for GRPO: conversational `prompt`, and `answer`, the reference as a text.

    Args:
        split (`str`): `"train"` or `"test"`. They share no problem.
        size (`int`): number of rows.
        seed (`int`, *optional*, defaults to 0): the same seed gives the same rows.

    Raises:
        ValueError: `split` is unknown, or `size` is less than 1.
    """
    from datasets import Dataset

    return Dataset.from_list([{"prompt": one.prompt, "answer": one.answer} for one in sums(split, size, seed)])


def demonstration(one: Sum, rng: random.Random, *, err: float, checking: float) -> str:
    """An answer as the policy's warm start imitates it.

    Args:
        one ([`Sum`]): the problem.
        rng (`random.Random`): source of checks and mistakes.
        err (`float`): chance of each of the two additions to be wrong by one or two.
        checking (`float`): chance of each addition to be written again, as a check.
    """
    total, lines = one.numbers[0], []
    for number in one.numbers[1:]:
        result = total + number
        if rng.random() < err:
            result += rng.choice((-2, -1, 1, 2))
        line = f"{total}+{number}={result}\n"
        lines += [line, CHECK + line] if rng.random() < checking else [line]
        total = result
    return "".join(lines) + f"\\boxed{{{total}}}"
