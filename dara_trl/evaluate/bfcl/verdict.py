"""Is a case's answer right, by the official checkers, and is its format that of the training?"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...rewards.toolrl import format_reward, parse_calls
from . import simulation
from .cases import Case
from .episode import bare, call_in


CALLS = "<tool_call></tool_call>"
LAYOUTS = (CALLS, "<response></response>", CALLS + "<response></response>")
TEXT_VALUES = ("simple_java", "simple_javascript")


@dataclass(frozen=True)
class Verdict:
    """Whether a case is right, why not, and the share of its outputs whose format is right."""

    correct: bool
    error: str
    format: float


def judge(answers: Sequence[tuple[Case, list[list[str]]]]) -> list[Verdict]:
    """The verdicts over cases with their outputs by turn, as [`Episode`] collects them."""
    values = [_multi_turn(*one) if one[0].multi_turn else _single_turn(*one) for one in answers]
    asked = [value for value in values if isinstance(value, dict)]
    found = iter(simulation.run(asked) if asked else [])
    verdicts = []
    for (case, outputs), value in zip(answers, values, strict=True):
        result: dict[str, Any] | None = next(found) if isinstance(value, dict) else {"valid": False, "error": value}
        result = result or {"valid": False, "error": "its calls took too long or too much memory"}
        verdicts.append(Verdict(bool(result["valid"]), result["error"], _format(case, outputs)))
    return verdicts


def _single_turn(case: Case, outputs: list[list[str]]) -> dict[str, Any] | str:
    calls = parse_calls(outputs[0][0]) if outputs and outputs[0] else None
    if calls is None:
        return "no calls that can be read"
    given = [{name: _as_text(values) if case.category in TEXT_VALUES else values} for name, values in calls]
    return {
        "kind": "single_turn",
        "functions": case.row["function"],
        "calls": given,
        "answer": case.answer,
        "category": case.category,
    }


def _multi_turn(case: Case, outputs: list[list[str]]) -> dict[str, Any] | str:
    if len(outputs) != case.turns or (outputs[-1] and parse_calls(outputs[-1][-1])):
        return f"it ended in turn {len(outputs)} of {case.turns}: too many steps, or calls that took too long"
    turns = []
    for turn, texts in enumerate(outputs):
        steps = [[call_in(case, turn, call) for call in parse_calls(text) or []] for text in texts]
        known = [[call for call in step if call is not None] for step in steps]
        turns.append([step for step in known if step])
    return {"kind": "multi_turn", "row": bare(case.row), "turns": turns, "answer": case.answer}


def _as_text(values: dict[str, Any]) -> dict[str, str]:
    """Java's and JavaScript's values are judged as texts of their languages, as their documents ask for."""
    return {key: value if isinstance(value, str) else json.dumps(value) for key, value in values.items()}


def _format(case: Case, outputs: list[list[str]]) -> float:
    """Of a single turn calls are due; in a dialogue the model chooses between calls, a response and both."""
    texts = [text for turn in outputs for text in turn]
    layouts = LAYOUTS if case.multi_turn else (CALLS,)
    rewards = [max(format_reward([text], [layout])[0] for layout in layouts) for text in texts]
    return sum(rewards) / len(rewards) if rewards else 0.0
