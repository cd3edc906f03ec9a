"""The settings of all methods, in one place: `aggregate`, `DARAGRPOConfig` and docs/methods.md read it.

Which method reads which is said in `METHODS`. To add one: an entry here, a field of `MethodSettings`, a keyword of
`aggregate` and a field of `DARAGRPOConfig`; a test asks for all four.
"""

from dataclasses import dataclass
from typing import Any

from .batch_norm import BATCH_NORMS


@dataclass(frozen=True)
class Setting:
    """One setting.

    Attributes:
        name: as `aggregate` calls it.
        default: its value if the user says nothing. With None, a method that reads it cannot do without.
        help: one line, also the command line's.
        at_least, at_most: bounds of a number.
        choices: of a word.
        needed: what to give for each reward, where the default is None.
    """

    name: str
    default: Any
    help: str
    at_least: float | None = None
    at_most: float | None = None
    choices: tuple[str, ...] = ()
    needed: str = ""

    @property
    def field(self) -> str:
        """Its name in `DARAGRPOConfig`: TRL's own, or ours."""
        return self.name if self.name == "scale_rewards" else "aggregation_" + self.name


SETTINGS: dict[str, Setting] = {
    setting.name: setting
    for setting in (
        Setting("max_weight", 5.0, "Cap of DARA's weights, at least 1.", at_least=1),
        Setting("static_weights", None, "One fixed weight for each reward.", needed="one weight for each reward"),
        Setting(
            "reward_ranges",
            None,
            "Lowest and highest possible value of each reward, in order; on the command line one after the other.",
            needed="the lowest and the highest possible value of each reward",
        ),
        Setting("saturation_exponent", 0.5, "SA-MRPO's gamma; 0 is GDPO.", at_least=0),
        Setting("risk_aversion", 1.0, "RVPO's kappa; 0 is the mean, as in GDPO.", at_least=0),
        Setting(
            "conflict_filter",
            "none",
            "GD2PO's filter of rollouts whose rewards conflict: none, hard, snr.",
            choices=("none", "hard", "snr"),
        ),
        Setting(
            "snr_threshold",
            0.8,
            "Of the snr filter: a conflicting rollout is dropped if |sum| / (sum of sizes) is below it.",
            at_least=0,
            at_most=1,
        ),
        Setting(
            "calibration",
            "density",
            "What dara_sym's weights are found by: density, or covariance (equal marginal energies).",
            choices=("density", "covariance"),
        ),
        Setting(
            "advantage_clip",
            0.0,
            "Largest size of a reward's group advantage, in its standard deviations; 0 is no limit.",
            at_least=0,
        ),
        Setting("eps", 1e-4, "Added to every standard deviation.", at_least=0),
        Setting(
            "batch_norm",
            "sequence",
            f"Normalisation over the generation batch: {', '.join(BATCH_NORMS)}.",
            choices=BATCH_NORMS,
        ),
        Setting("scale_rewards", "group", "TRL's: what grpo divides by.", choices=("group", "batch", "none")),
    )
}
