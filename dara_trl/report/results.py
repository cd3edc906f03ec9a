"""From runs to the tables: groups by (setting, label), the rules over them, and each method against the baseline."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..cli import CommandError
from . import statistics
from .sources import Run
from .statistics import CENSORED, Statistic
from .thresholds import Reached, common_steps, first_step, lasting_step, median_step, smoothed_step


LAST_VALUES = 5

RULES = {
    "median": "median rule",
    "lasting": "lasting rule",
    "smoothed": "smoothed rule",
    "held_out": "held-out rule",
}


@dataclass(frozen=True)
class Comparison:
    """A method less the baseline, over the seeds that both have. Steps: fewer is faster.

    A censored step counts as one more than the last step of both runs; `censored` says how many did, and `bound` is
    ">" or "<" where that makes the ratio a bound. By the lasting rule it is none: the log may merely have ended before
    the stay did. `ratio` is None for figures that are no steps, and where both medians are censored.
    """

    pairs: int
    mean_difference: float
    median_difference: float
    difference_interval: tuple[float, float] | None
    ratio: float | None
    bound: str
    ratio_interval: tuple[float, float] | None
    p: float | None
    test: str
    smallest_p: float | None
    censored: int


@dataclass(frozen=True)
class StepsRow:
    label: str
    seeds: tuple[tuple[int | str, Reached], ...]
    result: Reached
    interval: tuple[Reached, Reached] | None
    comparison: Comparison | None


@dataclass(frozen=True)
class RuleTable:
    rule: str
    rows: tuple[StepsRow, ...]


@dataclass(frozen=True)
class ThresholdTable:
    reward: str
    threshold: float
    rules: tuple[RuleTable, ...]


@dataclass(frozen=True)
class ValuesRow:
    label: str
    seeds: tuple[tuple[int | str, float], ...]
    median: float
    interval: tuple[float, float] | None
    comparison: Comparison | None


@dataclass(frozen=True)
class ValuesTable:
    reward: str
    which: str  # "training" or "held-out"
    rows: tuple[ValuesRow, ...]


@dataclass(frozen=True)
class DensityRow:
    reward: str
    label: str
    first: float
    last: float


@dataclass(frozen=True)
class Setting:
    """Everything about the runs of one setting; groups are in order, the baseline first."""

    name: str
    baseline: str | None
    groups: Mapping[str, tuple[Run, ...]]
    rewards: tuple[str, ...]
    thresholds: tuple[ThresholdTable, ...]
    values: tuple[ValuesTable, ...]
    densities: tuple[DensityRow, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Options:
    thresholds: tuple[tuple[str, float], ...] = ()
    baseline: str | None = None
    window: int = 10
    stay: int = 20


def analyse(runs: Sequence[Run], options: Options) -> list[Setting]:
    """The results of every setting, in the order in which the runs were found.

    Raises:
        CommandError: a threshold for a reward that no run has, or a baseline that is no label.
    """
    rewards = list(dict.fromkeys(name for run in runs for name in run.rewards))
    labels = list(dict.fromkeys(run.label for run in runs))
    for name, _ in options.thresholds:
        if name not in rewards:
            raise CommandError(f"--threshold {name}: no run has this reward. Rewards: {', '.join(rewards)}.")
    if options.baseline is not None and options.baseline not in labels:
        raise CommandError(f"--baseline {options.baseline}: no run has this label. Labels: {', '.join(labels)}.")
    settings = dict.fromkeys(run.setting for run in runs)
    return [_setting(name, [run for run in runs if run.setting == name], options) for name in settings]


def _setting(name: str, runs: Sequence[Run], options: Options) -> Setting:
    labels = list(dict.fromkeys(run.label for run in runs))
    notes: list[str] = []
    baseline = options.baseline or next((run.baseline for run in runs if run.baseline in labels), None)
    if options.baseline is None and baseline is None:
        baseline = "gdpo" if "gdpo" in labels else labels[0]
    if baseline not in labels:
        notes.append(f"the baseline {baseline} has no run in this setting: nothing is compared")
        baseline = None
    if baseline is not None:
        labels = [baseline] + [label for label in labels if label != baseline]
    groups = {label: tuple(run for run in runs if run.label == label) for label in labels}
    rewards = tuple(sorted({reward for run in runs for reward in run.rewards}, key=_order(runs)))
    wanted = options.thresholds or tuple(
        dict.fromkeys((reward, value) for run in runs for reward, value in run.thresholds.items())
    )
    for reward in dict.fromkeys(reward for reward, _ in wanted if reward not in rewards):
        notes.append(f"a threshold is set for {reward}, which no run of this setting logged")
    analysis = _Analysis(groups, baseline, options)
    return Setting(
        name=name,
        baseline=baseline if len(labels) > 1 else None,
        groups=groups,
        rewards=rewards,
        thresholds=tuple(analysis.threshold(*pair) for pair in wanted if pair[0] in rewards),
        values=tuple(
            table
            for reward in rewards
            for which in ("training", "held-out")
            if (table := analysis.final_values(reward, which)).rows
        ),
        densities=tuple(row for reward in rewards for row in analysis.densities(reward)),
        notes=tuple(notes) + analysis.notes(rewards),
    )


def _order(runs: Sequence[Run]) -> Any:
    order = list(dict.fromkeys(name for run in runs for name in run.rewards))
    return order.index


class _Analysis:
    """The tables of one setting."""

    def __init__(self, groups: Mapping[str, tuple[Run, ...]], baseline: str | None, options: Options) -> None:
        self.groups = groups
        self.baseline = baseline
        self.options = options

    def threshold(self, reward: str, threshold: float) -> ThresholdTable:
        tables = (
            RuleTable(rule, rows) for rule in RULES if (rows := tuple(self._steps_rows(rule, reward, threshold)))
        )
        return ThresholdTable(reward, threshold, tuple(tables))

    def _steps_rows(self, rule: str, reward: str, threshold: float) -> list[StepsRow]:
        prefix = "eval_" if rule == "held_out" else ""
        key = f"{prefix}rewards/{reward}/mean"
        rows = []
        for label in self.groups:
            runs = self._with(label, key)
            if not runs:
                continue
            steps = [self._step(rule, run, key, threshold, run.last_step(prefix)) for run in runs]
            last = min(run.last_step(prefix) for run in runs)
            statistic = self._statistic(rule, runs, key, threshold, last, statistics.code(steps))
            everyone = np.arange(len(runs))[None]
            ends = statistics.interval(statistic, len(runs))
            rows.append(
                StepsRow(
                    label=label,
                    seeds=tuple((_seed(run), step) for run, step in zip(runs, steps, strict=True)),
                    result=statistics.decode(statistic(everyone)[0]),
                    interval=ends and (statistics.decode(ends[0]), statistics.decode(ends[1])),
                    comparison=self._compare_steps(rule, label, prefix, key, threshold),
                )
            )
        return rows

    def _step(self, rule: str, run: Run, key: str, threshold: float, last: int) -> Reached:
        """One run's step by a rule, as if the log ended at `last`."""
        curve = run.curve(key, last)
        if rule == "lasting":
            return lasting_step(curve, threshold, last, self.options.window, self.options.stay)
        return (smoothed_step if rule == "smoothed" else first_step)(curve, threshold, last)

    def _statistic(
        self, rule: str, runs: Sequence[Run], key: str, threshold: float, last: int, coded: np.ndarray
    ) -> Statistic:
        if rule != "median":
            return statistics.median_of(coded)
        steps, values_RT = common_steps([run.curve(key, last) for run in runs])

        def crossing(index: np.ndarray) -> np.ndarray:
            # Resamples with the same runs in another order are the same.
            unique, inverse = np.unique(np.sort(index, axis=-1), axis=0, return_inverse=True)
            found = [median_step(steps, values_RT[rows], threshold, last) for rows in unique]
            return statistics.code(found)[inverse.reshape(-1)]

        return crossing

    def _compare_steps(self, rule: str, label: str, prefix: str, key: str, threshold: float) -> Comparison | None:
        pairs = self._pairs(label, key)
        if not pairs:
            return None
        lasts = [min(one.last_step(prefix), other.last_step(prefix)) for one, other in pairs]
        coded_2P = np.array(
            [
                statistics.code(
                    [
                        self._step(rule, pair[side], key, threshold, last)
                        for pair, last in zip(pairs, lasts, strict=True)
                    ]
                )
                for side in (0, 1)
            ]
        )
        after = np.array(lasts, dtype=float) + 1
        number_2P = np.where(coded_2P >= CENSORED, after, coded_2P)
        if rule == "median":
            sides = [
                self._statistic(rule, [pair[side] for pair in pairs], key, threshold, min(lasts), coded_2P[side])
                for side in (0, 1)
            ]
            numbers = [_at_most(side, min(lasts) + 1.0) for side in sides]
        else:
            sides = [statistics.median_of(coded) for coded in coded_2P]
            numbers = [statistics.median_of(number) for number in number_2P]
        everyone = np.arange(len(pairs))[None]
        beyond = [bool(side(everyone)[0] >= CENSORED) for side in sides]
        ratio = _ratio(*numbers)
        comparison = _compared(number_2P[0] - number_2P[1], int((coded_2P >= CENSORED).sum()))
        if all(beyond) or np.isnan(ratio(everyone)[0]):
            return comparison
        return dataclasses.replace(
            comparison,
            ratio=float(ratio(everyone)[0]),
            bound="" if rule == "lasting" else ">" if beyond[0] else "<" if beyond[1] else "",
            ratio_interval=statistics.interval(ratio, len(pairs)),
        )

    def final_values(self, reward: str, which: str) -> ValuesTable:
        """Mean of the last 5 logged training values, or the last evaluation, of each run."""
        key = f"{'eval_' if which == 'held-out' else ''}rewards/{reward}/mean"
        count = 1 if which == "held-out" else LAST_VALUES

        def final(run: Run) -> float:
            return float(np.mean(run.curve(key)[1][-count:]))

        rows = []
        for label in self.groups:
            runs = self._with(label, key)
            if not runs:
                continue
            values = np.array([final(run) for run in runs])
            pairs = self._pairs(label, key)
            rows.append(
                ValuesRow(
                    label=label,
                    seeds=tuple((_seed(run), value) for run, value in zip(runs, values.tolist(), strict=True)),
                    median=float(np.median(values)),
                    interval=statistics.interval(statistics.median_of(values), len(runs)),
                    comparison=_compared(np.array([final(one) - final(other) for one, other in pairs]), 0)
                    if pairs
                    else None,
                )
            )
        return ValuesTable(reward, which, tuple(rows))

    def densities(self, reward: str) -> list[DensityRow]:
        """First and last logged density, median over runs."""
        key = f"dara/density/{reward}"
        rows = []
        for label in self.groups:
            values = [run.curve(key)[1] for run in self._with(label, key)]
            if values:
                first, last = np.median([[value[0], value[-1]] for value in values], axis=0)
                rows.append(DensityRow(reward, label, float(first), float(last)))
        return rows

    def _with(self, label: str, key: str) -> list[Run]:
        return [run for run in self.groups[label] if run.curve(key)[0]]

    def _pairs(self, label: str, key: str) -> list[tuple[Run, Run]]:
        """Runs of a label and of the baseline with the same seed."""
        if self.baseline is None or label == self.baseline:
            return []
        others = {run.seed: run for run in self._with(self.baseline, key)}
        return [(run, others[run.seed]) for run in self._with(label, key) if run.seed in others]

    def notes(self, rewards: Sequence[str]) -> tuple[str, ...]:
        notes = []
        for label, runs in self.groups.items():
            lasts = sorted({run.last_step() for run in runs})
            if len(lasts) > 1:
                notes.append(f"{label}: the runs end at different steps ({', '.join(map(str, lasts))})")
            for reward in rewards:
                absent = [run for run in runs if not run.curve(f"rewards/{reward}/mean")[0]]
                if absent:
                    seeds = ", ".join(str(run.seed) for run in absent)
                    notes.append(f"{label}: no training values of {reward} with seed {seeds}; left out there")
        if self.baseline is not None:
            known = {run.seed for run in self.groups[self.baseline]}
            for label, runs in self.groups.items():
                mine = {run.seed for run in runs}
                unpaired = [f"{label} {run.seed}" for run in runs if run.seed not in known]
                unpaired += [f"{self.baseline} {seed}" for seed in sorted(known - mine, key=str)]
                if unpaired:
                    notes.append(
                        f"{label} against {self.baseline}: left out for want of a pair: {', '.join(unpaired)}"
                    )
        ends = {label: max(run.last_step() for run in runs) for label, runs in self.groups.items()}
        if len(set(ends.values())) > 1:
            listed = ", ".join(f"{label} {end}" for label, end in ends.items())
            notes.append(f"final values are compared although the methods end at different steps: {listed}")
        return tuple(notes)


