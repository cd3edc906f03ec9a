"""Middle floor: which checkpoint is whole, and what TRL's checkpoints leave out: the generation batch in progress.

TRL reuses a generation batch over several steps (`steps_per_generation`, `num_iterations`). A checkpoint in between
does not hold it, so a resumed run would generate a new one and differ from the uninterrupted run. Each process saves
its part into the checkpoint; its file is also the last that is written, so it says that the checkpoint is whole.
"""

import re
import warnings
import zipfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import send_to_device
from safetensors import SafetensorError, safe_open

from .json_text import parse_json


MODEL_ONLY = "holds the model only (save_only_model)"


@dataclass(frozen=True)
class RolloutState:
    """Where a process stands: TRL's step counter, the inputs of the steps to come, and what `dynamic_sampling` has
    taken: an epoch with the number of fresh prompts in it; of a stream, a pass with the rows taken in it, and how many
    were taken a second time. `settings` are what the run was trained with, as texts, to be compared on resuming."""

    step: int
    buffered_inputs: list[dict[str, Any]] | None
    fresh_taken: tuple[int, int] = (0, 0)
    stream_taken: tuple[int, tuple[int, ...], int] = (0, (), 0)
    settings: dict[str, str] = field(default_factory=dict)


def save_rollouts(folder: str | Path, state: RolloutState, rank: int, num_processes: int) -> None:
    """Writes a process's part into a checkpoint; the file is complete or absent."""
    path = Path(folder) / _name(rank, num_processes)
    new = path.with_suffix(".new")
    torch.save(vars(state), new)
    new.replace(path)


def load_rollouts(
    folder: str | Path, rank: int, num_processes: int, device: torch.device | str = "cpu"
) -> RolloutState | None:
    """The part of this process, or None, with a warning, if the checkpoint has none for this number of processes."""
    path = Path(folder) / _name(rank, num_processes)
    if not path.exists():
        warnings.warn(
            f"{folder} has no generation batch in progress for process {rank} of {num_processes} (written by plain "
            "TRL, or by another number of processes): the next step generates a new one.",
            stacklevel=2,
        )
        return None
    # Not to the device at once: torch cannot load to DeepSpeed's "cpu:0".
    state = RolloutState(**torch.load(path, map_location="cpu", weights_only=True))
    return replace(state, buffered_inputs=send_to_device(state.buffered_inputs, device))


def checkpoint_fault(folder: str | Path) -> str | None:
    """Why a checkpoint is not whole, or None. A run that was killed while it saved leaves a torn one.

    Of a checkpoint that plain TRL wrote, `trainer_state.json` and the random-number states are looked for: they are
    written after the model and the optimiser. A torch file without its directory, which stands at its end, or a
    safetensors file shorter than its header says, was cut off, by a full disk or an incomplete copy.
    """
    folder = Path(folder)
    try:
        state = parse_json((folder / "trainer_state.json").read_text(encoding="utf-8"))
        step = state["global_step"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        return f"trainer_state.json cannot be read ({error})"
    if (number := re.fullmatch(r"checkpoint-(\d+)", folder.name)) and int(number[1]) != step:
        return f"trainer_state.json is of step {step}"
    for path in sorted([*folder.glob("*.pt"), *folder.glob("*.pth")]):
        if not zipfile.is_zipfile(path):
            return f"{path.name} is cut off or is not a file of torch"
    for path in sorted(folder.glob("*.safetensors")):
        try:
            with safe_open(path, "pt"):
                pass
        except (SafetensorError, OSError) as error:
            return f"{path.name} is cut off or is not a file of safetensors ({error})"
    ours = [path.name for path in folder.glob("rollouts_*_of_*.pt")]
    if ours:
        num_processes = int(ours[0].removesuffix(".pt").rpartition("_")[2])
        missing = [rank for rank in range(num_processes) if _name(rank, num_processes) not in ours]
        return f"process {missing[0]} of {num_processes} had not saved its part" if missing else None
    ranks = sorted(int(path.stem.rpartition("_")[2]) for path in folder.glob("rng_state_*.pth"))
    if not ranks and not (folder / "rng_state.pth").exists():
        return MODEL_ONLY if _model_only(folder) else "no random-number state"
    return None if ranks == list(range(len(ranks))) else "random-number states are missing"


def named_checkpoint(folder: str | Path) -> Path:
    """The checkpoint that the user names, if it is whole; one of `save_only_model` is taken with a warning.

    Raises:
        ValueError: it is not there, or not whole; says why.
    """
    folder = Path(folder)
    fault = checkpoint_fault(folder) if folder.is_dir() else "there is no such folder"
    if fault == MODEL_ONLY:
        warnings.warn(f"{folder} {fault}: the optimizer and the random numbers start anew.", stacklevel=2)
    elif fault is not None:
        raise ValueError(
            f"Cannot resume from {folder}: {fault}. resume_from_checkpoint takes the folder of a whole checkpoint, "
            "or True for the newest whole one in output_dir."
        )
    return folder


def newest_checkpoint(output_dir: str | Path) -> Path:
    """The newest whole checkpoint below a training's `output_dir`; torn ones are passed over with a warning.

    Raises:
        ValueError: there is none; says what is wrong with those that are there.
    """
    numbered = {
        int(match[1]): path
        for path in Path(output_dir).glob("checkpoint-*")
        if (match := re.fullmatch(r"checkpoint-(\d+)", path.name)) and path.is_dir()
    }
    faults: list[str] = []
    for _, path in sorted(numbered.items(), reverse=True):
        fault = checkpoint_fault(path)
        if fault is None:
            if faults:
                warnings.warn(f"Passed over: {'; '.join(faults)}. Resuming from {path}.", stacklevel=2)
            return path
        model_only = fault == MODEL_ONLY
        faults.append(f"{path} {fault}; name it to go on from it" if model_only else f"{path} is not whole: {fault}")
    raise ValueError(f"No checkpoint to resume from in {output_dir}. {'; '.join(faults)}".rstrip())


def _model_only(folder: Path) -> bool:
    """No optimiser of torch, FSDP or DeepSpeed, and no schedule."""
    return not any(path.name.startswith(("optimizer", "scheduler", "global_step")) for path in folder.iterdir())


def _name(rank: int, num_processes: int) -> str:
    return f"rollouts_{rank}_of_{num_processes}.pt"
