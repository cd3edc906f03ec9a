"""Everything else of GRPOTrainer works as before: each feature in a real, short run."""

import asyncio
import inspect
import json
import math
import warnings
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pandas
import pytest
import torch
from datasets import Dataset
from peft import LoraConfig
from rollouts import PROMPTS, RecordingTrainer, config, count_a, maybe, needed, prompts, rare, run
from trl import GRPOConfig, GRPOTrainer, chat_template_utils

from dara_trl import METHODS, DARAGRPOConfig, DARAGRPOTrainer, aggregate
from dara_trl.metrics_file import read_rows


def assert_consistent(trainer, mode="train"):
    """What went to the loss is what `aggregate` says of the whole generation batch's rewards."""
    records = [record for record in trainer.records if record["mode"] == mode]
    assert records
    for record in records:
        expected = aggregate(
            record["rewards"],
            num_generations=record["num_generations"],
            method=trainer.args.aggregation,
            reward_weights=trainer.args.reward_weights,
            static_weights=trainer.args.aggregation_static_weights,
            reward_ranges=trainer.args.aggregation_reward_ranges,
            conflict_filter=trainer.args.aggregation_conflict_filter,
            calibration=trainer.args.aggregation_calibration,
            batch_norm=trainer.args.aggregation_batch_norm,
            lengths_N=record["lengths"],
        )
        assert torch.equal(record["trained_on"], expected.advantages_N)
    return records


@pytest.mark.parametrize("method", [m for m in METHODS if m != "grpo"])
def test_methods(tiny_model, tmp_path, method):
    assert_consistent(run(tiny_model, tmp_path, [count_a, rare], aggregation=method, **needed(method, 2)))


def test_a_conflict_filter_reaches_the_loss(tiny_model, tmp_path):
    extra = {"aggregation_conflict_filter": "hard", "aggregation_calibration": "covariance"}
    trainer = run(tiny_model, tmp_path, [count_a, rare], aggregation="dara_sym", **extra)
    for record in assert_consistent(trainer):
        dropped_N = record["result"].dropped_N
        assert 0 < dropped_N.sum() < len(dropped_N)
        assert (record["trained_on"][dropped_N] == 0).all()


def test_a_reward_outside_its_range_is_named(tiny_model, tmp_path):
    with pytest.raises(ValueError, match=r"Reward 0 \('count_a'\) is .* outside its reward_ranges, 0 to 0.5"):
        run(tiny_model, tmp_path, [count_a, rare], aggregation="saw", aggregation_reward_ranges=[[0, 0.5], [0, 1]])


def test_number_of_ranges_is_checked_before_training(tiny_model, tmp_path):
    given = config(tmp_path, aggregation="saw", aggregation_reward_ranges=[0, 1])
    with pytest.raises(ValueError, match="aggregation_reward_ranges has 1 entries, but there are 2 rewards: "):
        RecordingTrainer(tiny_model, [count_a, rare], given, train_dataset=prompts())


calls = []


def counting_dara_sym(signals, given):
    calls.append(signals.rewards_KGB.shape)
    return METHODS["dara_sym"].function(signals, given)


def test_own_function_as_method(tiny_model, tmp_path):
    calls.clear()
    trainer = run(
        tiny_model, tmp_path, [count_a, rare], aggregation=counting_dara_sym, save_strategy="steps", save_steps=1
    )
    assert calls == [(2, 4, 8)] * 2  # once a batch, and never on made-up data
    assert_consistent(trainer)
    assert (tmp_path / "checkpoint-2" / "training_args.bin").is_file()


class Doubling(RecordingTrainer):
    def _calculate_rewards(self, *args, **kwargs):
        rewards = super()._calculate_rewards(*args, **kwargs)
        return torch.cat([rewards[:, :1] * 0, rewards[:, 1:]], dim=1)


def test_rewards_that_a_subclass_changes_are_trained_on(tiny_model, tmp_path):
    trainer = Doubling(tiny_model, [count_a, rare], config(tmp_path), train_dataset=prompts())
    trainer.train()
    for record in assert_consistent(trainer):
        assert (record["rewards"][:, 0] == 0).all()


