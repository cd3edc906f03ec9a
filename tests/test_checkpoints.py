"""Checkpoints: a torn one is never resumed from, and a resumed run equals one that was never interrupted."""

import shutil
import warnings

import pytest
import torch
import trl
from rollouts import count_a, prompts, rare, run
from transformers import TrainerState
from trl import GRPOTrainer

from dara_trl.checkpoints import (
    RolloutState,
    begin_saving,
    checkpoint_fault,
    load_rollouts,
    newest_checkpoint,
    save_rollouts,
)


SAVE = {"save_strategy": "steps", "max_steps": 6, "save_only_model": False}


@pytest.mark.parametrize(
    "batches",
    [
        {},
        {"num_iterations": 2},
        {"steps_per_generation": 3},
        {"gradient_accumulation_steps": 2, "steps_per_generation": 4, "num_iterations": 2},
        {"gradient_accumulation_steps": 2, "num_iterations": 2, "aggregation": "grpo"},
    ],
    ids=lambda batches: "-".join(batches) or "plain",
)
@pytest.mark.parametrize("save_steps", [2, 3, 5])
def test_resumed_run_is_bitwise_the_uninterrupted_one(tiny_model, tmp_path, batches, save_steps):
    whole = run(tiny_model, tmp_path, [count_a, rare], **SAVE, save_steps=save_steps, **batches)
    for later in tmp_path.glob("checkpoint-*"):
        if later.name != f"checkpoint-{save_steps}":
            shutil.rmtree(later)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        again = run(
            tiny_model,
            tmp_path,
            [count_a, rare],
            **SAVE,
            save_steps=save_steps,
            **batches,
            resume_from_checkpoint=True,
        )
    assert again.state.global_step == 6
    steps = [row for row in whole.state.log_history if "loss" in row]
    resumed = [row for row in again.state.log_history if "loss" in row]
    assert [row["step"] for row in resumed] == list(range(1, 7))
    timeless = [{key: value for key, value in row.items() if key != "step_time"} for row in (*steps, *resumed)]
    assert timeless[:6] == timeless[6:]
    for one, other in zip(whole.model.parameters(), again.model.parameters(), strict=True):
        assert torch.equal(one, other)


@pytest.fixture
def checkpoints(tiny_model, tmp_path):
    run(tiny_model, tmp_path, [count_a], **SAVE, save_steps=2, num_iterations=4)
    return tmp_path


def test_newest_whole_checkpoint(checkpoints):
    assert newest_checkpoint(checkpoints).name == "checkpoint-6"
    (checkpoints / "checkpoint-6" / "rollouts_0_of_1.pt").rename(checkpoints / "kept")
    # As plain TRL writes it: then the random-number state is what is looked for.
    assert checkpoint_fault(checkpoints / "checkpoint-6") is None
    (checkpoints / "checkpoint-6" / "rng_state.pth").unlink()
    with pytest.warns(UserWarning, match=r"checkpoint-6 is not whole: no random-number state. Resuming from .*-4"):
        assert newest_checkpoint(checkpoints).name == "checkpoint-4"
    (checkpoints / "checkpoint-4" / "trainer_state.json").write_text('{"global_st')
    (checkpoints / "checkpoint-2" / "trainer_state.json").write_text('{"global_step": 4}')
    with pytest.raises(
        ValueError, match=r"No checkpoint to resume.*-6.*-4 is not whole: trainer_state.*-2.*of step 4"
    ):
        newest_checkpoint(checkpoints)


@pytest.mark.parametrize(
    ("files", "fault"),
    [
        (["rng_state_0.pth", "rng_state_1.pth"], None),
        (["rng_state_1.pth"], "random-number states are missing"),
        (["rollouts_0_of_2.pt", "rng_state_0.pth", "rng_state_1.pth"], "process 1 of 2 had not saved its part"),
        (["rollouts_0_of_2.pt", "rollouts_1_of_2.pt", "rng_state_0.pth", "rng_state_1.pth"], None),
        (["rollouts_0_of_2.pt", "rollouts_1_of_2.pt", "rng_state_0.pth"], "process 1 of 2 had not saved its part"),
        (["rollouts_0_of_2.pt", "rollouts_1_of_2.new", "rng_state_0.pth"], "process 1 of 2 had not saved its part"),
        (["rollouts_0_of_1.pt", "rng_state.pth"], None),
    ],
)
def test_every_process_must_have_saved(tmp_path, files, fault):
    (tmp_path / "trainer_state.json").write_text('{"global_step": 1}')
    for name in ["optimizer.pt", "pytorch_model.bin", *files]:
        torch.save({}, tmp_path / name)
    assert checkpoint_fault(tmp_path) == fault


