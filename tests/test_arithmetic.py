"""The embedded sums: splits that share nothing, answers that are right, and a policy near the length limit."""

import json
import random
import sys
from pathlib import Path

import pytest

from dara_trl.aggregation import METHODS
from dara_trl.cli import main as dara_trl
from dara_trl.embedded import arithmetic
from dara_trl.embedded.policy import ArithmeticRecipe, arithmetic_policy, resolve_model
from dara_trl.embedded.tokenizer import build_tokenizer
from dara_trl.rewards.math import last_boxed


EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


def test_splits_share_no_problem_and_follow_from_the_seed():
    train, test = ({one.problem for one in arithmetic.sums(split, 2000)} for split in ("train", "test"))
    assert not train & test
    assert arithmetic.sums("train", 5, seed=3) == arithmetic.sums("train", 5, seed=3) != arithmetic.sums("train", 5)
    for arguments, message in ((("dev", 1), "split must be"), (("train", 0), "size must be")):
        with pytest.raises(ValueError, match=message):
            arithmetic.sums(*arguments)


def test_demonstrations():
    tokenizer, rng = build_tokenizer(), random.Random(0)
    for one in arithmetic.sums("train", 200):
        clean = arithmetic.demonstration(one, rng, err=0.0, checking=0.0)
        assert last_boxed(clean) == one.answer == str(eval(one.problem[len("Compute ") : -1]))
        assert len(tokenizer(clean).input_ids) == 26  # and the end: within the recipe's limit of 32
        checked = arithmetic.demonstration(one, rng, err=0.0, checking=1.0)
        assert last_boxed(checked) == one.answer
        assert len(tokenizer(checked).input_ids) == 56
        assert last_boxed(arithmetic.demonstration(one, rng, err=1.0, checking=0.0)) != "" != one.answer


def test_dataset_is_what_the_reward_reads():
    rows = arithmetic.arithmetic_dataset("test", 3)
    assert rows.column_names == ["prompt", "answer"]
    assert rows[0]["prompt"][0]["content"].startswith("Compute ")


def test_names(tmp_path, monkeypatch):
    monkeypatch.setenv("DARA_TRL_CACHE", str(tmp_path))
    named = resolve_model("embedded:arithmetic:steps=2,clean_steps=1,batch_size=4,checking=0.5")
    assert named == str(arithmetic_policy(ArithmeticRecipe(steps=2, clean_steps=1, batch_size=4, checking=0.5)))
    with pytest.raises(ValueError, match=r"embedded:arithmetic has no setting 'good'\. Known: .*checking, seed"):
        resolve_model("embedded:arithmetic:good=1")


@pytest.fixture
def train_math(tmp_path, monkeypatch):
    pytest.importorskip("math_verify", reason="needs the extra 'math'")
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.chdir(tmp_path)
    import train_math

    def run(*arguments):
        recipe = ["--config", str(EXAMPLES / "configs" / "math_cpu.yaml"), "--reward_workers", "1"]
        monkeypatch.setattr(sys, "argv", ["train_math.py", *recipe, *arguments])
        train_math.main()

    return run


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--rewards", "correctness", "format"], "unknown format; choose from correctness, length, length_if_correct"),
        (["--rewards", "length", "length"], "has a reward twice"),
        (["--length_limit", "0"], "--length_limit must be at least 1"),
        (["--length_limit", "64"], "is kept by every completion"),
        (["--dataset", "x.json"], "does not exist"),
    ],
)
def test_bad_arguments(train_math, capsys, arguments, message):
    with pytest.raises((SystemExit, FileNotFoundError)) as raised:
        train_math(*arguments)
    assert message in capsys.readouterr().err + str(raised.value)


@pytest.mark.slow
def test_all_methods_train_and_are_reported(train_math, tmp_path, capsys):
    """Every method for three steps, and the conditioned reward, on the recipe; the report has length and density."""
    settings = {
        "static_asym": ["--aggregation_static_weights", "1", "2"],
        "static_sym": ["--aggregation_static_weights", "1", "2"],
        "saw": ["--aggregation_reward_ranges", *"0101"],
        "sa_mrpo": ["--aggregation_reward_ranges", *"0101"],
    }
    small = ["--max_steps", "3", "--per_device_train_batch_size", "64"]
    for method in METHODS:
        train_math("--aggregation", method, *settings.get(method, []), *small, "--output_dir", str(tmp_path / method))
    rewards = ["--rewards", "correctness", "length_if_correct"]
    train_math(*rewards, *small, "--eval_size", "256", "--eval_strategy", "steps", "--eval_steps", "3",
               "--output_dir", str(tmp_path / "conditioned"))  # fmt: skip
    capsys.readouterr()
    runs = [f"{method}={tmp_path / method}" for method in METHODS]
    assert dara_trl(["report", *runs, "--threshold", "length_reward=0.99", "--output", "report", "--json"]) == 0
    text = capsys.readouterr().out
    found = json.loads(text)
    page = (tmp_path / "report" / "report.html").read_text()
    assert "length_reward" in page
    assert "density" in page
    for method in METHODS:
        assert f'"{method}"' in text, method
        rows = json.loads((tmp_path / method / "trainer_state.json").read_text())["log_history"]
        first = rows[0]
        assert 0.7 < first["rewards/length_reward/mean"] < 1
        assert 0.3 < first["rewards/correctness_reward/mean"] < 0.8
        assert first["dara/density/length_reward"] > 0
    assert found
    rows = json.loads((tmp_path / "conditioned" / "trainer_state.json").read_text())["log_history"]
    name = "rewards/length_reward_given_correctness_reward/mean"
    assert all(row[name] <= row["rewards/correctness_reward/mean"] for row in rows if name in row)
    assert any("eval_" + name in row for row in rows)
