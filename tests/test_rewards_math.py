"""Math rewards: known pairs, hostile completions, dead workers, order, and speed against math-verify alone."""

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dara_trl import gate
from dara_trl.rewards import math as rewards
from dara_trl.rewards.workers import WorkerError, WorkerPool


pytest.importorskip("math_verify", reason="needs the extra 'math'")

HERE = "worker_functions"


def boxed(*answers):
    return [f"So we get $\\boxed{{{answer}}}$." for answer in answers]


@pytest.mark.parametrize(
    ("given", "reference", "expected"),
    [
        ("0.5", r"\frac{1}{2}", 1),
        (r"\frac12", "0.5", 1),
        ("142", 142.0, 1),
        ("142.0", "142", 1),
        (r"\{1, 2, 3\}", r"\{3, 2, 1\}", 1),
        (r"\{1, 2\}", r"\{1, 2, 3\}", 0),
        ("[0, 3)", "[0,3)", 1),
        ("(0, 3)", "[0,3)", 0),
        (r"90^\circ", "90", 1),
        (r"5 \text{ cm}", "5", 1),
        (r"x^2 + 2x + 1", "(x+1)^2", 1),
        (r"\left(3, \frac{\pi}{2}\right)", r"(3, \pi/2)", 1),
        (r"\text{Evelyn}", r"\text{Evelyn}", 1),
        ("1, 2", ["1", "2"], 1),
        ("2", ["$2$"], 1),
        ("1", ["1", "2"], 0),
        (r"8.7 \times 10^{8}", ["8.7 \\times 10^{8}"], 1),
        ("025", "25", 1),
        ("", "3", 0),
        ("nothing", "3", 0),
    ],
)
def test_known_pairs(given, reference, expected):
    assert rewards.correctness_reward(boxed(given), [reference], num_workers=1) == [expected]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"\boxed{1} or \boxed{2}", "2"),
        (r"\boxed{1} or \boxed{2", "1"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\boxed{\{1, 2)}", r"\{1, 2)"),
        (r"\boxed{a \boxed{b} c}", r"a \boxed{b} c"),
        (r"{ \boxed{1} {", "1"),
        (r"} \boxed{1}", "1"),
        ("", None),
        ("42", None),
        ("\\boxed", None),
        ("\\boxed{1}\\", "1"),
    ],
)
def test_last_boxed(text, expected):
    assert rewards.last_boxed(text) == expected


def test_messages_and_missing_references():
    chat = [[{"role": "assistant", "content": r"\boxed{1}"}], [{"role": "assistant", "content": None}]]
    assert rewards.correctness_reward(chat, ["1", "1"], num_workers=1) == [1.0, 0.0]
    assert rewards.correctness_reward(boxed("1", "2"), [None, "2"], num_workers=1) == [None, 1.0]


def test_length_and_its_conditioned_form():
    ids = [[1] * 3, [1] * 4, [1] * 2]
    assert rewards.length_reward(["", "", ""], ids, limit=3) == [1.0, 0.0, 1.0]
    conditioned = gate(rewards.length_reward, on=rewards.correctness_reward, above=1.0)
    texts = boxed("1", "1", "2")
    assert conditioned(completions=texts, answer=["1", "1", "1"], completion_ids=[[1]] * 3) == [1.0, 1.0, 0.0]


