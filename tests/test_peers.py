"""The peers: hand-computed cases, their identities, the filter and the calibration that DARA takes from them."""

import math
import random

import pytest
import reference
import torch
from random_rewards import options, random_rewards, ranges, tensor

from dara_trl import METHODS, aggregate


def run(rewards, method, size, **changes):
    return aggregate(torch.as_tensor(rewards, dtype=torch.float64), num_generations=size, method=method, **changes)


def test_dvao_by_hand():
    # Deviations (-1, 1) and (2, -2); population stds 1 and 2: (±1 ∓ 2) / 3, weights 1/3 and 2/3.
    result = run([[0, 5], [2, 1]], "dvao", 2)
    assert result.advantages_N.tolist() == pytest.approx([1 / 3, -1 / 3])
    assert result.weights_K.tolist() == pytest.approx([1 / 3, 2 / 3])
    assert result.calibrated_energy_K.tolist() == pytest.approx([2 / 9, 8 / 9])
    # In a second group only reward 0 is active, with weight 1: the mean over its active groups is 2/3.
    two = run([[0, 5], [2, 1], [0, 1], [9, 1]], "dvao", 2)
    assert two.weights_K.tolist() == pytest.approx([2 / 3, 2 / 3])
    assert two.advantages_N.tolist() == pytest.approx([1 / 3, -1 / 3, -1, 1])


def test_dvao_advantages_are_bounded():
    rewards = tensor(random_rewards(random.Random(0), 64, 8, 3, 0.2))
    assert run(rewards, "dvao", 8).advantages_N.abs().max() <= math.sqrt(7) + 1e-9


def test_corr_grpo_gives_the_published_example():
    """README of the authors' code: correlations 0.9756 and 0.1098, a third std of nine: factors 0.2536 and 0.4307."""
    strong, weak = 40 / 41, 4.5 / 41
    e = torch.tensor([[1, 1, -1, -1], [1, -1, 1, -1], [1, -1, -1, 1]], dtype=torch.float64) / 2
    second = math.sqrt(1 - strong**2)
    first = (weak - strong * weak) / second
    third = math.sqrt(1 - weak**2 - first**2)
    unit = torch.tensor([[1, 0, 0], [strong, second, 0], [weak, first, third]], dtype=torch.float64) @ e
    rewards = (unit * math.sqrt(3) * torch.tensor([[1.0], [1.0], [9.0]])).t()  # sample stds 1, 1, 9
    deviation = rewards.sum(dim=1)
    corr, grpo = (run(rewards, method, 4, eps=0.0).advantages_N / deviation for method in ("corr_grpo", "grpo"))
    assert corr.tolist() == pytest.approx([0.4307] * 4, abs=1e-4)
    assert (grpo / corr).tolist() == pytest.approx([math.sqrt(5.3902 / 88.907)] * 4, abs=1e-3)


def test_corr_grpo_of_rewards_that_cancel_is_zero_and_of_nearly_cancelling_ones_large():
    first = torch.rand(16, 1, generator=torch.Generator().manual_seed(0))
    rounded = torch.cat([first**3, 0.7 - first**3], 1)  # in float32 their sum is not quite constant
    assert rounded.double().sum(dim=1).std() > 0
    assert (aggregate(rounded, num_generations=4, method="corr_grpo").advantages_N == 0).all()
    opposed = run(torch.cat([first, 1 - 2 * first], 1), "corr_grpo", 4).advantages_N
    alone = run(first, "corr_grpo", 4).advantages_N
    assert (opposed / alone).tolist() == pytest.approx([-1000] * 16, rel=1e-2)  # correlation -1: 1 / sqrt(1e-6)


def test_mo_grpo_is_gdpo_without_batch_normalisation():
    rewards = tensor(random_rewards(random.Random(0), 16, 4, 3, 0.2))
    gdpo = run(rewards, "gdpo", 4, batch_norm="none")
    assert torch.equal(run(rewards, "mo_grpo", 4).advantages_N, gdpo.advantages_N)