@pytest.mark.parametrize("name", ["rollouts_0_of_1.pt", "rng_state.pth", "optimizer.pt", "model.safetensors"])
def test_a_file_cut_off_makes_a_checkpoint_torn(checkpoints, name):
    path = checkpoints / "checkpoint-6" / name
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.warns(UserWarning, match=rf"checkpoint-6 is not whole: {name} is cut off.* Resuming from .*-4"):
        assert newest_checkpoint(checkpoints).name == "checkpoint-4"


@pytest.mark.parametrize(
    ("name", "content", "fault"),
    [
        ("optimizer.pt", None, "no state of the optimizer in it"),
        ("model.safetensors", None, "no weights in it"),
        ("config.json", "", "config.json cannot be read"),
        ("training_args.bin", "", "training_args.bin is cut off"),
        ("model.safetensors.index.json", '{"weight_map": {"a": "model-2.safetensors"}}', "model-2.safetensors of its"),
    ],
)
def test_a_file_that_is_missing_or_empty_makes_a_checkpoint_torn(checkpoints, name, content, fault):
    path = checkpoints / "checkpoint-6" / name
    if content is None:
        path.unlink()
    else:
        path.write_text(content)
    with pytest.warns(UserWarning, match=rf"checkpoint-6 is not whole: {fault}.* Resuming from .*-4"):
        assert newest_checkpoint(checkpoints).name == "checkpoint-4"


def dies(*args, **kwargs):
    raise KeyboardInterrupt


def test_a_kill_in_the_last_moment_of_saving(tiny_model, tmp_path, monkeypatch):
    """Between the optimiser and `trainer_state.json` a checkpoint is torn; after it, nothing is missing."""
    settings = {**SAVE, "save_steps": 2, "num_iterations": 4, "save_total_limit": 1, "lr_scheduler_type": "constant"}
    run(tiny_model, tmp_path, [count_a], **{**settings, "max_steps": 2})
    whole = run(tiny_model, tmp_path / "whole", [count_a], **settings)

    def resumed():
        return run(tiny_model, tmp_path, [count_a], **settings, resume_from_checkpoint=True)

    with monkeypatch.context() as patch:
        patch.setattr(TrainerState, "save_to_json", dies)
        with pytest.raises(KeyboardInterrupt):
            resumed()
    assert (tmp_path / "checkpoint-4" / "rng_state.pth").exists()
    assert "trainer_state.json" in checkpoint_fault(tmp_path / "checkpoint-4")
    assert newest_checkpoint(tmp_path).name == "checkpoint-2"
    with monkeypatch.context() as patch:
        patch.setattr(GRPOTrainer, "_save_checkpoint", then(dies))
        with pytest.raises(KeyboardInterrupt):
            resumed()
    assert [path.name for path in tmp_path.glob("checkpoint-*")] == ["checkpoint-4"]
    assert checkpoint_fault(tmp_path / "checkpoint-4") is None
    assert (tmp_path / "checkpoint-4" / "rollouts_0_of_1.pt").exists()
    losses = [[row["loss"] for row in each.state.log_history if "loss" in row] for each in (whole, resumed())]
    assert losses[0] == losses[1]


def then(after):
    saves = GRPOTrainer._save_checkpoint

    def both(*args, **kwargs):
        saves(*args, **kwargs)
        after()

    return both


def test_a_checkpoint_that_is_written_again_is_not_whole_before_it_is(checkpoints):
    folder = checkpoints / "checkpoint-6"
    begin_saving(folder, 0, 1)
    assert "trainer_state.json" in checkpoint_fault(folder)
    assert not (folder / "rng_state.pth").exists()


def test_a_torn_checkpoint_that_is_named_is_refused(tiny_model, checkpoints):
    torn = checkpoints / "checkpoint-4"
    path = torn / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(ValueError, match=r"Cannot resume from .*checkpoint-4: model.safetensors is cut off"):
        run(tiny_model, checkpoints, [count_a], **SAVE, resume_from_checkpoint=str(torn))
    with pytest.raises(ValueError, match=r"Cannot resume from .*checkpoint-44: there is no such folder.*or True"):
        run(tiny_model, checkpoints, [count_a], **SAVE, resume_from_checkpoint=str(checkpoints / "checkpoint-44"))


