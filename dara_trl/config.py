"""Top floor: the training configuration. `GRPOConfig`, and how rewards are aggregated and groups sampled."""

import math
import pickle
from dataclasses import dataclass, field
from typing import Any

from trl import GRPOConfig

from .aggregation import METHODS, SETTINGS


def _help(name: str) -> dict[str, str]:
    """The command line's help of a setting, and the methods that read it."""
    readers = [method for method, candidate in METHODS.items() if name in candidate.reads]
    return {"help": f"{SETTINGS[name].help} Read by {', '.join(readers)}."}


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
            place, and `"grpo"` leaves TRL's own advantages untouched. docs/methods.md compares these and the peers:
            `"mo_grpo"`, `"corr_grpo"`, `"dvao"`, `"saw"`, `"sa_mrpo"`, `"gd2po_hard"`, `"gd2po_snr"` and `"rvpo"`.
            From Python, also a function as [`aggregate`] takes it.
        aggregation_max_weight (`float`, *optional*, defaults to `5.0`):
            Cap of DARA's weights, at least 1. Read by `dara_*`.
        aggregation_static_weights (`list[float]`, *optional*):
            One weight for each reward. Needed by `static_*`, refused with any other method.
        aggregation_reward_ranges (`list[list[float]]`, *optional*):
            Lowest and highest possible value of each reward, needed by `saw` and `sa_mrpo`: pairs, or the numbers one
            after the other, as on the command line. A reward outside its range ends the training with an error.
        aggregation_saturation_exponent (`float`, *optional*, defaults to `0.5`):
            γ of `sa_mrpo`, at least 0.
        aggregation_risk_aversion (`float`, *optional*, defaults to `1.0`):
            κ of `rvpo`, at least 0.
        aggregation_conflict_filter (`str`, *optional*, defaults to `"none"`):
            With `dara_*`: drop the rollouts whose rewards conflict, as `gd2po_hard` (`"hard"`) or `gd2po_snr`
            (`"snr"`) does.
        aggregation_snr_threshold (`float`, *optional*, defaults to `0.8`):
            τ of `gd2po_snr` and of `"snr"`, from 0 to 1.
        aggregation_calibration (`str`, *optional*, defaults to `"density"`):
            With `dara_sym`: `"covariance"` equalises the rewards' marginal energies, given how they correlate.
        aggregation_advantage_clip (`float`, *optional*, defaults to `0.0`):
            Largest size of a reward's group advantage, in its standard deviations, before it is weighed and summed; 0
            is no limit. With few successes in a large group one rollout's is up to `(G - 1) / sqrt(G)`.
        aggregation_eps (`float`, *optional*, defaults to `1e-4`):
            Added to every standard deviation: TRL's value. Fixed for `grpo`, `dvao` and `corr_grpo`.
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
    aggregation_max_weight: float = field(default=SETTINGS["max_weight"].default, metadata=_help("max_weight"))
    aggregation_static_weights: list[float] | None = field(
        default=SETTINGS["static_weights"].default, metadata=_help("static_weights")
    )
    aggregation_reward_ranges: list[float] | None = field(
        default=SETTINGS["reward_ranges"].default, metadata=_help("reward_ranges")
    )
    aggregation_saturation_exponent: float = field(
        default=SETTINGS["saturation_exponent"].default, metadata=_help("saturation_exponent")
    )
    aggregation_risk_aversion: float = field(
        default=SETTINGS["risk_aversion"].default, metadata=_help("risk_aversion")
    )
    aggregation_conflict_filter: str = field(
        default=SETTINGS["conflict_filter"].default, metadata=_help("conflict_filter")
    )
    aggregation_snr_threshold: float = field(
        default=SETTINGS["snr_threshold"].default, metadata=_help("snr_threshold")
    )
    aggregation_calibration: str = field(default=SETTINGS["calibration"].default, metadata=_help("calibration"))
    aggregation_advantage_clip: float = field(
        default=SETTINGS["advantage_clip"].default, metadata=_help("advantage_clip")
    )
    aggregation_eps: float = field(default=SETTINGS["eps"].default, metadata=_help("eps"))
    aggregation_batch_norm: str = field(default=SETTINGS["batch_norm"].default, metadata=_help("batch_norm"))
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
        as_names: dict[Any, str] = {True: "group", False: "none"}
        values: dict[str, Any] = {}
        for name, setting in SETTINGS.items():
            value = getattr(self, setting.field)
            if name == "scale_rewards":  # TRL's own, which it reads itself
                value = as_names.get(value, value) if isinstance(value, bool | str) else repr(value)
            if setting.choices and value not in setting.choices:
                raise ValueError(f"{setting.field} must be one of {', '.join(setting.choices)}, not {value!r}.")
            # YAML 1.1 reads 1e-1 as a string, and lists are not converted by the parser.
            if setting.at_least is not None:
                value = _number(setting.field, value, at_least=setting.at_least, at_most=setting.at_most)
                setattr(self, setting.field, value)
            values[name] = value
        self.aggregation_static_weights = _numbers("aggregation_static_weights", self.aggregation_static_weights)
        self.aggregation_reward_ranges = _pairs("aggregation_reward_ranges", self.aggregation_reward_ranges)
        self.reward_weights = _numbers("reward_weights", self.reward_weights, "; to punish, negate the reward itself")
        self._check_dynamic_sampling()
        if self.multi_objective_aggregation not in ("sum_then_normalize", "normalize_then_sum"):
            raise ValueError(
                "multi_objective_aggregation must be sum_then_normalize or normalize_then_sum, not "
                f"{self.multi_objective_aggregation!r}; better drop it, as aggregation replaces it."
            )
        for name, method in METHODS.items():
            if self.aggregation is method.function:
                self.aggregation = name
        if isinstance(self.aggregation, str):
            self._refuse_unread_settings(values)
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

    def _refuse_unread_settings(self, values: dict[str, Any]) -> None:
        method = METHODS.get(self.aggregation)
        if method is None:
            raise ValueError(f"aggregation must be one of {', '.join(METHODS)}, not {self.aggregation!r}.")
        for name, value in values.items():
            if value != SETTINGS[name].default and name not in method.reads:
                readers = [other for other, candidate in METHODS.items() if name in candidate.reads]
                raise ValueError(
                    f"{SETTINGS[name].field}={value!r} has no effect with aggregation={self.aggregation!r}: drop it, "
                    f"or use {'' if len(readers) == 1 else 'one of '}{', '.join(readers)}."
                )
        unfiltered = "conflict_filter" in method.reads and values["conflict_filter"] != "snr"
        if unfiltered and values["snr_threshold"] != SETTINGS["snr_threshold"].default:
            raise ValueError(
                f"aggregation_snr_threshold={values['snr_threshold']!r} has no effect without "
                "aggregation_conflict_filter='snr'."
            )
        for name in method.needs:
            if not values[name]:
                raise ValueError(
                    f"aggregation={self.aggregation!r} needs {SETTINGS[name].field}, {SETTINGS[name].needed}."
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


def _number(name: str, value: Any, *, at_least: float, at_most: float | None = None, advice: str = "") -> float:
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        number = math.nan
    if at_most is not None and not at_least <= number <= at_most:
        raise ValueError(f"{name} must be a number from {at_least:g} to {at_most:g}, not {value!r}{advice}.")
    if not at_least <= number < math.inf:
        raise ValueError(f"{name} must be a finite number of at least {at_least:g}, not {value!r}{advice}.")
    return number


def _numbers(name: str, values: Any, advice: str = "") -> list[float] | None:
    if values is None:
        return None
    if not isinstance(values, list | tuple):
        raise ValueError(f"{name} must be a list of numbers, one for each reward, not {values!r}.")
    return [_number(f"{name}[{k}]", value, at_least=0, advice=advice) for k, value in enumerate(values)]


def _pairs(name: str, values: Any) -> Any:
    """[[lowest, highest], ...] from that, or from the numbers one after the other."""
    if values is None:
        return None
    advice = "two numbers for each reward, its lowest and its highest possible value"
    if not isinstance(values, list | tuple):
        raise ValueError(f"{name} must be a list of {advice}, not {values!r}.")
    flat = [number for pair in values for number in (pair if isinstance(pair, list | tuple) else [pair])]
    nested = [isinstance(pair, list | tuple) for pair in values]
    paired = all(isinstance(pair, list | tuple) and len(pair) == 2 for pair in values)
    if len(flat) % 2 or (any(nested) and not paired):
        raise ValueError(f"{name} must be {advice}, not {values!r}.")
    numbers = [_number(f"{name}[{k // 2}]", number, at_least=-math.inf) for k, number in enumerate(flat)]
    pairs = [list(pair) for pair in zip(numbers[::2], numbers[1::2], strict=True)]
    for k, (low, high) in enumerate(pairs):
        if not -math.inf < low < high:
            raise ValueError(f"{name}[{k}] must be two numbers, the lowest below the highest, not {[low, high]!r}.")
    return pairs
