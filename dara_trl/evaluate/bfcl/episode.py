"""One case played through: the model speaks, its calls are executed, the user speaks again."""

from typing import Any

from ...rewards.toolrl import Call, parse_calls
from . import official, prompts, simulation
from .cases import Case


class Episode:
    """
    A case in progress.

    Attributes:
        done (`bool`): nothing more is to be asked.
        outputs (`list[list[str]]`): the model's outputs so far, by turn.
    """

    def __init__(self, case: Case) -> None:
        self._case = case
        self._history = [prompts.user(case.said(0))]
        self._steps: list[list[str]] = []
        self.outputs: list[list[str]] = [[]]
        self.done = False

    @property
    def messages(self) -> list[dict[str, str]]:
        """The conversation that the model is to answer next."""
        return prompts.messages(self._case.functions(len(self.outputs) - 1), self._history)

    def feed(self, text: str) -> None:
        """The model's next output. A turn of a multi-turn case ends with the first one that has no calls."""
        self.outputs[-1].append(text)
        if not self._case.multi_turn:
            self.done = True
            return
        turn = len(self.outputs) - 1
        calls = parse_calls(text)
        if calls:
            self._execute(text, calls, turn)
            return
        self._history.append(text.strip())
        if turn + 1 == self._case.turns:
            self.done = True
            return
        self.outputs.append([])
        self._history.append(prompts.user(self._case.said(turn + 1)))

    def _execute(self, text: str, calls: list[Call], turn: int) -> None:
        if len(self.outputs[-1]) > official.step_limit():
            self.done = True  # as the official handler: the case is lost
            return
        texts = [call_in(self._case, turn, call) for call in calls]
        self._steps.append([one for one in texts if one is not None])
        value = {"kind": "execute", "row": bare(self._case.row), "steps": self._steps}
        (results,) = simulation.run([value]) if self._steps[-1] else ([],)
        if results is None:
            self.done = True  # the same calls would take as long in the next step, and in the checker
            return
        given = iter(results)
        found = ["Error: there is no such function." if one is None else next(given) for one in texts]
        self._history.append(prompts.observed(text, [name for name, _ in calls], found))


def call_in(case: Case, turn: int, call: Call) -> str | None:
    """The call as the simulation takes it, or None if its function is not offered in the turn."""
    offered = {function["name"] for function in case.functions(turn)}
    return simulation.call_text(call) if call[0] in offered else None


def bare(row: dict[str, Any]) -> dict[str, Any]:
    """What the simulation needs of a row."""
    return {key: row[key] for key in ("id", "initial_config", "involved_classes")}
