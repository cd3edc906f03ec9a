"""The mathematics: against an independent reference, against its own identities, and against bad input."""

import math
import random

import numpy as np
import pytest
import reference
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from random_rewards import options, random_rewards, tensor

from dara_trl import METHODS, aggregate
from dara_trl.aggregation import Contributions


NORMALIZED = [name for name, method in METHODS.items() if "batch_norm" in method.reads]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("none_rate", [0.0, 0.3, 0.8])
def test_agrees_with_plain_python(method, none_rate):
    rng = random.Random(f"{method}{none_rate}")
    for _ in range(60):
        groups, size, num_rewards = rng.randint(1, 8), rng.choice([1, 2, 3, 4, 8]), rng.randint(1, 4)
        rewards = random_rewards(rng, groups, size, num_rewards, none_rate)
        alpha = [rng.choice([0.25, 1.0, 2.0]) for _ in range(num_rewards)]
        for dtype in (torch.float32, torch.float64):
            if (method, size, dtype) == ("rvpo", 2, torch.float32):
                continue  # opposed rewards leave two rollouts apart by eps alone, which is near float32's rounding
            given_NK = tensor(rewards).to(dtype)
            extra = options(method, given_NK)
            seen = [[None if math.isnan(r) else r for r in row] for row in given_NK.tolist()]
            expected = reference.aggregate(seen, size, method, alpha, **extra)
            got = aggregate(given_NK, num_generations=size, method=method, reward_weights=alpha, **extra)
            assert got.advantages_N.tolist() == pytest.approx(expected, abs=1e-5, rel=1e-5)


@pytest.mark.parametrize("method", NORMALIZED)
def test_token_normalisation_agrees_with_plain_python(method):
    rng = random.Random(method)
    for _ in range(30):
        rewards = random_rewards(rng, 5, 4, 3, 0.2)
        lengths = [rng.choice([0, 1, 7, 40]) for _ in rewards]
        extra = options(method, tensor(rewards))
        expected = reference.aggregate(rewards, 4, method, [1.0] * 3, lengths=lengths, **extra)
        got = aggregate(
            tensor(rewards).float(),
            num_generations=4,
            method=method,
            batch_norm="token",
            lengths_N=torch.tensor(lengths),
            **extra,
        )
        assert got.advantages_N.tolist() == pytest.approx(expected, abs=1e-5)


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**31), st.integers(1, 12), st.sampled_from([2, 3, 4, 7, 8, 12]), st.integers(1, 4))
def test_energy_is_groups_times_density_times_freedom(seed, groups, size, num_rewards):
    rewards = tensor(random_rewards(random.Random(seed), groups, size, num_rewards, 0.0)).float()
    result = aggregate(rewards, num_generations=size, eps=0.0)
    torch.testing.assert_close(result.energy_K, groups * result.density_K * (size - 1), rtol=1e-5, atol=1e-5)


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**31), st.sampled_from([2, 4, 8]), st.sampled_from([1.0, 1.5, 5.0, 100.0]))
def test_symmetric_weights_equalise_energy_until_the_cap(seed, size, cap):
    torch.manual_seed(seed)
    rates = torch.rand(4) ** 3
    rewards = (torch.rand(32 * size, 4) < rates).float()
    result = aggregate(rewards, num_generations=size, method="dara_sym", eps=0.0, max_weight=cap)
    target = 32 * result.density_K.max() * (size - 1)
    for k in range(4):
        if result.density_K[k] == 0:
            assert result.weights_K[k] == 1
            assert result.calibrated_energy_K[k] == 0
        elif result.weights_K[k] < cap:
            torch.testing.assert_close(result.calibrated_energy_K[k], target, rtol=1e-5, atol=1e-4)
        else:
            held_down = (result.density_K.max() / result.density_K[k]).sqrt() > 1
            assert result.at_cap_K[k] == held_down
            torch.testing.assert_close(result.calibrated_energy_K[k], cap**2 * result.energy_K[k])


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**31), st.sampled_from([2, 3, 8]))
def test_asymmetric_energy_lies_between_its_bounds(seed, size):
    rewards = tensor(random_rewards(random.Random(seed), 16, size, 3, 0.2)).float()
    result = aggregate(rewards, num_generations=size, method="dara_asym", eps=0.0)
    assert (result.energy_K <= result.calibrated_energy_K * (1 + 1e-5)).all()
    assert (result.calibrated_energy_K <= result.weights_K**2 * result.energy_K * (1 + 1e-5)).all()