NESTED = "{" * 3000 + "1" + "}" * 3000
HOSTILE = {
    "tower": "9^{9^{9^{9^{9^9}}}}",
    "factorial": "(10^9)!" + "!" * 20,
    "sum": r"\sum_{k=1}^{10^9} \frac{1}{k^{k}}",
    "nested fractions": r"\frac{1}{" * 400 + "1" + "}" * 400,
    "nested braces": NESTED,
    "a megabyte of braces": "{" * 500_000 + "}" * 500_000,
    "open braces": "{" * 1_000_000,
    "long product": "*".join(f"(x+{i})" for i in range(3000)),
    "digits": "7" * 200_000,
    "nul": "\x00\ud800",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_completion_scores_0_in_its_time(name):
    rewards.correctness_reward(boxed("1", "2"), ["3", "3"], num_workers=1)  # the worker has started
    start = time.monotonic()
    answers = [HOSTILE[name], "17"]
    assert rewards.correctness_reward(boxed(*answers), ["17", "17"], num_workers=1, time_limit=1.0) == [0.0, 1.0]
    # Its second, and where the worker was killed another's start.
    assert time.monotonic() - start < 1.0 + 8


def test_a_hostile_reference_is_no_better():
    assert rewards.correctness_reward(boxed("17"), [HOSTILE["tower"]], num_workers=1, time_limit=1.0) == [0.0]


def test_order_is_kept_over_many_chunks():
    pool = WorkerPool(f"{HERE}:double", 2)
    values = list(range(1000))
    assert pool.map(values, 5.0, None) == [2 * value for value in values]
    assert pool.map([], 5.0, None) == []
    pool.close()
    assert pool.map([4], 5.0, None) == [8]
    pool.close()


def test_workers_that_hang_die_or_fail_are_replaced():
    pool = WorkerPool(f"{HERE}:moody", 2)
    values = [*range(20), "hang", *range(20), "die", "die", 3, "raise", "print", *range(20)]
    pool.map([1], 5.0, None)
    start = time.monotonic()
    found = pool.map(values, 1.0, "failed")
    assert time.monotonic() - start < 20
    assert found == ["failed" if value in ("hang", "die", "raise") else value for value in values]
    pool.close()


def test_what_the_first_call_imports_is_no_answer_s_time():
    for warm_up, expected in ((None, [0]), (1, [5])):
        pool = WorkerPool(f"{HERE}:slow_at_first", 1, warm_up=warm_up)
        assert pool.map([5], 0.7, 0) == expected
        pool.close()


def test_worker_that_cannot_start_says_why():
    pool = WorkerPool("no_such_module:x", 1)
    with pytest.raises(WorkerError, match=r"no_such_module:x did not start: ModuleNotFoundError: No module named"):
        pool.map([1], 1.0, None)


def test_workers_end_with_the_trainer(tmp_path):
    """Killed in the middle of a hanging answer, so that nobody can tell them."""
    script = f"""
import sys
from dara_trl.rewards.workers import WorkerPool
pool = WorkerPool("{HERE}:moody", 1)
pool.map([1], 5.0, None)
print(pool._workers[0]._process.pid, flush=True)
pool.map(["hang"], 60.0, None)
"""
    path = os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": path}
    )
    worker = int(process.stdout.readline())
    process.kill()
    process.wait()
    end = time.monotonic() + 10
    while time.monotonic() < end:
        try:
            os.kill(worker, 0)
        except ProcessLookupError:
            return
        state = Path(f"/proc/{worker}/stat").read_text().rpartition(")")[2].split()[0]
        if state == "Z":
            return
        time.sleep(0.1)
    pytest.fail("the worker goes on")


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"num_workers": 0}, "num_workers must be a whole number of at least 1, not 0"),
        ({"time_limit": 0}, "time_limit must be a number of seconds above 0, not 0"),
        ({"answer": ["1"]}, "answer has 1 references for 2 completions"),
    ],
)
def test_bad_arguments_are_named(fields, words):
    with pytest.raises(ValueError, match=words):
        rewards.correctness_reward(**{"completions": boxed("1", "2"), "answer": ["1", "2"], **fields})
    with pytest.raises(ValueError, match="limit must be a whole number"):
        rewards.length_reward(["a"], [[1]], limit=0)


SETS = ["math", "aime", "amc", "minerva", "olympiad_bench"]


@pytest.mark.slow
def test_references_are_right_against_themselves_and_scores_are_math_verifys(shared_data):
    """All of the five test sets; then as many answers to other problems."""
    references = []
    for name in SETS:
        rows = json.loads((shared_data / "math" / f"deepscaler_test_{name}.json").read_text())
        references += [row["answer"] for row in rows]
    texts = boxed(*[rewards.as_latex(reference) for reference in references])
    assert len(references) == 1560
    assert rewards.correctness_reward(texts, references, num_workers=2) == [1.0] * 1560

    others = list(dict.fromkeys(rewards.as_latex(reference) for reference in references))
    pairs = list(zip(others, random.Random(0).sample(others, len(others)), strict=True))
    rewards._known.clear()
    alone = [rewards.compare(pair) for pair in pairs]
    together = rewards.correctness_reward(boxed(*others), [reference for _, reference in pairs], num_workers=2)
    assert together == alone
    assert sum(alone) < 20
