"""Trains a model to solve mathematics problems within a number of tokens: correctness and length.

    accelerate launch --config_file accelerate_configs/cpu.yaml examples/train_math.py

Without `--config` it takes the recipe examples/configs/math_cpu.yaml: embedded sums and a policy for them, on a CPU.
The other recipes there open with their commands. What a recipe sets can be changed:
`--rewards correctness length_if_correct --aggregation gdpo --output_dir runs/gdpo`.
"""

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from running import check_rewards, chosen_dataset, parse, train

from dara_trl import gate
from dara_trl.data.math import INSTRUCTION, load_math
from dara_trl.embedded.arithmetic import arithmetic_dataset
from dara_trl.rewards.math import correctness_reward, length_reward


CPU_RECIPE = Path(__file__).parent / "configs" / "math_cpu.yaml"


@dataclass
class MathArguments:
    dataset: str | None = field(
        default=None,
        metadata={
            "help": "'embedded' (sums; default for embedded models), or problems with references (DeepScaleR, MATH, "
            "GSM8K): a local .parquet, .json or .jsonl file, a URL, or a hub id."
        },
    )
    dataset_limit: int | None = field(default=None, metadata={"help": "Use the first so many rows only."})
    instruction: str = field(default=INSTRUCTION, metadata={"help": "Follows each problem that is loaded."})
    eval_dataset: str | None = field(default=None, metadata={"help": "Problems to evaluate on, as for --dataset."})
    eval_size: int = field(
        default=0, metadata={"help": "Embedded sums: evaluate on so many held-out ones; --eval_dataset: the first."}
    )
    rewards: list[str] = field(
        default_factory=lambda: ["correctness", "length"],
        metadata={"help": "Which rewards to train on, of: correctness, length, length_if_correct (GDPO's Eq. 8)."},
    )
    length_limit: int = field(default=4000, metadata={"help": "Most tokens of a completion that is short enough."})
    time_limit: float = field(default=5.0, metadata={"help": "Seconds that the check of one answer may take."})
    reward_workers: int | None = field(
        default=None, metadata={"help": "Processes that check answers; one a core, at most 8, by default."}
    )


def main() -> None:
    parser, task, args, model_config = parse(MathArguments, CPU_RECIPE)
    task.dataset = chosen_dataset(parser, task.dataset, model_config.model_name_or_path)
    correctness = partial(correctness_reward, time_limit=task.time_limit, num_workers=task.reward_workers)
    length = partial(length_reward, limit=task.length_limit)
    known = {
        "correctness": correctness,
        "length": length,
        "length_if_correct": gate(length, on=correctness, above=1.0),
    }
    check_rewards(parser, task.rewards, known)
    if task.length_limit < 1:
        parser.error(f"--length_limit must be at least 1, not {task.length_limit}")
    if any("length" in name for name in task.rewards) and task.length_limit >= (args.max_completion_length or 10**9):
        parser.error(
            f"--length_limit {task.length_limit} is kept by every completion, as --max_completion_length is "
            f"{args.max_completion_length}: the length would carry no signal. Lower the first or raise the second."
        )
    held_out = None
    if task.dataset == "embedded":
        dataset = arithmetic_dataset("train", 4096 if task.dataset_limit is None else task.dataset_limit)
    else:
        dataset = load_math(task.dataset, limit=task.dataset_limit, instruction=task.instruction)
    if task.eval_dataset is not None:
        held_out = load_math(task.eval_dataset, limit=task.eval_size or None, instruction=task.instruction)
    elif task.eval_size and task.dataset == "embedded":
        held_out = arithmetic_dataset("test", task.eval_size)
    elif task.eval_size:
        parser.error("--eval_size is for --dataset embedded, or needs --eval_dataset.")
    train(
        args,
        model_config,
        default_model="embedded:arithmetic",
        reward_funcs=[known[name] for name in task.rewards],
        train_dataset=dataset,
        eval_dataset=held_out,
        thresholds={"length_reward": 0.99},
    )


if __name__ == "__main__":
    main()
