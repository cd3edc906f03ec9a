"""What a CPU cannot show; skipped without two GPUs. Run by nobody yet."""

import pytest
import torch
from test_launch import ROOT, TRAIN, launch


pytestmark = [
    pytest.mark.slow,
    pytest.mark.gpu,
    pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices"),
]


@pytest.mark.parametrize("config", ["ddp", "zero1", "zero2", "zero3", "fsdp2"])
def test_bf16_training_as_the_recipes_have_it(tmp_path, config):
    """The configurations as they are: NCCL, bf16, FSDP2 without the tests' change to accelerate."""
    arguments = ["--config_file", str(ROOT / "accelerate_configs" / f"{config}.yaml"), "--num_processes", "2"]
    recipe = ["--config", str(ROOT / "examples" / "configs" / "toolrl_cpu.yaml"), "--use_cpu", "false"]
    out = launch(
        [*arguments, TRAIN, *recipe, "--bf16", "true", "--max_steps", "2", "--per_device_train_batch_size", "64"],
        tmp_path,
    )
    assert "format_reward" in out
