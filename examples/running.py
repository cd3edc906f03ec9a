"""What the training scripts have in common: reading a recipe, training, and what is shown at the end."""

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from trl import ModelConfig, TrlParser, get_peft_config

from dara_trl import DARAGRPOConfig, DARAGRPOTrainer
from dara_trl.embedded.policy import resolve_model
from dara_trl.progress import rich_progress
from dara_trl.summary import plot, summary_table


class Trainer(DARAGRPOTrainer):
    """Evaluates with the same random numbers each time, and leaves the training's alone."""

    def evaluate(self, *args: Any, **kwargs: Any) -> dict[str, float]:
        with torch.random.fork_rng():
            torch.manual_seed(0)
            return super().evaluate(*args, **kwargs)


def parse(task: type, cpu_recipe: Path) -> tuple[TrlParser, Any, DARAGRPOConfig, ModelConfig]:
    """The task's arguments, the trainer's and the model's; from the CPU recipe where no `--config` is given."""
    parser = TrlParser((task, DARAGRPOConfig, ModelConfig))
    arguments = sys.argv[1:]
    if not any(argument.split("=")[0] in ("--config", "-h", "--help") for argument in arguments):
        print(f"No --config: what you gave changes {cpu_recipe}, which trains on the CPU.")
        arguments += ["--config", str(cpu_recipe)]
    task_args, args, model_config = parser.parse_args_and_config(arguments)
    if find_spec("matplotlib") is None:
        parser.error("the figure at the end needs matplotlib: pip install 'dara-trl[report]'")
    return parser, task_args, args, model_config


def chosen_dataset(parser: TrlParser, given: str | None, model: str | None) -> str:
    """What `--dataset` says. Left out, it is the embedded task; of a real model that would be GPU time for a toy."""
    if given is None and model is not None and not model.startswith("embedded:"):
        parser.error(f"--dataset is needed to train {model}: a file, URL or hub id; 'embedded' is the toy task.")
    return given or "embedded"


def check_rewards(parser: TrlParser, names: Sequence[str], known: Mapping[str, Callable]) -> None:
    """Ends with a message if a reward is unknown or comes twice."""
    unknown = [name for name in names if name not in known]
    if unknown:
        parser.error(f"--rewards: unknown {', '.join(unknown)}; choose from {', '.join(known)}")
    if len(set(names)) < len(names):
        parser.error(f"--rewards: {' '.join(names)} has a reward twice; its weight is --reward_weights")


def train(
    args: DARAGRPOConfig,
    model_config: ModelConfig,
    *,
    default_model: str,
    reward_funcs: list[Callable],
    train_dataset: Any,
    eval_dataset: Any,
    thresholds: dict[str, float],
) -> None:
    """Trains, saves, and shows a table and a figure."""
    args.model_init_kwargs = {
        "dtype": model_config.dtype,
        "attn_implementation": model_config.attn_implementation,
        "revision": model_config.model_revision,
        **(args.model_init_kwargs or {}),
    }
    trainer = Trainer(
        model=resolve_model(model_config.model_name_or_path or default_model),
        reward_funcs=reward_funcs,
        args=args,
        train_dataset=train_dataset,
        eval_dataset=eval_dataset,
        peft_config=get_peft_config(model_config),
    )
    resume = args.resume_from_checkpoint
    with rich_progress(trainer):
        trainer.train(resume_from_checkpoint=resume.lower() == "true" or resume if resume else None)
    if args.save_strategy != "no":
        trainer.save_model(args.output_dir)
    if trainer.accelerator.is_main_process:
        trainer.state.save_to_json(str(Path(args.output_dir) / "trainer_state.json"))
        history = trainer.state.log_history
        console = Console() if sys.stdout.isatty() else Console(width=100)
        console.print(summary_table(history, thresholds=thresholds))
        console.print(f"Figure: {plot(history, Path(args.output_dir) / 'curves.png')}", soft_wrap=True)
        console.print(
            f"Logs: {Path(args.output_dir) / 'trainer_state.json'}, report_to={args.report_to}", soft_wrap=True
        )
    trainer.accelerator.end_training()
