"""The same numbers on any layout: 1, 2 and 4 gloo processes, groups that span them, one global generation batch."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from dara_trl.metrics_file import read_rows


pytestmark = pytest.mark.slow

# 48 rollouts in 6 groups of 8: with 4 processes of 12, groups 2, 3, 5 and 6 span two of them.
SIZES = {1: 48, 2: 24, 4: 12}
METHODS = {
    "dara_asym": {"aggregation": "dara_asym"},
    "token": {"aggregation": "dara_sym", "aggregation_batch_norm": "token"},
    "gdpo": {"aggregation": "gdpo"},
    "grpo": {"aggregation": "grpo"},
    "dynamic": {
        "aggregation": "dara_asym",
        "dynamic_sampling": True,
        "dynamic_sampling_keep": "all",
        "dynamic_sampling_max_rounds": 4,
    },
    "streamed": {
        "aggregation": "dara_asym",
        "dynamic_sampling": True,
        "dynamic_sampling_keep": "all",
        "dynamic_sampling_max_rounds": 4,
    },
    "reused": {"aggregation": "dara_sym", "gradient_accumulation_steps": 2, "num_iterations": 2, "max_steps": 4},
}
CASES = [
    {
        "name": f"{method}-{processes}",
        "processes": processes,
        "streamed": method == "streamed",
        "config": {
            "num_generations": 8,
            "max_steps": 3,
            **options,
            "per_device_train_batch_size": size // options.get("gradient_accumulation_steps", 1),
        },
    }
    for method, options in METHODS.items()
    for processes, size in SIZES.items()
]


def run_cases(cases, model, folder):
    """Runs them in tests/layouts.py. Returns a function of a case's name and processes: their records, and the log."""
    script = Path(__file__).with_name("layouts.py")
    done = subprocess.run(
        [sys.executable, str(script), model, str(folder)],
        input=json.dumps(cases),
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    logs = "\n".join(f"{path}:\n{path.read_text()[-1500:]}" for path in sorted(folder.glob("*/*.log"))[-4:])
    assert done.returncode == 0, f"{done.stderr[-2000:]}\n{logs}"

    def load(name, processes):
        ranks = [torch.load(folder / name / f"rank{i}.pt", weights_only=False) for i in range(processes)]
        assert [rank["processes"] for rank in ranks] == [processes] * processes
        return ranks, read_rows(folder / name / "metrics.jsonl")[0]

    load.folder = folder
    return load


@pytest.fixture(scope="module")
def layouts(tiny_model, tmp_path_factory):
    load = run_cases(CASES, tiny_model, tmp_path_factory.mktemp("layouts"))
    return lambda method, processes: load(f"{method}-{processes}", processes)


@pytest.mark.parametrize("processes", [2, 4])
@pytest.mark.parametrize("method", METHODS)
def test_same_advantages_and_figures_as_one_process(layouts, method, processes):
    (alone,), rows = layouts(method, 1)
    ranks, more_rows = layouts(method, processes)
    batches = 2 if method == "reused" else 3
    assert len(alone["records"]) == batches
    for i, record in enumerate(alone["records"]):
        for rank in ranks:
            torch.testing.assert_close(
                rank["records"][i]["rewards"], record["rewards"], rtol=0, atol=0, equal_nan=True
            )
        parts = [rank["records"][i]["trained_on"] for rank in ranks]
        assert {len(part) for part in parts} == {48 // processes}
        assert [rank["records"][i]["prompts"] for rank in ranks] == [record["prompts"]] * processes
        torch.testing.assert_close(torch.cat(parts), record["trained_on"], rtol=0, atol=1e-6)
        assert record["trained_on"].abs().max() > 0.1

    # One line per log, by the main process.
    assert [row["step"] for row in more_rows] == [row["step"] for row in rows]
    compared = 0
    for row, other in zip(rows, more_rows, strict=True):
        figures = {key: value for key, value in row.items() if key.startswith(("dara/", "rewards/", "frac_reward"))}
        compared += len(figures)
        assert {key: other.get(key) for key in figures} == pytest.approx(figures, abs=1e-6)
    assert compared > batches * 20
    for name, value in alone["parameters"].items():
        torch.testing.assert_close(ranks[0]["parameters"][name], value, rtol=0, atol=1e-4)


@pytest.mark.parametrize("processes", [2, 4])
def test_no_collective_beyond_trls_but_one_for_lengths(layouts, processes):
    """`grpo` leaves TRL's own path; the others may not add to it, token normalisation one gather a batch."""
    counts = {method: layouts(method, processes)[0][0]["collectives"] for method in METHODS}
    assert sum(counts["grpo"].values()) > 0
    assert counts["dara_asym"] == counts["gdpo"] == counts["grpo"]
    added = {name: counts["token"][name] - counts["grpo"][name] for name in counts["grpo"]}
    assert sum(added.values()) == 3  # three generation batches
    assert max(added.values()) == 3


@pytest.mark.parametrize("processes", [1, 2, 4])
@pytest.mark.parametrize("method", ["dynamic", "streamed"])
def test_dynamic_sampling_fills_groups_that_span_processes(layouts, method, processes):
    ranks, rows = layouts(method, processes)
    rounds = [row["dara/sampling/rounds"] for row in rows if "dara/sampling/rounds" in row]
    assert len(rounds) == 3
    assert max(rounds) > 1
    for row in rows[:3]:
        if row["dara/sampling/unfilled_groups"] == 0:
            assert row["dara/density/rare"] == 1
        before, after = (
            sum(row[f"dara/{kind}/{name}"] for name in ("count_a", "rare", "maybe"))
            for kind in ("prefilter/density", "density")
        )
        assert before < after or row["dara/sampling/rounds"] == 1
    for record in ranks[-1]["records"]:
        groups = [record["prompts"][i : i + 8] for i in range(0, 48, 8)]
        assert all(len(set(group)) == 1 for group in groups)
