"""Finds the groups of rollouts in a logged table by the runs of equal prompts."""

from collections import Counter
from collections.abc import Sequence
from math import gcd

from .tables import InspectError, LoggedTable


_HINT = (
    "Give the number of rollouts of a prompt (num_generations) with --num-generations; leave out files that an "
    "evaluation with another number has overwritten."
)


def infer_num_generations(tables: Sequence[LoggedTable]) -> int:
    """G: the most frequent length of a run that divides every run but the first and last of a table, or their gcd.

    A prompt that comes twice in a row makes a run of 2·G; the first and last run of a table may be cut off.

    Raises:
        InspectError: G would be 1, no G explains the runs, or the tables speak for different ones.
    """
    counts = Counter(length for table in tables for length in table.runs)
    inner = [length for table in tables for length in table.runs[1:-1]]

    def preference(length: int) -> tuple[int, bool, int]:
        # Of equally frequent lengths the one that explains the others; else the longer, as the shorter may be cut.
        return -counts[length], any(other % length for other in counts), -length

    most_frequent, *others = sorted(counts, key=preference)
    size = next((c for c in (most_frequent, *others) if not any(n % c for n in inner)), gcd(*inner))
    if size == 1:
        if most_frequent == 1:
            raise InspectError(
                f"{tables[0].source}: each prompt has one row, and with one rollout a prompt there is nothing to "
                "compare. Needed are the rows of whole groups (W&B's table with log_unique_prompts has one of each)."
            )
        table = next(t for t in tables if any(n % most_frequent for n in t.runs[1:-1]))
        raise _unequal(table, most_frequent)
    for table in tables:
        if len(table.runs) > 2 and not any(length % (2 * size) for length in table.runs):
            raise InspectError(
                f"{table.source}, step {table.step}: every prompt has {gcd(*table.runs)} rows or a multiple, while "
                f"elsewhere groups have {size}. {_HINT}"
            )
    return size


def whole_groups(table: LoggedTable, num_generations: int) -> tuple[int, int, int]:
    """Start and stop of the rows of whole groups, and how many groups are cut off at the table's edges.

    Raises:
        InspectError: a prompt inside the table has a number of rows that whole groups do not explain.
    """
    if any(length % num_generations for length in table.runs[1:-1]):
        raise _unequal(table, num_generations)
    start = table.runs[0] % num_generations
    cut_at_end = table.runs[-1] % num_generations if len(table.runs) > 1 else 0
    return start, sum(table.runs) - cut_at_end, (start > 0) + (cut_at_end > 0)


def _unequal(table: LoggedTable, num_generations: int) -> InspectError:
    wrong = next(length for length in table.runs[1:-1] if length % num_generations)
    return InspectError(
        f"{table.source}, step {table.step}: a prompt has {wrong} consecutive rows, which is no multiple of "
        f"{num_generations}, the number of rollouts of a group. {_HINT}"
    )
