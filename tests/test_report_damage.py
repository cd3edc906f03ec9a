"""Logs whose values have the wrong shape: said in a line, never a traceback."""

import json

import pytest

from dara_trl.cli import main


@pytest.fixture
def log(tmp_path):
    rows = [{"step": step, "rewards/a/mean": 0.1 * step} for step in range(1, 6)]
    rows[2]["rewards/a/mean"] = 10**400
    (tmp_path / "metrics.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    (tmp_path / "run.json").write_text("{}")
    return tmp_path


def test_an_integer_beyond_floats_counts_as_no_value(log, tmp_path_factory):
    assert main(["report", str(log), "--output", str(tmp_path_factory.mktemp("page"))]) == 0


@pytest.mark.parametrize("name", ["config", "git", "thresholds", "versions"])
def test_run_metadata_of_the_wrong_shape_is_named(log, tmp_path_factory, capsys, name):
    (log / "run.json").write_text(json.dumps({name: [1]}))
    assert main(["report", str(log), "--output", str(tmp_path_factory.mktemp("page"))]) == 2
    assert f"{name} in its run.json is not a mapping" in capsys.readouterr().err


DEEP = "[" * 100_000


@pytest.mark.parametrize("name", ["run.json", "trainer_state.json"])
def test_files_nested_too_deep_are_named(log, tmp_path_factory, capsys, name):
    if name == "trainer_state.json":
        (log / "metrics.jsonl").unlink()
    (log / name).write_text(DEEP)
    assert main(["report", str(log), "--output", str(tmp_path_factory.mktemp("page"))]) == 2
    error = capsys.readouterr().err
    assert str(log) in error
    assert "nested too deep" in error


def test_a_line_nested_too_deep_is_skipped(log, tmp_path_factory, capsys):
    path = log / "metrics.jsonl"
    path.write_text(DEEP + "\n" + path.read_text())
    page = tmp_path_factory.mktemp("page")
    assert main(["report", str(log), "--output", str(page)]) == 0
    assert "1 unreadable lines were skipped, the first is line 1" in (page / "report.html").read_text()


def test_a_seed_of_the_wrong_shape_is_named(log, tmp_path_factory, capsys):
    (log / "run.json").write_text(json.dumps({"seed": {"seed": 3}}))
    assert main(["report", str(log), "--output", str(tmp_path_factory.mktemp("page"))]) == 2
    assert "seed in its run.json is neither a number nor a name" in capsys.readouterr().err


@pytest.mark.parametrize("size", [1e308, 3e38])
def test_figures_that_are_too_large_to_draw(log, tmp_path_factory, size):
    rows = [{"step": i, "rewards/a/mean": size * (-1) ** i, "dara/density/a": 0.5} for i in range(1, 30)]
    (log / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert main(["report", str(log), "--output", str(tmp_path_factory.mktemp("page"))]) == 0