@pytest.mark.parametrize("value", [0.1, 0.3, 0.7, -2.7, 1e-8, 1e8, 3e32, -3e32, 1e-44])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_constant_group_has_no_density_and_no_advantage(value, dtype):
    for size in range(2, 33):
        rewards = torch.full((3 * size, 1), value, dtype=dtype)
        for method in METHODS:
            result = aggregate(
                rewards, num_generations=size, method=method, batch_norm="none", eps=0.0, **options(method, rewards)
            )
            assert result.density_K.item() == 0
            assert (result.signals.advantages_KGB == 0).all()
            assert (result.advantages_N == 0).all()


def test_rounding_is_no_difference_but_a_small_difference_is():
    third = torch.tensor(0.3)
    rounded = torch.stack([third, torch.nextafter(third, torch.tensor(1.0)), third, third]).unsqueeze(1)
    assert aggregate(rounded, num_generations=4, eps=0.0).density_K.item() == 0
    apart = rounded + torch.tensor([0.0, 1e-5, 0.0, 0.0]).unsqueeze(1)
    assert aggregate(apart, num_generations=4, eps=0.0).density_K.item() == 1


def test_token_normalisation_has_its_own_eps():
    rewards = torch.tensor([[0.0], [1.0], [1.0], [0.0]], dtype=torch.float64)
    result = aggregate(
        rewards,
        num_generations=2,
        method="gdpo",
        eps=0.0,
        reward_weights=[1e-4],
        batch_norm="token",
        lengths_N=torch.full((4,), 5),
    )
    score = 1e-4 * math.sqrt(0.5)
    expected = score / math.sqrt(score**2 * 20 / 19 + 1e-8)
    assert result.advantages_N.abs().tolist() == pytest.approx([expected] * 4, rel=1e-9)


def test_sum_that_is_constant_but_for_rounding_is_no_signal_for_grpo():
    rewards = torch.tensor([[0.1, 0.2], [0.3, 0.0], [0.2, 0.1], [0.0, 0.3]])
    result = aggregate(rewards, num_generations=4, method="grpo", eps=0.0)
    assert (result.advantages_N == 0).all()
    assert result.density_K.tolist() == [1.0, 1.0]


@pytest.mark.parametrize("form", ["sym", "asym"])
@pytest.mark.parametrize("batch_norm", ["sequence", "token", "none"])
def test_weights_of_one_are_gdpo_bitwise(form, batch_norm):
    rewards = tensor(random_rewards(random.Random(1), 32, 4, 4, 0.1)).float()
    common = {
        "num_generations": 4,
        "batch_norm": batch_norm,
        "lengths_N": torch.arange(128),
        "reward_weights": [1.0, 0.5, 2.0, 0.1],
    }
    gdpo = aggregate(rewards, method="gdpo", **common)
    dara = aggregate(rewards, method=f"dara_{form}", max_weight=1.0, **common)
    static_form = "static_sym" if form == "sym" else "static_asym"
    static = aggregate(rewards, method=static_form, static_weights=[1.0] * 4, **common)
    assert torch.equal(gdpo.advantages_N, dara.advantages_N)
    assert torch.equal(gdpo.advantages_N, static.advantages_N)
    assert torch.equal(gdpo.calibrated_energy_K, dara.calibrated_energy_K)


def test_equal_densities_leave_gdpo_untouched():
    rewards = torch.tensor([[0.0, 1.0], [1.0, 0.0], [1.0, 1.0], [0.0, 3.0]])
    dara = aggregate(rewards, num_generations=2, method="dara_asym")
    assert dara.weights_K.tolist() == [1.0, 1.0]
    assert torch.equal(dara.advantages_N, aggregate(rewards, num_generations=2, method="gdpo").advantages_N)


