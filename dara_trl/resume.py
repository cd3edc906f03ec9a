"""Top floor: TRL's GRPO trainer, with runs that can be killed at any moment and resumed exactly."""

import warnings
from collections.abc import Sized
from pathlib import Path
from typing import Any

from trl import GRPOConfig, GRPOTrainer

from .checkpoints import RolloutState, begin_saving, load_rollouts, named_checkpoint, newest_checkpoint, save_rollouts
from .json_text import parse_json
from .streams import PromptStream


SETTINGS = {"reward_weights", "beta", "loss_type", "scale_rewards", "dynamic_sampling", "dynamic_sampling_keep"}
BATCH_SHAPE = {
    "per_device_train_batch_size",
    "gradient_accumulation_steps",
    "num_generations",
    "steps_per_generation",
    "num_iterations",
}


class ResumableGRPOTrainer(GRPOTrainer):
    """
    [`~trl.GRPOTrainer`] whose checkpoints also hold what TRL leaves out: the generation batch in progress, and how
    often the dataset's order has been drawn.

    Without the first, a run that is resumed within a generation batch (`steps_per_generation`, `num_iterations`)
    generates a new one; without the second, every resumed run starts with the first epoch's order again.
    """

    args: GRPOConfig
    _epochs_done = 0
    _fresh_taken = (0, 0)  # an epoch, and how many fresh prompts `dynamic_sampling` has taken in it
    _stream: PromptStream | None = None  # where it takes them from, if the dataset has no length

    def train(self, resume_from_checkpoint: str | bool | None = None, *args: Any, **kwargs: Any) -> Any:
        """As in TRL; True resumes from the newest checkpoint that is whole.

        Raises:
            ValueError: there is no whole checkpoint to resume from, or the one that is named is not whole; says why.
                Or the dataset has fewer prompts than one generation batch: transformers then trains nothing.
        """
        if resume_from_checkpoint is True:
            resume_from_checkpoint = str(newest_checkpoint(self.args.output_dir or "."))
        elif resume_from_checkpoint:
            resume_from_checkpoint = str(named_checkpoint(resume_from_checkpoint))
        if resume_from_checkpoint:
            rank, size = self.accelerator.process_index, self.accelerator.num_processes
            state = load_rollouts(resume_from_checkpoint, rank, size, self.accelerator.device)
            if state is not None:
                self._step = state.step
                if not self._changed(state.settings) & BATCH_SHAPE:
                    self._buffered_inputs = state.buffered_inputs  # type: ignore[assignment]
                self._fresh_taken = state.fresh_taken
                if self._stream is not None:
                    self._stream.taken = state.stream_taken
            saved = parse_json((Path(resume_from_checkpoint) / "trainer_state.json").read_text(encoding="utf-8"))
            self._epochs_done = int(saved["epoch"] + 1e-6)
            # Of a stream, the epoch is the pass and the share of max_steps that is trained: 1 may end a first pass.
            if saved["epoch"] > 1 + 1e-6 and not isinstance(self.train_dataset, Sized):
                warnings.warn(
                    "The run is resumed in a later pass over a dataset without a length: it is given other prompts "
                    "than an uninterrupted run from here on.",
                    stacklevel=2,
                )
        output = super().train(resume_from_checkpoint, *args, **kwargs)
        if self.state.global_step == 0 and (self.args.max_steps > 0 or self.args.num_train_epochs > 0):
            needed = self.args.generation_batch_size // self.num_generations  # type: ignore[operator]
            given = f"{len(self.train_dataset)} prompts" if isinstance(self.train_dataset, Sized) else "fewer prompts"
            raise ValueError(
                f"No step was trained: train_dataset has {given}, and a generation batch takes {needed} "
                "(per_device_train_batch_size x processes x steps_per_generation / num_generations). Lower "
                "per_device_train_batch_size or steps_per_generation, or give more prompts."
            )
        return output

    def _settings(self) -> dict[str, str]:
        """What a checkpoint's figures depend on, and a resumed run may have otherwise."""
        names = [
            name for name in vars(self.args) if name.startswith("aggregation") or name in {*SETTINGS, *BATCH_SHAPE}
        ]
        values = {name: getattr(self.args, name) for name in names}
        settings = {name: _text(value) for name, value in values.items()}
        return {"reward_funcs": ", ".join(self.reward_func_names), **settings}

    def _changed(self, before: dict[str, str]) -> set[str]:
        """The settings that the checkpoint was not trained with, which are said in a warning."""
        now = self._settings()
        changed = [name for name in now if name in before and now[name] != before[name]]
        if changed and self.accelerator.is_main_process:
            told = "; ".join(f"{name} was {before[name]}, is {now[name]}" for name in changed)
            anew = " The generation batch in progress is generated anew." if set(changed) & BATCH_SHAPE else ""
            warnings.warn(f"The checkpoint was trained with other settings: {told}.{anew}", stacklevel=3)
        return set(changed)

    def _get_train_sampler(self, *args: Any, **kwargs: Any) -> Any:
        sampler = super()._get_train_sampler(*args, **kwargs)
        for _ in range(self._epochs_done if sampler is not None else 0):
            next(iter(sampler))  # draws the order of one epoch
        return sampler

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        # Before the rest, and before super() deletes the checkpoint before it (save_total_limit).
        if not self.args.save_only_model:
            self._save_rollouts(trial)
        super()._save_checkpoint(model, trial)

    def _save_rollouts(self, trial: Any) -> None:
        folder = Path(self._get_output_dir(trial)) / f"checkpoint-{self.state.global_step}"
        # At the end of a generation batch nothing of it is needed any more.
        over = self._step % (self.args.steps_per_generation * self.num_iterations) == 0  # type: ignore[operator]
        state = RolloutState(
            self._step,
            None if over else self._buffered_inputs,
            self._fresh_taken,
            (0, (), 0) if self._stream is None else self._stream.taken,
            self._settings(),
        )
        begin_saving(folder, self.accelerator.process_index, self.accelerator.num_processes)
        save_rollouts(folder, state, self.accelerator.process_index, self.accelerator.num_processes)


def _text(value: Any) -> str:
    """The same in every process: no address of a function or of an object."""
    return getattr(value, "__qualname__", type(value).__qualname__) if callable(value) else str(value)
