"""What a reward function returns is looked at: a fault names the reward, never a silent wrong number."""

import asyncio
from functools import partial

import numpy as np
import pytest
import torch
from rollouts import count_a, run

from dara_trl.reward_values import checked, reward_values


@pytest.mark.parametrize(
    "values",
    [
        [1, None, 2.5],
        (1.0, None, 2.5),
        np.array([1, np.nan, 2.5]),
        [np.float32(1), None, torch.tensor(2.5)],
        torch.tensor([[1.0], [float("nan")], [2.5]]),
        (value for value in [True, None, 2.5]),
    ],
    ids=["list", "tuple", "numpy", "mixed", "tensor", "generator"],
)
def test_what_trl_takes_is_taken(values):
    one, none, other = reward_values(values, "r")
    assert (one, other) == (1.0, 2.5)
    assert none is None or none != none


@pytest.mark.parametrize(
    ("returned", "words"),
    [
        (None, r"returned None \(NoneType\); it must return a list"),
        (1.0, r"returned 1.0 \(float\)"),
        ("111", r"returned '111' \(str\)"),
        ({0: 1.0, 1: 2.0}, r"returned \{0: 1.0, 1: 2.0\} \(dict\)"),
        ({1.0}, r"returned \{1.0\} \(set\)"),
        ([1.0, "2"], r"returned '2' \(str\) for completion 1 of this process"),
        ([[1.0], [2.0]], r"returned \[1.0\] \(list\) for completion 0"),
        ([1.0, 1j], r"returned 1j \(complex\) for completion 1"),
        ([10**5000], r"returned an int of 16610 bits for completion 0"),
        ([torch.zeros(2)], r"returned tensor\(\[0., 0.\]\) \(Tensor\) for completion 0"),
    ],
)
def test_what_is_no_list_of_numbers_is_named(returned, words):
    with pytest.raises(TypeError, match=f"Reward 'mine' {words}"):
        checked(lambda: returned, "mine")()

    async def later():
        return returned

    for func in (later, partial(later)):
        with pytest.raises(TypeError, match=f"Reward 'mine' {words}"):
            asyncio.run(checked(func, "mine")())


def by_prompt(prompts, **kwargs):
    return dict.fromkeys(range(len(prompts)), 1.0)


async def judged(prompts, **kwargs):
    return [1.0] * (len(prompts) - 1) + ["good"]


@pytest.mark.parametrize(("func", "given"), [(by_prompt, "{0: 1.0"), (judged, "'good'")], ids=["dict", "async"])
def test_the_trainer_names_the_reward(tiny_model, tmp_path, func, given):
    with pytest.raises(TypeError, match=f"Reward '{func.__name__}' returned {given}"):
        run(tiny_model, tmp_path, [count_a, func])
