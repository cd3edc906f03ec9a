"""The closing table and figure."""

import pytest
from datasets import Dataset
from rich.console import Console

from dara_trl import DARAGRPOConfig, DARAGRPOTrainer
from dara_trl.progress import rich_progress
from dara_trl.summary import curve, plot, reward_names, steps_to_threshold, summary_table


def history(values):
    return [
        {
            "step": step,
            "loss": 0.0,
            "rewards/format/mean": value,
            "dara/density/format": value / 2,
            "dara/weight/format": 2.0,
            "dara/energy_ratio/format": 0.5,
        }
        for step, value in enumerate(values, start=1)
    ] + [{"step": len(values), "train_runtime": 1.0}]


def test_threshold_is_a_mean_of_three():
    rising = history([0.0, 0.9, 0.9, 0.7, 0.8, 0.9])
    assert steps_to_threshold(rising, "format", 0.8) == 4
    assert steps_to_threshold(rising, "format", 0.95) is None
    assert steps_to_threshold(history([1.0, 1.0]), "format", 0.8) is None


def test_rows_without_the_figure_are_left_out():
    rows = history([0.1, 0.2])
    rows[0]["rewards/format/mean"] = None
    assert curve(rows, "rewards/format/mean") == ([2], [0.2])
    assert reward_names(rows) == ["format"]


def test_bar_gives_the_terminal_back_after_a_crash(monkeypatch, tiny_model, tmp_path, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")  # so that rich takes the captured output for a terminal

    def crashing(completions, **kwargs):
        raise RuntimeError("from the reward")

    args = DARAGRPOConfig(str(tmp_path), use_cpu=True, bf16=False, report_to="none", save_strategy="no")
    data = Dataset.from_list([{"prompt": "a"}] * 8)
    trainer = DARAGRPOTrainer(tiny_model, crashing, args, train_dataset=data)
    with pytest.raises(RuntimeError, match="from the reward"), rich_progress(trainer):
        trainer.train()
    out = capsys.readouterr().out
    assert out.count("\x1b[?25l") == out.count("\x1b[?25h") == 1  # the cursor, hidden and shown


def shown(rows, **thresholds):
    console = Console(width=120, record=True, quiet=False, file=open("/dev/null", "w"))  # noqa: SIM115, PTH123
    console.print(summary_table(rows, thresholds))
    return console.export_text()


def test_table():
    text = shown(history([0.1, 0.9, 0.9, 0.9]), format=0.8)
    assert "0.1 → 0.9" in text
    assert "0.05 → 0.45" in text
    assert "0.8: 4" in text
    assert "not reached" in shown(history([0.1, 0.1, 0.1]), format=0.8)


def test_figure(tmp_path):
    path = plot(history([0.1, 0.2, 0.3]), tmp_path / "new" / "curves.png")
    assert path.read_bytes()[:4] == b"\x89PNG"
    assert path.stat().st_size > 10_000


@pytest.mark.parametrize("function", [summary_table, lambda rows: plot(rows, "x.png")])
def test_foreign_history_is_named(function):
    with pytest.raises(ValueError, match="no dara/density figures"):
        function([{"step": 1, "loss": 0.1}])
