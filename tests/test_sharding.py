"""DeepSpeed ZeRO-1, 2, 3 and FSDP2 really running: two gloo processes, the repository's accelerate configurations."""

import pytest
import torch
from test_layouts import run_cases


pytestmark = pytest.mark.slow

KILLS = {
    "one": {"ranks": [1], "step": 3, "where": "loss"},
    "all": {"ranks": [0, 1], "step": 3, "where": "loss"},
    "saving": {"ranks": [0], "step": 3, "where": "save"},
}
CONFIGS = {"zero1": "zero1.yaml", "zero2": "zero2.yaml", "zero3": "zero3.yaml", "fsdp2": "fsdp2.yaml"}
# 48 rollouts in 6 groups of 8, each generation batch used for two steps.
BATCH = {"num_generations": 8, "per_device_train_batch_size": 24, "num_iterations": 2, "max_steps": 4}
SAVES = {"save_strategy": "steps", "save_steps": 1}
REAL = {"eval_strategy": "steps", "eval_steps": 2, "num_generations_eval": 2, "per_device_eval_batch_size": 4}


def cases():
    yield {"name": "alone", "processes": 1, "config": {**BATCH, "per_device_train_batch_size": 48}}
    for kind, file in CONFIGS.items():
        case = {"processes": 2, "accelerate": file}
        yield {**case, "name": kind, "config": {**BATCH, **SAVES}}
        for step in (2, 3):  # between generation batches, and within one
            yield {**case, "name": f"{kind}-resumed{step}", "config": BATCH, "resume": f"{kind}/out/checkpoint-{step}"}
        yield {
            **case,
            "name": f"{kind}-lora",
            "lora": True,
            "scripted": False,
            "config": {**BATCH, **REAL, "beta": 0.1},
        }
    yield {"name": "ddp", "processes": 2, "config": {**BATCH, **SAVES}}
    for kind, kills in {"ddp": KILLS, "zero3": ["saving"], "fsdp2": ["one"]}.items():
        for kill in kills:
            case = {"processes": 2} | ({} if kind == "ddp" else {"accelerate": CONFIGS[kind]})
            case |= {"config": {**BATCH, **SAVES}, "output": f"{kind}-killed-{kill}"}
            yield {**case, "name": f"{kind}-killed-{kill}", "kill": KILLS[kill]}
            yield {**case, "name": f"{kind}-killed-{kill}-resumed", "resume": True}
    case = {"processes": 2, "accelerate": "zero3.yaml", "scripted": False}
    yield {**case, "name": "zero3-reference", "config": {**BATCH, **REAL, "beta": 0.1}}
    yield {**case, "name": "zero3-ungathered", "config": {**BATCH, **REAL, "ds3_gather_for_generation": False}}


@pytest.fixture(scope="module")
def runs(tiny_model, tmp_path_factory):
    return run_cases(list(cases()), tiny_model, tmp_path_factory.mktemp("sharding"))


@pytest.mark.parametrize("kind", CONFIGS)
def test_same_advantages_as_one_process(runs, kind):
    (alone,), rows = runs("alone", 1)
    ranks, more_rows = runs(kind, 2)
    assert {rank["sharding"] for rank in ranks} == {kind}
    for i, record in enumerate(alone["records"]):
        torch.testing.assert_close(
            ranks[0]["records"][i]["rewards"], record["rewards"], rtol=0, atol=0, equal_nan=True
        )
        parts = [rank["records"][i]["trained_on"] for rank in ranks]
        torch.testing.assert_close(torch.cat(parts), record["trained_on"], rtol=0, atol=1e-6)
    for row, other in zip(rows, more_rows, strict=True):
        figures = {key: value for key, value in row.items() if key.startswith(("dara/", "rewards/"))}
        assert {key: other.get(key) for key in figures} == pytest.approx(figures, abs=1e-6)
        if "loss" in row:
            assert other["loss"] == pytest.approx(row["loss"], abs=1e-4)
    assert alone["parameters"].keys() <= ranks[0]["parameters"].keys()
    for name, value in alone["parameters"].items():
        torch.testing.assert_close(ranks[0]["parameters"][name], value, rtol=0, atol=1e-4)


@pytest.mark.parametrize("step", [2, 3])
@pytest.mark.parametrize("kind", CONFIGS)
def test_resumed_equals_uninterrupted(runs, kind, step):
    ranks, rows = runs(kind, 2)
    resumed, more_rows = runs(f"{kind}-resumed{step}", 2)
    assert {rank["sharding"] for rank in resumed} == {kind}
    assert [row["step"] for row in more_rows if "loss" in row] == list(range(step + 1, 5))
    whole = {row["step"]: row for row in rows if "loss" in row}
    for row in more_rows:
        if "loss" in row:
            figures = {key: value for key, value in row.items() if key.startswith(("dara/", "rewards/", "loss"))}
            assert {key: whole[row["step"]][key] for key in figures} == pytest.approx(figures, abs=1e-6)
    for name, value in ranks[0]["parameters"].items():
        torch.testing.assert_close(resumed[0]["parameters"][name], value, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("kind", "kill"), [("ddp", "one"), ("ddp", "all"), ("ddp", "saving"), ("zero3", "saving"), ("fsdp2", "one")]
)
def test_killed_run_goes_on_as_if_it_had_not_been(runs, kind, kill):
    folder = runs.folder / f"{kind}-killed-{kill}"
    assert not list(folder.glob("rank*.pt"))  # none of its processes came to its end
    ranks, rows = runs(kind, 2)
    resumed, more_rows = runs(f"{kind}-killed-{kill}-resumed", 2)
    # Killed in the fourth step it goes on from checkpoint 3; that one is torn if it was killed while saving it.
    first = 3 if kill == "saving" else 4
    assert [row["step"] for row in more_rows if "loss" in row] == list(range(first, 5))
    whole = {row["step"]: row for row in rows if "loss" in row}
    for row in more_rows:
        if "loss" in row:
            figures = {key: value for key, value in row.items() if key.startswith(("dara/", "rewards/", "loss"))}
            assert {key: whole[row["step"]][key] for key in figures} == pytest.approx(figures, abs=1e-6)
    for name, value in ranks[0]["parameters"].items():
        torch.testing.assert_close(resumed[0]["parameters"][name], value, rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", [*(f"{kind}-lora" for kind in CONFIGS), "zero3-reference", "zero3-ungathered"])
def test_generates_evaluates_and_learns(runs, name):
    ranks, rows = runs(name, 2)
    assert {rank["sharding"] for rank in ranks} == {name.partition("-")[0]}
    assert [row["step"] for row in rows if "loss" in row] == [1, 2, 3, 4]
    assert [row["step"] for row in rows if "eval_dara/density/count_a" in row] == [2, 4]
    assert all(row["grad_norm"] > 0 for row in rows if "loss" in row)
    if name != "zero3-ungathered":
        assert any(row["kl"] > 0 for row in rows if "loss" in row)
