"""Density as a control signal: each callback acts on a real short run, and its rule has the right values by hand."""

import math

import pytest
from rollouts import config, count_a, prompts, rare, run
from transformers import EarlyStoppingCallback
from trl import GRPOConfig, GRPOTrainer

from dara_trl import CheckpointRule, DARAGRPOTrainer, DensityEarlyStopping, RewardSchedule


def history(densities, means=None, every=1):
    means = means or [0.5] * len(densities)
    return [
        {"step": (i + 1) * every, "dara/density/r": density, "rewards/r/mean": mean}
        for i, (density, mean) in enumerate(zip(densities, means, strict=True))
    ]


@pytest.mark.parametrize(
    ("densities", "means", "every", "expected"),
    [
        ([0.5, 0.01, 0.01, 0.01], [0.9] * 4, 1, "saturated"),
        ([0.5, 0.01, 0.01, 0.01], [0.1] * 4, 1, "too_hard"),
        ([0.5, 0.01, 0.01, 0.01], [0.0, 0.5, 1.0, 1.0], 1, "saturated"),  # the mean of the last three is 0.83
        ([0.5, 0.01, 0.01, 0.01], [0.0, 0.7, 0.7, 0.9], 1, "too_hard"),
        ([0.5, 0.01, 0.01, 0.01], [0.9, None, None, None], 1, None),  # applied nowhere: nothing is known
        ([0.5, 0.01, 0.01], [0.9] * 3, 1, None),  # only for two steps
        ([0.5, 0.01, 0.05, 0.01], [0.9] * 4, 1, None),  # not below 0.05
        ([0.09, 0.01, 0.01, 0.01], [0.9] * 4, 1, None),  # has never been dense
        ([0.01, 0.01, 0.01, 0.01], [0.9] * 4, 1, None),
        ([0.1, 0.01], [0.9] * 2, 5, "saturated"),  # one log speaks for five steps
        ([0.1, 0.2], [0.9] * 2, 5, None),
    ],
)
def test_when_training_is_to_stop(densities, means, every, expected):
    rule = DensityEarlyStopping("r", 0.8, below=0.05, steps=3)
    assert rule._reason(history(densities, means, every) + [{"step": 99, "eval_loss": 1.0}]) == expected


def saturating(completions, trainer_state=None, **kwargs):
    """Tells rollouts apart until step 3, then never again."""
    return [float(text[:1] in "bc") if trainer_state.global_step < 3 else 1.0 for text in completions]


def test_training_stops_when_a_reward_is_saturated(tiny_model, tmp_path):
    callback = DensityEarlyStopping("saturating", 0.9, steps=2)
    with pytest.warns(UserWarning, match="Step 5: training ends, as reward 'saturating' is saturated: its density"):
        trainer = run(tiny_model, tmp_path, [count_a, saturating], max_steps=9, callbacks=[callback])
    assert trainer.state.global_step == 5
    assert callback.reason == "saturated"
    other = DensityEarlyStopping("saturating", 0.9, steps=2, stop_if="too_hard")
    assert run(tiny_model, tmp_path, [count_a, saturating], max_steps=7, callbacks=[other]).state.global_step == 7


def test_unknown_reward_is_named(tiny_model, tmp_path):
    with pytest.raises(ValueError, match="No density of reward 'rear' is logged; there are count_a, rare"):
        run(tiny_model, tmp_path, [count_a, rare], callbacks=[DensityEarlyStopping("rear", 1.0)])
    with pytest.raises(ValueError, match="RewardSchedule speaks of reward 'rear'; there are count_a, rare"):
        run(tiny_model, tmp_path, [count_a, rare], callbacks=[RewardSchedule("rear", {0: 1.0})])
    with pytest.raises(ValueError, match="CheckpointRule speaks of reward 'rear'; evaluated are count_a, rare"):
        run(
            tiny_model,
            tmp_path,
            [count_a, rare],
            eval_dataset=prompts(4),
            eval_strategy="steps",
            eval_steps=1,
            callbacks=[CheckpointRule("count_a", {"rear": 1.0})],
        )


