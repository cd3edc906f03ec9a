"""Rewards, datasets and a recording trainer that the tests of the top floor share."""

from datasets import Dataset

from dara_trl import METHODS, DARAGRPOConfig, DARAGRPOTrainer
from dara_trl.aggregation import SETTINGS


PROMPTS = ["abc", "bcd", "aaa", "hij", "fed", "cab", "gig", "jab"]


def count_a(completions, **kwargs):
    return [float(text.count("a")) for text in completions]


def rare(completions, **kwargs):
    """A sparse reward."""
    return [float(text[:1] in ("b", "c")) for text in completions]


def maybe(completions, **kwargs):
    """Applies to about half of the rollouts."""
    return [float(len(text)) if "e" in text else None for text in completions]


def needed(method: str, num_rewards: int) -> dict:
    """What the method cannot do without, for count_a, rare and maybe."""
    give = {"static_weights": [1.0, 5.0, 2.0], "reward_ranges": [[0, 12], [0, 1], [0, 12]]}
    return {SETTINGS[name].field: give[name][:num_rewards] for name in METHODS[method].needs}


def prompts(count: int = 32) -> Dataset:
    return Dataset.from_dict({"prompt": [PROMPTS[i % len(PROMPTS)] for i in range(count)]})


def config(folder, **changes) -> DARAGRPOConfig:
    """8 groups of 4 a step on the CPU, two steps."""
    fields = {
        "output_dir": str(folder),
        "per_device_train_batch_size": 32,
        "num_generations": 4,
        "max_completion_length": 12,
        "max_steps": 2,
        "learning_rate": 1e-3,
        "logging_steps": 1,
        "report_to": "none",
        "use_cpu": True,
        "bf16": False,
        "disable_tqdm": True,
        "save_strategy": "no",
        "seed": 7,
        **changes,
    }
    return DARAGRPOConfig(**fields)


class RecordingTrainer(DARAGRPOTrainer):
    """Keeps, for every generation batch: the rewards, TRL's advantages, our result, and what goes to the loss."""

    def __init__(self, *args, **kwargs):
        self.records = []
        super().__init__(*args, **kwargs)

    def _aggregate(self, rewards_NK, num_generations, lengths_N):
        result = super()._aggregate(rewards_NK, num_generations, lengths_N)
        self.last = {
            "rewards": rewards_NK.clone(),
            "num_generations": num_generations,
            "lengths": lengths_N,
            "result": result,
        }
        return result

    def _replace_advantages(self, output, advantages_N):
        self.last["trl"] = output["advantages"].clone()
        super()._replace_advantages(output, advantages_N)

    def _generate_and_score_completions(self, inputs):
        output = super()._generate_and_score_completions(inputs)
        self.last["trained_on"] = output["advantages"].clone()
        self.last["prompts"] = list(self._logs["prompt"])  # of all processes
        self.last["mode"] = "train" if self.model.training else "eval"
        self.last["completion_ids"] = output["completion_ids"]
        self.last["completion_mask"] = output["completion_mask"]
        self.last["tool_mask"] = output.get("tool_mask")
        self.records.append(self.last)
        return output


def run(model: str, folder, rewards, dataset=None, **changes) -> RecordingTrainer:
    """Trains and returns the trainer."""
    kwargs = {
        key: changes.pop(key)
        for key in (
            "eval_dataset",
            "peft_config",
            "tools",
            "environment_factory",
            "processing_class",
            "reward_processing_classes",
            "callbacks",
        )
        if key in changes
    }
    resume = changes.pop("resume_from_checkpoint", None)
    trainer = RecordingTrainer(model, rewards, config(folder, **changes), train_dataset=dataset or prompts(), **kwargs)
    trainer.train(resume_from_checkpoint=resume)
    return trainer
