"""Middle floor: fresh prompts out of a dataset without a length, beside the dataloader that walks it."""

from collections.abc import Iterator
from typing import Any

from datasets import IterableDataset


class PromptStream:
    """
    One pass over an `IterableDataset`, walked by the dataloader and, ahead of it, by those who want fresh rows.

    A fresh row is the first that the dataloader has not read yet; the dataloader then leaves it out. So nobody sees a
    row twice before all were seen once. When there is none left ahead, fresh rows come from the start again. Which
    rows were taken is all that a resumed run needs to know, within the first pass (TRL cannot resume in a later one).
    Each process holds a stream of its own, and all take the same rows, as they read and ask in the same order.

    Args:
        dataset (`datasets.IterableDataset`): in the order in which the dataloader walks it; `set_epoch` reshuffles.

    Attributes:
        taken (`tuple[int, tuple[int, ...], int]`): the number of the pass; the rows taken ahead of the dataloader in
            it, by place; how many rows were taken from the start again.
    """

    def __init__(self, dataset: IterableDataset) -> None:
        self._dataset = dataset
        self._passes = -1
        self._read = -1  # place of the last row that the dataloader has read
        self._ahead: Iterator[tuple[int, dict[str, Any]]] | None = None
        self._again: Iterator[dict[str, Any]] | None = None
        self._taken: set[int] = set()
        self._times_again = 0
        self.taken = (0, (), 0)

    @property
    def taken(self) -> tuple[int, tuple[int, ...], int]:
        return max(self._passes, 0), tuple(sorted(self._taken)), self._times_again

    @taken.setter
    def taken(self, value: tuple[int, tuple[int, ...], int]) -> None:
        number, rows, self._times_again = value
        self._passes, self._taken = number - 1, set(rows)
        self._ahead = self._again = None

    def for_dataloader(self) -> IterableDataset:
        """The dataset without the rows that are taken before the dataloader reads them."""
        return self._dataset.filter(self._is_left, with_indices=True)

    def _is_left(self, row: dict[str, Any], place: int) -> bool:
        if place == 0:
            self._passes += 1
            if self._read >= 0:  # not the first pass of this process: what was taken was taken in the one before
                self._taken, self._times_again = set(), 0
            self._ahead = self._again = None
        self._read = place
        return place not in self._taken

    def fresh(self, count: int) -> list[dict[str, Any]]:
        """So many rows.

        Raises:
            ValueError: the dataset is empty.
        """
        return [self._one() for _ in range(count)]

    def _one(self) -> dict[str, Any]:
        if self._ahead is None:
            self._ahead = self._walk()
        for place, row in self._ahead:
            if place > self._read and place not in self._taken:
                self._taken.add(place)
                return row
        if self._again is None:
            self._again = self._round_and_round()
            for _ in range(self._times_again):
                next(self._again)
        self._times_again += 1
        return next(self._again)

    def _walk(self) -> Iterator[tuple[int, dict[str, Any]]]:
        self._dataset.set_epoch(max(self._passes, 0))
        return enumerate(iter(self._dataset))

    def _round_and_round(self) -> Iterator[dict[str, Any]]:
        first = next(self._walk(), None)
        if first is None:
            raise ValueError("The training dataset has no rows.")
        while True:
            yield from (row for _, row in self._walk())
