"""Trains a model to call tools with several rewards at once (ToolRL: format and correctness).

    accelerate launch --config_file accelerate_configs/cpu.yaml examples/train_toolrl.py

Without `--config` it takes the recipe examples/configs/toolrl_cpu.yaml: the embedded task and policy, on a CPU. The
other recipes there open with their commands. What a recipe sets can be changed:
`--aggregation gdpo --output_dir runs/gdpo`.
"""

import sys
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import torch
from rich.console import Console
from trl import ModelConfig, TrlParser, get_peft_config

from dara_trl import DARAGRPOConfig, DARAGRPOTrainer
from dara_trl.data.toolrl import load_toolrl
from dara_trl.embedded.policy import resolve_model
from dara_trl.embedded.world import AMBIGUOUS, tool_calling_dataset
from dara_trl.progress import rich_progress
from dara_trl.rewards.toolrl import correctness_reward, format_reward, think_length_reward
from dara_trl.summary import plot, summary_table


CPU_RECIPE = Path(__file__).parent / "configs" / "toolrl_cpu.yaml"


@dataclass
class ToolRLArguments:
    dataset: str = field(
        default="embedded",
        metadata={"help": "'embedded', or ToolRL data: a local .parquet or .json file, a URL, or a hub id."},
    )
    dataset_limit: int | None = field(default=None, metadata={"help": "Use the first so many rows only."})
    eval_size: int = field(
        default=0,
        metadata={
            "help": "Embedded task: evaluate on so many held-out requests, each time with the same random numbers."
        },
    )
    ambiguous: float = field(
        default=AMBIGUOUS, metadata={"help": "Embedded task: share of requests that do not tell one value."}
    )
    rewards: list[str] = field(
        default_factory=lambda: ["format", "correctness"],
        metadata={"help": "Which rewards to train on, of: format, correctness, think_length."},
    )
    inapplicable: Literal["zero", "none"] = field(
        default="zero",
        metadata={"help": "Correctness where no tool call is due: 'zero' (ToolRL) or 'none' (does not count)."},
    )
    think_length_form: Literal["limit", "toolrl"] = field(
        default="limit", metadata={"help": "'limit' (short thoughts) or 'toolrl' (long)."}
    )
    max_think_words: int = field(default=16, metadata={"help": "The limit of think_length_form='limit'."})


class Trainer(DARAGRPOTrainer):
    """Evaluates with the same random numbers each time, and leaves the training's alone."""

    def evaluate(self, *args: Any, **kwargs: Any) -> dict[str, float]:
        with torch.random.fork_rng():
            torch.manual_seed(0)
            return super().evaluate(*args, **kwargs)


def main() -> None:
    parser = TrlParser((ToolRLArguments, DARAGRPOConfig, ModelConfig))
    arguments = sys.argv[1:]
    if not any(argument.split("=")[0] in ("--config", "-h", "--help") for argument in arguments):
        print(f"No --config: what you gave changes {CPU_RECIPE}, which trains on the CPU.")
        arguments += ["--config", str(CPU_RECIPE)]
    task, args, model_config = parser.parse_args_and_config(arguments)
    if find_spec("matplotlib") is None:
        parser.error("the figure at the end needs matplotlib: pip install 'dara-trl[report]'")
    known = {
        "format": format_reward,
        "correctness": partial(correctness_reward, inapplicable=task.inapplicable),
        "think_length": partial(think_length_reward, form=task.think_length_form, max_words=task.max_think_words),
    }
    unknown = [name for name in task.rewards if name not in known]
    if unknown:
        parser.error(f"--rewards: unknown {', '.join(unknown)}; choose from {', '.join(known)}")

    if len(set(task.rewards)) < len(task.rewards):
        parser.error(f"--rewards: {' '.join(task.rewards)} has a reward twice; its weight is --reward_weights")
    if task.max_think_words < 1:
        parser.error(f"--max_think_words must be at least 1, not {task.max_think_words}")
    if task.dataset == "embedded":
        size = 4096 if task.dataset_limit is None else task.dataset_limit
        dataset = tool_calling_dataset("train", size, ambiguous=task.ambiguous)
    elif task.eval_size:
        parser.error("--eval_size is for --dataset embedded, whose held-out requests it takes.")
    else:
        dataset = load_toolrl(task.dataset, limit=task.dataset_limit)
    held_out = tool_calling_dataset("test", task.eval_size, ambiguous=task.ambiguous) if task.eval_size else None
    args.model_init_kwargs = {
        "dtype": model_config.dtype,
        "attn_implementation": model_config.attn_implementation,
        "revision": model_config.model_revision,
        **(args.model_init_kwargs or {}),
    }
    trainer = Trainer(
        model=resolve_model(model_config.model_name_or_path or "embedded:tiny"),
        reward_funcs=[known[name] for name in task.rewards],
        args=args,
        train_dataset=dataset,
        eval_dataset=held_out,
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
        console.print(summary_table(history, thresholds={"format_reward": 0.8}))
        console.print(f"Figure: {plot(history, Path(args.output_dir) / 'curves.png')}", soft_wrap=True)
        console.print(
            f"Logs: {Path(args.output_dir) / 'trainer_state.json'}, report_to={args.report_to}", soft_wrap=True
        )
    trainer.accelerator.end_training()


if __name__ == "__main__":
    main()