@pytest.mark.parametrize(
    ("points", "priorities"),
    [
        ({0: 0.0, 4: 1.0}, [0.0, 0.25, 0.5, 0.75, 1.0, 1.0]),
        ({2: 1.0, 3: 0.5, 5: 0.1}, [1.0, 1.0, 1.0, 0.5, 0.3, 0.1]),
        ({1: 2.0}, [2.0] * 6),
    ],
)
def test_priority_by_step(points, priorities):
    schedule = RewardSchedule("r", points)
    assert [schedule.priority(step, []) for step in range(6)] == pytest.approx(priorities)


def test_priority_from_where_another_reward_is_less_dense():
    schedule = RewardSchedule("length", {0: 0.0, 2: 1.0}, after="r", density_below=0.5, window=2)
    falling = history([0.9, 0.4, 0.6, 0.3, 0.9])  # the means of two are 0.65, 0.5, 0.45 (after step 4), 0.6
    got = [schedule.priority(step, falling[:step]) for step in range(8)]
    assert got == [0.0, 0.0, 0.0, 0.0, 0.0, 0.5, 1.0, 1.0]
    rising = RewardSchedule("length", {0: 0.0, 2: 1.0}, after="r", density_above=0.55, window=1)
    assert [rising.priority(step, falling[:step]) for step in range(4)] == [0.0, 0.0, 0.5, 1.0]


def test_schedule_changes_what_is_trained_on_and_leaves_rewards_raw(tiny_model, tmp_path):
    schedule = RewardSchedule("rare", {0: 0.0, 2: 1.0})
    scheduled = run(tiny_model, tmp_path, [count_a, rare], max_steps=4, learning_rate=0.0, callbacks=[schedule])
    plain = run(tiny_model, tmp_path, [count_a, rare], max_steps=4, learning_rate=0.0)
    logs, others = scheduled.state.log_history[:4], plain.state.log_history[:4]
    assert [log["dara/priority/rare"] for log in logs] == [0.0, 0.5, 1.0, 1.0]
    assert "dara/priority/rare" not in others[0]
    for log, other, priority in zip(logs, others, (0.0, 0.5, 1.0, 1.0), strict=True):
        for figure in ("rewards/rare/mean", "dara/density/rare", "dara/energy/rare"):
            assert log[figure] == other[figure]
        assert log["reward"] == pytest.approx(log["rewards/count_a/mean"] + priority * log["rewards/rare/mean"])
    for step in range(4):
        same = bool((scheduled.records[step]["trained_on"] == plain.records[step]["trained_on"]).all())
        assert same == (step >= 2)
    assert logs[0]["dara/calibrated_energy/rare"] == 0


def test_schedule_goes_on_after_a_resume(tiny_model, tmp_path):
    fields = {"max_steps": 4, "save_strategy": "steps", "save_steps": 2, "learning_rate": 0.0}
    schedule = {"points": {0: 0.0, 1: 1.0}, "after": "count_a", "density_above": 0.0, "window": 2}
    whole = run(tiny_model, tmp_path, [count_a, rare], callbacks=[RewardSchedule("rare", **schedule)], **fields)
    resumed = DARAGRPOTrainer(
        tiny_model, [count_a, rare], config(tmp_path, **fields), train_dataset=prompts(), callbacks=None
    )
    resumed.add_callback(RewardSchedule("rare", **schedule))
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    key = "dara/priority/rare"
    assert [log[key] for log in whole.state.log_history if key in log] == [0.0, 0.0, 0.0, 1.0]
    assert [log[key] for log in resumed.state.log_history if key in log] == [0.0, 0.0, 0.0, 1.0]


def test_schedule_needs_our_trainer(tiny_model, tmp_path):
    args = GRPOConfig(str(tmp_path), report_to="none", use_cpu=True, bf16=False, num_generations=4, max_steps=1)
    trainer = GRPOTrainer(
        tiny_model, count_a, args, train_dataset=prompts(), callbacks=[RewardSchedule("count_a", {0: 1.0})]
    )
    with pytest.raises(ValueError, match="RewardSchedule needs a DARAGRPOTrainer"):
        trainer.train()


EVALUATED = {
    "eval_dataset": prompts(4),
    "eval_strategy": "steps",
    "eval_steps": 1,
    "save_strategy": "steps",
    "save_steps": 1,
    "per_device_eval_batch_size": 16,
    "load_best_model_at_end": True,
    "max_steps": 4,
    "learning_rate": 0.05,
}