def test_saw_by_hand():
    # From the floors 0 and -3: (0, 1, 0, 1) has mean 1/2 and CV 2/√3; (0, 6, 6, 6) mean 4.5 and CV 2/3.
    result = run([[0, -3], [1, 3], [0, 3], [1, 3]], "saw", 2, reward_ranges=[(0, 1), (-3, 3)])
    cv = [2 / math.sqrt(3), 2 / 3]
    assert result.weights_K.tolist() == pytest.approx([2 * c / sum(cv) for c in cv])
    watched = run(
        [[0, -3, 0], [1, 3, 0], [0, 3, 0], [1, 3, 9]],
        "saw",
        2,
        reward_ranges=[(0, 1), (-3, 3), (0, 9)],
        reward_weights=[1, 1, 0],
    )
    assert watched.weights_K[:2].tolist() == pytest.approx(result.weights_K.tolist())
    raised = run([[0, -3], [1, 3], [0, 3], [1, 3]], "saw", 2, reward_ranges=[(-1, 1), (-3, 3)])
    assert raised.weights_K[0] < result.weights_K[0]


def test_sa_mrpo_by_hand():
    rewards = [[0, -3], [1, 3], [1, 3], [1, 3]]
    result = run(rewards, "sa_mrpo", 2, reward_ranges=[(0, 1), (-3, 9)])
    assert result.weights_K.tolist() == pytest.approx([math.sqrt(1 / 4), math.sqrt(1 - 4.5 / 12)])
    linear = run(rewards, "sa_mrpo", 2, reward_ranges=[(0, 1), (-3, 9)], saturation_exponent=1)
    assert linear.weights_K.tolist() == pytest.approx([1 / 4, 1 - 4.5 / 12])


def test_limits_are_gdpo():
    rewards = tensor(random_rewards(random.Random(1), 16, 4, 3, 0.2))
    common = {"reward_weights": [1.0, 0.5, 2.0], "eps": 0.0}
    gdpo = run(rewards, "gdpo", 4, **common).advantages_N
    flat = run(rewards, "sa_mrpo", 4, reward_ranges=ranges(rewards), saturation_exponent=0, **common).advantages_N
    assert torch.equal(flat, gdpo)
    for kappa in (0, 1e-5):
        mean = run(rewards, "rvpo", 4, risk_aversion=kappa, **common)
        torch.testing.assert_close(mean.advantages_N, gdpo, atol=1e-4, rtol=0)
        torch.testing.assert_close(mean.weights_K, torch.ones(3).double(), atol=1e-4, rtol=0)
    never = run(rewards, "gd2po_snr", 4, snr_threshold=0, **common)
    assert torch.equal(never.advantages_N, gdpo)
    always, hard = (run(rewards, m, 4, snr_threshold=1, **common) for m in ("gd2po_snr", "gd2po_hard"))
    assert torch.equal(always.advantages_N, hard.advantages_N)
    assert 0 < hard.dropped_N.sum() < 64


def test_rvpo_by_hand():
    # Group advantages (z, -z) for reward 0 and (-z, z) or (z, -z) for reward 1.
    z = math.sqrt(0.5)
    result = run([[1, 0], [0, 1], [1, 1], [0, 0]], "rvpo", 2, eps=0.0, batch_norm="none", risk_aversion=2)
    opposed = -math.log(math.cosh(2 * z)) / 2
    assert result.advantages_N.tolist() == pytest.approx([opposed, opposed, z, -z])
    # The failing reward's share in the soft minimum is e^{2z} / (e^{2z} + e^{-2z}), the other's the rest; ½ if equal.
    share = 1 / (1 + math.exp(-4 * z))
    energy = (share * z) ** 2 + ((1 - share) * z) ** 2 + 2 * (z / 2) ** 2
    assert result.calibrated_energy_K.tolist() == pytest.approx([energy, energy])
    assert result.weights_K.tolist() == pytest.approx([1, 1])  # mean of 2·share, 2·(1 - share), 1, 1


def test_rvpos_weight_is_the_mean_over_active_groups():
    # Reward 1 is active in the first group only; in the second, where it is not, reward 0 takes share from it.
    one_sided = run([[1, 0], [0, 1], [0, 0], [0, 0], [3, 0], [0, 0], [0, 0], [0, 0]], "rvpo", 4, eps=0.0)
    advantages = [[1.5, -0.5], [-0.5, 1.5], [-0.5, -0.5], [-0.5, -0.5]]
    expected = sum(2 * math.exp(-a) / (math.exp(-a) + math.exp(-b)) for a, b in advantages) / 4
    assert one_sided.weights_K[1] == pytest.approx(expected)
    assert one_sided.weights_K[0] != pytest.approx(expected)


