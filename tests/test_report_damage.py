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