@pytest.mark.parametrize("figure", ["dara/density/rare", "rewards/count_a/mean"])
def test_best_checkpoint_by_one_figure(tiny_model, tmp_path, figure):
    stopping = EarlyStoppingCallback(early_stopping_patience=99)  # reads the same figure
    trainer = run(
        tiny_model, tmp_path, [count_a, rare], callbacks=[stopping], metric_for_best_model=figure, **EVALUATED
    )
    values = {log["step"]: log[f"eval_{figure}"] for log in trainer.state.log_history if f"eval_{figure}" in log}
    assert len(values) == 4
    assert len(set(values.values())) > 1
    assert trainer.state.best_metric == max(values.values())
    assert values[trainer.state.best_global_step] == max(values.values())


def test_best_checkpoint_by_a_rule(tiny_model, tmp_path):
    floor = {"value": 0.0}
    first = run(tiny_model, tmp_path / "a", [count_a, rare], metric_for_best_model="dara/density/rare", **EVALUATED)
    means = [
        (log["eval_rewards/count_a/mean"], log["eval_rewards/rare/mean"], log["step"])
        for log in first.state.log_history
        if "eval_rewards/rare/mean" in log
    ]
    # So high that the best by count_a alone is out.
    floor = sorted(value for _, value, _ in means)[2]
    allowed = [(a, step) for a, value, step in means if value >= floor]
    trainer = run(
        tiny_model,
        tmp_path / "b",
        [count_a, rare],
        callbacks=[CheckpointRule("count_a", {"rare": floor})],
        metric_for_best_model="dara/rule",
        **EVALUATED,
    )
    assert 1 <= len(allowed) < 4
    assert trainer.state.best_metric == max(allowed)[0]
    assert trainer.state.best_global_step in [step for a, step in allowed if a == max(allowed)[0]]


def test_rule_by_hand():
    def value(a, b):
        metrics = {"eval_rewards/a/mean": a, "eval_rewards/b/mean": b}
        CheckpointRule("a", {"b": 0.9, "a": 0.1}).on_evaluate(None, None, None, metrics=metrics)
        return metrics["eval_dara/rule"]

    assert value(0.5, 0.9) == 0.5
    assert value(0.5, 0.8) == pytest.approx(-1e6 - 0.1)
    assert value(0.0, 0.7) == pytest.approx(-1e6 - 0.3)
    assert value(0.5, None) < value(0.0, 0.0)
    assert math.isfinite(value(None, None))


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: DensityEarlyStopping("r", "0.9"), "solved must be a finite number, not '0.9'"),
        (lambda: DensityEarlyStopping("r", 0.9, below=2), "below must be a finite number from 0 to 1, not 2"),
        (lambda: DensityEarlyStopping("r", 0.9, below=0.3, peak=0.2), "peak must be a finite number from 0.3 to 1"),
        (lambda: DensityEarlyStopping("r", 0.9, steps=0), "steps must be a whole number of at least 1, not 0"),
        (lambda: DensityEarlyStopping("r", 0.9, stop_if="hard"), "stop_if must be saturated, too_hard or either"),
        (lambda: RewardSchedule("r", {}), "points must be a dict from steps to priorities"),
        (lambda: RewardSchedule("r", {0.5: 1.0}), "points has the step 0.5"),
        (lambda: RewardSchedule("r", {0: -1.0}), r"points\[0\] must be a finite number of at least 0, not -1.0"),
        (lambda: RewardSchedule("r", {0: 1.0}, after="s"), "after needs exactly one of"),
        (lambda: RewardSchedule("r", {0: 1.0}, density_below=0.1), "after needs exactly one of"),
        (lambda: RewardSchedule("r", {0: 1.0}, after="s", density_below=3), "density_below or density_above must be"),
        (lambda: RewardSchedule("r", {0: 1.0}, window=0), "window must be a whole number"),
        (lambda: CheckpointRule("r", {}), "at_least must be a dict"),
        (lambda: CheckpointRule("r", {"s": math.nan}), r"at_least\['s'\] must be a finite number"),
    ],
)
def test_bad_arguments_are_named(build, words):
    with pytest.raises(ValueError, match=words):
        build()
