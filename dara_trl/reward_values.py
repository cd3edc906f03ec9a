"""Ground floor: what a reward function returned, looked at before it becomes a tensor."""

import inspect
from collections.abc import Callable, Iterable, Mapping, Set
from functools import wraps
from numbers import Real
from typing import Any

from torch import Tensor


WANTED = "a list with one number, or None where the reward does not apply, for each completion"


def checked(func: Callable[..., Any], name: str) -> Callable[..., Any]:
    """The reward function, with its values as floats and None; asynchronous if it is.

    Raises:
        TypeError: when it is called: it returned no list, or a value that is neither a number nor None. TRL's own
            errors do not say of which reward, and it takes the keys of a dict for the rewards.
    """
    if inspect.iscoroutinefunction(func) or inspect.iscoroutinefunction(getattr(func, "__call__", None)):  # noqa: B004

        @wraps(func)
        async def later(*args: Any, **kwargs: Any) -> list[float | None]:
            return reward_values(await func(*args, **kwargs), name)

        return later

    @wraps(func)
    def now(*args: Any, **kwargs: Any) -> list[float | None]:
        return reward_values(func(*args, **kwargs), name)

    return now


def reward_values(values: Any, name: str) -> list[float | None]:
    """The values as floats and None.

    Raises:
        TypeError: as for [`checked`].
    """
    if not isinstance(values, Iterable) or isinstance(values, str | bytes | Mapping | Set):
        raise TypeError(f"Reward '{name}' returned {_short(values)}; it must return {WANTED}.")
    return [_number(value, name, index) for index, value in enumerate(values)]


def _number(value: Any, name: str, index: int) -> float | None:
    if value is None or type(value) is float:
        return value
    if isinstance(value, Real) or (isinstance(value, Tensor) and value.numel() == 1):
        try:
            return float(value)
        except (OverflowError, RuntimeError, TypeError):
            pass
    raise TypeError(
        f"Reward '{name}' returned {_short(value)} for completion {index} of this process; it must return {WANTED}."
    )


def _short(value: Any) -> str:
    if isinstance(value, int):  # one of more than 4,300 digits has no repr
        return f"an int of {value.bit_length()} bits"
    text = repr(value)
    return f"{text if len(text) <= 60 else text[:57] + '...'} ({type(value).__name__})"
