"""Conditioned rewards: the right values, in plain TRL too, through pickle, and asynchronous."""

import asyncio
import pickle
from functools import partial

import pytest
from rollouts import count_a, prompts, rare
from trl import GRPOConfig, GRPOTrainer

from dara_trl import gate


def length(completions, **kwargs):
    return [float(len(text)) for text in completions]


def picky(completions, **kwargs):
    return [None if text == "x" else float(text == "a") for text in completions]


async def slow_picky(completions, **kwargs):
    return picky(completions)


def scaled(completions, factor, **kwargs):
    return [factor * len(text) for text in completions]


def test_values():
    gated = gate(length, on=picky, above=1.0)
    assert gated(completions=["a", "bb", "x", "a"], prompts=[]) == [1.0, 0.0, None, 1.0]
    assert gated.__name__ == "length_given_picky"
    assert gate(picky, on=length, above=2, otherwise=-1, name="q")(completions=["a", "x", "xx"]) == [-1.0, None, 0.0]
    assert gate(length, on=length, above=2)(completions=["a", "aa", "aaa"]) == [0.0, 2.0, 3.0]


def test_survives_pickle_and_partials():
    gated = pickle.loads(pickle.dumps(gate(partial(scaled, factor=3.0), on=picky, above=1.0)))
    assert gated(completions=["a", "b"]) == [3.0, 0.0]
    assert gated.__name__ == "scaled_given_picky"


def test_asynchronous():
    gated = gate(length, on=slow_picky, above=1.0)
    assert asyncio.run(gated(completions=["a", "bb", "x"])) == [1.0, 0.0, None]


def test_condition_is_not_logged_twice():
    logged = []

    def loud(completions, log_metric=None, log_extra=None, **kwargs):
        log_metric("m", 1.0)
        log_extra("c", completions)
        return [1.0 for _ in completions]

    both = {"log_metric": lambda *a: logged.append(a), "log_extra": lambda *a: logged.append(a)}
    assert gate(loud, on=loud, above=1)(completions=["a"], **both) == [1.0]
    assert len(logged) == 2


def test_in_plain_trl(tiny_model, tmp_path):
    args = GRPOConfig(
        str(tmp_path),
        report_to="none",
        use_cpu=True,
        bf16=False,
        per_device_train_batch_size=16,
        num_generations=4,
        max_completion_length=8,
        max_steps=1,
        logging_steps=1,
        log_completions=True,
        num_completions_to_print=0,
    )
    trainer = GRPOTrainer(tiny_model, [rare, gate(count_a, on=rare, above=1.0)], args, train_dataset=prompts())
    trainer.train()
    rewards = trainer._logs["rewards"]
    expected = [
        count * open_ for count, open_ in zip(count_a(trainer._logs["completion"]), rewards["rare"], strict=True)
    ]
    assert list(rewards["count_a_given_rare"]) == expected
    assert 0 < sum(rewards["rare"]) < 16


@pytest.mark.parametrize(
    ("build", "error", "words"),
    [
        (lambda: gate("model", on=rare, above=1), TypeError, "reward must be a reward function, not str"),
        (lambda: gate(rare, on=None, above=1), TypeError, "on must be a reward function, not NoneType"),
        (lambda: gate(rare, on=rare, above="1"), TypeError, "above must be a number, not '1'"),
        (lambda: gate(rare, on=rare, above=1, otherwise=None), TypeError, "otherwise must be a number, not None"),
        (
            lambda: gate(lambda completions: [1.0], on=rare, above=1, name="g")(completions=["a", "b"]),
            ValueError,
            "g: reward, <lambda>, returned 1 rewards for 2 completions",
        ),
    ],
)
def test_bad_arguments_are_named(build, error, words):
    with pytest.raises(error, match=words):
        build()