@pytest.mark.parametrize("eps", [0.0, 1e-4, 1.0])
def test_eps_reaches_the_mathematics(tiny_model, tmp_path, eps):
    trainer = run(tiny_model, tmp_path, [count_a, rare], aggregation_eps=eps, max_steps=1)
    (record,) = trainer.records
    expected = aggregate(record["rewards"], num_generations=4, eps=eps)
    assert torch.equal(record["trained_on"], expected.advantages_N)
    assert record["trained_on"].abs().max() > 0


def test_cap_reaches_the_mathematics(tiny_model, tmp_path):
    trainer = run(tiny_model, tmp_path, [count_a, rare], aggregation_max_weight=1.2, max_steps=1)
    assert trainer.records[0]["result"].weights_K.max() == pytest.approx(1.2)


def tiny_scale(completions, **kwargs):
    return [1e-6 * value for value in count_a(completions)]


def zero(completions, **kwargs):
    return [0.0] * len(completions)


@pytest.mark.parametrize(
    ("rewards", "fields", "words"),
    [
        ([zero], {}, "Step 1: no reward that counts"),
        ([zero, count_a], {"reward_weights": [1.0, 0.0]}, "Step 1: no reward that counts"),
        ([count_a, tiny_scale], {}, "eps=0.0001 swallows .* 'tiny_scale'"),
        ([count_a, tiny_scale], {"aggregation_eps": 1e-6}, "eps=1e-06 swallows .* 'tiny_scale'"),
    ],
)
def test_warnings_reach_the_user(tiny_model, tmp_path, rewards, fields, words):
    with pytest.warns(UserWarning, match=words):
        trainer = run(tiny_model, tmp_path, rewards, **fields)
    if "no reward" in words:
        assert trainer.state.log_history[0]["frac_reward_zero_std"] == 1


@pytest.mark.parametrize("method", ["dvao", "corr_grpo"])
def test_no_word_of_eps_where_the_method_has_none(tiny_model, tmp_path, method, recwarn):
    run(tiny_model, tmp_path, [count_a, tiny_scale], aggregation=method, max_steps=1)
    assert not [str(w.message) for w in recwarn if "swallows" in str(w.message)]


def from_one(completions, **kwargs):
    return [1.0 + value for value in count_a(completions)]


def test_ranges_need_not_contain_zero(tiny_model, tmp_path):
    extra = {"aggregation": "sa_mrpo", "aggregation_reward_ranges": [[1, 13]], "max_steps": 1}
    assert_consistent(run(tiny_model, tmp_path, [from_one], **extra))


def half(completions, **kwargs):
    return [5.0 if text[:1] < "h" else None for text in completions]


def one(completions, **kwargs):
    return [1.0] * len(completions)


@pytest.mark.parametrize(
    ("rewards", "fields"),
    [
        ([one, half], {"aggregation": "grpo"}),  # None counts as 0 in GRPO's sum, so it does learn
        ([count_a, tiny_scale], {"aggregation": "grpo"}),
        ([count_a, tiny_scale], {"reward_weights": [1.0, 0.0]}),
    ],
)
def test_no_false_alarm(tiny_model, tmp_path, rewards, fields):
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="Step")
        run(tiny_model, tmp_path, rewards, max_steps=1, **fields)


async def async_count_b(completions, **kwargs):
    await asyncio.sleep(0.01)
    return [float(text.count("b")) for text in completions]


def test_async_rewards(tiny_model, tmp_path):
    trainer = run(tiny_model, tmp_path, [count_a, async_count_b])
    assert trainer.reward_func_names == ["count_a", "async_count_b"]
    assert_consistent(trainer)


def test_reward_model(tiny_model, tmp_path):
    from transformers import AutoTokenizer, Qwen2Config, Qwen2ForSequenceClassification

    torch.manual_seed(1)
    scorer = Qwen2ForSequenceClassification(
        Qwen2Config(
            vocab_size=24,
            hidden_size=16,
            intermediate_size=32,
            num_hidden_layers=1,
            num_attention_heads=2,
            num_key_value_heads=1,
            num_labels=1,
            pad_token_id=0,
        )
    )
    scorer.config._name_or_path = "org/scorer"
    trainer = run(
        tiny_model,
        tmp_path,
        [scorer, rare],
        reward_processing_classes=[AutoTokenizer.from_pretrained(tiny_model), None],
    )
    records = assert_consistent(trainer)
    assert all(record["result"].density_K[0] == 1 for record in records)
    assert trainer.reward_func_names == ["scorer", "rare"]


