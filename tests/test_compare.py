"""`dara-trl compare`: what a grid file means, and that runs end whole whatever kills them."""

import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import yaml
from rich.console import Console

from dara_trl.cli import CommandError, main
from dara_trl.compare.grid import load_grid
from dara_trl.compare.runner import Job, Runner
from dara_trl.compare.table import status_table
from dara_trl.metrics_file import read_rows


SCRIPT = Path(__file__).parent / "grid_script.py"
COMPARE = [sys.executable, "-m", "dara_trl", "compare"]


@pytest.fixture
def write_grid(tmp_path):
    def write(**fields):
        grid = {
            "output_dir": str(tmp_path / "out"),
            "script": str(SCRIPT),
            "launch": ["--num_processes", "1", "--num_machines", "1", "--mixed_precision", "no"]
            + ["--dynamo_backend", "no", "--cpu"],
            "arguments": {"max_steps": 2, "seconds": 0.01},
            "methods": ["gdpo", "dara_asym"],
            "seeds": [1, 2],
            **fields,
        }
        path = tmp_path / "grid.yaml"
        path.write_text(yaml.safe_dump({k: v for k, v in grid.items() if v is not None}, sort_keys=False))
        return path

    return write


def folders(tmp_path):
    return sorted(str(path.parent.relative_to(tmp_path / "out")) for path in tmp_path.glob("out/*/*/*/run.json"))


def starts(tmp_path):
    return sorted((tmp_path / "starts.txt").read_text().split())


def test_grid_merges_recipe_arguments_setting_method_and_seed_in_this_order(write_grid, tmp_path):
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("a: recipe\nb: recipe\nc: recipe\nd: recipe\nseed: 9\noutput_dir: elsewhere\n")
    grid = load_grid(
        write_grid(
            config=str(recipe),
            arguments={"b": "arguments", "c": "arguments", "d": "arguments", "list": ["x{base}", {"y": "{seed}"}]},
            settings={"small": {"c": "setting", "d": "setting"}, "large": {}},
            methods={"m": {"d": "method"}},
            seeds=[{"seed": 3, "base": 7}, 4],
            baseline="m",
            thresholds={"format_reward": 1},
        )
    )
    first = grid.runs[0]
    assert (first.name, first.seed) == ("small/m/seed3-base7", 3)
    assert first.config == {
        **{"a": "recipe", "b": "arguments", "c": "setting", "d": "method", "seed": 3},
        "list": ["x7", {"y": "3"}],
    }
    assert [run.name for run in grid.runs[1:]] == ["large/m/seed3-base7", "small/m/seed4", "large/m/seed4"]
    assert (grid.baseline, grid.thresholds) == ("m", {"format_reward": 1.0})


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"methods": None}, "field methods is missing: name"),
        ({"metods": []}, "unknown field metods. Known: output_dir"),
        ({"script": "nowhere.py"}, "script nowhere.py does not exist"),
        ({"config": "nowhere.yaml"}, "nowhere.yaml"),
        ({"config": 3}, "config must be text, not 3"),
        ({"output_dir": [1]}, r"output_dir must be text, not \[1\]"),
        ({"baseline": ["m"]}, "baseline must be text"),
        ({"launch": "--cpu"}, "launch must be a list of arguments, one an item, not '--cpu'"),
        ({"launch": 5}, "launch must be a list of arguments"),
        ({"methods": ["gdpo", "gdpo"]}, "every method must occur once"),
        ({"methods": []}, "methods is empty"),
        ({"methods": {"../m": {}}}, "'../m' becomes a folder's name"),
        ({"methods": {"m.partial": {}}}, "'m.partial' becomes"),
        ({"methods": {"m": 3}}, "methods.m must be a mapping"),
        ({"seeds": 3}, "seeds must be a list"),
        ({"seeds": [True]}, "integer seed, which {'seed': True} has not"),
        ({"seeds": [{"base": 1}]}, "integer seed"),
        ({"seeds": [{"seed": 1, "base": "a/b"}]}, "base='a/b' becomes"),
        ({"seeds": [1, 2, 1]}, r"every seed must occur once, as runs are paired by it: \[1, 2, 1\]"),
        ({"baseline": "grpo"}, "baseline 'grpo' is not one of the methods gdpo, dara_asym"),
        ({"thresholds": {"x": "high"}}, "thresholds.x must be a number, not 'high'"),
    ],
)
def test_grid_faults_are_named(write_grid, fields, words, capsys):
    path = write_grid(**fields)
    with pytest.raises(CommandError, match=words):
        load_grid(path)
    assert main(["compare", str(path)]) == 2
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize("text", ["a: [", "- 1", "\x00", "[" * 5000], ids=["torn", "list", "zero", "deep"])
def test_grid_that_is_no_yaml_mapping(tmp_path, text):
    (tmp_path / "grid.yaml").write_text(text)
    with pytest.raises(CommandError, match=r"grid\.yaml"):
        load_grid(tmp_path / "grid.yaml")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--jobs", "0"], "--jobs must be at least 1"),
        (["--jobs", "2", "--devices", "0"], "one entry for each of the 2 jobs"),
        (["--only", "none/*"], "matches none of the runs, such as default/gdpo/seed1"),
    ],
)
def test_arguments_are_checked(write_grid, capsys, arguments, words):
    assert main(["compare", str(write_grid()), *arguments]) == 2
    assert words in capsys.readouterr().err