def test_hand_computed_case():
    # Four groups of two; reward 0 active in all of them, reward 1 in the first: density 1 and 1/4, weight 2.
    rewards = torch.tensor([[0, 1], [1, 0], [0, 0], [1, 0], [0, 0], [1, 0], [0, 0], [1, 0]], dtype=torch.float64)
    result = aggregate(rewards, num_generations=2, method="dara_asym", eps=0.0, batch_norm="none")
    z = math.sqrt(0.5)
    assert result.density_K.tolist() == [1.0, 0.25]
    assert result.weights_K.tolist() == [1.0, 2.0]
    assert result.energy_K.tolist() == pytest.approx([4.0, 1.0])
    assert result.calibrated_energy_K.tolist() == pytest.approx([4.0, 2.5])  # (2z)² + z² = 2.5
    assert result.advantages_N.tolist() == pytest.approx([-z + 2 * z, z - z, -z, z, -z, z, -z, z])
    symmetric = aggregate(rewards, num_generations=2, method="dara_sym", eps=0.0, batch_norm="none")
    assert symmetric.calibrated_energy_K.tolist() == pytest.approx([4.0, 4.0])


def test_none_rewards_leave_the_group_statistics_alone():
    rewards = torch.tensor([[0.0], [1.0], [math.nan], [1.0], [math.nan], [math.nan], [2.0], [math.nan]])
    result = aggregate(rewards, num_generations=4, method="gdpo", eps=0.0, batch_norm="none")
    expected = aggregate(rewards[[0, 1, 3]], num_generations=3, method="gdpo", eps=0.0, batch_norm="none")
    assert torch.equal(result.advantages_N[[0, 1, 3]], expected.advantages_N)
    assert (result.advantages_N[[2, 4, 5, 6, 7]] == 0).all()  # one scorable rollout is no comparison
    assert result.density_K.item() == 0.5
    assert result.applicable_K.item() == 1.0


def test_a_reward_that_applies_nowhere():
    rewards = torch.tensor([[0.0, math.nan], [1.0, math.nan]])
    result = aggregate(rewards, num_generations=2)
    assert result.applicable_K.tolist() == [1.0, 0.0]
    assert result.density_K.tolist() == [1.0, 0.0]
    assert result.weights_K.tolist() == [1.0, 1.0]


def test_rollout_that_nothing_scores_is_outside_the_batch_statistics():
    rewards = torch.tensor([[0.0], [1.0], [1.0], [math.nan], [0.0], [1.0], [0.0], [math.nan]])
    for batch_norm in ("sequence", "token"):
        got = aggregate(
            rewards, num_generations=4, method="gdpo", batch_norm=batch_norm, lengths_N=torch.ones(8)
        ).advantages_N
        kept = aggregate(
            rewards[[0, 1, 2, 4, 5, 6]],
            num_generations=3,
            method="gdpo",
            batch_norm=batch_norm,
            lengths_N=torch.ones(6),
        ).advantages_N
        assert got[3] == 0
        assert got[7] == 0
        torch.testing.assert_close(got[[0, 1, 2, 4, 5, 6]], kept)


@pytest.mark.parametrize("method", METHODS)
def test_single_generation_and_single_reward(method):
    for rewards in (torch.rand(5, 1), torch.rand(5, 3), torch.rand(1, 1)):
        result = aggregate(rewards, num_generations=1, method=method, **options(method, rewards))
        assert (result.advantages_N == 0).all()
        assert (result.density_K == 0).all()


@pytest.mark.parametrize("method", METHODS)
def test_batch_without_signal_is_all_zero(method):
    for eps in (0.0, 1e-4):
        for rewards in (torch.full((8, 2), 0.3), torch.full((8, 2), math.nan)):
            result = aggregate(rewards, num_generations=4, method=method, eps=eps, **options(method, rewards))
            for values in (result.advantages_N, result.density_K, result.energy_K, result.calibrated_energy_K):
                assert (values == 0).all()
            if method not in ("static_sym", "static_asym", "sa_mrpo"):  # weights that do not look at the signal
                assert (result.weights_K == 1).all()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("eps", [0.0, 1e-4])