def test_none_rewards_and_reward_weights(tiny_model, tmp_path):
    trainer = run(tiny_model, tmp_path, [count_a, maybe], reward_weights=[1.0, 0.5])
    records = assert_consistent(trainer)
    assert any(record["rewards"].isnan().any() for record in records)


def nothing_for_some(completions, **kwargs):
    return [None if text[:1] < "h" else float(text.count("a")) for text in completions]


def test_rollouts_that_no_reward_scores(tiny_model, tmp_path):
    for record in assert_consistent(run(tiny_model, tmp_path, nothing_for_some)):
        unscored = record["rewards"].isnan().all(dim=1)
        assert unscored.any()
        assert (record["trained_on"][unscored] == 0).all()


def test_several_iterations_reuse_one_generation_batch(tiny_model, tmp_path):
    trainer = run(tiny_model, tmp_path, [count_a, rare], num_iterations=2, max_steps=4)
    assert len(assert_consistent(trainer)) == 2


def test_steps_per_generation_differs_from_accumulation(tiny_model, tmp_path):
    trainer = run(
        tiny_model,
        tmp_path,
        [count_a, rare],
        per_device_train_batch_size=8,
        gradient_accumulation_steps=2,
        steps_per_generation=4,
        max_steps=4,
    )
    records = assert_consistent(trainer)
    assert len(records) == 2
    assert all(len(record["rewards"]) == 32 for record in records)


@pytest.mark.parametrize("num_generations_eval", [1, 2, None])
def test_evaluation(tiny_model, tmp_path, num_generations_eval):
    trainer = run(
        tiny_model,
        tmp_path,
        [count_a, rare],
        eval_dataset=prompts(6),
        eval_strategy="steps",
        eval_steps=1,
        per_device_eval_batch_size=8,
        num_generations_eval=num_generations_eval,
    )
    records = assert_consistent(trainer, "eval")
    assert {record["num_generations"] for record in records} == {num_generations_eval or 4}
    logged = [row for row in trainer.state.log_history if "eval_loss" in row]
    assert len(logged) == 2
    for row in logged:
        assert math.isfinite(row["eval_dara/density/count_a"])
        if num_generations_eval == 1:
            assert row["eval_dara/density/count_a"] == 0
    assert_consistent(trainer)


