"""Top floor: groups without signal are replaced by groups of fresh prompts, before they cost a step.

As in DAPO (https://huggingface.co/papers/2503.14476), but with several rewards: a group is kept if any of them tells
two of its rollouts apart, or all do. TRL has no such sampling. Only the slots of failed groups are generated again.
"""

import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from accelerate.utils import gather_object
from datasets import IterableDataset
from torch import Tensor
from trl.trainer.utils import RepeatSampler

from .aggregation import aggregate
from .config import DARAGRPOConfig
from .resume import ResumableGRPOTrainer
from .streams import PromptStream


# What `_generate` returns, from either end: TRL before 1.7 has the number of completion tokens in the middle.
PROMPT_IDS, COMPLETION_IDS, TOOL_MASK, COMPLETIONS = 0, 1, 2, 3
LOGPROBS, EXTRA_FIELDS, IMAGES, TOOL_IMAGES = -4, -3, -2, -1
PER_ROLLOUT = (PROMPT_IDS, COMPLETION_IDS, TOOL_MASK, COMPLETIONS, LOGPROBS)


def kept_groups(rewards_NK: Tensor, active_BK: Tensor, priorities_K: Tensor, keep: str) -> Tensor:
    """True for each of the B groups in which any reward that is trained on is active; with `"all"`, every such reward
    that applies to the group."""
    counted_K = priorities_K > 0
    if keep == "any":
        return (active_BK & counted_K).any(dim=1)
    groups = active_BK.shape[0]
    applies_BK = (~rewards_NK.view(groups, -1, rewards_NK.shape[1]).isnan()).any(dim=1) & counted_K
    return (active_BK | ~applies_BK).all(dim=1) & applies_BK.any(dim=1)


def epoch_order(size: int, epoch: int, shuffle: bool, seed: int) -> list[int]:
    """The order in which TRL's dataloader walks the dataset in this epoch, counted from 0."""
    sampler = RepeatSampler(range(size), mini_repeat_count=1, shuffle=shuffle, seed=seed)
    for _ in range(epoch):
        next(iter(sampler))  # draws the order of one epoch
    return list(sampler)


def from_the_back(order: list[int], count: int, taken: int) -> list[int]:
    """The rows that fill the gaps, after `taken` others in the same epoch.

    The dataloader walks an epoch's order from its front, these come from its back, until the two meet. So no prompt is
    seen twice before all were seen once, whatever the dataloader has fetched ahead, and one number says where they
    stand. From there on they go into the rows that the dataloader has had.
    """
    return [order[(len(order) - 1 - taken - i) % len(order)] for i in range(count)]


@dataclass
class Rollout:
    """One completion and all that goes with it, so that it can change its place and its process."""

    inputs: dict[str, Any]
    prompt: Any
    fields: dict[int, Any]  # by place in what `_generate` returns
    extra: dict[str, Any]  # of a rollout_func
    logged: dict[str, Any]  # by the rewards' log_extra


