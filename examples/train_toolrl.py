"""Trains a model to call tools with several rewards at once (ToolRL: format and correctness).

    accelerate launch --config_file accelerate_configs/cpu.yaml examples/train_toolrl.py

Without `--config` it takes the recipe examples/configs/toolrl_cpu.yaml: the embedded task and policy, on a CPU. The
other recipes there open with their commands. What a recipe sets can be changed:
`--aggregation gdpo --output_dir runs/gdpo`.
"""

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal

from running import check_rewards, chosen_dataset, parse, train

from dara_trl.data.toolrl import load_toolrl
from dara_trl.embedded.world import AMBIGUOUS, tool_calling_dataset
from dara_trl.rewards.toolrl import correctness_reward, format_reward, think_length_reward


CPU_RECIPE = Path(__file__).parent / "configs" / "toolrl_cpu.yaml"


@dataclass
class ToolRLArguments:
    dataset: str | None = field(
        default=None,
        metadata={
            "help": "'embedded' (the toy task; default for embedded models), or ToolRL data: a local .parquet or "
            ".json file, a URL, or a hub id."
        },
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


def main() -> None:
    parser, task, args, model_config = parse(ToolRLArguments, CPU_RECIPE)
    task.dataset = chosen_dataset(parser, task.dataset, model_config.model_name_or_path)
    known = {
        "format": format_reward,
        "correctness": partial(correctness_reward, inapplicable=task.inapplicable),
        "think_length": partial(think_length_reward, form=task.think_length_form, max_words=task.max_think_words),
    }
    check_rewards(parser, task.rewards, known)
    if task.max_think_words < 1:
        parser.error(f"--max_think_words must be at least 1, not {task.max_think_words}")
    if task.dataset == "embedded":
        size = 4096 if task.dataset_limit is None else task.dataset_limit
        dataset = tool_calling_dataset("train", size, ambiguous=task.ambiguous)
    elif task.eval_size:
        parser.error("--eval_size is for --dataset embedded, whose held-out requests it takes.")
    else:
        dataset = load_toolrl(task.dataset, limit=task.dataset_limit)
    train(
        args,
        model_config,
        default_model="embedded:tiny",
        reward_funcs=[known[name] for name in task.rewards],
        train_dataset=dataset,
        eval_dataset=tool_calling_dataset("test", task.eval_size, ambiguous=task.ambiguous)
        if task.eval_size
        else None,
        thresholds={"format_reward": 0.8},
    )


if __name__ == "__main__":
    main()