def test_peft(tiny_model, tmp_path):
    lora = LoraConfig(r=2, lora_alpha=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
    trainer = run(tiny_model, tmp_path, [count_a, rare], peft_config=lora, beta=0.1)
    assert_consistent(trainer)
    moved = [p.abs().max() for name, p in trainer.model.named_parameters() if "lora_B" in name]
    assert max(moved) > 0


LOSS_TYPES = ["grpo", "bnpo", "dr_grpo", "dapo", "cispo", "sapo", "luspo", "vespo"]


@pytest.mark.parametrize("loss_type", LOSS_TYPES)
def test_loss_types(tiny_model, tmp_path, loss_type):
    extra = {"importance_sampling_level": "sequence"} if loss_type == "luspo" else {}
    trainer = run(tiny_model, tmp_path, [count_a, rare], loss_type=loss_type, **extra)
    assert_consistent(trainer)
    losses = [row["loss"] for row in trainer.state.log_history if "loss" in row]
    assert len(losses) == 2
    assert all(math.isfinite(loss) for loss in losses)


def test_no_loss_type_is_forgotten():
    from trl.trainer import grpo_config

    help_text = next(
        f.metadata["help"] for f in grpo_config.GRPOConfig.__dataclass_fields__.values() if f.name == "loss_type"
    )
    named = set(help_text.replace("'", "`").split("`")[1::2])
    assert {name for name in named if name.islower() and name.isidentifier()} - {"max_completion_length"} <= set(
        LOSS_TYPES
    )
    assert len(named) >= 5


def test_gspo(tiny_model, tmp_path):
    assert_consistent(run(tiny_model, tmp_path, [count_a, rare], importance_sampling_level="sequence"))


@pytest.mark.parametrize("batch_norm", ["sequence", "token"])
def test_truncated_completions_masked(tiny_model, tmp_path, batch_norm):
    trainer = run(
        tiny_model,
        tmp_path,
        [count_a, rare],
        mask_truncated_completions=True,
        aggregation_batch_norm=batch_norm,
        beta=0.1,
    )
    for record in assert_consistent(trainer):
        lengths = record["completion_mask"].sum(dim=1)
        assert (lengths == 0).any()
        if batch_norm == "token":
            assert torch.equal(record["lengths"], lengths.float())


def test_batch_normalisations_differ(tiny_model, tmp_path):
    def trained_on(batch_norm):
        trainer = run(tiny_model, tmp_path, [count_a, rare], aggregation_batch_norm=batch_norm, max_steps=1)
        (record,) = assert_consistent(trainer)
        return record

    token, sequence, none = (trained_on(batch_norm) for batch_norm in ("token", "sequence", "none"))
    assert torch.equal(token["rewards"], sequence["rewards"])
    assert (token["trained_on"] * token["lengths"]).mean().abs() < 1e-4
    assert sequence["trained_on"].mean().abs() < 1e-6
    assert (token["trained_on"] - sequence["trained_on"]).abs().max() > 1e-3
    assert sequence["trained_on"].std().item() == pytest.approx(1, abs=1e-3)
    assert none["trained_on"].std().item() != pytest.approx(1, abs=1e-2)


def tool_calling_tokenizer(model):
    """The tiny model's tokenizer, for which a completion with the letter p is a call of the tool `press`."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model)
    tokenizer.response_template = {
        "defaults": {"role": "assistant"},
        "start_anchor": "<a>",
        "fields": {
            "tool_calls": {
                "open": "p",
                "close_pattern": r"[a-p.]",
                "repeats": True,
                "content": "text",
                "transform": {"type": "function", "function": {"name": "press", "arguments": {}}},
            },
            "content": {"close_pattern": r"<eos>", "content": "text"},
        },
    }
    return tokenizer


def chat_prompts():
    return Dataset.from_dict({"prompt": [[{"role": "user", "content": p}] for p in PROMPTS * 4]})


def chat_count_a(completions, **kwargs):
    return [float((messages[0].get("content") or "").count("a")) for messages in completions]


needs_response_templates = pytest.mark.skipif(
    not hasattr(chat_template_utils, "_SUPPORTS_RESPONSE_TEMPLATE"),
    reason="this TRL parses tool calls by response_schema, which this transformers no longer does",
)


class Button:
    """An environment that owns its reward."""

    rewarded = 0

    def reset(self, **kwargs):
        self.calls = 0

    def get_reward(self):
        Button.rewarded += 1
        return float(Button.rewarded % 3 == 0)

    def press(self) -> int:
        """Presses the button.

        Returns:
            How often it has been pressed.
        """
        self.calls += 1
        return self.calls


@needs_response_templates
def test_environment_reward_is_counted(tiny_model, tmp_path):
    trainer = run(
        tiny_model,
        tmp_path,
        [chat_count_a],
        processing_class=tool_calling_tokenizer(tiny_model),
        dataset=chat_prompts(),
        environment_factory=Button,
    )
    assert len(trainer.reward_func_names) == 2
    records = assert_consistent(trainer)
    assert records[0]["rewards"].shape == (32, 2)
    assert records[0]["result"].density_K[1] > 0
    assert f"dara/density/{trainer.reward_func_names[1]}" in trainer.state.log_history[0]


def press() -> int:
    """Presses the button.

    Returns:
        Always 1.
    """
    return 1


@needs_response_templates
def test_tools(tiny_model, tmp_path):
    trainer = run(
        tiny_model,
        tmp_path,
        [chat_count_a],
        processing_class=tool_calling_tokenizer(tiny_model),
        dataset=chat_prompts(),
        tools=[press],
        aggregation_batch_norm="token",
        max_completion_length=40,
        max_tool_calling_iterations=2,
    )
    for record in assert_consistent(trainer):
        assert (record["tool_mask"] == 0).any()  # a tool was called, and its answer is not trained on
        mask = record["completion_mask"] * record["tool_mask"]
        assert torch.equal(record["lengths"], mask.sum(dim=1).float())


def test_completions_table_holds_the_trained_advantages(tiny_model, tmp_path):
    trainer = run(tiny_model, tmp_path, [count_a, rare], log_completions=True, num_completions_to_print=0)
    for step, record in enumerate(assert_consistent(trainer), start=1):
        table = pandas.read_parquet(tmp_path / "completions" / f"completions_{step:05d}.parquet")
        assert table["advantage"].tolist() == pytest.approx(record["trained_on"].tolist())
        assert table["count_a"].tolist() == record["rewards"][:, 0].tolist()
        assert (record["trained_on"] - record["trl"]).abs().max() > 0.01


def test_completions_table_with_evaluation(tiny_model, tmp_path):
    """The table's columns are bounded by the generation batch, which an evaluation can exceed."""
    trainer = run(
        tiny_model,
        tmp_path,
        [count_a, rare],
        eval_dataset=prompts(24),
        per_device_train_batch_size=8,
        per_device_eval_batch_size=16,
        eval_strategy="steps",
        eval_steps=1,
    )
    logged = list(trainer._logs["advantages"])
    expected = torch.cat([record["trained_on"] for record in trainer.records if record["mode"] == "eval"])
    assert len(logged) == 8
    assert logged == pytest.approx(expected[-8:].tolist())


def test_completions_table_with_a_smaller_evaluation(tiny_model, tmp_path):
    trainer = run(
        tiny_model,
        tmp_path,
        [count_a, rare],
        eval_dataset=prompts(2),
        per_device_eval_batch_size=8,
        eval_strategy="steps",
        eval_steps=1,
        max_steps=1,
    )
    expected = torch.cat([record["trained_on"] for record in trainer.records])[-32:]
    assert len(trainer.records[-1]["trained_on"]) == 8
    assert list(trainer._logs["advantages"]) == pytest.approx(expected.tolist())
    fresh = RecordingTrainer(
        tiny_model,
        [count_a, rare],
        config(tmp_path, per_device_eval_batch_size=8),
        train_dataset=prompts(),
        eval_dataset=prompts(2),
    )
    fresh.evaluate()
    assert list(fresh._logs["advantages"]) == pytest.approx(fresh.records[0]["trained_on"].tolist())


def test_resume_continues_bit_for_bit(tiny_model, tmp_path):
    whole = run(tiny_model, tmp_path / "whole", [count_a, rare], max_steps=4)
    run(tiny_model, tmp_path / "cut", [count_a, rare], max_steps=4, save_strategy="steps", save_steps=2)
    resumed = run(
        tiny_model,
        tmp_path / "cut",
        [count_a, rare],
        max_steps=4,
        save_strategy="steps",
        save_steps=2,
        resume_from_checkpoint=str(tmp_path / "cut" / "checkpoint-2"),
    )
    assert len(resumed.records) == 2
    for ours, theirs in zip(resumed.records, whole.records[2:], strict=True):
        assert torch.equal(ours["rewards"], theirs["rewards"])
        assert torch.equal(ours["trained_on"], theirs["trained_on"])
    checkpoint: Path = tmp_path / "cut" / "checkpoint-4"
    card = (tmp_path / "cut" / "README.md").read_text()
    assert "Density-Aware Reward Aggregation" in card
    assert "2610.00574" in card
    state = json.loads((checkpoint / "trainer_state.json").read_text())
    assert "dara/density/rare" in state["log_history"][0]


def constant(completions, value, **kwargs):
    return [value] * len(completions)


def test_partials_of_one_function_do_not_share_a_metric(tiny_model, tmp_path):
    trainer = run(tiny_model, tmp_path, [partial(constant, value=6.0), partial(constant, value=100.0)], max_steps=1)
    row = trainer.state.log_history[0]
    assert row["rewards/constant/mean"] == 6.0
    assert row["rewards/constant_2/mean"] == 100.0


def step(completions, **kwargs):
    return [0.0] * len(completions)


def test_reward_named_as_a_column_is_refused(tiny_model, tmp_path):
    with pytest.raises(ValueError, match="Reward 1 is named 'step'"):
        RecordingTrainer(tiny_model, [count_a, step], config(tmp_path), train_dataset=prompts())


def overwriting(completions, log_extra, **kwargs):
    log_extra("count_a", list(completions))
    return [0.0] * len(completions)


def test_extra_column_must_not_overwrite_a_reward(tiny_model, tmp_path):
    with pytest.raises(ValueError, match="log_extra column 'count_a'"):
        run(tiny_model, tmp_path, [count_a, overwriting])


def exploding(completions, **kwargs):
    return [math.inf] + [0.0] * (len(completions) - 1)


@pytest.mark.parametrize("aggregation", ["dara_asym", "grpo"])
def test_infinite_reward_is_named(tiny_model, tmp_path, aggregation):
    with pytest.raises(ValueError, match=r"Reward 1 \('exploding'\) is inf for rollout 0"):
        run(tiny_model, tmp_path, [count_a, exploding], aggregation=aggregation)


def test_wrong_number_of_static_weights_fails_before_training(tiny_model, tmp_path):
    with pytest.raises(ValueError, match="aggregation_static_weights has 3 entries, but there are 2 rewards: "):
        RecordingTrainer(
            tiny_model,
            [count_a, rare],
            config(tmp_path, aggregation="static_sym", aggregation_static_weights=[1, 2, 3]),
            train_dataset=prompts(),
        )


def test_signature_is_trls():
    assert list(inspect.signature(DARAGRPOTrainer).parameters) == list(inspect.signature(GRPOTrainer).parameters)


def test_metrics_file_has_every_log(tiny_model, tmp_path, monkeypatch):
    path = tmp_path / "metrics.jsonl"
    monkeypatch.setenv("DARA_TRL_METRICS_FILE", str(path))
    options = {"max_steps": 2, "eval_strategy": "steps", "eval_steps": 2, "aggregation": "grpo"}
    options |= {"num_generations_eval": 1, "eval_dataset": prompts()}
    trainer = run(tiny_model, tmp_path, [count_a, maybe], **options)
    rows, _ = read_rows(path)
    assert [row["step"] for row in rows] == [row["step"] for row in trainer.state.log_history] == [1, 2, 2, 2]
    for row, logged in zip(rows, trainer.state.log_history, strict=True):
        numbers = {k: v for k, v in logged.items() if v is not None and math.isfinite(v) and k != "total_flos"}
        assert {**numbers, "max_steps": 2}.items() <= row.items()
    assert "eval_rewards/count_a/mean" in rows[2]
    assert "NaN" not in path.read_text()


def test_plain_config_is_refused(tiny_model, tmp_path):
    with pytest.raises(TypeError, match="args must be a DARAGRPOConfig, not GRPOConfig"):
        DARAGRPOTrainer(tiny_model, count_a, GRPOConfig(str(tmp_path), use_cpu=True, bf16=False), prompts())


@dataclass
class CpuConfig(DARAGRPOConfig):
    use_cpu: bool = True
    bf16: bool = False


def test_default_config(tiny_model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("dara_trl.trainer.DARAGRPOConfig", CpuConfig)  # TRL's own default wants a GPU
    trainer = DARAGRPOTrainer(tiny_model, count_a, train_dataset=prompts())
    assert isinstance(trainer.args, DARAGRPOConfig)
    assert trainer.args.output_dir.endswith("-DARA")
    assert trainer._name == "DARA"
    assert {"trl", "grpo", "dara"} <= set(trainer.model.model_tags)


def not_rare(completions, **kwargs):
    return [1 - reward for reward in rare(completions)]


def test_zero_std_metric_speaks_of_groups_without_signal(tiny_model, tmp_path):
    """The two rewards' sum is constant, which TRL's figure is about; each of them tells rollouts apart."""
    trainer = run(tiny_model, tmp_path, [rare, not_rare], max_steps=3)
    for row, record in zip(trainer.state.log_history, assert_consistent(trainer), strict=False):
        silent = 1 - record["result"].active_BK.any(dim=1).float().mean()
        assert silent < 1
        assert row["frac_reward_zero_std"] == pytest.approx(silent.item())


def test_mathematics_runs_on_the_host(tiny_model, tmp_path):
    """The rewards are the only thing that comes off the device, once a batch."""
    trainer = run(tiny_model, tmp_path, [count_a, rare])
    for record in trainer.records:
        assert all(value.device.type == "cpu" for value in vars(record["result"]).values() if torch.is_tensor(value))