class DynamicSamplingGRPOTrainer(ResumableGRPOTrainer):
    """
    [`~trl.GRPOTrainer`] with `dynamic_sampling`; keeps the rewards of each generation batch for its subclass.

    Every process makes the same rounds, because all of them decide on the gathered rewards. A round's prompts are
    spread evenly over the processes, in whole groups that may span two of them, as vLLM's server needs it; what is
    kept then moves to the process and the slot that it fills.
    """

    args: DARAGRPOConfig
    _gathered_rewards_NK: Tensor | None = None  # of the last generation batch, all processes
    _dataset_order: tuple[int, list[int]] | None = None  # of one epoch
    _unfilled_said = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if not self.args.dynamic_sampling:
            return
        if isinstance(self.train_dataset, IterableDataset):
            shuffled = self.train_dataset
            if self.shuffle_dataset:
                shuffled = shuffled.shuffle(seed=self.args.seed)  # as TRL does
            self._stream = PromptStream(shuffled)
        if getattr(self, "environment_factories", None) or getattr(self, "environments", None):
            raise ValueError("dynamic_sampling does not work with environment_factory yet: drop one of them.")

    @property
    def _group_size(self) -> int:
        return self.num_generations  # type: ignore[return-value]  # set by TRL's constructor

    def get_train_dataloader(self) -> Any:
        if self._stream is None:
            return super().get_train_dataloader()
        # TRL's dataloader, over what is left of the stream, which is shuffled already.
        with replaced(self, train_dataset=self._stream.for_dataloader(), shuffle_dataset=False):
            return super().get_train_dataloader()

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        # The rewards are taken from the outermost `_calculate_rewards`, so that a subclass may override it too.
        generate, calculate = self._generate, self._calculate_rewards

        def score(*args: Any, **kwargs: Any) -> Tensor:
            self._gathered_rewards_NK = calculate(*args, **kwargs)
            return self._gathered_rewards_NK

        if not (self.args.dynamic_sampling and self.model.training):  # type: ignore[union-attr]
            with replaced(self, _calculate_rewards=score):
                return super()._generate_and_score_completions(inputs)

        inputs = list(inputs)

        def generate_until_full(prompts: list[Any]) -> tuple[Any, ...]:
            output, self._gathered_rewards_NK = self._rounds(inputs, prompts, generate, score)
            return output

        # The rest is TRL's, with the batch that is left; nothing is generated or scored twice.
        with replaced(
            self, _generate=generate_until_full, _calculate_rewards=lambda *_, **__: self._gathered_rewards_NK
        ):
            return super()._generate_and_score_completions(inputs)

    def _rounds(
        self, inputs: list[dict[str, Any]], prompts: list[Any], generate: Callable, score: Callable
    ) -> tuple[tuple[Any, ...], Tensor]:
        """Generates until each group of the batch is kept, or there are no more rounds.

        Writes what is left into `inputs` and `prompts`; returns it in the form of `_generate`, and its rewards.
        """
        before = {name: len(values) for name, values in self._metrics["train"].items()}
        output = generate(prompts)
        batch, rewards_NK = self._scored(output, inputs, prompts, score)
        rewards_NK = rewards_NK.clone()
        active = [self._active(rewards_NK)]
        kept_B = self._kept(rewards_NK, active[0])
        candidates, accepted, local = [rewards_NK.clone()], int(kept_B.sum()), [len(prompts)]
        while not kept_B.all() and len(local) < self.args.dynamic_sampling_max_rounds:
            slots = (~kept_B).nonzero().flatten().tolist()
            fresh_inputs = self._fresh_inputs(len(slots))
            fresh_prompts = [row["prompt"] for row in fresh_inputs]
            fresh, fresh_NK = self._scored(generate(fresh_prompts), fresh_inputs, fresh_prompts, score)
            active.append(self._active(fresh_NK))
            good = self._kept(fresh_NK, active[-1]).nonzero().flatten().tolist()
            moves = dict(zip(good, slots, strict=False))
            self._move(fresh, batch, moves)
            for group, slot in moves.items():
                _rows(rewards_NK, slot, self._group_size).copy_(_rows(fresh_NK, group, self._group_size))
                kept_B[slot] = True
            accepted += len(good)
            candidates.append(fresh_NK)
            local.append(len(fresh_prompts))

        _one_entry_a_batch(self._metrics["train"], before, local)
        self._log_sampling(torch.cat(candidates), torch.cat(active), accepted, len(local), kept_B)
        inputs[:] = [rollout.inputs for rollout in batch]
        prompts[:] = [rollout.prompt for rollout in batch]
        self._pending_extra_logs.clear()
        for column in batch[0].logged:
            self._pending_extra_logs[column] = [rollout.logged.get(column) for rollout in batch]
        return self._together(output, batch), rewards_NK

    def _scored(
        self, output: tuple[Any, ...], inputs: list[dict[str, Any]], prompts: list[Any], score: Callable
    ) -> tuple[list[Rollout], Tensor]:
        if output[IMAGES] is not None or any(output[TOOL_IMAGES] or []):
            raise ValueError("dynamic_sampling does not carry images from round to round yet: drop one of them.")
        count = len(prompts)
        extra = {
            name: value if isinstance(value, list) else [value] * count
            for name, value in (output[EXTRA_FIELDS] or {}).items()
        }
        inputs = [
            row | {name: values[i] for name, values in extra.items() if i < len(values)}
            for i, row in enumerate(inputs)
        ]
        self._pending_extra_logs.clear()
        rewards_NK = score(inputs, prompts, output[COMPLETIONS], output[COMPLETION_IDS])
        logged = {column: list(values) for column, values in self._pending_extra_logs.items()}
        fields = {place: output[place] for place in PER_ROLLOUT if output[place] is not None}
        rollouts = [
            Rollout(
                inputs[i],
                prompts[i],
                {place: values[i] for place, values in fields.items()},
                {name: values[i] if i < len(values) else None for name, values in extra.items()},
                {column: values[i] if i < len(values) else None for column, values in logged.items()},
            )
            for i in range(count)
        ]
        return rollouts, rewards_NK

    def _active(self, rewards_NK: Tensor) -> Tensor:
        return aggregate(
            rewards_NK.cpu(),
            num_generations=self._group_size,
            method="gdpo",
            batch_norm="none",
            reward_names=self.reward_func_names,
        ).active_BK

    def _kept(self, rewards_NK: Tensor, active_BK: Tensor) -> Tensor:
        priorities_K = self.reward_weights.cpu()
        return kept_groups(rewards_NK.cpu(), active_BK, priorities_K, self.args.dynamic_sampling_keep)

    def _fresh_inputs(self, groups: int) -> list[dict[str, Any]]:
        """This process's rows of a round with at least so many groups, the G rows of a prompt in a row."""
        size, processes = self._group_size, self.accelerator.num_processes
        unit = processes // math.gcd(size, processes)  # so many groups divide evenly over the processes
        groups = math.ceil(groups / unit) * unit
        share = groups * size // processes
        start = self.accelerator.process_index * share
        if self._stream is not None:
            rows = self._stream.fresh(groups)
            if self.args.remove_unused_columns:
                self._set_signature_columns_if_needed()
                columns: Any = self._signature_columns
                rows = [{name: row[name] for name in columns if name in row} for row in rows]
            return [dict(rows[row // size]) for row in range(start, start + share)]
        epoch = int((self.state.epoch or 0.0) + 1e-6)
        dataset: Any = self.train_dataset
        if self._dataset_order is None or self._dataset_order[0] != epoch:
            order = epoch_order(len(dataset), epoch, bool(self.shuffle_dataset), self.args.seed)
            self._dataset_order = (epoch, order)
        if self._fresh_taken[0] != epoch:
            self._fresh_taken = (epoch, 0)
        taken = self._fresh_taken[1]
        chosen = from_the_back(self._dataset_order[1], groups, taken)
        self._fresh_taken = (epoch, taken + groups)
        if self.args.remove_unused_columns:
            dataset = self._remove_unused_columns(dataset, "training")
        return [dict(dataset[chosen[row // size]]) for row in range(start, start + share)]

    def _move(self, fresh: list[Rollout], batch: list[Rollout], moves: dict[int, int]) -> None:
        """Rollouts of kept groups to the process and the place of the slot that their group fills."""
        if not moves:
            return
        size, rank = self._group_size, self.accelerator.process_index
        leaving = []
        for row, rollout in enumerate(fresh, rank * len(fresh)):
            group, place = divmod(row, size)
            if group in moves:
                leaving.append((moves[group] * size + place, rollout))
        first = rank * len(batch)
        for row, rollout in gather_object(leaving):
            if first <= row < first + len(batch):
                batch[row - first] = rollout

    def _together(self, output: tuple[Any, ...], batch: list[Rollout]) -> tuple[Any, ...]:
        """The batch in the form of `_generate`, of which `output` is an example."""
        values = list(output)
        for place in PER_ROLLOUT:
            if output[place] is not None:
                values[place] = [rollout.fields[place] for rollout in batch]
        if output[EXTRA_FIELDS]:
            values[EXTRA_FIELDS] = {
                name: [rollout.extra.get(name) for rollout in batch] for name in output[EXTRA_FIELDS]
            }
        if len(output) == 9:  # TRL 1.6: the number of trained-on tokens of all processes
            trained = [sum(mask) for mask in values[TOOL_MASK]] if values[TOOL_MASK] is not None else None
            counts = trained or [len(ids) for ids in values[COMPLETION_IDS]]
            values[4] = self.accelerator.gather(torch.tensor(sum(counts), device=self.accelerator.device)).sum()
        return tuple(values)

    def _log_sampling(
        self, candidates_MK: Tensor, active_CK: Tensor, accepted: int, rounds: int, kept_B: Tensor
    ) -> None:
        metrics = {
            "dara/sampling/kept_share": accepted / active_CK.shape[0],
            "dara/sampling/rounds": float(rounds),
            "dara/sampling/wasted_rollouts": float((active_CK.shape[0] - len(kept_B)) * self._group_size),
            "dara/sampling/unfilled_groups": float((~kept_B).sum()),
        }
        means_K = candidates_MK.nanmean(dim=0).tolist()
        density_K = active_CK.float().mean(dim=0).tolist()
        for name, mean, density in zip(self.reward_func_names, means_K, density_K, strict=True):
            metrics[f"dara/prefilter/reward/{name}"] = mean
            metrics[f"dara/prefilter/density/{name}"] = density
        for name, value in metrics.items():
            self._metrics["train"][name].append(value)
        if not kept_B.all() and not self._unfilled_said and self.accelerator.is_main_process:
            self._unfilled_said = True
            warnings.warn(
                f"Step {self.state.global_step + 1}: after {rounds} rounds {int((~kept_B).sum())} of {len(kept_B)} "
                "groups still have no signal, and the batch is used as it is (dynamic_sampling_max_rounds). Said "
                "once; dara/sampling/unfilled_groups has every step.",
                stacklevel=2,
            )


def _rows(rewards_NK: Tensor, group: int, size: int) -> Tensor:
    return rewards_NK[group * size : (group + 1) * size]


def _one_entry_a_batch(metrics: dict[str, list[float]], before: dict[str, int], rollouts: list[int]) -> None:
    """TRL logs lengths at each call of `_generate`: a batch's rounds become one figure of all their rollouts."""
    for name, values in metrics.items():
        start = before.get(name, 0)
        new = values[start:]
        if len(new) != len(rollouts) or len(new) == 1:
            continue
        kind = name.rpartition("/")[2][:4]
        if kind in ("min_", "max_"):
            one = min(new) if kind == "min_" else max(new)
        else:
            one = sum(value * count for value, count in zip(new, rollouts, strict=True)) / sum(rollouts)
        values[start:] = [one]


@contextmanager
def replaced(trainer: Any, **methods: Any) -> Iterator[None]:
    """Methods of one object replaced for a while, whether or not they were its own."""
    own = {name: vars(trainer)[name] for name in methods if name in vars(trainer)}
    vars(trainer).update(methods)
    try:
        yield
    finally:
        for name in methods:
            del vars(trainer)[name]
        vars(trainer).update(own)
