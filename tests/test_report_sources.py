"""Every form of log, written by the library that writes it, and what is done with damaged or doubled ones."""

import json
import os
import subprocess
import sys

import pytest
from report_logs import rising, rows, write_jsonl, write_run

from dara_trl.cli import CommandError
from dara_trl.report.sources import load_runs


def load(*arguments, partial=False):
    return load_runs([str(argument) for argument in arguments], partial)


def means(run, reward="format"):
    return dict(zip(*run.curve(f"rewards/{reward}/mean"), strict=True))


def write_state(folder, logged):
    from transformers import TrainerState

    folder.mkdir(parents=True, exist_ok=True)
    state = TrainerState(global_step=max(row["step"] for row in logged), log_history=logged)
    state.save_to_json(str(folder / "trainer_state.json"))


def write_events(folder, logged):
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(folder)) as writer:
        writer.add_text("args", json.dumps({"seed": 7, "aggregation": "dara_sym"}))
        for row in logged:
            for key, value in row.items():
                if value is not None and key != "step":
                    name = f"eval/{key[5:]}" if key.startswith("eval_") else f"train/{key}"
                    writer.add_scalar(name, value, row["step"])


WANDB_SCRIPT = """
import json, os, sys, wandb
rows = json.loads(sys.stdin.read())
run = wandb.init(project="p", config={"aggregation": "dara_asym", "seed": 3, "aggregation_max_weight": 4.0})
for row in rows:
    step = row.pop("step")
    named = {("eval/" + k[5:] if k.startswith("eval_") else "train/" + k): v for k, v in row.items()}
    wandb.log({**named, "train/global_step": step})
run.finish()
"""


