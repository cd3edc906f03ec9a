"""The settings of all methods, in one place: `aggregate`, `DARAGRPOConfig` and docs/methods.md read it.

Which method reads which is said in `METHODS`. To add one: a line here, a field of `MethodSettings`, a keyword of
`aggregate` and a field of `DARAGRPOConfig`; a test asks for all four.
"""

from dataclasses import dataclass
from typing import Any

from .batch_norm import BATCH_NORMS


SCALE_REWARDS = ("group", "batch", "none")
CONFLICT_FILTERS = ("none", "hard", "snr")
CALIBRATIONS = ("density", "covariance")


@dataclass(frozen=True)
class Setting:
    """One setting.

    Attributes:
        default: its value if the user says nothing. With None, a method that reads it cannot do without.
        help: one line, also the command line's.
        at_least, at_most: bounds of a number.
        choices: of a word.
        needed: what to give for each reward, where the default is None.
        field: its name in `DARAGRPOConfig`.
    """

    default: Any
    help: str
    at_least: float | None = None
    at_most: float | None = None
    choices: tuple[str, ...] = ()
    needed: str = ""
    field: str = ""


def _named(**settings: Setting) -> dict[str, Setting]:
    """Fills in `field`: TRL's own name, or ours with a prefix."""
    own = {name: "aggregation_" + name for name in settings if name != "scale_rewards"}
    return {name: Setting(**{**vars(setting), "field": own.get(name, name)}) for name, setting in settings.items()}


SETTINGS: dict[str, Setting] = _named(
    max_weight=Setting(5.0, "Cap of DARA's weights, at least 1.", at_least=1),
    static_weights=Setting(None, "One fixed weight for each reward.", needed="one weight for each reward"),
    reward_ranges=Setting(
        None,
        "Lowest and highest possible value of each reward, in order; on the command line one after the other.",
        needed="the lowest and the highest possible value of each reward",
    ),
    saturation_exponent=Setting(0.5, "SA-MRPO's gamma; 0 is GDPO.", at_least=0),
    risk_aversion=Setting(1.0, "RVPO's kappa; 0 is the mean, as in GDPO.", at_least=0),
    conflict_filter=Setting(
        "none",
        f"GD2PO's filter of rollouts whose rewards conflict, one of: {', '.join(CONFLICT_FILTERS)}.",
        choices=CONFLICT_FILTERS,
    ),
    snr_threshold=Setting(
        0.8, "A conflicting rollout is dropped where |sum| / sum of sizes is below it.", at_least=0, at_most=1
    ),
    calibration=Setting(
        "density",
        f"What dara_sym's weights equalise the energy by, one of: {', '.join(CALIBRATIONS)}.",
        choices=CALIBRATIONS,
    ),
    eps=Setting(1e-4, "Added to every standard deviation.", at_least=0),
    batch_norm=Setting(
        "sequence", f"Normalisation over the generation batch, one of: {', '.join(BATCH_NORMS)}.", choices=BATCH_NORMS
    ),
    scale_rewards=Setting("group", "TRL's: what grpo divides by.", choices=SCALE_REWARDS),
)
