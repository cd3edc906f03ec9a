"""How many processes an accelerate configuration starts, how they share the model, and the traps in it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .files import FileError, read_yaml
from .findings import Finding, short
from .memory import Sharding


CHECK = "accelerate config"


@dataclass(frozen=True)
class Launch:
    """What `accelerate launch` starts.

    Args:
        processes: over all machines.
        machines: how many.
        sharding: how the processes share the model.
        use_cpu: whether they train on the CPU.
        mixed_precision: the file's, or None.
        accumulation: DeepSpeed's gradient accumulation: a number, `"auto"`, or None without DeepSpeed.
        sharded_state_dict: FSDP writes shards only.
        offload_optimizer: DeepSpeed or FSDP keeps the optimiser's state off the GPU.
        offload_parameters: the same of the weights.
        from_file: whether a configuration file says so.
    """

    processes: int = 1
    machines: int = 1
    sharding: Sharding = "none"
    use_cpu: bool = False
    mixed_precision: str | None = None
    accumulation: int | str | None = None
    sharded_state_dict: bool = False
    offload_optimizer: bool = False
    offload_parameters: bool = False
    from_file: bool = False

    @property
    def local_processes(self) -> int:
        """Processes on one machine."""
        return self.processes // self.machines


def read_launch(path: Path | None, processes: int | None, default: int = 1) -> tuple[Launch, list[Finding]]:
    """Reads a configuration file of accelerate.

    Args:
        path: the file; None if there is none, as with `accelerate launch --num_processes N`.
        processes: what the user says that is started; None: what the file says, else `default`.
        default: processes without a file, as `accelerate launch` takes them: one for each GPU.
    """
    if path is None:
        count = default if processes is None else processes
        return Launch(count, sharding="ddp" if count > 1 else "none"), []
    fallback = Launch(processes or 1, from_file=True)
    try:
        given = read_yaml(path)
        _known_to_accelerate(path)
    except FileError as error:
        return fallback, [
            Finding("error", CHECK, str(error), "accelerate config --config_file FILE writes a valid one")
        ]
    try:
        launch, findings = _interpret(given, processes)
    except (TypeError, ValueError, AttributeError, OSError) as error:
        return fallback, [Finding("error", CHECK, f"{path}: {short(error)}", "compare with accelerate_configs/")]
    if not any(finding.level == "error" for finding in findings):
        found = f"{path}: {launch.processes} process{'es' if launch.processes > 1 else ''}, {_name(given)}"
        findings.insert(0, Finding("ok", CHECK, found))
    return launch, findings


def check_launch_with_recipe(
    launch: Launch, accumulation: int, saves: bool, on_cpu: bool, bf16: bool
) -> list[Finding]:
    """Where the configuration contradicts a recipe.

    Args:
        launch: what is started.
        accumulation: the recipe's `gradient_accumulation_steps`.
        saves: whether the recipe saves.
        on_cpu: the recipe's `use_cpu`.
        bf16: whether the recipe trains in bf16.
    """
    findings = []
    if launch.accumulation not in (None, "auto", accumulation):
        found = f"gradient_accumulation_steps: {launch.accumulation} in the file, {accumulation} in the recipe"
        findings.append(Finding("error", CHECK, found, "write gradient_accumulation_steps: auto in the file"))
    if launch.sharded_state_dict and saves:
        found = "with SHARDED_STATE_DICT save_model() writes no weights, so the run ends without a usable model"
        findings.append(Finding("error", CHECK, found, "fsdp_state_dict_type: FULL_STATE_DICT"))
    if launch.processes > 1 and on_cpu and not launch.from_file:
        found = f"on a CPU, accelerate launch --num_processes {launch.processes} silently runs one process"
        advice = "add --multi_gpu (use_cpu: true stays in the recipe), or start with torchrun --nproc_per_node"
        findings.append(Finding("warning", CHECK, found, advice))
    if on_cpu and launch.sharding == "fsdp":
        found = "on a CPU, accelerate silently runs plain DDP in place of FSDP"
        findings.append(Finding("warning", CHECK, found, "use it on GPUs, or take DDP"))
    precision = launch.mixed_precision
    if (
        launch.sharding != "none"
        and not on_cpu
        and precision in ("no", "fp16", "bf16")
        and bf16 != (precision == "bf16")
    ):
        found = f"mixed_precision is {precision} in the file, bf16 is {str(bf16).lower()} in the recipe"
        findings.append(Finding("warning", CHECK, found, "let both say the same; without `bf16` TRL trains in bf16"))
    return findings


def _known_to_accelerate(path: Path) -> None:
    from accelerate.commands.config.config_args import load_config_from_file

    try:
        load_config_from_file(str(path))
    except Exception as error:  # whatever accelerate makes of a strange file, it will not start with it
        raise FileError(f"accelerate cannot load {path}: {short(error, 300)}") from error


def _name(given: Mapping[str, Any]) -> str:
    return f"{given['distributed_type']}" + (" on the CPU" if given.get("use_cpu") is True else "")


def _interpret(given: Mapping[str, Any], wanted: int | None) -> tuple[Launch, list[Finding]]:
    findings = []
    kind = str(given["distributed_type"]).upper()
    machines = int(given.get("num_machines") or 1)
    in_file = int(given.get("num_processes") or 1)
    processes = in_file if wanted is None else wanted
    if processes < 1:
        found = f"num_processes is {in_file}"
        findings.append(Finding("error", CHECK, found, "give --num-processes here and --num_processes to accelerate"))
        processes = 1
    elif wanted is not None and wanted != in_file:
        found = f"the file starts {in_file} process{'es' if in_file > 1 else ''}, not {wanted}"
        findings.append(Finding("warning", CHECK, found, f"accelerate launch needs --num_processes {wanted}"))
    on_cpu = given.get("use_cpu") is True
    if processes > 1 and kind in ("NO", "MULTI_CPU") and not given.get("mpirun_config"):
        found = f"distributed_type {kind} with {processes} processes silently runs ONE process"
        advice = "distributed_type: MULTI_GPU, on a CPU with use_cpu: true beside it; or torchrun --nproc_per_node"
        findings.append(Finding("error", CHECK, found, advice))
    if kind == "MULTI_GPU" and processes < 2:
        found = "distributed_type MULTI_GPU with one process, which accelerate may refuse"
        findings.append(Finding("warning", CHECK, found, 'distributed_type: "NO", or --num_processes 2 or more'))
    if kind == "DEEPSPEED" and on_cpu:
        found = "use_cpu: true with DeepSpeed"
        findings.append(Finding("warning", CHECK, found, "use_cpu: false in the file, use_cpu: true in the recipe"))
    if machines > 1:
        findings += _machines(given, kind, machines, processes)
        if processes % machines:
            machines = 1

    deepspeed = _deepspeed(given) if kind == "DEEPSPEED" else {}
    fsdp = given.get("fsdp_config") or {} if kind == "FSDP" else {}
    stage = int(deepspeed.get("zero_stage", 2))
    if deepspeed and not 0 <= stage <= 3:
        raise ValueError(f"zero_stage is {stage}")
    sharding: Sharding = "ddp" if processes > 1 else "none"
    if kind == "DEEPSPEED":
        sharding = ("ddp", "zero1", "zero2", "zero3")[stage]
    elif kind == "FSDP":
        sharding = "fsdp"
    if kind == "DEEPSPEED" and stage == 3 and deepspeed.get("zero3_save_16bit_model") is not True:
        found = "without zero3_save_16bit_model, save_model() leaves ZeRO-3's shards in place of a model"
        findings.append(Finding("warning", CHECK, found, "zero3_save_16bit_model: true"))
    if kind == "FSDP" and str(fsdp.get("fsdp_version", 1)) != "2":
        findings.append(Finding("warning", CHECK, "FSDP 1 has not been tried with this package", "fsdp_version: 2"))
    launch = Launch(
        processes=processes,
        machines=machines,
        sharding=sharding,
        use_cpu=on_cpu,
        mixed_precision=str(given["mixed_precision"]) if given.get("mixed_precision") else None,
        accumulation=_accumulation(deepspeed.get("gradient_accumulation_steps", "auto")) if deepspeed else None,
        sharded_state_dict="SHARDED" in str(fsdp.get("fsdp_state_dict_type", "")).upper(),
        offload_optimizer=deepspeed.get("offload_optimizer_device") in ("cpu", "nvme")
        or fsdp.get("fsdp_offload_params") is True,
        offload_parameters=deepspeed.get("offload_param_device") in ("cpu", "nvme")
        or fsdp.get("fsdp_offload_params") is True,
        from_file=True,
    )
    return launch, findings


def _machines(given: Mapping[str, Any], kind: str, machines: int, processes: int) -> list[Finding]:
    findings = []
    if processes % machines:
        found = f"{processes} processes do not divide over {machines} machines"
        below = processes - processes % machines
        advice = f"num_processes: {below + machines}" + (f" or {below}" if below else "") + " (the sum over machines)"
        findings.append(Finding("error", CHECK, found, advice))
    if not given.get("main_process_ip"):
        found = f"{machines} machines, and no main_process_ip in the file"
        advice = "give every machine --main_process_ip, --main_process_port and its own --machine_rank"
        findings.append(Finding("warning", CHECK, found, advice))
    launcher = (given.get("deepspeed_config") or {}).get("deepspeed_multinode_launcher")
    if kind == "DEEPSPEED" and launcher != "standard":
        found = f"deepspeed_multinode_launcher is {short(launcher)}: DeepSpeed reaches the other machines by itself"
        advice = "deepspeed_multinode_launcher: standard, and start the command on every machine"
        findings.append(Finding("warning", CHECK, found, advice))
    return findings


def _deepspeed(given: Mapping[str, Any]) -> dict[str, Any]:
    """The `deepspeed_config` of accelerate; a DeepSpeed JSON file that it names has the last word."""
    config = dict(given.get("deepspeed_config") or {})
    if config.get("deepspeed_config_file"):
        file = json.loads(Path(str(config["deepspeed_config_file"])).read_text(encoding="utf-8"))
        zero = file.get("zero_optimization", {})
        config["zero_stage"] = zero.get("stage", 0)
        config["gradient_accumulation_steps"] = file.get("gradient_accumulation_steps", 1)
        config["zero3_save_16bit_model"] = zero.get("stage3_gather_16bit_weights_on_model_save", False)
        config["offload_optimizer_device"] = zero.get("offload_optimizer", {}).get("device")
        config["offload_param_device"] = zero.get("offload_param", {}).get("device")
    return {"gradient_accumulation_steps": "auto", **config}


def _accumulation(value: Any) -> int | str:
    return "auto" if value == "auto" else int(value)