def test_nothing_is_ever_infinite_or_nan(method, eps):
    torch.manual_seed(0)
    plain = torch.rand(8, 2)
    some_none = torch.where(torch.rand(8, 2) < 0.5, math.nan, plain)
    for rewards in (plain, some_none, plain * 1e-38, plain * 1e-44, plain * 1e32, plain - 1e6):
        for batch_norm in ("sequence", "token", "none"):
            for lengths in (torch.zeros(8), torch.ones(8), torch.tensor([0.0] * 7 + [1.0])):
                for reward_weights in (None, [0.0, 0.0], [0.0, 1.0]):
                    result = aggregate(
                        rewards,
                        num_generations=4,
                        method=method,
                        eps=eps,
                        batch_norm=batch_norm,
                        lengths_N=lengths,
                        reward_weights=reward_weights,
                        max_weight=math.inf,
                        **options(method, rewards),
                    )
                    for name in ("advantages_N", "weights_K", "density_K"):
                        assert torch.isfinite(getattr(result, name)).all(), name


def test_grpo_contributions_add_up_to_its_advantages():
    rewards = tensor(random_rewards(random.Random(5), 16, 4, 3, 0.2))
    out = METHODS["grpo"].function
    for scale_rewards in ("group", "batch", "none"):
        seen = {}

        def keep(signals, given, seen=seen):
            seen["out"] = out(signals, given)
            return seen["out"]

        result = aggregate(rewards, num_generations=4, method=keep, scale_rewards=scale_rewards, eps=1e-4)
        weighted = torch.nan_to_num(rewards).sum(1).view(16, 4)
        weighted[rewards.isnan().all(1).view(16, 4)] = math.nan
        centered = (weighted - weighted.nanmean(1, keepdim=True)).nan_to_num(0.0)
        if scale_rewards == "none":
            torch.testing.assert_close(result.advantages_N, centered.flatten())
        torch.testing.assert_close(
            seen["out"].contributions_KGB.sum(0).t().flatten(), result.advantages_N, rtol=1e-12, atol=1e-12
        )


def test_watched_reward_of_priority_zero_sets_no_standard():
    torch.manual_seed(0)
    dense, rare = torch.rand(64, 1), (torch.rand(64, 1) < 0.05).float()
    medium = (torch.rand(64, 1) < 0.3).float()
    alone = aggregate(torch.cat([medium, rare], 1), num_generations=4)
    watched = aggregate(torch.cat([medium, rare, dense], 1), num_generations=4, reward_weights=[1.0, 1.0, 0.0])
    assert torch.equal(alone.advantages_N, watched.advantages_N)
    assert torch.equal(alone.weights_K, watched.weights_K[:2])
    assert watched.density_K[2] == 1.0


def test_priorities_scale_the_contribution():
    rewards = tensor(random_rewards(random.Random(9), 16, 4, 2, 0.0))
    one = aggregate(rewards, num_generations=4)
    two = aggregate(rewards, num_generations=4, reward_weights=torch.tensor([2.0, 1.0]))
    torch.testing.assert_close(two.calibrated_energy_K, one.calibrated_energy_K * torch.tensor([4.0, 1.0]).double())
    assert torch.equal(one.energy_K, two.energy_K)


def test_same_input_same_bits_and_input_untouched():
    rewards = tensor(random_rewards(random.Random(2), 64, 8, 4, 0.1)).float()
    before = rewards.clone()
    first, second = (aggregate(rewards, num_generations=8) for _ in range(2))
    assert torch.equal(first.advantages_N, second.advantages_N)
    assert torch.equal(rewards.nan_to_num(7.0), before.nan_to_num(7.0))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_computes_in_float32_at_least(dtype):
    rewards = (torch.rand(32, 2, generator=torch.Generator().manual_seed(0)) < 0.3).to(dtype)
    result = aggregate(rewards, num_generations=4)
    assert result.advantages_N.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    wide = aggregate(rewards.double(), num_generations=4)
    torch.testing.assert_close(result.advantages_N.double(), wide.advantages_N, rtol=1e-5, atol=1e-6)


def test_non_contiguous_input_and_gradients_are_fine():
    rewards = torch.rand(2, 16, requires_grad=True).t()
    result = aggregate(rewards, num_generations=4)
    assert not result.advantages_N.requires_grad
    assert torch.equal(result.advantages_N, aggregate(rewards.detach().contiguous(), num_generations=4).advantages_N)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_gpu_agrees_with_cpu():
    rewards = tensor(random_rewards(random.Random(2), 64, 8, 4, 0.1)).float()
    for method in METHODS:
        cpu = aggregate(rewards, num_generations=8, method=method, **options(method, rewards))
        gpu = aggregate(rewards.cuda(), num_generations=8, method=method, **options(method, rewards))
        assert gpu.advantages_N.is_cuda
        torch.testing.assert_close(gpu.advantages_N.cpu(), cpu.advantages_N, rtol=1e-5, atol=1e-5)


