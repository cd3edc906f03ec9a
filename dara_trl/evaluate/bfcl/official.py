"""The seam to `bfcl-eval`: nothing else imports it."""

import os
import sys
import tempfile
from functools import lru_cache
from importlib import import_module
from types import ModuleType, SimpleNamespace
from typing import Any

from ...cli import CommandError


NAME = "dara_trl"
INSTALL = "pip install --no-deps bfcl-eval==2026.3.23 and pip install mpmath"


def _module(path: str) -> Any:
    """A module of bfcl-eval, without what it imports only to call other people's models.

    Its `constants.model_config` imports every vendor's client, and the checker only asks it whether our model writes
    dots as underscores.
    """
    name = "bfcl_eval.constants.model_config"
    if name not in sys.modules:
        config = ModuleType(name)
        config.MODEL_CONFIG_MAPPING = {NAME.replace("_", "/"): SimpleNamespace(underscore_to_dot=False)}  # type: ignore[attr-defined]
        sys.modules[name] = config
    # On import it makes folders for results, by default beside the installed package.
    own = "BFCL_PROJECT_ROOT" not in os.environ
    if own:
        os.environ["BFCL_PROJECT_ROOT"] = tempfile.gettempdir() + "/bfcl"
    try:
        return import_module(f"bfcl_eval.{path}")
    except ImportError as error:
        raise CommandError(f"BFCL needs its own package ({error}): {INSTALL}") from error
    finally:
        if own:
            del os.environ["BFCL_PROJECT_ROOT"]


@lru_cache
def rows_and_answers(category: str) -> tuple[list[dict[str, Any]], list[Any]]:
    """The cases of a category, and the reference of each.

    A row has the functions' documents twice: `function` for the checkers, and `offered` with hints about the language,
    as models get them. Not to be written to: they are read once.

    Raises:
        CommandError: bfcl-eval is not installed; says how to.
    """
    utils = _module("utils")
    rows = utils.load_dataset_entry(category, include_language_specific_hint=False)
    for row, hinted in zip(rows, utils.load_dataset_entry(category), strict=True):
        row["offered"] = hinted["function"]
    answers = {row["id"]: row["ground_truth"] for row in utils.load_ground_truth_entry(category)}
    return rows, [answers[row["id"]] for row in rows]


def added_functions_message() -> str:
    """What the user says when functions were held out and are now offered."""
    return str(_module("constants.default_prompts").DEFAULT_USER_PROMPT_FOR_ADDITIONAL_FUNCTION_FC)


def step_limit() -> int:
    """Outputs with calls that a turn may have."""
    return int(_module("constants.default_prompts").MAXIMUM_STEP_LIMIT)


def check_single_turn(
    functions: list[dict[str, Any]], calls: list[dict[str, Any]], answer: Any, category: str
) -> dict[str, Any]:
    """`ast_checker`: `valid`, `error` and `error_type`."""
    language = _module("constants.enums").Language
    languages = {"simple_java": language.JAVA, "simple_javascript": language.JAVASCRIPT}
    checker = _module("eval_checker.ast_eval.ast_checker").ast_checker
    result: dict[str, Any] = checker(
        functions, calls, answer, languages.get(category, language.PYTHON), category, NAME
    )
    return result


def execute(row: dict[str, Any], steps: list[list[str]]) -> list[list[str]]:
    """What the simulated APIs give to the calls of each step, from the case's initial state on."""
    run = _module("eval_checker.multi_turn_eval.multi_turn_utils").execute_multi_turn_func_call
    try:
        return [
            run(step, row["initial_config"], row["involved_classes"], NAME, row["id"], long_context=_is_long(row))[0]
            for step in steps
        ]
    finally:
        _forget(row["id"])


def check_multi_turn(row: dict[str, Any], turns: list[list[list[str]]], answer: list[list[str]]) -> dict[str, Any]:
    """`multi_turn_checker`: `valid`, `error_message` and `error_type`."""
    checker = _module("eval_checker.multi_turn_eval.multi_turn_checker").multi_turn_checker
    try:
        result: dict[str, Any] = checker(turns, answer, row, row["id"].rsplit("_", 1)[0], NAME)
        return result
    finally:
        _forget(row["id"])


def _is_long(row: dict[str, Any]) -> bool:
    return "long_context" in row["id"] or "composite" in row["id"]


def _forget(case: str) -> None:
    """bfcl-eval keeps a case's simulated APIs among its globals: the next run would start from their state."""
    names = vars(_module("eval_checker.multi_turn_eval.multi_turn_utils"))
    for name in [name for name in names if name.startswith(f"{NAME}_") and f"_{case}_" in name]:
        del names[name]
