"""Verdicts become the leaderboard's figures, averaged as the DARA paper does."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ..statistics import estimate
from .cases import CATEGORIES, GROUPS
from .verdict import Verdict


SIMPLE = ("simple_python", "simple_java", "simple_javascript")
# What each category weighs in its group; Live is one set of all its cases.
WEIGHTS = {
    "non_live": {category: 1 / 12 if category in SIMPLE else 1 / 4 for category in GROUPS["non_live"]},
    "live": {"live": 1.0},
    "multi_turn": dict.fromkeys(GROUPS["multi_turn"], 1 / 4),
}


def scores(verdicts: Mapping[str, Sequence[Verdict]]) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Accuracy and format, in shares of 1 with their 95 % intervals.

    Args:
        verdicts: of each category that was evaluated.

    Returns:
        tuple: by category, and by group where all its categories are there; and the average over the three groups
            (DARA, arXiv 2610.00574, section 4), or None.
    """
    sets: dict[str, Any] = {}
    for category in CATEGORIES:
        if verdicts.get(category):
            values = _values(verdicts[category])
            sets[category] = {"cases": len(verdicts[category])} | {
                measure: asdict(estimate({"": shares})) for measure, shares in values.items()
            }
    groups = {name: members for name, members in GROUPS.items() if all(member in sets for member in members)}
    for name, members in groups.items():
        sets[name] = {"cases": sum(sets[member]["cases"] for member in members)} | _weighted(verdicts, [name])
    return sets, _weighted(verdicts, list(groups)) if groups.keys() == GROUPS.keys() else None


def _values(verdicts: Sequence[Verdict]) -> dict[str, list[float]]:
    return {"accuracy": [float(one.correct) for one in verdicts], "format": [one.format for one in verdicts]}


def _weighted(verdicts: Mapping[str, Sequence[Verdict]], names: Sequence[str]) -> dict[str, Any]:
    live = [one for category in GROUPS["live"] for one in verdicts.get(category, ())]
    found = {**verdicts, "live": live}
    weights = {member: weight / len(names) for name in names for member, weight in WEIGHTS[name].items()}
    values = {member: _values(found[member]) for member in weights}
    return {
        measure: asdict(estimate({member: values[member][measure] for member in weights}, weights))
        for measure in ("accuracy", "format")
    }
