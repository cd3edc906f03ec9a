"""The math reward with two workers against math-verify in one process, in the same run: `make bench`."""

import random
import time

from dara_trl.rewards.math import _known, compare, correctness_reward, last_boxed


def expressions(count: int, seed: int) -> list[str]:
    rng = random.Random(seed)
    kinds = (
        lambda a, b: f"{a}",
        lambda a, b: rf"\frac{{{a}}}{{{b}}}",
        lambda a, b: rf"{a}\sqrt{{{b}}} + \pi",
        lambda a, b: f"({a}, {b})",
        lambda a, b: f"x^2 + {a}x - {b}",
    )
    return [rng.choice(kinds)(rng.randint(2, 10**6), rng.randint(2, 999)) for _ in range(count)]


def compare_speed(name: str, answers: list[str], references: list[str]) -> None:
    texts = [f"Thus \\boxed{{{answer}}}." for answer in answers]
    correctness_reward(["\\boxed{1}"] * 40, list(range(40)), num_workers=2)  # the workers have started
    _known.clear()
    start = time.perf_counter()
    alone = [compare((last_boxed(text) or "", reference)) for text, reference in zip(texts, references, strict=True)]
    middle = time.perf_counter()
    together = correctness_reward(texts, references, num_workers=2)
    end = time.perf_counter()
    assert together == alone
    print(
        f"{name}: {len(texts) / (end - middle):.0f} completions a second against {len(texts) / (middle - start):.0f}, "
        f"{(middle - start) / (end - middle):.2f} times; {sum(alone):.0f} of {len(texts)} right"
    )


def main() -> None:
    distinct, others = expressions(1000, 0), expressions(1000, 1)
    references = [one if i % 2 else other for i, (one, other) in enumerate(zip(distinct, others, strict=True))]
    compare_speed("1,000 different answers", distinct, references)
    # 128 prompts, 16 rollouts each, of which half give the right answer and the others one of four.
    rng, answers, wanted = random.Random(2), [], []
    for reference in expressions(128, 3):
        wrong = expressions(4, rng.randrange(10**9))
        answers += [reference if rng.random() < 0.5 else rng.choice(wrong) for _ in range(16)]
        wanted += [reference] * 16
    compare_speed("2,048 rollouts of 128 problems", answers, wanted)


if __name__ == "__main__":
    main()
