"""What reaches W&B, TensorBoard and trackio is what `aggregate` says of the rewards of that step."""

import math
import time

import pytest
from rollouts import count_a, maybe, needed, prompts, rare, run

from dara_trl import METHODS, aggregate
from dara_trl.telemetry import batch_metrics


PER_REWARD = [
    "density",
    "energy",
    "weight",
    "calibrated_energy",
    "active_groups",
    "applicable",
    "energy_ratio",
    "weight_at_cap",
]
NAMES = ["count_a", "rare", "maybe"]
KEYS = [f"dara/{figure}/{name}" for figure in PER_REWARD for name in NAMES]
KEYS += ["dara/frac_groups_without_signal", "dara/frac_rollouts_dropped"]


def expected_metrics(trainer, record):
    result = aggregate(
        record["rewards"],
        num_generations=record["num_generations"],
        method=trainer.args.aggregation,
        static_weights=trainer.args.aggregation_static_weights,
        reward_ranges=trainer.args.aggregation_reward_ranges,
    )
    return batch_metrics(result, NAMES)


@pytest.fixture
def wandb_folder(tmp_path, monkeypatch):
    import wandb

    for name in ("WANDB_DIR", "WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "WANDB_DATA_DIR"):
        monkeypatch.setenv(name, str(tmp_path / "wandb_home"))
    (tmp_path / "wandb_home").mkdir()
    yield tmp_path / "wandb_home"
    wandb.teardown()  # or the next test's run keeps this one's folder


@pytest.mark.parametrize("method", METHODS)
def test_wandb_holds_every_figure_at_every_step(tiny_model, tmp_path, wandb_folder, method):
    import wandb
    from read_wandb import history

    trainer = run(
        tiny_model,
        tmp_path / "out",
        [count_a, rare, maybe],
        aggregation=method,
        report_to="wandb",
        max_steps=3,
        eval_dataset=prompts(8),
        eval_strategy="steps",
        eval_steps=3,
        per_device_eval_batch_size=32,
        **needed(method, 3),
    )
    wandb.finish()
    for _ in range(100):  # it may return before W&B's service has written the last rows
        rows = history(wandb_folder)
        if sum("train/loss" in row or "eval/loss" in row for row in rows) == 4:
            break
        time.sleep(0.2)
    train = {row["train/global_step"]: row for row in rows if "train/loss" in row}
    evaluation = [row for row in rows if "eval/loss" in row]
    assert sorted(train) == [1, 2, 3]
    assert len(evaluation) == 1
    records = {"train": [], "eval": []}
    for record in trainer.records:
        records[record["mode"]].append(record)
    for prefix, logged, seen in (("train", list(train.values()), "train"), ("eval", evaluation, "eval")):
        assert len(records[seen]) == len(logged)
        for row, record in zip(logged, records[seen], strict=True):
            for key, value in expected_metrics(trainer, record).items():
                assert row[f"{prefix}/{key}"] == pytest.approx(value, abs=1e-6), key
    assert set(KEYS) == set(expected_metrics(trainer, trainer.records[0]))


def test_several_batches_between_logs_are_averaged(tiny_model, tmp_path):
    trainer = run(tiny_model, tmp_path, [count_a, rare, maybe], max_steps=4, logging_steps=2)
    rows = [row for row in trainer.state.log_history if "loss" in row]
    assert len(rows) == 2
    for i, row in enumerate(rows):
        pair = [expected_metrics(trainer, record) for record in trainer.records[2 * i : 2 * i + 2]]
        for key in KEYS:
            assert row[key] == pytest.approx((pair[0][key] + pair[1][key]) / 2, abs=1e-6)


def test_tensorboard_and_trainer_state(tiny_model, tmp_path, monkeypatch):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    monkeypatch.setenv("TENSORBOARD_LOGGING_DIR", str(tmp_path / "tensorboard"))
    trainer = run(tiny_model, tmp_path / "out", [count_a, rare, maybe], report_to="tensorboard")
    events = EventAccumulator(str(tmp_path / "tensorboard"), size_guidance={"scalars": 0})
    events.Reload()
    for key in KEYS:
        values = [event.value for event in events.Scalars(f"train/{key}")]
        assert values == pytest.approx(
            [expected_metrics(trainer, record)[key] for record in trainer.records], abs=1e-5
        )
    for row in trainer.state.log_history[:2]:
        assert all(math.isfinite(row[key]) for key in KEYS)


def test_trackio(tiny_model, tmp_path, monkeypatch):
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    from trackio import sqlite_storage, utils

    for module in (utils, sqlite_storage):  # they read the folder at import, and TRL has imported them
        monkeypatch.setattr(module, "TRACKIO_DIR", tmp_path / "trackio")
    SQLiteStorage = sqlite_storage.SQLiteStorage

    trainer = run(
        tiny_model, tmp_path / "out", [count_a, rare, maybe], report_to="trackio", run_name="r", project="dara_test"
    )
    assert (tmp_path / "trackio").is_dir()
    rows = [row for row in SQLiteStorage.get_logs("dara_test", "r") if "train/loss" in row]
    assert len(rows) == 2
    for row, record in zip(rows, trainer.records, strict=True):
        for key in KEYS:
            assert row[f"train/{key}"] == pytest.approx(expected_metrics(trainer, record)[key], abs=1e-6)
