"""Metrics, warnings and names, without a trainer."""

import math
import warnings

import pytest
import torch
from random_rewards import options

from dara_trl import METHODS, aggregate
from dara_trl.telemetry import SignalWarnings, batch_metrics, unique_reward_names


REWARDS = torch.tensor([[0, 1], [1, 0], [0, 0], [1, 0], [0, 0], [1, 0], [0, 0], [0, 0]], dtype=torch.float32)


def test_metrics_of_a_hand_computed_batch():
    result = aggregate(REWARDS, num_generations=2, method="dara_sym", eps=0.0)
    assert batch_metrics(result, ["dense", "rare"]) == pytest.approx(
        {
            "dara/density/dense": 0.75,
            "dara/density/rare": 0.25,
            "dara/energy/dense": 3.0,
            "dara/energy/rare": 1.0,
            "dara/weight/dense": 1.0,
            "dara/weight/rare": 3**0.5,
            "dara/calibrated_energy/dense": 3.0,
            "dara/calibrated_energy/rare": 3.0,
            "dara/active_groups/dense": 3.0,
            "dara/active_groups/rare": 1.0,
            "dara/applicable/dense": 1.0,
            "dara/applicable/rare": 1.0,
            "dara/energy_ratio/dense": 1.0,
            "dara/energy_ratio/rare": 1 / 3,
            "dara/weight_at_cap/dense": 0.0,
            "dara/weight_at_cap/rare": 0.0,
            "dara/frac_groups_without_signal": 0.25,
            "dara/frac_rollouts_dropped": 0.0,
        }
    )
    capped = aggregate(REWARDS, num_generations=2, method="dara_asym", max_weight=1.5)
    assert batch_metrics(capped, ["dense", "rare"])["dara/weight_at_cap/rare"] == 1.0


def test_dropped_rollouts_are_counted_and_their_energy_is_not():
    opposed = torch.tensor([[0.0, 1.0], [1.0, 0.0], [0.0, 0.0], [1.0, 1.0]])
    result = aggregate(opposed, num_generations=2, method="dara_sym", conflict_filter="hard", eps=0.0)
    metrics = batch_metrics(result, ["a", "b"])
    assert metrics["dara/frac_rollouts_dropped"] == 0.5
    assert metrics["dara/frac_groups_without_signal"] == 0.5
    assert metrics["dara/energy/a"] == pytest.approx(2)
    assert metrics["dara/calibrated_energy/a"] == pytest.approx(1)


@pytest.mark.parametrize("method", METHODS)
def test_batch_without_signal_has_finite_metrics(method):
    rewards = torch.full((8, 2), torch.nan)
    result = aggregate(rewards, num_generations=2, method=method, **options(method, rewards))
    metrics = batch_metrics(result, ["a", "b"])
    assert all(value == value for value in metrics.values())
    assert metrics["dara/frac_groups_without_signal"] == 1.0
    assert metrics["dara/energy_ratio/a"] == 0.0


def check(watch, rewards, step=1, eps=1e-4):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        watch.check(aggregate(rewards, num_generations=2, eps=eps), step)
    return [str(w.message) for w in caught]


def test_no_signal_is_said_once_with_causes():
    watch = SignalWarnings(["format", "length"], eps=1e-4)
    dead = torch.tensor([[0.0, 0.3]] * 4)
    (message,) = check(watch, dead, step=7)
    assert "Step 7" in message
    assert "format=0, length=0.3" in message
    (partly,) = check(SignalWarnings(["a"], eps=1e-4), torch.tensor([[0.5], [torch.nan]] * 2))
    assert "a=0.5" in partly
    assert "max_completion_length" in message
    assert check(watch, dead) == []


def test_live_batch_is_silent():
    assert check(SignalWarnings(["a", "b"], eps=1e-4), REWARDS) == []


@pytest.mark.parametrize("scale", [1e-3, 1e-6, 1e-9])
def test_swallowed_energy_is_said_once_with_a_scale_that_would_do(scale):
    watch = SignalWarnings(["dense", "tiny"], eps=1e-4)
    rewards = REWARDS * torch.tensor([1.0, scale])
    (message,) = check(watch, rewards)
    assert "'tiny'" in message
    assert check(watch, rewards) == []
    factor = float(message.split("Multiply the reward by ")[1].split()[0])
    healthy = SignalWarnings(["dense", "tiny"], eps=1e-4)
    assert check(healthy, rewards * torch.tensor([1.0, factor])) == []
    assert len(check(healthy, rewards * torch.tensor([1.0, factor / 100]))) == 1


def test_none_takes_no_energy_away():
    rewards = torch.tensor([[1.0], [0.0], [math.nan], [math.nan]] * 4)
    watch = SignalWarnings(["maybe"], eps=1e-4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        watch.check(aggregate(rewards, num_generations=4), 1)


def test_differences_within_rounding_are_said_once():
    rewards = torch.tensor([3e6 + 1, 3e6, 3e6, 3e6, 1, 0, 0, 0]).view(-1, 1)
    watch = SignalWarnings(["offset"], eps=1e-4)
    (message,) = check(watch, rewards)
    assert "in 1 groups reward 'offset' differs by no more than four roundings" in message
    assert check(watch, rewards) == []
    assert check(SignalWarnings(["offset"], eps=1e-4), rewards - 3e6 * (rewards > 1)) == []


def test_hopeless_scale_gets_no_factor():
    (message,) = check(SignalWarnings(["dense", "lost"], eps=1e-4), REWARDS * torch.tensor([1.0, 1e-42]))
    assert "'lost'" in message
    assert "inf" not in message
    assert "Lower aggregation_eps" in message


def test_scale_that_would_do_where_groups_differ_in_scale():
    rewards = torch.tensor([0.0, 1.0, 0.0, 1e-6, 0.0, 1e-6, 0.0, 1e-6]).view(-1, 1)
    (message,) = check(SignalWarnings(["mixed"], eps=1e-4), rewards)
    factor = float(message.split("Multiply the reward by ")[1].split()[0])
    assert check(SignalWarnings(["mixed"], eps=1e-4), rewards * factor) == []


def test_reward_that_applies_nowhere_is_said_once():
    watch = SignalWarnings(["dense", "absent"], eps=1e-4)
    rewards = REWARDS.clone()
    rewards[:, 1] = math.nan
    (message,) = check(watch, rewards)
    assert "absent gave None or NaN for every rollout" in message
    assert check(watch, rewards) == []
    rewards[0, 1] = 1.0
    assert check(SignalWarnings(["dense", "absent"], eps=1e-4), rewards) == []


@pytest.mark.parametrize(
    ("names", "unique"),
    [
        (["a", "b"], ["a", "b"]),
        (["a", "a", "a"], ["a", "a_2", "a_3"]),
        (["a", "a", "a_2"], ["a", "a_3", "a_2"]),
        (["a_2", "a", "a"], ["a_2", "a", "a_3"]),
        (["<lambda>", "<lambda>"], ["<lambda>", "<lambda>_2"]),
    ],
)
def test_names_become_unique(names, unique):
    assert unique_reward_names(names) == unique


@pytest.mark.parametrize("name", ["step", "prompt", "completion", "advantage", "image"])
def test_names_of_table_columns_are_refused(name):
    with pytest.raises(ValueError, match=f"Reward 1 is named '{name}'"):
        unique_reward_names(["a", name])