def test_own_method():
    def first_reward_only(signals, given):
        keep = torch.zeros_like(signals.density_K)
        keep[0] = 1.0
        return Contributions(keep.view(-1, 1, 1) * signals.advantages_KGB, weights_K=keep)

    rewards = torch.rand(32, 2)
    own = aggregate(rewards, num_generations=4, method=first_reward_only)
    assert torch.equal(own.advantages_N, aggregate(rewards[:, :1], num_generations=4, method="gdpo").advantages_N)
    assert own.calibrated_energy_K[1] == 0
    with pytest.raises(TypeError, match="must return Contributions, not Tensor"):
        aggregate(rewards, num_generations=4, method=lambda signals, given: signals.advantages_KGB)
    with pytest.raises(ValueError, match=r"weights_K of shape \(1,\), torch.float32, not \(2,\)"):
        aggregate(
            rewards, num_generations=4, method=lambda s, g: Contributions(s.advantages_KGB, weights_K=torch.ones(1))
        )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda c: c * math.nan, "contributions_KGB with NaN"),
        (lambda c: c.double(), "contributions_KGB of shape .*float64, not .*float32"),
    ],
)
def test_own_method_with_unusable_output_is_named(change, words):
    def own(signals, given):
        return Contributions(change(signals.advantages_KGB), weights_K=torch.ones_like(signals.density_K))

    with pytest.raises(ValueError, match=words):
        aggregate(torch.rand(8, 2), num_generations=4, method=own)


