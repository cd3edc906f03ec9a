"""Top floor: TRL's GRPO trainer, with runs that can be killed at any moment and resumed exactly."""

import json
from pathlib import Path
from typing import Any

from trl import GRPOConfig, GRPOTrainer

from .checkpoints import RolloutState, load_rollouts, newest_checkpoint, save_rollouts
from .streams import PromptStream


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
            ValueError: there is no whole checkpoint to resume from; says what is wrong with those that are there.
        """
        if resume_from_checkpoint is True:
            resume_from_checkpoint = str(newest_checkpoint(self.args.output_dir or "."))
        if resume_from_checkpoint:
            rank, size = self.accelerator.process_index, self.accelerator.num_processes
            state = load_rollouts(resume_from_checkpoint, rank, size, self.accelerator.device)
            if state is not None:
                self._step, self._buffered_inputs = state.step, state.buffered_inputs  # type: ignore[assignment]
                self._fresh_taken = state.fresh_taken
                if self._stream is not None:
                    self._stream.taken = state.stream_taken
            saved = json.loads((Path(resume_from_checkpoint) / "trainer_state.json").read_text(encoding="utf-8"))
            self._epochs_done = int(saved["epoch"] + 1e-6)
        return super().train(resume_from_checkpoint, *args, **kwargs)

    def _get_train_sampler(self, *args: Any, **kwargs: Any) -> Any:
        sampler = super()._get_train_sampler(*args, **kwargs)
        for _ in range(self._epochs_done if sampler is not None else 0):
            next(iter(sampler))  # draws the order of one epoch
        return sampler

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        super()._save_checkpoint(model, trial)
        if self.args.save_only_model:
            return
        folder = Path(self._get_output_dir(trial)) / f"checkpoint-{self.state.global_step}"
        # At the end of a generation batch nothing of it is needed any more.
        over = self._step % (self.args.steps_per_generation * self.num_iterations) == 0  # type: ignore[operator]
        state = RolloutState(
            self._step,
            None if over else self._buffered_inputs,
            self._fresh_taken,
            (0, (), 0) if self._stream is None else self._stream.taken,
        )
        save_rollouts(folder, state, self.accelerator.process_index, self.accelerator.num_processes)