@pytest.mark.parametrize("kappa", [1e-3, 0.5, 2.0, 50.0])
def test_rvpo_share_is_the_derivative(kappa):
    """What telemetry calls the contribution of reward k is A_k · dS/dA_k."""
    from dara_trl.aggregation.core import MethodSettings
    from dara_trl.aggregation.groups import GroupSignals

    torch.manual_seed(0)
    advantages = torch.randn(3, 4, 5, dtype=torch.float64)
    ones_KB = torch.ones(3, 5, dtype=torch.float64)
    priorities = torch.tensor([1.0, 0.5, 0.0]).double()

    def score(values):
        signals = GroupSignals(
            values, values, ones_KB > 0, ones_KB, ones_KB, ones_KB[:, 0], ones_KB[:, 0], priorities, False
        )
        settings = MethodSettings(0.0, 5.0, None, None, 0.5, kappa, "none", 0.8, "density", 0.0, "group")
        return METHODS["rvpo"].function(signals, settings)

    values = advantages.clone().requires_grad_()
    score(values).scores_GB.sum().backward()
    torch.testing.assert_close(score(advantages).contributions_KGB, advantages * values.grad)


@pytest.mark.parametrize(("kappa", "small"), [(1e-4, 1.0), (1e-2, 1e-3), (1.0, 1e-6), (50.0, 1e-12)])
def test_rvpo_is_exact_in_float32(kappa, small):
    """Neither a small kappa nor a tiny share of the reward that is lowest costs more than float32's own rounding."""
    rewards = torch.randn(64, 2, generator=torch.Generator().manual_seed(0))
    common = {"num_generations": 8, "method": "rvpo", "batch_norm": "none", "eps": 0.0, "risk_aversion": kappa}
    narrow, wide = (aggregate(given, reward_weights=[1.0, small], **common) for given in (rewards, rewards.double()))
    torch.testing.assert_close(narrow.advantages_N, wide.advantages_N.float(), rtol=1e-5, atol=2e-6)
    torch.testing.assert_close(narrow.weights_K, wide.weights_K.float(), rtol=1e-4, atol=1e-5)
    expected = [
        reference.soft_minimum(row, [1.0, small], kappa)
        for row in wide.signals.advantages_KGB.permute(2, 1, 0).flatten(0, 1).tolist()
    ]
    assert wide.advantages_N.tolist() == pytest.approx(expected, abs=1e-9)


def test_gd2po_by_hand():
    # Group 1: both rollouts conflict. Group 2: two agree, and two are told apart by reward 1 alone.
    rewards = [[1, 0], [0, 1], [0, 0], [0, 0], [1, 1], [0, 0], [0.5, 1], [0.5, 0]]
    result = run(rewards, "gd2po_hard", 4, eps=0.0)
    z, h = math.sqrt(2), math.sqrt(0.75)  # of (1, 0, ½, ½) and (1, 0, 1, 0); of (1, 0, 0, 0): 1.5, -0.5
    assert result.dropped_N.tolist() == [True, True, False, False] + [False] * 4
    scores = [-1.0, -1.0, h + math.sqrt(1.5), -h - math.sqrt(1.5), h, -h]
    mean = sum(scores) / 6
    std = math.sqrt(sum((s - mean) ** 2 for s in scores) / 5)
    expected = [(s - mean) / std for s in scores]
    assert z > 1
    assert result.advantages_N.tolist() == pytest.approx([0, 0, expected[0] / 2, expected[1] / 2, *expected[2:]])
    # Reward 0: A = -½ twice in the half-kept group, ±√1.5 in the other.
    assert result.calibrated_energy_K.tolist() == pytest.approx([2 * 0.25 / 4 + 3, 2 * 0.25 / 4 + 3])
    assert result.weights_K.tolist() == [1, 1]


def test_gd2po_snr_by_hand():
    # With G = 2 all |A| are equal: two rewards against one leave |sum| / sum of sizes = 1/3.
    rewards = [[1, 1, 0], [0, 0, 1], [0, 0, 0], [1, 1, 1]]
    for threshold, dropped in ((0.3, [False] * 4), (0.4, [True, True, False, False])):
        result = run(rewards, "gd2po_snr", 2, snr_threshold=threshold)
        assert result.dropped_N.tolist() == dropped
    # With priorities 1, 1 and 2 they cancel.
    assert run(rewards, "gd2po_snr", 2, snr_threshold=0.3, reward_weights=[1, 1, 2]).dropped_N.sum() == 2