def test_rows_are_read_as_they_come(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1}\n{"st')
    rows, offset = read_rows(path)
    assert rows == [{"step": 1}]
    path.write_text('{"step": 1}\n{"step": 2}\n')
    assert read_rows(path, offset) == ([{"step": 2}], 24)


def test_failed_runs_are_shown_and_run_again_and_finished_ones_are_not(write_grid, tmp_path, capfd):
    methods = {"good": {"text": "{seed}"}, "bad": {"fail": True}}
    path = write_grid(methods=methods, seeds=[1])
    assert main(["compare", str(path), "--dry-run"]) == 0
    assert not (tmp_path / "out").exists()
    assert main(["compare", str(path), "--jobs", "2", "--devices", "0,1", "2,3"]) == 1
    out = capfd.readouterr().out
    assert "FAILED: default/bad/seed1" in out
    assert "told to fail: [bold]1" in out
    assert "1 of 2 runs finished" in out
    run = tmp_path / "out/default/good/seed1"
    assert "text 1 devices 0,1" in (run / "log.txt").read_text()
    record = json.loads((run / "run.json").read_text())
    assert (record["status"], record["method"], record["seed"]) == ("finished", "good", 1)
    assert record["config"] == {"max_steps": 2, "seconds": 0.01, "text": "1", "seed": 1}
    assert {"python", "trl", "torch", "dara-trl"} <= set(record["versions"])
    assert len(record["git"]["revision"] or "0" * 40) == 40
    assert folders(tmp_path) == ["default/bad/seed1.partial", "default/good/seed1"]

    path = write_grid(methods={**methods, "bad": {}}, seeds=[1])
    assert main(["compare", str(path)]) == 0
    assert folders(tmp_path) == ["default/bad/seed1", "default/good/seed1"]
    assert starts(tmp_path) == ["seed1.partial"] * 3

    path = write_grid(methods=methods, seeds=[1], arguments={"max_steps": 3, "seconds": 0.01})
    assert main(["compare", str(path)]) == 2
    assert "max_steps was 2, now 3" in capfd.readouterr().err


def test_output_dir_that_cannot_be_made_is_named(write_grid, tmp_path, capsys):
    (tmp_path / "file").touch()
    assert main(["compare", str(write_grid(output_dir=str(tmp_path / "file" / "runs")))]) == 2
    error = capsys.readouterr().err
    assert error.startswith("dara-trl compare: ")
    assert str(tmp_path / "file") in error


def test_table_shows_rewards_densities_and_the_time_that_is_left(write_grid, monkeypatch):
    grid = load_grid(write_grid())
    runner = Runner(grid, jobs=2)
    monkeypatch.setattr(time, "monotonic", lambda: 100.0)
    rows = [
        {"step": step, "max_steps": 40, "loss": 0.0, "rewards/[b]fmt/mean": 0.25, "dara/density/[b]fmt": step / 40}
        for step in range(1, 11)
    ] + [{"step": 10, "max_steps": 40, "eval_rewards/[b]fmt/mean": 0.5}]
    busy = Job(runner.waiting.pop(), Path(), None, 0, started=0.0, rows=rows, first_row=10.0)
    fresh = Job(runner.waiting.pop(), Path(), None, 1, started=90.0)
    runner.running = [busy, fresh]
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(status_table(runner))
    text = " ".join(console.export_text().split())
    assert "0 of 4 runs finished, 2 waiting" in text
    assert "[b]fmt" in text
    assert "default/dara_asym/seed2 10/40 0.25 (0.25) 5 min" in text  # 9 steps in 90 s, 30 to go
    assert "default/gdpo/seed2 starting - (-) -" in text


def wait_for(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)
    return found


def metrics(tmp_path):
    return {path: read_rows(path)[0] for path in tmp_path.glob("out/*/*/*/metrics.jsonl")}


def test_stop_reaches_workers_in_sessions_of_their_own(write_grid, tmp_path):
    """torch's launcher starts each worker in a session of its own, which a signal to the launcher's does not reach."""
    runner = Runner(load_grid(write_grid()), jobs=1)
    worker = [sys.executable, "-c", "import time; time.sleep(100)", str(tmp_path / "config.yaml")]
    launcher = f"import subprocess, time; subprocess.Popen({worker!r}, start_new_session=True); time.sleep(100)"
    process = subprocess.Popen([sys.executable, "-c", launcher], start_new_session=True)
    runner.running = [Job(runner.waiting.pop(), tmp_path, process, 0, started=0.0)]
    wait_for(lambda: psutil.Process(process.pid).children())
    pid = psutil.Process(process.pid).children()[0].pid
    runner.close()
    wait_for(lambda: not psutil.pid_exists(pid), seconds=5)
    assert process.poll() is not None


@pytest.mark.slow
def test_killed_comparison_goes_on_where_it_was(write_grid, tmp_path):
    path = write_grid(arguments={"max_steps": 25, "seconds": 0.1})
    command = [*COMPARE, str(path), "--jobs", "2"]
    first = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    # Two runs have ended, the next two are in the middle of their work.
    wait_for(lambda: len(metrics(tmp_path)) == 4 and all(len(rows) > 3 for rows in metrics(tmp_path).values()))
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    finished = [name for name in folders(tmp_path) if not name.endswith(".partial")]
    assert len(finished) == 2
    before = {name: (tmp_path / "out" / name / "run.json").stat().st_mtime_ns for name in finished}
    left_over = [rows[0]["pid"] for path, rows in metrics(tmp_path).items() if ".partial" in str(path)]

    assert subprocess.run(command, stdout=subprocess.DEVNULL, timeout=120, check=False).returncode == 0
    assert not any(psutil.pid_exists(pid) for pid in left_over)
    assert folders(tmp_path) == [f"default/{method}/seed{i}" for method in ("dara_asym", "gdpo") for i in (1, 2)]
    for path, rows in metrics(tmp_path).items():
        assert [row["step"] for row in rows] == list(range(1, 26)), path
        assert len({row["pid"] for row in rows}) == 1
    assert {name: (tmp_path / "out" / name / "run.json").stat().st_mtime_ns for name in finished} == before
    assert len(starts(tmp_path)) == 6  # four runs, two of them twice


@pytest.mark.slow
def test_one_comparison_a_folder_and_a_stop_that_leaves_nothing_running(write_grid, tmp_path):
    path = write_grid(arguments={"max_steps": 600, "seconds": 0.1})
    first = subprocess.Popen([*COMPARE, str(path)], stdout=subprocess.PIPE, text=True)
    rows = wait_for(lambda: next(iter(metrics(tmp_path).values()), None))
    second = subprocess.run([*COMPARE, str(path)], capture_output=True, text=True, check=False)
    assert (second.returncode, "another compare works in" in second.stderr) == (2, True)
    first.terminate()
    assert "goes on where it was" in first.communicate(timeout=30)[0]
    assert first.returncode == 130
    wait_for(lambda: not psutil.pid_exists(rows[0]["pid"]), seconds=5)  # until init has collected it
    assert folders(tmp_path) == ["default/gdpo/seed1.partial"]
