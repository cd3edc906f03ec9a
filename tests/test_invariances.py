"""What must change nothing, for each method: and that the method really lacks what it says it lacks.

Each invariance is a function of the method that returns two lists of advantages. eps is 0, as it has a scale.
"""

import math
import random

import pytest
import torch
from random_rewards import options, random_rewards, tensor

from dara_trl import METHODS, aggregate


# A method with other settings than its defaults, which it shares its invariances with.
VARIANTS = {
    "dara_sym, covariance": ("dara_sym", {"calibration": "covariance"}),
    "dara_sym, covariance, hard": ("dara_sym", {"calibration": "covariance", "conflict_filter": "hard"}),
    "dara_asym, snr": ("dara_asym", {"conflict_filter": "snr"}),
}
ALL = {**{name: (name, {}) for name in METHODS}, **VARIANTS}


def sample(method, groups=24, size=4):
    """Two dense rewards and a rare one; some do not apply, but every rollout is scored by one."""
    rewards = tensor(random_rewards(random.Random(method), groups, size, 3, 0.2))
    rewards[:, 1] = rewards[:, 1].nan_to_num(0.75)
    return rewards


def run(method, rewards, size=4, **changes):
    name, settings = ALL[method]
    extra = {"eps": 0.0, **settings, **options(name, rewards), **changes}
    return aggregate(rewards, num_generations=size, method=name, **extra).advantages_N


def group_order(method):
    rewards = sample(method)
    order = torch.randperm(24, generator=torch.Generator().manual_seed(1))
    rows = torch.arange(96).view(24, 4)[order].flatten()
    return run(method, rewards[rows]), run(method, rewards)[rows]


def rollout_order(method):
    rewards = sample(method)
    rows = torch.arange(96).view(24, 4)[:, [2, 0, 3, 1]].flatten()
    return run(method, rewards[rows]), run(method, rewards)[rows]


def scale(method):
    rewards = sample(method)
    return run(method, rewards * torch.tensor([0.5, 1.0, 8.0])), run(method, rewards)


def joint_scale(method):
    rewards = sample(method)
    return run(method, rewards * 8), run(method, rewards)


def shift(method):
    rewards = sample(method)
    return run(method, rewards + torch.tensor([10.0, 0.0, -3.0])), run(method, rewards)


def dead(method):
    """A further reward that is the same for all rollouts."""
    rewards = sample(method)
    return run(method, torch.cat([rewards, torch.full((96, 1), 0.7)], dim=1)), run(method, rewards)


def watched(method):
    """A further reward of priority 0."""
    rewards = sample(method)
    more = torch.cat([rewards, torch.rand(96, 1, generator=torch.Generator().manual_seed(0))], dim=1)
    return run(method, more, reward_weights=[1.0, 2.0, 0.5, 0.0]), run(method, rewards, reward_weights=[1.0, 2.0, 0.5])


def unscored(method):
    """A further rollout in each group that no reward scores."""
    rewards = sample(method)
    more = torch.cat([rewards.view(24, 4, 3), torch.full((24, 1, 3), math.nan)], dim=1).view(120, 3)
    got = run(method, more, size=5).view(24, 5)
    assert (got[:, 4] == 0).all()
    return got[:, :4].flatten(), run(method, rewards)


def repeated(method):
    rewards = sample(method).float()
    first, second = run(method, rewards), run(method, rewards)
    assert torch.equal(first, second)
    return first, second


def half_precision(method):
    """float16 and bfloat16 are computed in float32."""
    rewards = torch.randint(0, 3, (96, 3), generator=torch.Generator().manual_seed(0)) / 2
    low = torch.cat([run(method, rewards.to(dtype)) for dtype in (torch.float16, torch.bfloat16)])
    assert low.dtype == torch.float32
    return low, run(method, rewards.double()).float().repeat(2)


INVARIANCES = {
    function.__name__: function
    for function in (
        group_order,
        rollout_order,
        scale,
        joint_scale,
        shift,
        dead,
        watched,
        unscored,
        repeated,
        half_precision,
    )
}


@pytest.mark.parametrize("method", ALL)
@pytest.mark.parametrize("name", INVARIANCES)
def test_has_it_or_says_that_it_lacks_it(method, name):
    got, expected = INVARIANCES[name](method)
    assert expected.abs().max() > 0.1
    difference = float((got - expected).abs().max())
    if name in METHODS[ALL[method][0]].lacks:
        assert difference > 0.01
    else:
        assert difference < 1e-5


def test_lacks_are_known():
    assert {name for method in METHODS.values() for name in method.lacks} <= set(INVARIANCES)


@pytest.mark.parametrize("exponent", [-120, -100, -40, 40, 100, 103])
@pytest.mark.parametrize("method", [m for m in ALL if "joint_scale" not in METHODS[ALL[m][0]].lacks])
def test_extreme_scales_are_the_same_without_eps(method, exponent):
    rewards = sample(method).float()
    rewards[:, 2] = (rewards[:, 2] > 0).float()
    torch.testing.assert_close(run(method, rewards * 2.0**exponent), run(method, rewards), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("method", ALL)
def test_single_reward_praises_what_is_above_its_groups_mean(method):
    rewards = torch.rand(96, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    above = rewards.view(24, 4) > rewards.view(24, 4).mean(dim=1, keepdim=True)
    assert torch.equal(run(method, rewards) > 0, above.flatten())