def test_rounding_is_no_conflict():
    """In float32 0.3 is off the mean of 0.2, 0.3 and 0.4 by a rounding: praised by nothing but that."""
    middle = torch.tensor([[0.2, 1.0], [0.3, 0.0], [0.4, 1.0], [0.2, 0.0], [0.3, 0.0], [0.4, 1.0]])
    common = {"num_generations": 3, "eps": 0.0}
    assert aggregate(middle[:, :1], method="mo_grpo", **common).advantages_N[1] > 1e-7
    dropped_N = aggregate(middle, method="gd2po_hard", **common).dropped_N
    assert dropped_N.tolist() == [True] + [False] * 5  # 0.2 is blamed by reward 0, and praised by reward 1
    middle[1, 0] = 0.31
    assert aggregate(middle, method="gd2po_hard", **common).dropped_N[1]


def test_all_in_conflict_leaves_no_signal():
    result = run([[1, 0], [0, 1]] * 4, "gd2po_hard", 2)
    assert (result.advantages_N == 0).all()
    assert not result.signal_B.any()
    assert result.dropped_N.all()
    assert result.calibrated_energy_K.tolist() == [0, 0]
    assert result.energy_K.tolist() == pytest.approx([4, 4], rel=1e-3)


@pytest.mark.parametrize("lengths", [None, [0, 1, 7, 40] * 6])
@pytest.mark.parametrize("kind", ["hard", "snr"])
@pytest.mark.parametrize("method", ["dara_sym", "dara_asym"])
def test_dara_with_a_conflict_filter_agrees_with_plain_python(method, kind, lengths):
    rng = random.Random(f"{method}{kind}")
    dropped = set()
    for _ in range(30):
        rewards = random_rewards(rng, 6, 4, 3, 0.1)
        alpha = [rng.choice([0.25, 1.0, 2.0]) for _ in range(3)]
        filtered = {"conflict_filter": kind, "snr_threshold": rng.choice([0.3, 0.8])}
        expected = reference.aggregate(rewards, 4, method, alpha, lengths=lengths, **filtered)
        norm = {} if lengths is None else {"batch_norm": "token", "lengths_N": torch.tensor(lengths)}
        got = aggregate(
            tensor(rewards).float(), num_generations=4, method=method, reward_weights=alpha, **filtered, **norm
        )
        assert got.advantages_N.tolist() == pytest.approx(expected, abs=1e-5)
        plain = aggregate(tensor(rewards), num_generations=4, method=method, reward_weights=alpha)
        assert torch.equal(got.weights_K.double(), plain.weights_K.float().double())  # the whole batch's
        dropped.add(int(got.dropped_N.sum()))
    assert len(dropped) > 3


@pytest.mark.parametrize("method", [name for name in METHODS if "advantage_clip" in METHODS[name].reads])
def test_clipped_advantages_agree_with_plain_python(method):
    rng = random.Random(method)
    for _ in range(20):
        rewards = random_rewards(rng, 6, 8, 3, 0.2)
        extra = options(method, tensor(rewards).double()) | {"advantage_clip": rng.choice([0.3, 1.0, 1.5])}
        seen = [[None if math.isnan(r) else r for r in row] for row in tensor(rewards).double().tolist()]
        expected = reference.aggregate(seen, 8, method, [1.0, 0.5, 2.0], **extra)
        got = run(tensor(rewards).double(), method, 8, reward_weights=[1.0, 0.5, 2.0], **extra)
        assert got.advantages_N.tolist() == pytest.approx(expected, abs=1e-5)
        assert got.signals.advantages_KGB.abs().max() <= extra["advantage_clip"]
        assert torch.allclose(got.energy_K, got.signals.advantages_KGB.square().sum(dim=(1, 2)))


def test_clipping_changes_neither_density_nor_weights():
    rewards = torch.zeros(64, 2)
    rewards[0, 0] = rewards[::3, 1] = 1.0
    plain = run(rewards, "dara_asym", 16)
    clipped = run(rewards, "dara_asym", 16, advantage_clip=1.0)
    assert plain.signals.advantages_KGB.max() == pytest.approx(15 / 4, abs=1e-2)
    assert torch.equal(plain.density_K, clipped.density_K)
    assert torch.equal(plain.weights_K, clipped.weights_K)
    assert (clipped.energy_K < plain.energy_K).all()


