"""Top floor: the seam to TRL. Only how rewards become advantages, and what is logged, differ from `GRPOTrainer`."""

import os
import textwrap
from contextlib import nullcontext
from functools import partial, wraps
from typing import Any

import torch
from torch import Tensor
from trl import GRPOTrainer
from trl.trainer.utils import get_config_model_id

from .aggregation import METHODS, SETTINGS, AggregationResult, aggregate
from .callbacks import RewardSchedule
from .config import DARAGRPOConfig
from .dynamic_sampling import DynamicSamplingGRPOTrainer, replaced
from .metrics_file import VARIABLE, MetricsFileCallback
from .reward_values import checked
from .telemetry import SignalWarnings, batch_metrics, partial_name, unique_reward_names
from .vllm_server import VLLMServer


class DARAGRPOTrainer(DynamicSamplingGRPOTrainer):
    """
    [`~trl.GRPOTrainer`] in which each reward counts by how much signal it gives in the generation batch.

    The only change to GRPO: the rewards of the whole generation batch, gathered over all processes, are turned into
    advantages by [`aggregate`] with the method named in [`DARAGRPOConfig`] (DARA: https://huggingface.co/papers/2610.00574).
    Sampling, the policy objective and everything else are TRL's. With `aggregation="grpo"` TRL's advantages stand.

    Takes the arguments of [`~trl.GRPOTrainer`]; `args` is a [`DARAGRPOConfig`]. A resumed run equals an uninterrupted
    one, see [`ResumableGRPOTrainer`].

    Example:

    ```python
    from dara_trl import DARAGRPOConfig, DARAGRPOTrainer

    trainer = DARAGRPOTrainer(
        model="Qwen/Qwen2.5-1.5B-Instruct",
        reward_funcs=[correctness, format_],
        args=DARAGRPOConfig(aggregation="dara_asym"),
        train_dataset=dataset,
    )
    trainer.train()
    ```

    Raises:
        TypeError: `args` is a plain `GRPOConfig`.
        ValueError: a reward's name would overwrite a column of the completions table; weights whose number is not that
            of the rewards; during training, a reward that is infinite, or a dataset too small for one step.
        TypeError: during training, a reward function returned something else than numbers and None.
        VLLMServerError: the server of `vllm_mode="server"` is absent, does not fit, or dies during training.
    """

    _tag_names = ["trl", "grpo", "dara"]  # noqa: RUF012 (TRL declares them so)
    _name = "DARA"
    _paper = {  # noqa: RUF012
        "title": "Make Sparse Rewards Count: Density-Aware Reward Aggregation for Multi-Reward RL",
        "id": "2610.00574",
        # docstyle-ignore
        "citation": textwrap.dedent("""\
            @article{dara2026,
                title        = {{Make Sparse Rewards Count: Density-Aware Reward Aggregation for Multi-Reward RL}},
                year         = 2026,
                eprint       = {arXiv:2610.00574},
            }"""),
    }

    args: DARAGRPOConfig

    @wraps(GRPOTrainer.__init__)  # type: ignore[misc]  # help and notebooks show TRL's arguments
    def __init__(
        self, model: Any, reward_funcs: Any = None, args: DARAGRPOConfig | None = None, *rest: Any, **kwargs: Any
    ) -> None:
        if args is None:
            name = model if isinstance(model, str) else get_config_model_id(model.config)
            args = DARAGRPOConfig(f"{name.split('/')[-1]}-DARA")
        elif not isinstance(args, DARAGRPOConfig):
            raise TypeError(f"args must be a DARAGRPOConfig, not {type(args).__name__}; it takes the same fields.")
        for func in reward_funcs if isinstance(reward_funcs, list) else [reward_funcs]:
            if isinstance(func, partial) and not hasattr(func, "__name__"):  # which TRL 1.6 reads
                func.__name__ = partial_name(func)  # type: ignore[attr-defined]
        self._vllm_server = VLLMServer.of(args, model)
        with self._watching_vllm():
            super().__init__(model, reward_funcs, args, *rest, **kwargs)
        if self._vllm_server is not None:
            self._vllm_server.attach(self.vllm_generation.vllm_client)
        # Only now: an environment's `get_reward` joins the reward functions inside super().__init__.
        self.reward_func_names = unique_reward_names(self.reward_func_names)
        for callback in self.callback_handler.callbacks:
            if isinstance(callback, RewardSchedule):
                callback.bind(self)
        own_std = not isinstance(args.aggregation, str) or "eps" in METHODS[args.aggregation].reads
        self._signal_warnings = SignalWarnings(self.reward_func_names, args.aggregation_eps if own_std else None)
        if metrics_file := os.environ.get(VARIABLE):
            self.add_callback(MetricsFileCallback(metrics_file))
        # Settings that depend on the number of rewards fail here, not after the first generation. A user's function
        # may keep count, so it is not called for this.
        for field in (setting.field for setting in SETTINGS.values() if setting.needed):
            given = getattr(args, field)
            if given is not None and len(given) != len(self.reward_funcs):
                raise ValueError(
                    f"{field} has {len(given)} entries, but there are {len(self.reward_funcs)} rewards: "
                    f"{', '.join(self.reward_func_names)}."
                )
        if isinstance(args.aggregation, str):
            self._aggregate(torch.full((1, len(self.reward_funcs)), torch.nan), 1, torch.ones(1))

    def add_callback(self, callback: Any) -> None:
        super().add_callback(callback)
        added = self.callback_handler.callbacks[-1]  # made here, if a class was given
        if isinstance(added, RewardSchedule):
            added.bind(self)

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        with self._watching_vllm():
            output = super()._generate_and_score_completions(inputs)
        mode = "train" if self.model.training else "eval"  # type: ignore[union-attr]
        num_generations: int = self.num_generations if mode == "train" else self.num_generations_eval  # type: ignore
        rewards_NK, lengths_N = self._to_host(output)
        result = self._aggregate(rewards_NK, num_generations, lengths_N)

        metrics = batch_metrics(result, self.reward_func_names)
        if self.args.aggregation != "grpo":
            self._replace_advantages(output, result.advantages_N)
            # TRL's figure speaks of its own sum; here a group's std is zero where no reward is active.
            self._metrics[mode]["frac_reward_zero_std"][-1] = metrics["dara/frac_groups_without_signal"]
        for callback in self.callback_handler.callbacks:
            if isinstance(callback, RewardSchedule):
                k = self.reward_func_names.index(callback.reward)
                metrics[f"dara/priority/{callback.reward}"] = float(self.reward_weights[k])
        for name, value in metrics.items():
            self._metrics[mode][name].append(value)
        if mode == "train" and self.accelerator.is_main_process:
            self._signal_warnings.check(result, self.state.global_step + 1)
        return output

    def _calculate_rewards(self, *args: Any, **kwargs: Any) -> Tensor:
        funcs = [
            checked(func, name) if callable(func) and not isinstance(func, torch.nn.Module) else func
            for func, name in zip(self.reward_funcs, self.reward_func_names, strict=True)
        ]
        with replaced(self, reward_funcs=funcs):
            rewards_NK: Tensor = super()._calculate_rewards(*args, **kwargs)
        return rewards_NK

    def _watching_vllm(self) -> Any:
        return nullcontext() if self._vllm_server is None else self._vllm_server.watch()

    def _to_host(self, output: dict[str, Any]) -> tuple[Tensor, Tensor | None]:
        """The gathered rewards, and the completions' lengths where they are needed, in one transfer.

        N·K numbers are few enough that the mathematics costs less on the host than its kernel launches on a GPU.
        """
        rewards_NK, self._gathered_rewards_NK = self._gathered_rewards_NK, None
        assert rewards_NK is not None
        if self.args.aggregation_batch_norm != "token":
            return rewards_NK.cpu(), None
        mask = output["completion_mask"] * output.get("tool_mask", 1)
        lengths_N = self.accelerator.gather(mask.sum(dim=1))
        both = torch.cat([rewards_NK, lengths_N.to(rewards_NK).unsqueeze(1)], dim=1).cpu()
        return both[:, :-1].contiguous(), both[:, -1]

    def _aggregate(self, rewards_NK: Tensor, num_generations: int, lengths_N: Tensor | None) -> AggregationResult:
        return aggregate(
            rewards_NK,
            num_generations=num_generations,
            method=self.args.aggregation,
            reward_weights=self.reward_weights,
            lengths_N=lengths_N,
            reward_names=self.reward_func_names,
            **{name: getattr(self.args, setting.field) for name, setting in SETTINGS.items()},
        )

    def _replace_advantages(self, output: dict[str, Any], advantages_N: Tensor) -> None:
        """This process's slice goes to the loss; the completions table gets what was trained on."""
        local = output["advantages"].shape[0]
        start = self.accelerator.process_index * local
        output["advantages"] = advantages_N[start : start + local].to(output["advantages"])
        logged: Any = self._logs["advantages"]  # bounded by the generation batch; super() appended N of TRL's
        for _ in range(min(len(advantages_N), len(logged))):
            logged.pop()
        logged.extend(advantages_N.tolist())

    def _log_completion_extra(self, column: str, values: list) -> None:
        if column in self.reward_func_names:
            raise ValueError(
                f"log_extra column {column!r} would overwrite the reward of that name: rename the column."
            )
        super()._log_completion_extra(column, values)
