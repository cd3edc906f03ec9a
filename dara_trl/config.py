"""Top floor: the training configuration. `GRPOConfig`, and how rewards are aggregated and groups sampled."""

import math
import pickle
from dataclasses import dataclass, field
from typing import Any

from trl import GRPOConfig

from .aggregation import METHODS
from .aggregation.batch_norm import BATCH_NORMS
from .aggregation.core import SCALE_REWARDS


KEEP = ("any", "all")


@dataclass
class DARAGRPOConfig(GRPOConfig):
    # docstyle-ignore
    r"""
    Configuration of [`DARAGRPOTrainer`]: all of [`~trl.GRPOConfig`], and how rewards are aggregated.

    Args:
        aggregation (`str`, *optional*, defaults to `"dara_asym"`):
            Aggregation method. `"dara_sym"` and `"dara_asym"` (DARA, https://huggingface.co/papers/2610.00574) weigh
            each reward by the square root of (largest density of any reward / its own density), `"dara_asym"` only
            where it praises, i.e. where its group advantage is positive. `"gdpo"` weighs none
            (https://huggingface.co/papers/2601.05242), `"static_sym"` and `"static_asym"` have fixed weights in their
            place, and `"grpo"` leaves TRL's own advantages untouched. From Python, also a function as [`aggregate`]
            takes it.
        aggregation_max_weight (`float`, *optional*, defaults to `5.0`):
            Cap of DARA's weights, at least 1. Read by `dara_*`.
        aggregation_static_weights (`list[float]`, *optional*):
            One weight for each reward. Needed by `static_*`, refused with any other method.
        aggregation_eps (`float`, *optional*, defaults to `1e-4`):
            Added to every standard deviation: TRL's value. Fixed for `"grpo"`.
        aggregation_batch_norm (`str`, *optional*, defaults to `"sequence"`):
            How the summed rewards are normalised over the generation batch: each rollout counted once (`"sequence"`,
            TRL), by its tokens (`"token"`, verl and the published DARA code), or not at all (`"none"`).
        dynamic_sampling (`bool`, *optional*, defaults to `False`):
            Replace the groups of a generation batch that have no signal by groups of fresh prompts (DAPO,
            https://huggingface.co/papers/2503.14476), before the batch is used. Evaluation is not touched.
        dynamic_sampling_keep (`str`, *optional*, defaults to `"any"`):
            Keep a group if `"any"` of the rewards that are trained on tells two of its rollouts apart, or only if
            `"all"` of those do that apply to it.
        dynamic_sampling_max_rounds (`int`, *optional*, defaults to `10`):
            Rounds of generation for one batch, the first included. After the last the batch is used as it is, with a
            warning.

    Raises:
        ValueError: a field out of its range, or set although the method does not read it.
    """

    # A function is allowed too, but the type is what the command line's parser reads.
    aggregation: str = field(
        default="dara_asym",
        metadata={"help": f"Aggregation method, one of: {', '.join(METHODS)}."},
    )
    aggregation_max_weight: float = field(
        default=5.0, metadata={"help": "Cap of DARA's weights, at least 1. Read by dara_*."}
    )
    aggregation_static_weights: list[float] | None = field(
        default=None, metadata={"help": "One weight for each reward. Needed by static_*, refused with other methods."}
    )
    aggregation_eps: float = field(
        default=1e-4, metadata={"help": "Added to every standard deviation. Fixed for grpo."}
    )
    aggregation_batch_norm: str = field(
        default="sequence",
        metadata={"help": f"Normalisation over the generation batch, one of: {', '.join(BATCH_NORMS)}."},
    )
    dynamic_sampling: bool = field(
        default=False, metadata={"help": "Replace groups without signal by groups of fresh prompts."}
    )
    dynamic_sampling_keep: str = field(
        default="any", metadata={"help": "Keep a group in which any reward is active, or only if all are: any, all."}
    )
    dynamic_sampling_max_rounds: int = field(
        default=10, metadata={"help": "Rounds of generation for one batch, the first included."}
    )

    def __post_init__(self) -> None:
        # YAML 1.1 reads 1e-1 as a string, and lists are not converted by the parser.
        self.aggregation_max_weight = _number("aggregation_max_weight", self.aggregation_max_weight, at_least=1)
        self.aggregation_eps = _number("aggregation_eps", self.aggregation_eps, at_least=0)
        self.aggregation_static_weights = _numbers("aggregation_static_weights", self.aggregation_static_weights)
        self.reward_weights = _numbers("reward_weights", self.reward_weights, "; to punish, negate the reward itself")
        if self.aggregation_batch_norm not in BATCH_NORMS:
            raise ValueError(
                f"aggregation_batch_norm must be one of {', '.join(BATCH_NORMS)}, not {self.aggregation_batch_norm!r}."
            )
        self._check_dynamic_sampling()
        if self.multi_objective_aggregation not in ("sum_then_normalize", "normalize_then_sum"):
            raise ValueError(
                "multi_objective_aggregation must be sum_then_normalize or normalize_then_sum, not "
                f"{self.multi_objective_aggregation!r}; better drop it, as aggregation replaces it."
            )
        as_names: dict[Any, str] = {True: "group", False: "none"}
        given = self.scale_rewards
        scale_rewards = as_names.get(given, given) if isinstance(given, bool | str) else repr(given)
        if scale_rewards not in SCALE_REWARDS:
            raise ValueError(f"scale_rewards must be one of {', '.join(SCALE_REWARDS)}, not {self.scale_rewards!r}.")
        for name, method in METHODS.items():
            if self.aggregation is method.function:
                self.aggregation = name
        if isinstance(self.aggregation, str):
            self._refuse_unread_settings(scale_rewards)
        elif not callable(self.aggregation):
            raise ValueError(f"aggregation must be one of {', '.join(METHODS)}, or a function: {self.aggregation!r}.")
        else:
            self._check_function()
        super().__post_init__()

    def _check_dynamic_sampling(self) -> None:
        if not isinstance(self.dynamic_sampling, bool):
            raise ValueError(f"dynamic_sampling must be true or false, not {self.dynamic_sampling!r}.")
        if self.dynamic_sampling_keep not in KEEP:
            raise ValueError(
                f"dynamic_sampling_keep must be one of {', '.join(KEEP)}, not {self.dynamic_sampling_keep!r}."
            )
        rounds = self.dynamic_sampling_max_rounds
        if not isinstance(rounds, int) or isinstance(rounds, bool) or rounds < 1:
            raise ValueError(f"dynamic_sampling_max_rounds must be a whole number of at least 1, not {rounds!r}.")
        if not self.dynamic_sampling and (self.dynamic_sampling_keep, rounds) != ("any", 10):
            raise ValueError("dynamic_sampling_keep and dynamic_sampling_max_rounds need dynamic_sampling=True.")

    def _check_function(self) -> None:
        if self.multi_objective_aggregation != "sum_then_normalize":
            raise ValueError("multi_objective_aggregation contradicts a function given as aggregation: drop it.")
        try:
            pickle.dumps(self.aggregation)
        except Exception as error:
            raise ValueError(
                "A function given as aggregation is stored with each checkpoint, so it must be defined at the top "
                f"level of a module, not as a lambda or inside a function: {self.aggregation!r} ({error})."
            ) from error

    def _refuse_unread_settings(self, scale_rewards: str) -> None:
        method = METHODS.get(self.aggregation)
        if method is None:
            raise ValueError(f"aggregation must be one of {', '.join(METHODS)}, not {self.aggregation!r}.")
        given: dict[str, tuple[str, Any, Any]] = {  # what the method calls it: the field, its value, its default
            "max_weight": ("aggregation_max_weight", self.aggregation_max_weight, 5.0),
            "static_weights": ("aggregation_static_weights", self.aggregation_static_weights, None),
            "batch_norm": ("aggregation_batch_norm", self.aggregation_batch_norm, "sequence"),
            "scale_rewards": ("scale_rewards", scale_rewards, "group"),
        }
        for setting, (name, value, default) in given.items():
            if value != default and setting not in method.reads:
                readers = [other for other, candidate in METHODS.items() if setting in candidate.reads]
                raise ValueError(
                    f"{name}={value!r} has no effect with aggregation={self.aggregation!r}: drop it, or use "
                    f"{'' if len(readers) == 1 else 'one of '}{', '.join(readers)}."
                )
        if "static_weights" in method.reads and not self.aggregation_static_weights:
            raise ValueError(
                f"aggregation={self.aggregation!r} needs aggregation_static_weights, one for each reward."
            )
        if self.aggregation == "grpo" and self.aggregation_eps != 1e-4:
            raise ValueError(
                "aggregation_eps has no effect with aggregation='grpo', where TRL's 1e-4 stands: drop it."
            )
        if self.multi_objective_aggregation != "sum_then_normalize" and self.aggregation != "gdpo":
            raise ValueError(
                f"multi_objective_aggregation={self.multi_objective_aggregation!r} contradicts "
                f"aggregation={self.aggregation!r}, which replaces it: drop multi_objective_aggregation. "
                "(TRL's 'normalize_then_sum' is aggregation='gdpo', its 'sum_then_normalize' aggregation='grpo'.)"
            )

    def to_dict(self) -> dict[str, Any]:
        """As in `TrainingArguments`, with a function given as `aggregation` replaced by its name: JSON has none."""
        fields = super().to_dict()
        if callable(self.aggregation):
            fields["aggregation"] = getattr(self.aggregation, "__qualname__", type(self.aggregation).__qualname__)
        return fields


def _number(name: str, value: Any, *, at_least: float, advice: str = "") -> float:
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not at_least <= number < math.inf:
        raise ValueError(f"{name} must be a finite number of at least {at_least}, not {value!r}{advice}.")
    return number


def _numbers(name: str, values: Any, advice: str = "") -> list[float] | None:
    if values is None:
        return None
    if not isinstance(values, list | tuple):
        raise ValueError(f"{name} must be a list of numbers, one for each reward, not {values!r}.")
    return [_number(f"{name}[{k}]", value, at_least=0, advice=advice) for k, value in enumerate(values)]
