"""Middle floor: every logged figure of a run as JSON lines, for `dara-trl compare` and `dara-trl report`."""

import json
import math
from pathlib import Path
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from .json_text import parse_json


# The file that a run is to write. `dara-trl compare` sets it, so any script with a DARAGRPOTrainer can be compared.
VARIABLE = "DARA_TRL_METRICS_FILE"


class MetricsFileCallback(TrainerCallback):
    """Appends one JSON object for each log to a file: `step`, and the figures; one that is not finite is null.

    Args:
        path: the file; its folder must exist. Written by the main process only.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        if not state.is_world_process_zero or not logs:
            return
        numbers = {key: value for key, value in logs.items() if isinstance(value, int | float)}
        row: dict[str, Any] = {"step": state.global_step, "max_steps": state.max_steps}
        row |= {key: value if math.isfinite(value) else None for key, value in numbers.items() if key != "step"}
        # One write a line: a run that is killed leaves whole lines and at most one torn one.
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")


def read_rows(path: str | Path, offset: int = 0) -> tuple[list[dict[str, Any]], int]:
    """The rows from `offset` on, and the offset behind the last whole line; a torn last line is left for later."""
    with Path(path).open("rb") as file:
        file.seek(offset)
        text = file.read()
    end = text.rfind(b"\n") + 1
    return [parse_json(line) for line in text[:end].splitlines()], offset + end