def write_wandb(folder, logged):
    folder.mkdir(parents=True, exist_ok=True)
    names = ("WANDB_DIR", "WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "WANDB_DATA_DIR")
    environment = os.environ | dict.fromkeys(names, str(folder)) | {"WANDB_MODE": "offline", "WANDB_SILENT": "true"}
    subprocess.run(
        [sys.executable, "-c", WANDB_SCRIPT], input=json.dumps(logged), text=True, env=environment, check=True
    )
    (path,) = folder.glob("**/run-*.wandb")
    return path


def test_our_runs(tmp_path):
    folder = write_run(tmp_path, "dara_asym", 3, rows([0.1, None, 0.9], evaluations={2: 0.5}))
    ((run,), notes) = load(tmp_path)
    assert (run.setting, run.label, run.seed, run.kind) == ("s", "dara_asym", 3, "metrics.jsonl")
    assert means(run) == {1: 0.1, 3: 0.9}
    assert run.curve("eval_rewards/format/mean") == ([2], [0.5])
    assert (run.last_step(), run.last_step("eval_")) == (3, 2)
    assert run.thresholds == {"format": 0.8}
    assert (run.revision, run.dirty, run.baseline) == ("0123456789abcdef", True, "gdpo")
    assert run.rewards == ["format", "other"]
    assert notes == []
    assert load(folder)[0] == [run] == load(folder / "run.json")[0]
    assert load(tmp_path, folder, folder / "metrics.jsonl")[0] == [run]  # each run once


def test_nan_null_and_missing_are_no_value(tmp_path):
    path = tmp_path / "run" / "metrics.jsonl"
    path.parent.mkdir()
    lines = ["NaN", "null", "Infinity", '"NaN"', "0.0", "true"]
    path.write_text("\n".join(f'{{"step": {i}, "rewards/r/mean": {v}}}' for i, v in enumerate(lines, 1)))
    assert means(load(path)[0][0], "r") == {5: 0.0, 6: 1.0}


def test_a_torn_last_line_is_noted(tmp_path):
    folder = write_run(tmp_path, "gdpo", 0, rows([0.1, 0.2]))
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"step": 3, "rewards/form')
    ((run,), _) = load(tmp_path)
    assert means(run) == {1: 0.1, 2: 0.2}
    assert "last line is torn" in run.notes[0]
    (folder / "metrics.jsonl").write_text('{"step": 1, "rewards/format/mean": 1}\nbroken\n{"step": 2}\n')
    assert load(tmp_path)[0][0].notes == ("1 unreadable lines were skipped, the first is line 2",)


def test_a_resumed_run_counts_the_last_value(tmp_path):
    logged = rows([0.1, 0.2, 0.3, 0.4, 0.5])
    again = rows([0.1, 0.2, 0.8])[2:]
    write_run(tmp_path, "gdpo", 0, logged + again)
    ((run,), _) = load(tmp_path)
    assert means(run) == {1: 0.1, 2: 0.2, 3: 0.8, 4: 0.4, 5: 0.5}
    (note,) = run.notes
    assert note.startswith("step 3 was logged more than once")
    assert "steps 4 to 5 are from before" in note
    write_run(tmp_path, "gdpo", 0, logged + rows([0.6] * 6)[3:])
    assert "steps 4 to 5 were logged more than once" in load(tmp_path)[0][0].notes[0]
    assert "before it was resumed" not in load(tmp_path)[0][0].notes[0]


def test_unfinished_runs_are_skipped_unless_asked_for(tmp_path):
    write_run(tmp_path, "gdpo", 0, rows([0.1]))
    write_run(tmp_path, "gdpo", 1, rows([0.1]), folder="s/gdpo/seed1.partial", status="running")
    runs, notes = load(tmp_path)
    assert [run.seed for run in runs] == [0]
    assert len(notes) == 1
    assert "seed1.partial" in notes[0]
    runs, notes = load(tmp_path, partial=True)
    assert [run.seed for run in runs] == [0, 1]
    assert "not finished" in runs[1].notes[0]
    with pytest.raises(CommandError, match="--partial"):
        load(tmp_path / "s/gdpo/seed1.partial")


def test_trainer_state(tmp_path):
    write_state(tmp_path / "grpo", rows([0.1, 0.9], evaluations={2: 0.3}))
    ((run,), _) = load(tmp_path)
    assert (run.setting, run.label, run.seed) == ("default", "grpo", 0)
    assert run.kind == "trainer_state.json"
    assert means(run) == {1: 0.1, 2: 0.9}
    assert run.curve("eval_rewards/format/mean") == ([2], [0.3])
    assert "no seed in the log" in run.notes[0]
    assert means(load(tmp_path / "grpo" / "trainer_state.json")[0][0]) == means(run)


def test_plain_trl_state_has_rewards_only(tmp_path):
    write_state(tmp_path / "plain", [{"step": 1, "rewards/a/b/mean": 0.5, "loss": 1.0}])
    ((run,), _) = load(tmp_path)
    assert run.rewards == ["a/b"]
    assert run.curve("dara/density/a/b") == ([], [])


def test_newest_readable_checkpoint(tmp_path):
    for step in (2, 10, 9):
        write_state(tmp_path / "gdpo" / f"checkpoint-{step}", rows([0.1] * step))
    ((run,), _) = load(tmp_path)
    assert (run.label, run.last_step()) == ("gdpo", 10)
    (tmp_path / "gdpo" / "checkpoint-10" / "trainer_state.json").write_text('{"log_hist')
    ((run,), _) = load(tmp_path)
    assert run.last_step() == 9
    assert "checkpoint-10" in run.notes[0]
    write_state(tmp_path / "gdpo", rows([0.1] * 12))  # the run's own, at its end
    assert [run.last_step() for run in load(tmp_path)[0]] == [12]
    assert load(tmp_path / "gdpo" / "checkpoint-2")[0][0].label == "gdpo"


def test_wandb(tmp_path):
    pytest.importorskip("wandb")
    path = write_wandb(tmp_path / "w", rows([0.1, None, 0.9], evaluations={3: 0.25}))
    ((run,), _) = load(tmp_path)
    assert (run.label, run.seed, run.kind) == ("dara_asym", 3, "W&B file")
    assert means(run) == {1: 0.1, 3: 0.9}
    assert run.curve("dara/weight/format") == ([1, 2, 3], [5.0] * 3)
    assert run.curve("eval_rewards/format/mean") == ([3], [0.25])
    assert run.config["aggregation_max_weight"] == 4.0
    assert run.notes == ()
    killed = tmp_path / "killed" / "run-x.wandb"
    killed.parent.mkdir()
    killed.write_bytes(path.read_bytes()[: path.stat().st_size * 2 // 3])
    ((run,), _) = load(killed)
    assert "killed" in run.notes[0]
    assert run.label == "dara_asym"
    assert 1 in means(run)
    (tmp_path / "no.wandb").write_bytes(b"something else")
    with pytest.raises(CommandError, match=r"no\.wandb.*Recognised: "):
        load(tmp_path / "no.wandb")


def test_wandb_records_longer_than_a_block(tmp_path):
    pytest.importorskip("wandb")
    long = "r" * 40_000
    write_wandb(tmp_path, [{"step": 1, f"rewards/{long}/mean": 0.5}, {"step": 2, f"rewards/{long}/mean": 0.75}])
    assert means(load(tmp_path)[0][0], long) == {1: 0.5, 2: 0.75}


def test_tensorboard(tmp_path):
    pytest.importorskip("tensorboard")
    write_events(tmp_path / "t", rows([0.1, 0.9], evaluations={2: 0.25}))
    ((run,), _) = load(tmp_path)
    assert (run.label, run.seed, run.kind) == ("dara_sym", 7, "TensorBoard events")
    assert means(run) == pytest.approx({1: 0.1, 2: 0.9})
    assert run.curve("eval_rewards/format/mean") == ([2], [0.25])
    write_events(tmp_path / "t", rows([0.1, 0.5])[1:])  # resumed: a second file
    ((run,), _) = load(next((tmp_path / "t").iterdir()))
    assert means(run) == pytest.approx({1: 0.1, 2: 0.5})
    assert "more than once" in run.notes[0]


@pytest.mark.parametrize("nested", [False, True])
def test_verl(tmp_path, nested):
    figures = {"critic/format_score/mean": 0.5, "critic/score/mean": 3.0, "dara/pi_format": 0.25, "dara/w_format": 2.0}
    row = {"step": 4, "data": figures} if nested else {"training/global_step": 4, **figures}
    write_jsonl(tmp_path / "dara" / "metrics.jsonl", [row])
    ((run,), _) = load(tmp_path)
    assert (run.label, run.kind, run.rewards) == ("dara", "verl metrics.jsonl", ["format"])
    assert means(run) == {4: 0.5}
    assert run.curve("dara/density/format") == ([4], [0.25])
    assert run.curve("dara/weight/format") == ([4], [2.0])


def test_a_folder_with_several_forms_is_one_run(tmp_path):
    folder = write_run(tmp_path, "gdpo", 0, rows([0.1, 0.2]))
    write_state(folder, rows([0.3, 0.4]))
    write_events(folder / "runs" / "today", rows([0.5, 0.6]))
    ((run,), _) = load(tmp_path)
    assert means(run) == {1: 0.1, 2: 0.2}
    (folder / "run.json").unlink()
    (folder / "metrics.jsonl").unlink()
    ((run,), _) = load(tmp_path)
    assert means(run) == {1: 0.3, 2: 0.4}


def test_one_run_logged_in_two_places_is_counted_once(tmp_path):
    write_state(tmp_path / "output", rows([0.1, 0.2]))
    write_events(tmp_path / "events", rows([0.1, 0.2]))
    ((run,), notes) = load(tmp_path / "output", tmp_path / "events")
    assert (run.kind, run.label, run.seed) == ("trainer_state.json", "dara_sym", 7)  # as only the events say
    assert "counted once" in notes[0]
    write_state(tmp_path / "other", rows([0.1, 0.2]))  # the same form twice is two runs
    assert len(load(tmp_path / "output", tmp_path / "other")[0]) == 2
    assert len(load(f"a={tmp_path / 'output'}", f"b={tmp_path / 'events'}")[0]) == 2


def test_label_and_seeds(tmp_path):
    for name in ("seed10", "seed2"):
        write_state(tmp_path / "runs" / name, rows([0.1 if name == "seed2" else 0.2]))
    runs, _ = load(f"mine={tmp_path / 'runs'}")
    assert [(run.label, run.seed, means(run)[1]) for run in runs] == [("mine", 0, 0.1), ("mine", 1, 0.2)]
    write_state(tmp_path / "a=b", rows([0.5]))
    assert load(tmp_path / "a=b")[0][0].label == "a=b"  # a path first
    assert load(f"x={tmp_path / 'a=b'}")[0][0].label == "x"


def test_two_runs_of_one_seed_are_told_apart(tmp_path):
    write_run(tmp_path, "gdpo", 1, rows([0.1]), folder="a")
    write_run(tmp_path, "gdpo", 1, rows([0.2]), folder="b")
    runs, _ = load(tmp_path)
    assert [run.seed for run in runs] == [1, "1 (2)"]
    assert "seed 1 too" in runs[1].notes[0]


def test_bad_input_names_the_path_and_what_is_known(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.txt").write_text("x")
    (tmp_path / "odd.jsonl").write_text('{"step": 1, "loss": 2}\n[1]\n')
    (tmp_path / "odd.json").write_text("[1, 2]")
    for name in ("empty", "notes.txt", "odd.jsonl", "odd.json"):
        with pytest.raises(CommandError, match=rf"(?s){name}.*Recognised: .*run\.json"):
            load(tmp_path / name)
    with pytest.raises(CommandError, match="gone does not exist"):
        load(tmp_path / "gone")
    with pytest.raises(CommandError, match="gone does not exist"):
        load(f"label={tmp_path / 'gone'}")


def test_a_damaged_run_among_others_is_noted(tmp_path):
    write_run(tmp_path, "gdpo", 0, rows(rising(2, 4)))
    folder = write_run(tmp_path, "gdpo", 1, rows(rising(2, 4)))
    (folder / "run.json").write_text("{")
    runs, notes = load(tmp_path)
    assert len(runs) == 1
    assert "left out" in notes[0]
    assert "seed1" in notes[0]


def test_links_in_a_circle_end(tmp_path):
    folder = write_run(tmp_path, "gdpo", 0, rows([0.1]))
    (folder / "up").symlink_to(tmp_path)
    (tmp_path / "again").symlink_to(folder)
    assert len(load(tmp_path)[0]) == 1


def test_report_needs_no_torch(tmp_path):
    write_jsonl(tmp_path / "metrics.jsonl", [{"step": 1, "rewards/format/mean": 0.1}])
    code = (
        "import sys; from dara_trl.cli import main; main(sys.argv[1:]); "
        "sys.exit(','.join({'torch', 'trl', 'transformers'} & set(sys.modules)))"
    )
    command = [sys.executable, "-c", code, "report", str(tmp_path), "--output", str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stderr == "\n"
    assert "Page:" in done.stdout


def test_what_to_install_is_said(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb.proto", None)
    monkeypatch.setitem(sys.modules, "tensorboard.backend.event_processing.event_accumulator", None)
    (tmp_path / "run-x.wandb").write_bytes(b":W&B")
    (tmp_path / "events.out.tfevents.1").write_bytes(b"")
    with pytest.raises(CommandError, match="pip install wandb"):
        load(tmp_path / "run-x.wandb")
    with pytest.raises(CommandError, match="pip install tensorboard"):
        load(tmp_path / "events.out.tfevents.1")
