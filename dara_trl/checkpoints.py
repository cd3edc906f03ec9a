"""Middle floor: which checkpoint is whole, and what TRL's checkpoints leave out: the generation batch in progress.

TRL reuses a generation batch over several steps (`steps_per_generation`, `num_iterations`). A checkpoint in between
does not hold it, so a resumed run would generate a new one and differ from the uninterrupted run. Each process saves
its part before transformers saves the rest, so that a checkpoint in which the rest is whole has it.
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
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(".new")
    torch.save(vars(state), new)
    new.replace(path)


def begin_saving(folder: str | Path, rank: int, num_processes: int) -> None:
    """Takes away what says that a checkpoint is whole: the folder may be one that is written for the second time."""
    name = "rng_state.pth" if num_processes == 1 else f"rng_state_{rank}.pth"
    for one in ("trainer_state.json", name) if rank == 0 else (name,):
        (Path(folder) / one).unlink(missing_ok=True)


def load_rollouts(
    folder: str | Path, rank: int, num_processes: int, device: torch.device | str = "cpu"
) -> RolloutState | None:
    """The part of this process; None, with a warning, of a checkpoint by plain TRL.

    If another number of processes wrote it, a warning says so, and the state, which is the same in all of them, has no
    generation batch.
    """
    path = Path(folder) / _name(rank, num_processes)
    others = sorted(Path(folder).glob(_name("*", "*")))
    if not path.exists():
        by = f"{_last_number(others[0])} processes wrote it, not {num_processes}" if others else "plain TRL wrote it"
        warnings.warn(
            f"{folder} has no generation batch in progress for process {rank} of {num_processes} ({by}): the next "
            "step generates a new one.",
            stacklevel=2,
        )
        if not others:
            return None
    # Not to the device at once: torch cannot load to DeepSpeed's "cpu:0".
    state = RolloutState(**torch.load(path if path.exists() else others[0], map_location="cpu", weights_only=True))
    buffered = state.buffered_inputs if path.exists() else None
    return replace(state, buffered_inputs=send_to_device(buffered, device))


def checkpoint_fault(folder: str | Path) -> str | None:
    """Why a checkpoint is not whole, or None. A run that was killed while it saved leaves a torn one.

    Of a checkpoint that plain TRL wrote, `trainer_state.json` and the random-number states are looked for: they are
    written after the model and the optimiser; a process's random-number state is the last that it writes but for the
    `trainer_state.json` of the first. A torch file without its directory, which stands at its end, a safetensors file
    shorter than its header says, or half a JSON file was cut off, by a full disk or an incomplete copy.
    """
    folder = Path(folder)
    try:
        state = parse_json((folder / "trainer_state.json").read_text(encoding="utf-8"))
        step = state["global_step"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        return f"trainer_state.json cannot be read ({error})"
    if (number := re.fullmatch(r"checkpoint-(\d+)", folder.name)) and int(number[1]) != step:
        return f"trainer_state.json is of step {step}"
    for path in sorted(folder.glob("*.json")):
        try:
            parse_json(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            return f"{path.name} cannot be read ({error})"
    for path in sorted([*folder.glob("*.pt"), *folder.glob("*.pth"), *folder.glob("*.bin")]):
        if not zipfile.is_zipfile(path):
            return f"{path.name} is cut off or is not a file of torch"
    for path in sorted(folder.glob("*.safetensors")):
        try:
            with safe_open(path, "pt"):
                pass
        except (SafetensorError, OSError) as error:
            return f"{path.name} is cut off or is not a file of safetensors ({error})"
    if fault := _missing_weights(folder):
        return fault
    ours = list(folder.glob(_name("*", "*")))
    ranks = sorted(map(_last_number, folder.glob("rng_state_*.pth")))
    alone = (folder / "rng_state.pth").exists()
    if ours:
        num_processes = _last_number(ours[0])
        names = {path.name for path in ours}
        for rank in range(num_processes):
            saved = alone if num_processes == 1 else rank in ranks
            if _name(rank, num_processes) not in names or not saved:
                return f"process {rank} of {num_processes} had not saved its part"
    elif not ranks and not alone:
        return MODEL_ONLY if not _has(folder, OPTIMIZER) else "no random-number state"
    elif ranks != list(range(len(ranks))):
        return "random-number states are missing"
    return None if _has(folder, OPTIMIZER) else "no state of the optimizer in it"


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


# How the names begin that transformers, PEFT, FSDP and DeepSpeed give to weights and to the optimiser's state.
WEIGHTS = ("model", "pytorch_model", "adapter_model", "global_step")
OPTIMIZER = ("optimizer", "global_step")


def _missing_weights(folder: Path) -> str | None:
    weights = [path.name for path in folder.iterdir() if path.name.startswith(WEIGHTS)]
    if not [name for name in weights if not name.endswith(".json")]:
        return "no weights in it"
    for index in folder.glob("*.index.json"):
        shards = set(parse_json(index.read_text(encoding="utf-8")).get("weight_map", {}).values())
        if missing := sorted(shards - set(weights)):
            return f"{missing[0]} of its weights is missing"
    return None


def _has(folder: Path, beginnings: tuple[str, ...]) -> bool:
    return any(path.name.startswith(beginnings) for path in folder.iterdir())


def _last_number(path: Path) -> int:
    return int(path.stem.rpartition("_")[2])


def _name(rank: int | str, num_processes: int | str) -> str:
    return f"rollouts_{rank}_of_{num_processes}.pt"
