"""Inside a real TRL run, on the rollouts of that run: our advantages are TRL's where they should be."""

import pytest
import torch
from rollouts import config, count_a, maybe, prompts, rare, run

from dara_trl import aggregate


@pytest.mark.parametrize("reward_weights", [None, [1.0, 0.25, 2.0]])
def test_gdpo_is_normalize_then_sum(tiny_model, tmp_path, reward_weights):
    trainer = run(
        tiny_model,
        tmp_path,
        [count_a, rare, maybe],
        aggregation="gdpo",
        multi_objective_aggregation="normalize_then_sum",
        reward_weights=reward_weights,
        max_steps=4,
    )
    assert len(trainer.records) == 4
    for record in trainer.records:
        assert record["rewards"].isnan().any()
        assert record["rewards"].nan_to_num(0.0).std(dim=0).min() > 0
        torch.testing.assert_close(record["trained_on"], record["trl"], rtol=0, atol=1e-6)


@pytest.mark.parametrize("scale_rewards", ["group", "batch", "none", True, False])
@pytest.mark.parametrize("reward_weights", [None, [1.0, 0.25, 2.0]])
def test_grpo_is_sum_then_normalize(tiny_model, tmp_path, scale_rewards, reward_weights):
    trainer = run(
        tiny_model,
        tmp_path,
        [count_a, rare, maybe],
        aggregation="grpo",
        scale_rewards=scale_rewards,
        reward_weights=reward_weights,
    )
    for record in trainer.records:
        assert "trl" not in record  # TRL's advantages stand
        assert record["trained_on"].abs().max() > 0
        torch.testing.assert_close(record["result"].advantages_N, record["trained_on"], rtol=0, atol=1e-6)


def mostly_03(prompts, completions, **kwargs):
    """0.3 for every rollout, but for one prompt whose rollouts differ."""
    return [0.3 + 0.4 * (p in ("abc", "hij") and text[:1] < "i") for p, text in zip(prompts, completions, strict=True)]


def test_trl_lets_rounding_noise_of_constant_groups_through(tiny_model, tmp_path):
    """The mean of twelve float32 0.3s is not 0.3: TRL takes the rounding for signal, we do not."""
    trainer = run(
        tiny_model,
        tmp_path,
        mostly_03,
        aggregation="gdpo",
        aggregation_batch_norm="none",
        multi_objective_aggregation="normalize_then_sum",
        per_device_train_batch_size=96,
        num_generations=12,
        max_steps=1,
    )
    (record,) = trainer.records
    constant = record["rewards"].view(8, 12).std(dim=1) < 1e-6
    assert 0 < constant.sum() < 8
    assert (record["trained_on"].view(8, 12)[constant] == 0).all()
    assert record["trained_on"].abs().max() > 0.1

    rewards_BG = record["rewards"].view(8, 12)
    z_BG = (rewards_BG - rewards_BG.mean(1, keepdim=True)) / (rewards_BG.std(1, keepdim=True) + 1e-4)
    noise = z_BG[constant].abs().max()
    assert 1e-6 < noise < 1e-3  # what TRL adds to the sum over rewards, before it normalises over the batch
    exact_BG = rewards_BG[constant].double()
    assert (exact_BG - exact_BG.mean(1, keepdim=True)).abs().max() < 1e-15
    ours = aggregate(record["rewards"], num_generations=12, method="gdpo").advantages_N
    difference = (ours - record["trl"]).abs().max()
    assert 1e-6 < difference < 1e-2


def test_weights_of_one_train_exactly_as_gdpo(tiny_model, tmp_path):
    gdpo = run(tiny_model, tmp_path, [count_a, rare], aggregation="gdpo")
    dara = run(tiny_model, tmp_path, [count_a, rare], aggregation="dara_asym", aggregation_max_weight=1.0)
    for ours, theirs in zip(dara.records, gdpo.records, strict=True):
        assert torch.equal(ours["trained_on"], theirs["trained_on"])
    for ours, theirs in zip(dara.model.parameters(), gdpo.model.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_dara_trains_on_other_advantages_than_gdpo(tiny_model, tmp_path):
    gdpo = run(tiny_model, tmp_path, [count_a, rare], aggregation="gdpo", max_steps=1)
    dara = run(tiny_model, tmp_path, [count_a, rare], max_steps=1)
    (ours,), (theirs,) = dara.records, gdpo.records
    assert torch.equal(ours["rewards"], theirs["rewards"])
    assert (ours["trained_on"] - theirs["trained_on"]).abs().max() > 0.01
    assert dara.args.aggregation == "dara_asym"
    assert config(tmp_path).aggregation == "dara_asym"
    assert len(prompts()) == 32
