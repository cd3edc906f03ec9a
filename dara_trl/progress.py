"""Middle floor: a progress bar for training that shows the rewards and their densities."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from transformers import (
    PrinterCallback,
    ProgressCallback,
    Trainer,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)

from .summary import reward_names


class RichProgressCallback(TrainerCallback):
    """One bar for the run, with each reward's mean and density; where there is no terminal, one line per log."""

    def __init__(self) -> None:
        self._console = Console()
        self._progress: Progress | None = None
        self._task: Any = None

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if state.is_world_process_zero and self._console.is_terminal:
            self._progress = Progress(
                TextColumn("step"),
                MofNCompleteColumn(),
                BarColumn(bar_width=20),
                TimeRemainingColumn(),
                TextColumn("{task.description}"),
                console=self._console,
            )
            self._task = self._progress.add_task("", total=state.max_steps, completed=state.global_step)
            self._progress.start()

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if self._progress is not None:
            self._progress.update(self._task, completed=state.global_step)

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        names = reward_names([logs or {}])
        if not state.is_world_process_zero or not names:
            return
        text = "  ".join(
            f"{name} {_shown(logs, f'rewards/{name}/mean')} (density {_shown(logs, f'dara/density/{name}')})"
            for name in names
        )
        if self._progress is not None:
            self._progress.update(self._task, description=text)
        else:
            self._console.print(f"step {state.global_step}/{state.max_steps}  {text}", highlight=False, soft_wrap=True)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Takes the bar down and gives the terminal back."""
        if self._progress is not None:
            self._progress.stop()
            self._progress = None


def _shown(logs: dict[str, Any] | None, key: str) -> str:
    value = (logs or {}).get(key)
    return "-" if value is None else f"{value:.3g}"


@contextmanager
def rich_progress(trainer: Trainer) -> Iterator[None]:
    """Puts [`RichProgressCallback`] in the place of transformers' own progress bar and log printer.

    At the end of the block the bar is stopped, whatever ended it: transformers tells callbacks of no failure.
    """
    for callback in (PrinterCallback, ProgressCallback):
        trainer.remove_callback(callback)
    bar = RichProgressCallback()
    trainer.add_callback(bar)
    try:
        yield
    finally:
        bar.stop()