def test_filter_with_equal_densities_is_gd2po():
    rewards = torch.randn(32, 3, generator=torch.Generator().manual_seed(0))
    for kind in ("hard", "snr"):
        dara = aggregate(rewards, num_generations=4, method="dara_sym", conflict_filter=kind)
        assert torch.equal(
            dara.advantages_N, aggregate(rewards, num_generations=4, method=f"gd2po_{kind}").advantages_N
        )


def marginal_energies(result):
    advantages_KN = result.signals.advantages_KGB.flatten(1).double()
    c_K = result.signals.priorities_K.double() * result.weights_K.double()
    return c_K * (advantages_KN @ advantages_KN.t() @ c_K)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("num_rewards", [1, 2, 5])
def test_covariance_calibration_equalises_marginal_energies(seed, num_rewards):
    generator = torch.Generator().manual_seed(seed)
    mix = torch.randn(num_rewards, num_rewards, generator=generator, dtype=torch.float64)
    rewards = torch.randn(256, num_rewards, generator=generator, dtype=torch.float64) @ mix
    for k in range(num_rewards):
        rewards[: 64 * (k % 3), k] = 0  # of different densities
    alpha = [1.0, 0.5, 2.0, 1.0, 0.1][:num_rewards]
    result = run(rewards, "dara_sym", 4, calibration="covariance", max_weight=1e9, reward_weights=alpha)
    share_K = marginal_energies(result) / result.signals.priorities_K**2
    torch.testing.assert_close(share_K, share_K[:1].expand(num_rewards), rtol=1e-5, atol=0)
    assert float(result.weights_K.min()) == 1
    total = result.signals.advantages_KGB * (result.signals.priorities_K * result.weights_K).view(-1, 1, 1)
    assert float(marginal_energies(result).sum()) == pytest.approx(float(total.sum(dim=0).square().sum()))


def test_covariance_calibration_of_uncorrelated_rewards_is_daras():
    half = torch.tensor([[1.0, 1], [1, 0], [0, 1], [0, 0]], dtype=torch.float64).repeat(8, 1)
    half[8:, 1] = 0  # orthogonal in each group; densities 1 and 1/4
    result = run(half, "dara_sym", 4, calibration="covariance", eps=0.0)
    assert result.weights_K.tolist() == pytest.approx([1, 2])
    assert result.weights_K.tolist() == pytest.approx(run(half, "dara_sym", 4, eps=0.0).weights_K.tolist())


def test_covariance_calibration_knows_duplicates_and_conflicts():
    torch.manual_seed(0)
    one, other = torch.rand(64, 1).double(), torch.rand(64, 1).double()
    # A reward given twice counts as much as it would once: x·(x + x) = 1 against y² = 1.
    twice = run(torch.cat([one, one, other], 1), "dara_sym", 64, calibration="covariance", eps=0.0)
    assert twice.weights_K[0] == pytest.approx(float(twice.weights_K[1]))
    assert twice.weights_K[2] > 1.3
    conflict = run(torch.cat([one, 1 - one, other], 1), "dara_sym", 64, calibration="covariance", eps=0.0)
    assert conflict.weights_K.tolist() == pytest.approx([5, 5, 1])
    assert conflict.at_cap_K.tolist() == [True, True, False]


def test_covariance_calibration_leaves_the_dead_and_the_watched_alone():
    rewards = torch.cat([torch.rand(32, 2), torch.full((32, 1), 0.3), torch.rand(32, 1)], dim=1)
    result = aggregate(
        rewards, num_generations=4, method="dara_sym", calibration="covariance", reward_weights=[1.0, 1.0, 1.0, 0.0]
    )
    assert result.weights_K[2:].tolist() == [1, 1]
    pair = aggregate(rewards[:, :2], num_generations=4, method="dara_sym", calibration="covariance")
    torch.testing.assert_close(result.weights_K[:2], pair.weights_K)
    none = aggregate(torch.full((8, 2), math.nan), num_generations=4, method="dara_sym", calibration="covariance")
    assert none.weights_K.tolist() == [1, 1]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("none_rate", [0.0, 0.3])
def test_contributions_add_up_to_what_is_trained_on(method, none_rate):
    """Calibrated energies are those of summands of the advantages, so with one reward of S itself."""
    rewards = tensor(random_rewards(random.Random(method), 16, 4, 1, none_rate))
    rewards[:, 0] += torch.rand(64, generator=torch.Generator().manual_seed(0))
    got = run(rewards, method, 4, batch_norm="none", **options(method, rewards))
    assert float(got.calibrated_energy_K) == pytest.approx(float(got.advantages_N.square().sum()))


