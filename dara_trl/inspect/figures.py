"""From logged tables to figures: what each reward supplies, what GRPO's sum collapses, where two rewards conflict."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .groups import infer_num_generations, whole_groups
from .tables import InspectError, LoggedTable


if TYPE_CHECKING:
    from torch import Tensor

    from ..aggregation import AggregationResult

ZERO = 1e-6  # smaller group advantages, and smaller relative differences of sums, are rounding
AGREEMENT = 1e-3  # logged advantages within it are a method's own


@dataclass(frozen=True)
class RewardFigures:
    """One reward, in one generation batch or as the mean over all; the figures are those that training logs.

    Attributes:
        mean: over the rollouts to which it applied; None where it applied to none.
        applicable: share of groups in which it applied to any rollout.
        density: share of groups in which it tells two rollouts apart.
        energy: sum of the squared group advantages.
        energy_ratio: the same relative to the batch's strongest reward.
        weight: the weight that the method would give it.
        at_cap: 1 where the weight stands at its cap; over several batches, their share.
    """

    name: str
    mean: float | None
    applicable: float
    density: float
    energy: float
    energy_ratio: float
    weight: float
    at_cap: float


@dataclass(frozen=True)
class Batch:
    """One generation batch, as it stood in the table of `step`."""

    step: int
    groups: int
    rewards: tuple[RewardFigures, ...]


@dataclass(frozen=True)
class Collapse:
    """How many combinations of rewards GRPO's sum cannot tell apart.

    Within each group, the distinct tuples of rewards among the rollouts that every reward scored, and the distinct
    values of their weighted sum; sums that differ by less than 1e-6 of the group's largest summands are one value
    (0.1 + 0.2 and 0.3 + 0). Rewards of weight 0 do not count. Both are added up over all groups;
    share = 1 - sums / combinations, None without any such rollout.
    """

    combinations: int
    sums: int
    share: float | None


@dataclass(frozen=True)
class Pair:
    """Two rewards, over the rollouts of all batches together.

    Attributes:
        both: rollouts in which both group advantages are non-zero (above 1e-6).
        opposite: those of them in which the signs differ.
        opposite_share_of_both: None where `both` is 0.
        opposite_share_of_all: of all rollouts.
        correlation: Pearson's, of the group advantages of the rollouts that both rewards scored in groups where both
            are active; None where it is not defined.
    """

    first: str
    second: str
    both: int
    opposite: int
    opposite_share_of_both: float | None
    opposite_share_of_all: float
    correlation: float | None


@dataclass(frozen=True)
class Inspection:
    """What the completions of a run say about its rewards.

    Attributes:
        method, max_weight, reward_weights: what the weights were computed with; one reward weight for each reward.
        num_generations: rollouts of a group; `num_generations_inferred` from the prompts, or given.
        batches: each generation batch once, by step.
        groups, rollouts: in all batches.
        incomplete_groups: cut off at the edge of a table, and left out.
        repeated_steps: steps that hold the batch of the step before once more, and were not counted again.
        rewards: means over the batches.
        logged_advantages: the methods that the logged advantages agree with in every batch; None if there is no such
            column, or nothing in it to compare.
        notes: what the reader should check.
        sentences: the result in three sentences.
    """

    method: str
    max_weight: float
    reward_weights: tuple[float, ...]
    num_generations: int
    num_generations_inferred: bool
    groups: int
    rollouts: int
    incomplete_groups: int
    repeated_steps: tuple[int, ...]
    rewards: tuple[RewardFigures, ...]
    pairs: tuple[Pair, ...]
    collapse: Collapse
    batches: tuple[Batch, ...]
    logged_advantages: tuple[str, ...] | None
    notes: tuple[str, ...]
    sentences: tuple[str, ...] = ()


@dataclass(frozen=True)
class Settings:
    """What `aggregate` is called with; see there."""

    method: str = "dara_asym"
    reward_weights: Sequence[float] | None = None
    max_weight: float = 5.0
    eps: float = 1e-4

    def aggregate(self, rewards_NK: "Tensor", num_generations: int, **changes: Any) -> "AggregationResult":
        from ..aggregation import aggregate

        fields = {
            "method": self.method,
            "reward_weights": self.reward_weights,
            "max_weight": self.max_weight,
            "eps": self.eps,
            **changes,
        }
        return aggregate(rewards_NK, num_generations=num_generations, **fields)


def inspect_tables(
    names: list[str], tables: list[LoggedTable], num_generations: int | None, settings: Settings, notes: list[str]
) -> Inspection:
    """All figures; the sentences are still to be written."""
    import torch

    from ..telemetry import batch_metrics

    _check(settings, len(names))
    if num_generations is not None and num_generations < 2:
        raise InspectError("--num-generations must be at least 2: with one rollout there is nothing to compare.")
    size = num_generations or infer_num_generations(tables)
    if num_generations is None and all(len(table.runs) == 1 for table in tables):
        notes = [
            *notes,
            f"Each table has a single prompt, so all its {size} rows were taken for one group; if they are several, "
            "give --num-generations.",
        ]
    if tables[0].step == 0:
        notes = [*notes, "Step 0 is an evaluation before training, if TRL wrote it."]

    batches: list[Batch] = []
    results: list[AggregationResult] = []
    agreement: list[set[str]] = []
    repeated: list[int] = []
    incomplete = 0
    counted: LoggedTable | None = None
    for table in tables:
        if counted is not None and table.repeats(counted):
            repeated.append(table.step)
            continue
        counted = table
        start, stop, cut = whole_groups(table, size)
        incomplete += cut
        if start >= stop:
            continue
        rewards_NK = torch.tensor(table.rewards_NK[start:stop], dtype=torch.float32)  # TRL's type
        result = settings.aggregate(rewards_NK, size)
        metrics = batch_metrics(result, names)
        means = [None if mean != mean else mean for mean in rewards_NK.nanmean(dim=0).tolist()]
        figures = tuple(
            RewardFigures(name, means[k], *(metrics[f"dara/{column}/{name}"] for column in _COLUMNS))
            for k, name in enumerate(names)
        )
        batches.append(Batch(table.step, (stop - start) // size, figures))
        results.append(result)
        if table.advantages_N is not None and not cut and table.advantages_N.any():
            advantages_N = torch.tensor(table.advantages_N, dtype=torch.float32)
            agreement.append(_agreeing(rewards_NK, advantages_N, size, settings))
    if not batches:
        raise InspectError(
            f"{tables[0].source}: no prompt has all of its {size} rows; needed are the rows of whole groups."
        )
    groups = sum(batch.groups for batch in batches)
    priorities = tuple(results[0].signals.priorities_K.tolist())
    return Inspection(
        method=settings.method,
        max_weight=float(settings.max_weight),
        reward_weights=priorities,
        num_generations=size,
        num_generations_inferred=num_generations is None,
        groups=groups,
        rollouts=groups * size,
        incomplete_groups=incomplete,
        repeated_steps=tuple(repeated),
        rewards=tuple(_mean_figures([batch.rewards[k] for batch in batches]) for k in range(len(names))),
        pairs=tuple(_pair(names, i, k, results) for i in range(len(names)) for k in range(i + 1, len(names))),
        collapse=_collapse(results),
        batches=tuple(batches),
        logged_advantages=tuple(sorted(set.intersection(*agreement))) if agreement else None,
        notes=tuple(notes),
    )


_COLUMNS = ("applicable", "density", "energy", "energy_ratio", "weight", "weight_at_cap")


def _check(settings: Settings, num_rewards: int) -> None:
    import torch

    from ..aggregation import METHODS

    known = [name for name, method in METHODS.items() if not method.needs]
    if settings.method not in known:
        raise InspectError(f"--method must be one of {', '.join(known)}, not {settings.method!r}.")
    try:
        settings.aggregate(torch.zeros(1, num_rewards), 1)
    except (ValueError, TypeError) as error:
        raise InspectError(str(error)) from error


def _mean_figures(figures: list[RewardFigures]) -> RewardFigures:
    def mean(field: str) -> float:
        return sum(getattr(figure, field) for figure in figures) / len(figures)

    applied = [figure.mean for figure in figures if figure.mean is not None]
    return RewardFigures(
        name=figures[0].name,
        mean=sum(applied) / len(applied) if applied else None,
        applicable=mean("applicable"),
        density=mean("density"),
        energy=mean("energy"),
        energy_ratio=mean("energy_ratio"),
        weight=mean("weight"),
        at_cap=mean("at_cap"),
    )


def _collapse(results: "list[AggregationResult]") -> Collapse:
    import torch

    combinations = sums = 0
    for result in results:
        priorities_K = result.signals.priorities_K.double()
        counts_K = priorities_K > 0
        rewards_BGK = result.signals.rewards_KGB.permute(2, 1, 0).double()[..., counts_K]
        scorable_BG = ~rewards_BGK.isnan().any(dim=2) & counts_K.any()
        for rewards_GK, scorable_G in zip(rewards_BGK, scorable_BG, strict=True):
            summands_GK = rewards_GK[scorable_G] * priorities_K[counts_K]
            if len(summands_GK):
                combinations += len(set(map(tuple, rewards_GK[scorable_G].tolist())))
                sums_G = summands_GK.sum(dim=1).sort().values
                tolerance = ZERO * summands_GK.abs().sum(dim=1).max()
                sums += 1 + int(torch.count_nonzero(sums_G.diff() > tolerance))
    return Collapse(combinations, sums, 1 - sums / combinations if combinations else None)


def _pair(names: list[str], i: int, k: int, results: "list[AggregationResult]") -> Pair:
    import torch

    both = opposite = rollouts = 0
    compared = []
    for result in results:
        signals = result.signals
        one_GB, other_GB = signals.advantages_KGB[i], signals.advantages_KGB[k]
        both_GB = (one_GB.abs() > ZERO) & (other_GB.abs() > ZERO)
        both += int(both_GB.sum())
        opposite += int((both_GB & ((one_GB > 0) != (other_GB > 0))).sum())
        rollouts += one_GB.numel()
        defined_GB = (signals.active_KB[i] & signals.active_KB[k]) & ~signals.rewards_KGB[[i, k]].isnan().any(dim=0)
        compared.append(torch.stack([one_GB[defined_GB], other_GB[defined_GB]]).double())
    values_2N = torch.cat(compared, dim=1)
    defined = values_2N.shape[1] > 1 and bool((values_2N.std(dim=1) > ZERO).all())
    return Pair(
        first=names[i],
        second=names[k],
        both=both,
        opposite=opposite,
        opposite_share_of_both=opposite / both if both else None,
        opposite_share_of_all=opposite / rollouts,
        correlation=float(torch.corrcoef(values_2N)[0, 1]) if defined else None,
    )


def _agreeing(rewards_NK: "Tensor", advantages_N: "Tensor", size: int, settings: Settings) -> set[str]:
    from ..aggregation import METHODS, SETTINGS

    agreeing = set()
    for name, method in METHODS.items():
        if method.needs:
            continue
        for scale in SETTINGS["scale_rewards"].choices if "scale_rewards" in method.reads else ("group",):
            own_N = settings.aggregate(rewards_NK, size, method=name, scale_rewards=scale).advantages_N
            if bool(((own_N - advantages_N).abs() <= AGREEMENT).all()):
                agreeing.add(name if scale == "group" else f"{name} with scale_rewards={scale}")
    return agreeing