@pytest.mark.parametrize(
    ("settings", "told", "anew"),
    [
        ({"aggregation": "gdpo"}, "aggregation was dara_asym, is gdpo", False),
        ({"reward_weights": [1.0, 3.0]}, r"reward_weights was None, is \[1.0, 3.0\]", False),
        ({"num_generations": 4}, "num_generations was 2, is 4", True),
    ],
    ids=["aggregation", "weights", "shape"],
)
def test_other_settings_than_the_checkpoints_are_said(tiny_model, tmp_path, settings, told, anew):
    before = {
        "per_device_train_batch_size": 8,
        "steps_per_generation": 4,
        "num_generations": 2,
        **SAVE,
        "save_steps": 2,
    }
    run(tiny_model, tmp_path, [count_a, rare], **{**before, "max_steps": 2})
    generated = []

    def seen(prompts, **kwargs):
        generated.append(len(prompts))
        return [0.0] * len(prompts)

    seen.__name__ = "rare"
    with pytest.warns(UserWarning, match=f"trained with other settings: {told}") as warned:
        again = run(
            tiny_model,
            tmp_path,
            [count_a, seen],
            **{**before, **settings, "max_steps": 4},
            resume_from_checkpoint=True,
        )
    assert again.state.global_step == 4
    # Steps 3 and 4 come out of the generation batch in progress, unless that has another shape.
    assert bool(generated) == anew
    assert any("generated anew" in str(warning.message) for warning in warned) == anew


def test_other_reward_functions_than_the_checkpoints_are_said(tiny_model, checkpoints):
    with pytest.warns(UserWarning, match="reward_funcs was count_a, is count_a, rare"):
        run(tiny_model, checkpoints, [count_a, rare], **{**SAVE, "max_steps": 8}, resume_from_checkpoint=True)


def test_no_checkpoint_at_all(tmp_path):
    with pytest.raises(ValueError, match="No checkpoint to resume from in"):
        newest_checkpoint(tmp_path)


def test_rollouts_survive_a_round_trip_and_another_number_of_processes_is_said(tmp_path):
    state = RolloutState(3, [{"ids": torch.arange(4), "none": None, "rows": [[1, 2]], "share": 0.5}])
    save_rollouts(tmp_path, state, 1, 2)
    loaded = load_rollouts(tmp_path, 1, 2)
    assert (loaded.step, loaded.buffered_inputs[0]["rows"]) == (3, [[1, 2]])
    assert torch.equal(loaded.buffered_inputs[0]["ids"], torch.arange(4))
    with pytest.warns(UserWarning, match=r"process 0 of 1 \(2 processes wrote it, not 1\)"):
        other = load_rollouts(tmp_path, 0, 1)
    assert (other.step, other.buffered_inputs) == (3, None)
    with pytest.warns(UserWarning, match=r"process 0 of 1 \(plain TRL wrote it\)"):
        assert load_rollouts(tmp_path / "none", 0, 1) is None


def test_model_only_checkpoints_have_no_rollouts(tiny_model, tmp_path):
    run(tiny_model, tmp_path, [count_a], prompts(), **{**SAVE, "save_only_model": True, "max_steps": 2}, save_steps=2)
    assert not list(tmp_path.glob("checkpoint-2/rollouts*"))
    with pytest.raises(ValueError, match=r"checkpoint-2 holds the model only .* name it to go on from it"):
        newest_checkpoint(tmp_path)
    with pytest.warns(UserWarning, match=r"holds the model only .*: the optimizer and the random numbers start anew"):
        again = run(
            tiny_model,
            tmp_path,
            [count_a],
            **{**SAVE, "save_strategy": "no", "max_steps": 3},
            resume_from_checkpoint=str(tmp_path / "checkpoint-2"),
        )
    assert again.state.global_step == 3


@pytest.mark.parametrize("stream", [False, True])
def test_a_dataset_too_small_for_a_step_is_said(tiny_model, tmp_path, stream):
    if stream and not hasattr(trl.trainer.utils, "repeat_iterable_dataset"):
        pytest.skip("this TRL has no streamed datasets for GRPO")
    rows = prompts(3)
    given = rows.to_iterable_dataset() if stream else rows
    with pytest.raises(ValueError, match=r"No step was trained: train_dataset has .* a generation batch takes 8 "):
        run(tiny_model, tmp_path, [count_a], given)


@pytest.mark.skipif(
    not hasattr(trl.trainer.utils, "repeat_iterable_dataset"), reason="this TRL has no streamed datasets for GRPO"
)
@pytest.mark.parametrize("steps", [1, 3])
def test_resuming_in_a_later_pass_over_a_stream_is_said(tiny_model, tmp_path, steps):
    stream = prompts(16).to_iterable_dataset()  # two steps a pass
    settings = {**SAVE, "save_steps": steps, "per_device_train_batch_size": 32}
    run(tiny_model, tmp_path, [count_a], stream, **{**settings, "max_steps": steps})
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        run(tiny_model, tmp_path, [count_a], stream, **{**settings, "max_steps": 4}, resume_from_checkpoint=True)
    assert any("in a later pass" in str(one.message) for one in warned) == (steps == 3)
