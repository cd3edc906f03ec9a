"""What is done with a model's calls: executed in the simulated APIs, and judged by the official checkers.

In worker processes with a limit of time and memory: a model may ask for the power of a power, or copy a folder into
itself until nothing else fits. Calls reach the checkers' `eval` as literals only.
"""

from functools import lru_cache
from typing import Any

from ...rewards.toolrl import Call
from ...rewards.workers import WorkerPool, default_workers
from . import official


SECONDS = 20.0  # for all calls of a case


def run(values: list[dict[str, Any]]) -> list[Any]:
    """The work of each value, as `work` takes it; None for what took too long or too much memory."""
    return _pool().map(values, SECONDS, None)


@lru_cache(maxsize=1)
def _pool() -> WorkerPool:
    return WorkerPool(f"{__name__}:work", default_workers(), warm_up={"kind": "import"})


def work(value: dict[str, Any]) -> Any:
    """The worker's side."""
    if value["kind"] == "execute":
        return official.execute(value["row"], value["steps"])[-1]
    if value["kind"] == "multi_turn":
        result = official.check_multi_turn(value["row"], value["turns"], value["answer"])
        return {"valid": result["valid"], "error": str(result.get("error_message", ""))[:500]}
    if value["kind"] == "single_turn":
        try:
            result = official.check_single_turn(value["functions"], value["calls"], value["answer"], value["category"])
        except Exception as error:  # the checker takes values for granted that a model need not give
            return {"valid": False, "error": f"the checker cannot judge it ({error!r})"[:500]}
        return {"valid": result["valid"], "error": "; ".join(map(str, result["error"]))[:500]}
    return official.step_limit()


def call_text(call: Call) -> str | None:
    """A call as Python, or None if its values have no literal: whatever a string holds, it stays a string.

    The parameters are a literal of their own. A parenthesis in a string is written as an escape, because the
    simulation puts an object's name before everything that looks like a call, in strings too.
    """
    name, parameters = call
    text = repr(parameters)
    if not name.isidentifier() or _infinite(parameters):
        return None
    return f"{name}(**{text.replace('(', chr(92) + 'x28')})"


def _infinite(value: Any) -> bool:
    if isinstance(value, float):
        return value in (float("inf"), float("-inf"))
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any(map(_infinite, children))