def _seed(run: Run) -> int | str:
    assert run.seed is not None  # load_runs numbers those without
    return run.seed


def _at_most(statistic: Statistic, number: float) -> Statistic:
    """Censored figures as the number."""

    def numbers(index: np.ndarray) -> np.ndarray:
        figures = statistic(index)
        return np.where(figures >= CENSORED, number, figures)

    return numbers


def _ratio(numerator: Statistic, denominator: Statistic) -> Statistic:
    """NaN where the denominator is 0."""

    def ratio(index: np.ndarray) -> np.ndarray:
        above, below = numerator(index), denominator(index)
        return np.where(below == 0, np.nan, above / np.where(below == 0, 1.0, below))

    return ratio


def _compared(differences: np.ndarray, censored: int) -> Comparison:
    p, test = statistics.permutation_test(differences.tolist())
    return Comparison(
        pairs=len(differences),
        mean_difference=float(np.mean(differences)),
        median_difference=float(np.median(differences)),
        difference_interval=statistics.interval(statistics.median_of(differences), len(differences)),
        ratio=None,
        bound="",
        ratio_interval=None,
        p=p,
        test=test,
        smallest_p=statistics.smallest_p(len(differences)) if len(differences) > 1 else None,
        censored=censored,
    )


def as_json(value: Any) -> Any:
    """Results as JSON values. A step not reached is {"reached": false, "last_step": n}: it lies beyond n."""
    if isinstance(value, Reached):
        if value.reached:
            return {"reached": True, "step": value.step}
        held = {} if value.held_from is None else {"held_from": value.held_from}
        return {"reached": False, "last_step": value.step, **held}
    if isinstance(value, Run):
        return {
            "setting": value.setting,
            "label": value.label,
            "seed": value.seed,
            "source": value.source,
            "kind": value.kind,
            "last_step": value.last_step(),
            "versions": dict(value.versions),
            "revision": value.revision,
            "dirty": value.dirty,
            "notes": list(value.notes),
        }
    if isinstance(value, StepsRow | ValuesRow):
        fields = {field.name: as_json(getattr(value, field.name)) for field in dataclasses.fields(value)}
        fields["seeds"] = [{"seed": seed, "value": as_json(figure)} for seed, figure in value.seeds]
        return fields
    if dataclasses.is_dataclass(value):
        return {field.name: as_json(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): as_json(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [as_json(item) for item in value]
    return value
