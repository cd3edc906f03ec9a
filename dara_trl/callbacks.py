"""Middle floor: density as a control signal. Callbacks that stop, weigh and select by rewards' means and densities.

All of them are functions of the run's log, so a resumed run goes on as if nothing had happened.
"""

import math
import warnings
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any

from transformers import TrainerCallback


RULE = "dara/rule"
NOT_MET = -1e6


class DensityEarlyStopping(TrainerCallback):
    """
    Ends the training when a reward has stopped telling rollouts apart.

    Its density must have reached `peak` once, and then have been below `below` in each log of the last `steps` steps.
    If its mean over these is at least `solved`, the reward is *saturated*: it has nothing left to teach. Else it is
    *too hard*: rollouts hardly ever earn it any more. A reward that has never been dense is left alone, as it may be
    about to rise.

    Args:
        reward (`str`): name of the reward, as in `dara/density/<reward>`.
        solved (`float`): the mean reward from which it counts as saturated.
        below (`float`, *optional*, defaults to `0.05`): level of the density.
        steps (`int`, *optional*, defaults to `20`): for how long.
        peak (`float`, *optional*): the density that must have been there before. Default: twice `below`.
        stop_if (`str`, *optional*, defaults to `"either"`): `"saturated"`, `"too_hard"` or `"either"`.

    Attributes:
        reason (`str` or None): `"saturated"` or `"too_hard"`, once it has stopped a run.

    Raises:
        ValueError: an argument out of its range; while training, a reward that is not logged.
    """

    def __init__(
        self,
        reward: str,
        solved: float,
        *,
        below: float = 0.05,
        steps: int = 20,
        peak: float | None = None,
        stop_if: str = "either",
    ) -> None:
        _check_number("solved", solved)
        _check_number("below", below, 0, 1)
        peak = min(1.0, 2 * below) if peak is None else peak
        _check_number("peak", peak, below, 1)
        if not isinstance(steps, int) or isinstance(steps, bool) or steps < 1:
            raise ValueError(f"steps must be a whole number of at least 1, not {steps!r}.")
        if stop_if not in ("saturated", "too_hard", "either"):
            raise ValueError(f"stop_if must be saturated, too_hard or either, not {stop_if!r}.")
        self.reward, self.solved, self.below, self.steps, self.peak = reward, solved, below, steps, peak
        self.stop_if = stop_if
        self.reason: str | None = None

    def on_log(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        reason = self._reason(state.log_history)
        if reason is None or self.stop_if not in (reason, "either"):
            return
        control.should_training_stop = True
        if self.reason is None and state.is_world_process_zero:
            warnings.warn(
                f"Step {state.global_step}: training ends, as reward {self.reward!r} is {reason.replace('_', ' ')}: "
                f"its density has been below {self.below:g} for {self.steps} steps (DensityEarlyStopping).",
                stacklevel=2,
            )
        self.reason = reason

    def _reason(self, history: Sequence[Mapping[str, Any]]) -> str | None:
        rows = _rows(history, self.reward)
        if not rows:
            return None
        recent = [row for row in rows if row[0] > rows[-1][0] - self.steps]
        before = rows[: -len(recent)]
        peaked = any(density >= self.peak for _, density, _ in before)
        if not peaked or any(density >= self.below for _, density, _ in recent):
            return None
        means = [value for *_, value in recent if value == value]
        if not means:
            return None
        return "saturated" if sum(means) / len(means) >= self.solved else "too_hard"


class RewardSchedule(TrainerCallback):
    """
    Introduces or anneals a reward's priority (`reward_weights`) as the training goes on.

    The priority that a generation batch was trained with is logged as `dara/priority/<reward>`. The rewards themselves
    stay raw in all figures; only TRL's `reward`, their weighted sum, follows. Needs a [`DARAGRPOTrainer`].

    Args:
        reward (`str`): the reward whose priority changes.
        points (`dict[int, float]`): priority by step: linear in between, constant before the first and after the last.
            `{0: 0.0, 50: 1.0}` introduces a reward, `{100: 1.0, 200: 0.1}` anneals one.
        after (`str`, *optional*): count the steps of `points` not from 0, but from where the density of this reward
            meets the condition; the first priority holds until then.
        density_below, density_above (`float`, *optional*): that condition, on the mean of the last `window` logs.
            Exactly one is needed with `after`.
        window (`int`, *optional*, defaults to `5`): see above.

    Example:

    ```python
    # Length counts from where correctness tells rollouts apart in less than half of the groups.
    RewardSchedule("length", {0: 0.0, 20: 1.0}, after="correctness", density_below=0.5)
    ```

    Raises:
        ValueError: an argument out of its range, or a reward that the trainer does not have.
    """

    def __init__(
        self,
        reward: str,
        points: Mapping[int, float],
        *,
        after: str | None = None,
        density_below: float | None = None,
        density_above: float | None = None,
        window: int = 5,
    ) -> None:
        if not isinstance(points, Mapping) or not points:
            raise ValueError(
                f"points must be a dict from steps to priorities, such as {{0: 0.0, 50: 1.0}}: {points!r}."
            )
        for step, priority in points.items():
            if not isinstance(step, int) or isinstance(step, bool) or step < 0:
                raise ValueError(f"points has the step {step!r}; steps are whole numbers of at least 0.")
            _check_number(f"points[{step}]", priority, 0)
        conditions = [value for value in (density_below, density_above) if value is not None]
        if len(conditions) != (0 if after is None else 1):
            raise ValueError("after needs exactly one of density_below and density_above; without it, neither.")
        for value in conditions:
            _check_number("density_below or density_above", value, 0, 1)
        if not isinstance(window, int) or isinstance(window, bool) or window < 1:
            raise ValueError(f"window must be a whole number of at least 1, not {window!r}.")
        self.reward, self.points = reward, dict(sorted(points.items()))
        self.after, self.density_below, self.density_above, self.window = after, density_below, density_above, window
        self._trainer: Any = None

    def bind(self, trainer: Any) -> None:
        """Called by the trainer, whose `reward_weights` it sets."""
        for name in (self.reward, *([] if self.after is None else [self.after])):
            if name not in trainer.reward_func_names:
                raise ValueError(
                    f"RewardSchedule speaks of reward {name!r}; there are {', '.join(trainer.reward_func_names)}."
                )
        self._trainer = trainer

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self._trainer is None:
            raise ValueError("RewardSchedule needs a DARAGRPOTrainer, which tells it of its rewards.")

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        k = self._trainer.reward_func_names.index(self.reward)
        self._trainer.reward_weights[k] = self.priority(state.global_step, state.log_history)

    def priority(self, step: int, history: Sequence[Mapping[str, Any]]) -> float:
        """The priority for the generation batch of the step after `step` finished ones."""
        start = self._start(history)
        steps, values = list(self.points), list(self.points.values())
        if start is None or step - start <= steps[0]:
            return values[0]
        for (low, one), (high, other) in zip(self.points.items(), list(self.points.items())[1:], strict=False):
            if step - start <= high:
                return one + (other - one) * (step - start - low) / (high - low)
        return values[-1]

    def _start(self, history: Sequence[Mapping[str, Any]]) -> int | None:
        if self.after is None:
            return 0
        rows = _rows(history, self.after)
        for i in range(self.window, len(rows) + 1):
            mean = sum(density for _, density, _ in rows[i - self.window : i]) / self.window
            below = self.density_below is not None and mean < self.density_below
            if below or (self.density_above is not None and mean > self.density_above):
                return rows[i - 1][0]
        return None


class CheckpointRule(TrainerCallback):
    """
    Selects the best checkpoint by one reward, among those at which others are good enough.

    Each evaluation gets the figure `eval_dara/rule`: the mean of the reward `maximize` where all of `at_least` hold,
    else -1e6 minus what is missing, so that the nearest miss is the best of those. Use it with
    `metric_for_best_model="dara/rule"` and `load_best_model_at_end` or `save_strategy="best"`. Single figures need no
    rule: `metric_for_best_model="rewards/<reward>/mean"` or `"dara/density/<reward>"`.

    Args:
        maximize (`str`): name of a reward.
        at_least (`dict[str, float]`): smallest means of others.

    Raises:
        ValueError: an argument out of its range; at the first evaluation, a reward that there is none of.
    """

    def __init__(self, maximize: str, at_least: Mapping[str, float]) -> None:
        if not isinstance(at_least, Mapping) or not at_least:
            raise ValueError(f"at_least must be a dict from rewards to their smallest means, not {at_least!r}.")
        for name, value in at_least.items():
            _check_number(f"at_least[{name!r}]", value)
        self.maximize, self.at_least = maximize, dict(at_least)

    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        metrics: dict[str, float] = kwargs["metrics"]
        means = {name: _mean(metrics, name) for name in (self.maximize, *self.at_least)}
        # A mean that is not a number (the reward never applied) meets nothing.
        missing = [
            -NOT_MET if means[name] != means[name] else least - means[name] for name, least in self.at_least.items()
        ]
        met = max(missing) <= 0 and means[self.maximize] > NOT_MET
        metrics[f"eval_{RULE}"] = means[self.maximize] if met else NOT_MET - sum(max(0.0, gap) for gap in missing)


def _mean(metrics: Mapping[str, Any], reward: str) -> float:
    key = f"eval_rewards/{reward}/mean"
    if key not in metrics:
        names = [name.split("/")[1] for name in metrics if name.startswith("eval_rewards/") and name.endswith("/mean")]
        raise ValueError(f"CheckpointRule speaks of reward {reward!r}; evaluated are {', '.join(names) or 'none'}.")
    return _float(metrics[key])


def _rows(history: Sequence[Mapping[str, Any]], reward: str) -> list[tuple[int, float, float]]:
    """(step, density, mean) of each training log."""
    density, mean = f"dara/density/{reward}", f"rewards/{reward}/mean"
    rows = [row for row in history if any(key.startswith("dara/density/") for key in row)]
    if rows and not any(density in row for row in rows):
        names = sorted({key.split("/", 2)[2] for row in rows for key in row if key.startswith("dara/density/")})
        raise ValueError(f"No density of reward {reward!r} is logged; there are {', '.join(names)}.")
    return [(int(row["step"]), _float(row[density]), _float(row.get(mean))) for row in rows if density in row]


def _float(value: float | None) -> float:
    """TRL logs None for the mean of a reward that applied nowhere."""
    return math.nan if value is None else float(value)


def _check_number(name: str, value: Any, low: float = -math.inf, high: float = math.inf) -> None:
    if not isinstance(value, Real) or isinstance(value, bool) or not low <= float(value) <= high or math.isinf(value):
        span = f" from {low:g} to {high:g}" if high < math.inf else f" of at least {low:g}" if low > -math.inf else ""
        raise ValueError(f"{name} must be a finite number{span}, not {value!r}.")
