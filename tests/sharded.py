"""What a worker of tests/layouts.py does to be a process of DeepSpeed or FSDP2 on a CPU.

The accelerate configuration is the repository's own file, read by `accelerate launch`'s own code.
"""

import os
from pathlib import Path

import torch


CONFIGS = Path(__file__).parent.parent / "accelerate_configs"


def use_accelerate_config(name: str, processes: int) -> None:
    """Sets the environment that `accelerate launch --config_file NAME --num_processes N --mixed_precision no` sets."""
    from accelerate.commands import launch
    from accelerate.utils.launch import prepare_deepspeed_cmd_env, prepare_multi_gpu_env

    command = ["--config_file", str(CONFIGS / name), "--num_processes", str(processes), "--mixed_precision", "no", "x"]
    args, defaults, _ = launch._validate_launch_command(launch.launch_command_parser().parse_args(command))
    if args.use_deepspeed:
        args.deepspeed_fields_from_accelerate_config = ",".join(defaults.deepspeed_config)
        _, environment = prepare_deepspeed_cmd_env(args)
        import deepspeed

        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # or minutes of compilation
    else:
        environment = prepare_multi_gpu_env(args)
        _sharding_on_a_cpu()
    os.environ.update({key: value for key, value in environment.items() if key.startswith(("ACCELERATE_", "FSDP_"))})


def _sharding_on_a_cpu() -> None:
    """On a CPU accelerate runs plain DDP where FSDP is asked for, and says nothing; under another name it shards."""
    from accelerate import DistributedType, PartialState

    original = PartialState.__init__

    def renamed(self, *args, **kwargs):
        original(self, *args, **kwargs)
        if PartialState._shared_state.get("distributed_type") == DistributedType.MULTI_CPU:
            PartialState._shared_state["distributed_type"] = DistributedType.MULTI_GPU

    PartialState.__init__ = renamed


def sharding(trainer) -> str:
    """What really shards: `zero1` … `zero3`, `fsdp2` with trained parameters that are DTensors, or `none`."""
    from torch.distributed.tensor import DTensor

    engine = trainer.model_wrapped
    if hasattr(engine, "zero_optimization_stage"):
        return f"zero{engine.zero_optimization_stage()}"
    # With LoRA the last norm and the head, which are frozen, stay whole.
    trained = [parameter for parameter in trainer.model.parameters() if parameter.requires_grad]
    return "fsdp2" if trained and all(isinstance(parameter, DTensor) for parameter in trained) else "none"


def whole_parameters(trainer) -> dict[str, torch.Tensor]:
    """The trained parameters, put together again; complete in the first process."""
    state = trainer.accelerator.get_state_dict(trainer.model_wrapped)
    return {name: value.detach().cpu().clone() for name, value in (state or {}).items()}