@pytest.mark.parametrize(
    ("name", "value"),
    [("saturation_exponent", 2.0), ("risk_aversion", 2.0), ("conflict_filter", "hard"), ("snr_threshold", 0.5)]
    + [("advantage_clip", 0.7)]
    + [("calibration", "covariance"), ("reward_ranges", [(0, 1), (-3, 9), (-9, 9)]), ("max_weight", 1.1)],
)
def test_every_setting_changes_the_methods_that_read_it_and_no_other(name, value):
    rewards = tensor(random_rewards(random.Random(4), 32, 4, 3, 0.0))
    rewards[:96, 2] = 0.0
    for method in METHODS:
        common = {"conflict_filter": "snr"} if name == "snr_threshold" else {}
        common |= options(method, rewards)
        plain = run(rewards, method, 4, **common)
        changed = run(rewards, method, 4, **{**common, name: value})
        assert torch.equal(plain.advantages_N, changed.advantages_N) == (name not in METHODS[method].reads), method


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"method": "saw"}, ValueError, "method='saw' needs reward_ranges: the lowest and the highest.* 2 in all"),
        ({"method": "sa_mrpo"}, ValueError, "needs reward_ranges"),
        ({"method": METHODS["saw"].function}, ValueError, "needs reward_ranges"),
        ({"reward_ranges": [(0, 1)]}, ValueError, "reward_ranges has 1 pairs.*2 rewards"),
        ({"reward_ranges": [(0, 1), (1, 1)]}, ValueError, r"reward_ranges\[1\].*lowest below the highest.*\(1, 1\)"),
        ({"reward_ranges": [(0, 1), (0, math.inf)]}, ValueError, r"reward_ranges\[1\]"),
        ({"reward_ranges": [0, 1]}, ValueError, r"reward_ranges\[0\]"),
        ({"reward_ranges": [(0, 1), (0, "1")]}, ValueError, r"reward_ranges\[1\]"),
        ({"reward_ranges": 3}, TypeError, "reward_ranges must be 2 pairs"),
        (
            {"reward_ranges": [(0, 0.9), (0, 1)]},
            ValueError,
            "Reward 0 is 1 for rollout 1, outside its reward_ranges, 0 to 0.9",
        ),
        (
            {"reward_ranges": [(0, 1), (0.5, 1)], "reward_names": ["a", "b"]},
            ValueError,
            r"Reward 1 \('b'\) is 0 for rollout 1",
        ),
        ({"saturation_exponent": -1}, ValueError, "saturation_exponent must be a finite number of at least 0, not -1"),
        ({"advantage_clip": -1}, ValueError, "advantage_clip must be a finite number of at least 0, not -1"),
        ({"risk_aversion": math.inf}, ValueError, "risk_aversion.*inf"),
        ({"snr_threshold": 1.5}, ValueError, "snr_threshold must be a number from 0 to 1, not 1.5"),
        ({"conflict_filter": "soft"}, ValueError, "conflict_filter must be one of none, hard, snr, not 'soft'"),
        ({"conflict_filter": None}, ValueError, "conflict_filter must be one of"),
        ({"calibration": "cov"}, ValueError, "calibration must be one of density, covariance, not 'cov'"),
    ],
)
def test_bad_settings_are_named(change, error, words):
    rewards = torch.tensor([[0.0, 1.0], [1.0, 0.0], [0.5, 0.5], [1.0, 1.0]])
    with pytest.raises(error, match=words):
        aggregate(**{"rewards_NK": rewards, "num_generations": 2, **change})


def test_a_rounding_outside_its_range_is_inside():
    lowest = torch.tensor(0.1)
    rewards = torch.stack([lowest, torch.nextafter(lowest, torch.tensor(0.0))]).repeat(4).unsqueeze(1)
    both = torch.cat([rewards, torch.rand(8, 1)], dim=1)
    assert aggregate(both, num_generations=4, method="saw", reward_ranges=[(0.1, 1), (0, 1)]).weights_K[0] == 0
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        rewards = torch.tensor([[0.1], [0.3], [0.1], [0.2]], dtype=dtype)
        result = aggregate(rewards, num_generations=4, method="saw", reward_ranges=[(0.1, 0.3)])
        assert torch.isfinite(result.advantages_N).all()