def test_own_method_cannot_reach_the_callers_rewards():
    def careless(signals, given):
        signals.rewards_KGB.zero_()
        return Contributions(signals.advantages_KGB, weights_K=torch.ones_like(signals.density_K))

    rewards = torch.tensor([[1.0], [0.0]])
    aggregate(rewards, num_generations=2, method=careless)
    assert rewards.tolist() == [[1.0], [0.0]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("eps", [0.0, 1e-6, 1e-4])
@pytest.mark.parametrize("batch_norm", ["sequence", "token"])
@pytest.mark.parametrize("method", [m for m in NORMALIZED if m not in ("saw", "sa_mrpo", "rvpo")])  # other weights
def test_rewards_that_cancel_leave_no_advantage(method, batch_norm, eps, dtype):
    """S is then rounding noise, which a small eps would blow up to the size of real advantages."""
    torch.manual_seed(0)
    first = torch.rand(64, 1, dtype=dtype)
    common = {"num_generations": 8, "eps": eps, "batch_norm": batch_norm, "lengths_N": torch.arange(1, 65)}
    extra = {"static_weights": [1.0, 1.0]} if method.startswith("static") else {}
    cancelled = aggregate(torch.cat([first, 1 - first], 1), method=method, **common, **extra)
    assert (cancelled.advantages_N == 0).all()
    if method.startswith("gd2po"):
        return  # which leaves out what nearly cancels, too
    nearly = aggregate(torch.cat([first, 1 - 0.99 * first**1.01], 1), method=method, **common, **extra)
    assert nearly.advantages_N.abs().max() > (0.5 if eps < 1e-5 else 0.01)


@pytest.mark.parametrize("eps", [0.0, 1e-6])
@pytest.mark.parametrize("weight", [5.0, 3.3])
def test_constant_scores_leave_no_advantage(eps, weight):
    rewards = torch.tensor([[1.0, 0], [0, 1]]).repeat(32, 1)
    result = aggregate(rewards, num_generations=2, method="static_asym", static_weights=[weight, weight], eps=eps)
    assert (result.advantages_N == 0).all()


def test_rollouts_without_tokens_have_no_advantage():
    rewards = torch.tensor([[0.0], [1.0], [1.0], [0.0], [0.0], [1.0]])
    lengths = torch.tensor([0, 9, 9, 0, 0, 9])
    result = aggregate(rewards, num_generations=2, method="gdpo", batch_norm="token", lengths_N=lengths, eps=0.0)
    assert (result.advantages_N == 0).all()


@pytest.mark.parametrize("scale", [1e200, 1e-200])
def test_float64_scales_beyond_float32(scale):
    rewards = torch.tensor([[1.0], [0.0], [0.0], [0.0]], dtype=torch.float64)
    plain = aggregate(rewards, num_generations=4, eps=0.0)
    scaled = aggregate(rewards * scale, num_generations=4, eps=0.0)
    torch.testing.assert_close(scaled.advantages_N, plain.advantages_N)


@pytest.mark.parametrize("alpha", [1e6, 1e-6, 1e-25])
def test_priorities_on_any_scale_are_the_same_without_eps(alpha):
    torch.manual_seed(0)
    rewards = torch.rand(32, 2)
    plain = aggregate(rewards, num_generations=4, eps=0.0, reward_weights=[1.0, 1.0])
    scaled = aggregate(rewards, num_generations=4, eps=0.0, reward_weights=[alpha, alpha])
    torch.testing.assert_close(scaled.advantages_N, plain.advantages_N, rtol=1e-5, atol=1e-5)


def test_differences_down_to_ten_roundings_are_activity():
    base = torch.tensor([[0.5], [0.5], [0.5], [0.5 + 10 * 2**-24]])
    assert aggregate(base, num_generations=4, eps=0.0).density_K.item() == 1


def test_grpos_sum_is_judged_against_all_of_its_summands():
    """Each of 40 rewards adds its rounding to the sum: what is less than that is no signal, though more than one's."""
    sums = torch.ones(4, 40)
    sums[0, 0] += 24 * 2**-23
    result = aggregate(sums, num_generations=4, method="grpo", eps=0.0)
    assert (result.advantages_N == 0).all()
    sums[0, 0] += 400 * 2**-23
    assert (aggregate(sums, num_generations=4, method="grpo", eps=0.0).advantages_N != 0).all()


def test_weight_that_just_reaches_the_cap_is_at_it():
    rewards = torch.zeros(64, 2)
    rewards[:50:2, 0] = 1  # 25 of 32 groups
    rewards[0, 1] = 1  # one of them
    result = aggregate(rewards, num_generations=2, method="dara_sym")
    assert result.weights_K.tolist() == [1, 5]
    assert result.at_cap_K.tolist() == [False, True]


def test_unscored_rollouts_do_not_count_in_grpos_batch_std():
    rewards = torch.tensor([[5.0], [6.0], [5.0], [7.0]])
    unscored = torch.cat([rewards, torch.full((4, 1), math.nan)])
    few = aggregate(rewards, num_generations=4, method="grpo", scale_rewards="batch").advantages_N
    more = aggregate(unscored, num_generations=4, method="grpo", scale_rewards="batch").advantages_N
    torch.testing.assert_close(more, torch.cat([few, torch.zeros(4)]))


def everywhere(signals, settings):
    return Contributions(torch.ones_like(signals.rewards_KGB), torch.ones_like(signals.density_K), False)


def test_unscored_rollouts_have_no_advantage_whatever_a_method_says():
    rewards = torch.tensor([[1.0], [0.0], [math.nan], [math.nan]])
    assert aggregate(rewards, num_generations=2, method=everywhere).advantages_N.tolist() == [1, 1, 0, 0]


def test_numbers_may_be_numpys():
    rewards = torch.rand(8, 2)
    plain = aggregate(rewards, num_generations=4, reward_weights=[1.0, 2.0], max_weight=2.0)
    same = aggregate(
        rewards, num_generations=np.int64(4), reward_weights=np.array([1.0, 2.0]), max_weight=np.float32(2)
    )
    assert torch.equal(plain.advantages_N, same.advantages_N)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_size_limit_leaves_room_for_sums(dtype):
    limit = torch.finfo(dtype).max / 1e6
    rewards = torch.tensor([[0.0], [limit * 0.99]], dtype=dtype)
    assert torch.isfinite(aggregate(rewards, num_generations=2).advantages_N).all()
    with pytest.raises(ValueError, match=r"at most 3\.4e\+32|at most 1\.8e\+302"):
        aggregate(rewards * 1.02, num_generations=2)


GOOD = torch.tensor([[0.0, 1.0], [1.0, 0.0], [0.5, 0.5], [1.0, 1.0]])


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"rewards_NK": torch.rand(4)}, ValueError, r"shape \(N, K\).*\(4,\)"),
        ({"rewards_NK": torch.rand(4, 2, 1)}, ValueError, r"shape \(N, K\).*\(4, 2, 1\)"),
        ({"rewards_NK": torch.rand(0, 2)}, ValueError, r"shape.*\(0, 2\)"),
        ({"rewards_NK": torch.rand(4, 0)}, ValueError, r"shape.*\(4, 0\)"),
        ({"rewards_NK": torch.ones(4, 2, dtype=torch.int64)}, TypeError, "floating-point.*int64"),
        ({"rewards_NK": [[1.0, 2.0]]}, TypeError, "floating-point.*list"),
        ({"num_generations": 3}, ValueError, "4 rows.*num_generations=3"),
        ({"num_generations": 0}, ValueError, "num_generations must.*0"),
        ({"num_generations": 2.0}, ValueError, "num_generations must.*2.0"),
        ({"num_generations": True}, ValueError, "num_generations must.*True"),
        ({"method": "dara"}, ValueError, "Unknown method 'dara'.*grpo, gdpo, dara_sym, dara_asym"),
        ({"method": None}, ValueError, "Unknown method None"),
        ({"max_weight": 0.5}, ValueError, "max_weight.*0.5"),
        ({"max_weight": math.nan}, ValueError, "max_weight.*nan"),
        ({"max_weight": "5"}, ValueError, "max_weight.*'5'"),
        ({"reward_weights": [1.0]}, ValueError, "reward_weights has 1 entries.*2 rewards"),
        ({"reward_weights": [1.0, -1.0]}, ValueError, r"reward_weights\[1\].*-1.0"),
        ({"reward_weights": [math.nan, 1.0]}, ValueError, r"reward_weights\[0\].*nan"),
        ({"reward_weights": [1e39, 1.0]}, ValueError, r"reward_weights\[0\].*0 to 1e\+06.*1e\+39"),
        ({"method": METHODS["static_asym"].function}, ValueError, "needs static_weights"),
        ({"reward_weights": [math.inf, 1.0]}, ValueError, r"reward_weights\[0\].*inf"),
        ({"reward_weights": ["1e-1", 1.0]}, ValueError, r"reward_weights\[0\].*'1e-1'"),
        ({"reward_weights": 2.0}, TypeError, "reward_weights must be a sequence"),
        ({"reward_weights": "11"}, TypeError, "reward_weights must be a sequence"),
        ({"method": "static_sym"}, ValueError, "method='static_sym' needs static_weights"),
        ({"method": "static_asym", "static_weights": [1.0, 2.0, 3.0]}, ValueError, "static_weights has 3 entries"),
        ({"method": "static_asym", "static_weights": [1.0, -2.0]}, ValueError, r"static_weights\[1\].*-2.0"),
        ({"eps": -1e-4}, ValueError, "eps.*-0.0001"),
        ({"eps": math.inf}, ValueError, "eps.*inf"),
        ({"batch_norm": "tokens"}, ValueError, "batch_norm.*sequence, token, none.*'tokens'"),
        ({"batch_norm": "token"}, ValueError, "batch_norm='token' needs lengths_N"),
        ({"batch_norm": "token", "lengths_N": torch.ones(3)}, ValueError, r"lengths_N.*\(4,\).*\(3,\)"),
        ({"batch_norm": "token", "lengths_N": torch.tensor([1, 2, 3, -1])}, ValueError, "lengths_N must be finite"),
        ({"scale_rewards": True}, ValueError, "scale_rewards.*True"),
        ({"reward_names": ["a"]}, ValueError, "reward_names has 1 names"),
    ],
)
def test_bad_input_is_named(change, error, words):
    with pytest.raises(error, match=words):
        aggregate(**{"rewards_NK": GOOD, "num_generations": 2, **change})


@pytest.mark.parametrize("value", [math.inf, -math.inf, 3e38])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_infinite_reward_is_named(value, dtype):
    rewards = torch.zeros(4, 3, dtype=dtype)
    rewards[0, 0] = math.nan
    rewards[2, 1] = value
    with pytest.raises(ValueError, match=r"Reward 1 is .* for rollout 2"):
        aggregate(rewards, num_generations=2)
    with pytest.raises(ValueError, match=r"Reward 1 \('length'\) is .* for rollout 2"):
        aggregate(rewards, num_generations=2, reward_names=["a", "length", "c"])
