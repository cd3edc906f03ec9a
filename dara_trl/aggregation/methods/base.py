"""What a method is given and what it returns."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from torch import Tensor

from ..groups import GroupSignals, per_reward


@dataclass(frozen=True)
class MethodSettings:
    """The user's settings, already validated. Which of them a method reads is listed in `METHODS`."""

    eps: float
    max_weight: float
    static_weights_K: Tensor | None
    scale_rewards: str


@dataclass(frozen=True)
class Contributions:
    """What each reward contributes to a rollout's score S, the sum over k of its contributions.

    Attributes:
        contributions_KGB: the summands of S, priorities included.
        weights_K: the weight w that the method gave each reward (1 where it weighs none).
        batch_normalize: whether S is to be normalised over the batch; False for methods without that stage.
        at_cap_K: True where a cap held the weight down; None where the method has no cap.
    """

    contributions_KGB: Tensor
    weights_K: Tensor
    batch_normalize: bool = True
    at_cap_K: Tensor | None = None


MethodFunction: TypeAlias = Callable[[GroupSignals, MethodSettings], Contributions]


@dataclass(frozen=True)
class Method:
    """A method's function, its paper, and the optional settings that it reads."""

    function: MethodFunction
    paper: str
    reads: tuple[str, ...] = ()


def amplify(signals: GroupSignals, weights_K: Tensor, *, positive_only: bool) -> Tensor:
    """alpha · w · A, or alpha · (A + (w - 1) · max(A, 0)): the symmetric and the asymmetric form of DARA."""
    contributions_KGB = per_reward(signals.priorities_K) * signals.advantages_KGB
    if positive_only:
        return contributions_KGB.addcmul_(contributions_KGB.clamp(min=0), per_reward(weights_K - 1))
    return contributions_KGB.mul_(per_reward(weights_K))
