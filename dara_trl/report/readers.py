"""The files in which training runs leave their figures, each read into rows of one form. No torch, no trainer.

A row is a dict of figures with its `step`, named as TRL names them: `rewards/<name>/mean`, `dara/density/<name>`, ...,
and the same with `eval_` before them. NaN, infinity and null are None: no value at that step.
"""

import re
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..cli import CommandError
from ..json_text import parse_json


Row = dict[str, Any]

# The figures that are kept. A name may hold anything, a slash too.
KEPT = re.compile(r"(eval_)?(rewards/.+/(mean|std)|dara/.+)", re.DOTALL)
# verl, as the paper's code logs.
VERL = (
    (re.compile(r"critic/(.+)_score/mean", re.DOTALL), r"rewards/\1/mean"),
    (re.compile(r"dara/pi_(.+)", re.DOTALL), r"dara/density/\1"),
    (re.compile(r"dara/w_(.+)", re.DOTALL), r"dara/weight/\1"),
)
LARGEST = 3.5e38  # of float32, which rewards are in. Beyond it there is no figure, as for NaN; it could not be drawn.
STEPS = ("step", "train/global_step", "training/global_step")


@dataclass(frozen=True)
class Log:
    """What one file holds: its rows in the order in which they were written, and what it says of the run."""

    kind: str
    rows: list[Row]
    config: Mapping[str, Any] = field(default_factory=dict)
    name: str = ""  # the run's own, where the file has one
    revision: str | None = None
    notes: tuple[str, ...] = ()


def normalised(row: Mapping[str, Any]) -> Row | None:
    """A logged row under TRL's names, or None where it has no step or nothing of interest."""
    data = row.get("data")
    if isinstance(data, Mapping):  # verl's own file logger
        row = {**data, "step": row.get("step")}
    step = next((value for key in STEPS if (value := _number(row.get(key))) is not None), None)
    if step is None or step != int(step):
        return None
    figures: Row = {}
    for raw, value in row.items():
        key = "eval_" + raw[5:] if raw.startswith("eval/") else raw.removeprefix("train/")
        for pattern, name in VERL:
            if match := pattern.fullmatch(key):
                key = match.expand(name)
                break
        if KEPT.fullmatch(key) and (value is None or isinstance(value, int | float | str)):
            figures[key] = _number(value)
    return {"step": int(step), **figures} if figures else None


def _number(value: Any) -> float | None:
    if isinstance(value, str) and value.strip().lower() not in ("nan", "infinity", "-infinity", "inf", "-inf"):
        return None
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if abs(number) <= LARGEST else None


def _rows(raw: Iterable[Any]) -> list[Row]:
    return [row for item in raw if isinstance(item, Mapping) and (row := normalised(item)) is not None]


def read_jsonl(path: Path) -> Log:
    """`metrics.jsonl`, ours or verl's; a last line that a killed run left torn is skipped with a note."""
    raw, bad = [], []
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            item = parse_json(line)
        except ValueError:
            item = None
        if isinstance(item, dict):
            raw.append(item)
        else:
            bad.append(number)
    notes = []
    if bad and bad[-1] == len(lines):
        notes.append("the last line is torn (the run was killed while writing) and was skipped")
        bad.pop()
    if bad:
        notes.append(f"{len(bad)} unreadable lines were skipped, the first is line {bad[0]}")
    verl = any(key.startswith("critic/") or isinstance(item.get("data"), dict) for item in raw for key in item)
    return Log("verl metrics.jsonl" if verl else "metrics.jsonl", _rows(raw), notes=tuple(notes))


def read_trainer_state(path: Path) -> Log:
    """`trainer_state.json` of transformers.

    Raises:
        ValueError: it is not JSON with a `log_history`.
    """
    state = parse_json(path.read_text(encoding="utf-8"))
    if not isinstance(state, dict) or not isinstance(state.get("log_history"), list):
        raise ValueError("no log_history in it")
    return Log("trainer_state.json", _rows(state["log_history"]))


def read_wandb(path: Path) -> Log:
    """The file of a W&B offline run, also of a killed one: a LevelDB log of protobuf records."""
    try:
        from wandb.proto import wandb_internal_pb2
    except ImportError as error:
        raise CommandError(f"{path} is a W&B file; to read it: pip install wandb ({error})") from error
    raw: list[Row] = []
    config: dict[str, Any] = {}
    name, revision = "", None
    notes: tuple[str, ...] = ()
    protobufs: Any = wandb_internal_pb2  # its names are made at import
    record = protobufs.Record()
    ended = False
    for data in _leveldb_records(path.read_bytes()):
        try:
            record.ParseFromString(data)
            kind = record.WhichOneof("record_type")
            if kind == "history":
                raw.append({_key(item): parse_json(item.value_json) for item in record.history.item})
            elif kind in ("run", "config"):
                updates = (record.run.config if kind == "run" else record.config).update
                config |= {_key(item): parse_json(item.value_json) for item in updates}
                if kind == "run":
                    name = record.run.display_name or name
                    revision = record.run.git.commit or revision
            ended = ended or kind == "exit"
        except Exception:  # protobuf's DecodeError has no stable home
            notes = ("a record of the file is damaged; what follows it was not read",)
            break
    if not ended and not notes:
        notes = ("the file has no end: the run was killed, or is still going on",)
    return Log("W&B file", _rows(raw), config, name, revision, notes)


def _key(item: Any) -> str:
    return item.key or ".".join(item.nested_key)


def _leveldb_records(data: bytes) -> Iterator[bytes]:
    """Whole records of a LevelDB log: blocks of 32 kB, each piece with checksum, length and kind before it.

    Raises:
        ValueError: it is no W&B file.
    """
    if data[:4] != b":W&B":
        raise ValueError("it does not start as a W&B file does")
    position, buffer = 7, b""
    while position + 7 <= len(data):
        room = 32768 - position % 32768
        if room < 7:  # the block's trailer
            position += room
            continue
        _, length, kind = struct.unpack("<IHB", data[position : position + 7])
        position += 7
        if kind == 0 or position + length > len(data):  # zero fill, or the torn end of a killed run
            return
        buffer = data[position : position + length] if kind in (1, 2) else buffer + data[position : position + length]
        position += length
        if kind in (1, 4):  # a whole record, or the last piece of one
            yield buffer
            buffer = b""


def read_tensorboard(folder: Path) -> Log:
    """All TensorBoard event files of one folder, which are one run."""
    try:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    except ImportError as error:
        raise CommandError(
            f"{folder} holds TensorBoard event files; to read them: pip install tensorboard ({error})"
        ) from error
    sizes = {"scalars": 0, "tensors": 0}
    events = EventAccumulator(str(folder), size_guidance=sizes, purge_orphaned_data=False)
    events.Reload()
    tags = events.Tags()
    config: dict[str, Any] = {}
    if "args/text_summary" in tags["tensors"]:  # transformers writes the training arguments as a text
        try:
            config = parse_json(events.Tensors("args/text_summary")[-1].tensor_proto.string_val[0])
        except (ValueError, IndexError):
            config = {}
    scalars = [(event, tag) for tag in tags["scalars"] for event in events.Scalars(tag)]
    scalars.sort(key=lambda pair: pair[0].wall_time)
    rows = _rows({"step": event.step, tag: event.value} for event, tag in scalars)
    return Log("TensorBoard events", rows, config if isinstance(config, dict) else {})
