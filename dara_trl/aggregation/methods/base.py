"""What a method is given, what it returns, and what is said of it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from torch import Tensor

from ..groups import GroupSignals, per_reward
from ..settings import SETTINGS


@dataclass(frozen=True)
class MethodSettings:
    """The user's settings, already validated; described in `SETTINGS`. Which of them a method reads: `METHODS`.

    `static_weights_K` and `reward_ranges_K2` (lowest, highest) are None unless given.
    """

    eps: float
    max_weight: float
    static_weights_K: Tensor | None
    reward_ranges_K2: Tensor | None
    saturation_exponent: float
    risk_aversion: float
    conflict_filter: str
    snr_threshold: float
    calibration: str
    advantage_clip: float
    scale_rewards: str


@dataclass(frozen=True)
class Contributions:
    """What each reward contributes to a rollout's score S, the sum over k of its contributions.

    Attributes:
        contributions_KGB: the summands of S, priorities included.
        weights_K: the weight w that the method gave each reward (1 where it weighs none). A method that weighs anew
            in every group or rollout says in its docstring what this is the mean of.
        batch_normalize: whether S is to be normalised over the batch; False for methods without that stage.
        at_cap_K: True where a cap held the weight down; None where the method has no cap.
        scores_GB: S, where it is not the sum of the contributions.
        kept_GB: False for rollouts that are dropped: no advantage, and no part in the batch's statistics.
        group_scale_B: what the advantages of a group are multiplied by after batch normalisation.
    """

    contributions_KGB: Tensor
    weights_K: Tensor
    batch_normalize: bool = True
    at_cap_K: Tensor | None = None
    scores_GB: Tensor | None = None
    kept_GB: Tensor | None = None
    group_scale_B: Tensor | None = None


MethodFunction: TypeAlias = Callable[[GroupSignals, MethodSettings], Contributions]


@dataclass(frozen=True)
class Method:
    """A method's function, and what config validation, docs/methods.md and the tests need to know of it.

    Attributes:
        function: from signals and settings to contributions.
        paper: where it is from.
        equation: one line, in the notation of docs/methods.md.
        helps, hurts: when; one line each.
        reads: the settings it reads, names of `SETTINGS`.
        lacks: the invariances it does not have, names of `INVARIANCES` in tests/test_invariances.py, which checks
            that it has all others and really lacks these.
    """

    function: MethodFunction
    paper: str
    equation: str = ""
    helps: str = ""
    hurts: str = ""
    reads: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()

    @property
    def needs(self) -> tuple[str, ...]:
        """The settings that it reads and that have no default."""
        return tuple(name for name in self.reads if SETTINGS[name].default is None)


def amplify(signals: GroupSignals, weights_K: Tensor, *, positive_only: bool) -> Tensor:
    """alpha · w · A, or alpha · (A + (w - 1) · max(A, 0)): the symmetric and the asymmetric form of DARA."""
    contributions_KGB = per_reward(signals.priorities_K) * signals.advantages_KGB
    if positive_only:
        return contributions_KGB.addcmul_(contributions_KGB.clamp(min=0), per_reward(weights_K - 1))
    return contributions_KGB.mul_(per_reward(weights_K))


def reward_position(signals: GroupSignals, settings: MethodSettings) -> Tensor:
    """Where each reward lies in its known range: 0 at the lowest, 1 at the highest possible value, NaN where None.

    Raises:
        ValueError: there are no `reward_ranges`.
    """
    if settings.reward_ranges_K2 is None:
        raise ValueError("This method needs reward_ranges, the lowest and the highest possible value of each reward.")
    low_K, high_K = settings.reward_ranges_K2.unbind(dim=1)
    return ((signals.rewards_KGB - per_reward(low_K)) / per_reward(high_K - low_K)).clamp(0, 1)


def mean_over_active(values_KB: Tensor, signals: GroupSignals) -> Tensor:
    """Mean of a group's value over the groups that are active in the reward, shape (K,); 1 where none is."""
    count_K = signals.active_KB.sum(dim=1)
    mean_K = (values_KB * signals.active_KB).sum(dim=1) / count_K.clamp(min=1)
    return mean_K.masked_fill(count_K == 0, 1.0)
