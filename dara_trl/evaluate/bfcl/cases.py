"""The cases: which categories there are, how they are grouped, and what a model is told of each."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...cli import CommandError
from . import official


# Group: its categories. Those that refuse or search the web, or keep a memory, are not in the paper's averages.
GROUPS: dict[str, tuple[str, ...]] = {
    "non_live": ("simple_python", "simple_java", "simple_javascript", "multiple", "parallel", "parallel_multiple"),
    "live": ("live_simple", "live_multiple", "live_parallel", "live_parallel_multiple"),
    "multi_turn": (
        "multi_turn_base",
        "multi_turn_miss_func",
        "multi_turn_miss_param",
        "multi_turn_long_context",
    ),
}
CATEGORIES = tuple(category for group in GROUPS.values() for category in group)


@dataclass(frozen=True)
class Case:
    """A case of BFCL: its id, category, row (question, functions, simulated state) and reference."""

    id: str
    category: str
    row: dict[str, Any]
    answer: Any

    @property
    def multi_turn(self) -> bool:
        """Whether calls are executed, and the user speaks again."""
        return self.category in GROUPS["multi_turn"]

    @property
    def turns(self) -> int:
        """How often the user speaks."""
        return len(self.row["question"])

    def said(self, turn: int) -> str:
        """What the user says, with what the case puts before it as a system's message."""
        messages = self.row["question"][turn]
        return "\n".join(message["content"] for message in messages) or official.added_functions_message()

    def functions(self, turn: int) -> list[dict[str, Any]]:
        """The documents of the functions that are offered in a turn: held-out ones join in later."""
        found = list(self.row["offered"])
        for start, late in self.row.get("missed_function", {}).items():
            if turn >= int(start):
                found += late
        return found


def load_cases(categories: Sequence[str] | None = None, limit: int | None = None) -> list[Case]:
    """The cases, of all categories by default, at most the first `limit` of each.

    Raises:
        CommandError: there is no such category, or bfcl-eval is not installed.
    """
    for category in categories or ():
        if category not in CATEGORIES:
            raise CommandError(f"There is no category {category!r}; there are {', '.join(CATEGORIES)}.")
    found = []
    for category in CATEGORIES if categories is None else dict.fromkeys(categories):
        rows, answers = official.rows_and_answers(category)
        pairs = list(zip(rows, answers, strict=True))[:limit]
        found += [Case(row["id"], category, row, answer) for row, answer in pairs]
    return found
