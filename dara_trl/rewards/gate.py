"""Conditioned rewards (GDPO, arXiv 2601.05242, Eq. 8): a reward that counts only where another is earned."""

import inspect
from collections.abc import Callable, Sequence
from functools import partial
from numbers import Real
from typing import Any

from ..telemetry import partial_name


def gate(reward: Callable, *, on: Callable, above: float, otherwise: float = 0.0, name: str | None = None) -> Callable:
    """
    The reward where `on` gives at least `above`, and `otherwise` elsewhere: an easy reward (a length limit) can then
    not be earned without the hard one (correctness).

    For any `GRPOTrainer`: the result is a reward function like the two, and can be pickled if they can. It calls `on`
    once more than the trainer does. A rollout to which either does not apply (`None`) gets `None`. If one of the two
    is asynchronous, so is the result, an object with an asynchronous `__call__` (TRL 1.6 does not know those).

    Args:
        reward (`Callable`): reward function that is conditioned.
        on (`Callable`): reward function that is the condition.
        above (`float`): smallest value of `on` for which the gate is open (`>=`, as in Eq. 8).
        otherwise (`float`, *optional*, defaults to `0.0`): the reward where the gate is closed.
        name (`str`, *optional*): its name in the logs. Default: `<reward>_given_<on>`.

    Example:

    ```python
    reward_funcs = [correctness, gate(short_enough, on=correctness, above=1.0)]
    ```

    Raises:
        TypeError: `reward` or `on` is no function (a reward model has to be wrapped in one); `above` or `otherwise` is
            no number.
        ValueError: while training, one of them returned another number of rewards than there are completions.
    """
    for field, function in (("reward", reward), ("on", on)):
        if not callable(function) or hasattr(function, "parameters"):
            raise TypeError(f"{field} must be a reward function, not {type(function).__name__}: wrap it in one.")
    for field, value in (("above", above), ("otherwise", otherwise)):
        if not isinstance(value, Real) or isinstance(value, bool) or value != value:
            raise TypeError(f"{field} must be a number, not {value!r}.")
    kind = _AsyncGate if _is_async(reward) or _is_async(on) else _Gate
    return kind(reward, on, float(above), float(otherwise), name or f"{partial_name(reward)}_given_{partial_name(on)}")


class _Gate:
    def __init__(self, reward: Callable, on: Callable, above: float, otherwise: float, name: str) -> None:
        self.reward, self.on, self.above, self.otherwise = reward, on, above, otherwise
        self.__name__ = name

    def __call__(self, completions: Sequence[Any], **kwargs: Any) -> Any:
        values = self.reward(completions=completions, **kwargs)
        return self._gated(completions, values, self.on(completions=completions, **_silent(kwargs)))

    def _gated(self, completions: Sequence[Any], values: Any, conditions: Any) -> list[float | None]:
        values, conditions = list(values), list(conditions)
        for field, function, given in (("reward", self.reward, values), ("on", self.on, conditions)):
            if len(given) != len(completions):
                raise ValueError(
                    f"{self.__name__}: {field}, {partial_name(function)}, returned {len(given)} rewards for "
                    f"{len(completions)} completions."
                )
        return [
            None if _absent(value) or _absent(condition) else value if condition >= self.above else self.otherwise
            for value, condition in zip(values, conditions, strict=True)
        ]


class _AsyncGate(_Gate):
    async def __call__(self, completions: Sequence[Any], **kwargs: Any) -> Any:
        values = self.reward(completions=completions, **kwargs)
        values = await values if inspect.isawaitable(values) else values
        conditions = self.on(completions=completions, **_silent(kwargs))
        conditions = await conditions if inspect.isawaitable(conditions) else conditions
        return self._gated(completions, values, conditions)


def _silent(kwargs: dict[str, Any]) -> dict[str, Any]:
    """`on` has been logged by the trainer's own call already."""
    deaf = {"log_extra": lambda column, values: None, "log_metric": lambda name, value: None}
    return kwargs | {key: value for key, value in deaf.items() if key in kwargs}


def _absent(value: Any) -> bool:
    return value is None or value != value


def _is_async(function: Callable) -> bool:
    while isinstance(function, partial):
        function = function.func
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004
