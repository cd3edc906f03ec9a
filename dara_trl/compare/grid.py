"""The grid of a comparison: from one YAML file to the list of its runs."""

import itertools
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from ..cli import CommandError


FIELDS = {
    "output_dir": "folder that gets one folder per run",
    "script": "training script that takes --config FILE, as TrlParser's do",
    "launch": "list of arguments for accelerate launch",
    "config": "recipe (YAML file) that all runs start from",
    "arguments": "arguments of all runs, over the recipe's",
    "settings": "name: arguments, over those",
    "methods": "name: arguments, over those; or a list of aggregation methods",
    "seeds": "list of seeds, or of mappings with a `seed` and names that arguments refer to as {name}",
    "baseline": "the method that the report compares the others with",
    "thresholds": "reward: the mean that counts as reached in the report",
}
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True)
class Run:
    """One run of the grid: who it is, and the resolved arguments of its script (without `output_dir`)."""

    setting: str
    method: str
    seed: int
    replicate: str
    config: dict[str, Any]

    @property
    def name(self) -> str:
        """Its folder below the grid's `output_dir`."""
        return f"{self.setting}/{self.method}/{self.replicate}"


@dataclass(frozen=True)
class Grid:
    """A comparison: what to launch, and the runs, in the order in which they are to be started."""

    output_dir: Path
    script: Path
    launch: list[str]
    runs: list[Run]
    baseline: str | None = None
    thresholds: dict[str, float] = field(default_factory=dict)


def load_grid(path: str | Path) -> Grid:
    """Reads a grid file (fields: `FIELDS`). Paths in it are relative to the current folder.

    Of the runs, all methods and settings of the first seed come first, so that an unfinished comparison compares.

    Raises:
        CommandError: the file or what it refers to cannot be read, or a field is not as described.
    """
    given = _mapping(_read_yaml(Path(path), "the grid"), f"{path}")
    unknown = [name for name in given if name not in FIELDS]
    if unknown:
        raise CommandError(f"{path}: unknown field {', '.join(unknown)}. Known: {', '.join(FIELDS)}.")
    for name in ("output_dir", "script", "methods", "seeds"):
        if name not in given:
            raise CommandError(f"{path}: the field {name} is missing: {FIELDS[name]}.")
    for name in ("output_dir", "script", "config", "baseline"):
        if name in ("config", "baseline") and given.get(name) is None:
            continue
        if not isinstance(given[name], str) or not given[name]:
            raise CommandError(f"{path}: {name} must be text, not {given[name]!r}: {FIELDS[name]}.")
    launch = given.get("launch") or []
    if not isinstance(launch, list) or not all(isinstance(argument, str | int | float) for argument in launch):
        raise CommandError(f"{path}: launch must be a list of arguments, one an item, not {launch!r}.")
    script = Path(given["script"])
    if not script.is_file():
        raise CommandError(f"{path}: script {script} does not exist.")

    common = _mapping(_read_yaml(Path(given["config"]), "config"), given["config"]) if given.get("config") else {}
    common = {**common, **_mapping(given.get("arguments"), f"{path}: arguments")}
    settings = _named(given.get("settings") or {"default": {}}, f"{path}: settings")
    methods = given["methods"]
    if isinstance(methods, list):
        if len(set(map(str, methods))) < len(methods):
            raise CommandError(f"{path}: methods: every method must occur once: {methods!r}.")
        methods = {str(name): {"aggregation": str(name)} for name in methods}
    methods = _named(methods, f"{path}: methods")
    seeds = _seeds(given["seeds"], f"{path}: seeds")
    baseline = given.get("baseline")
    if baseline is not None and baseline not in methods:
        raise CommandError(f"{path}: baseline {baseline!r} is not one of the methods {', '.join(methods)}.")

    runs = []
    for seed, (setting, own), (method, its) in itertools.product(seeds, settings.items(), methods.items()):
        config = {**common, **own, **its, "seed": seed["seed"]}
        config.pop("output_dir", None)
        runs.append(
            Run(
                setting,
                method,
                seed["seed"],
                "-".join(f"{key}{value}" for key, value in seed.items()),
                {key: _filled(value, seed, f"{path}: {key}") for key, value in config.items()},
            )
        )
    return Grid(
        output_dir=Path(given["output_dir"]),
        script=script,
        launch=[str(argument) for argument in launch],
        runs=runs,
        baseline=baseline,
        thresholds=_thresholds(given.get("thresholds"), f"{path}: thresholds"),
    )


def _read_yaml(path: Path, what: str) -> Any:
    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"{what} cannot be read: {error}") from error
    except (yaml.YAMLError, ValueError) as error:  # ValueError: a date such as 2026-13-45
        raise CommandError(f"{path} is not YAML: {error}") from error
    except RecursionError as error:
        raise CommandError(f"{path} is nested too deep") from error


def _mapping(value: Any, where: str) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise CommandError(f"{where} must be a mapping of names to values, not {value!r}.")
    return dict(value)


def _named(value: Any, where: str) -> dict[str, dict[str, Any]]:
    named = {name: _mapping(arguments, f"{where}.{name}") for name, arguments in _mapping(value, where).items()}
    if not named:
        raise CommandError(f"{where} is empty.")
    for name in named:
        if not NAME.fullmatch(name) or name.endswith(".partial"):
            raise CommandError(f"{where}: {name!r} becomes a folder's name: use letters, digits, '.', '_' and '-'.")
    return named


def _seeds(value: Any, where: str) -> list[dict[str, Any]]:
    if not isinstance(value, list) or not value:
        raise CommandError(f"{where} must be a list: {FIELDS['seeds']}; not {value!r}.")
    seeds = [dict(entry) if isinstance(entry, Mapping) else {"seed": entry} for entry in value]
    for seed in seeds:
        if isinstance(seed.get("seed"), bool) or not isinstance(seed.get("seed"), int):
            raise CommandError(f"{where}: each entry needs an integer seed, which {seed!r} has not.")
        for key, entry in seed.items():
            if not NAME.fullmatch(f"{key}{entry}"):
                raise CommandError(f"{where}: {key}={entry!r} becomes a folder's name: use letters, digits and '_'.")
    numbers = [seed["seed"] for seed in seeds]
    if len(set(numbers)) < len(numbers):
        raise CommandError(f"{where}: every seed must occur once, as runs are paired by it: {numbers}.")
    return seeds


def _filled(value: Any, seed: dict[str, Any], where: str) -> Any:
    """`value` with {name} replaced in all of its strings by what the seed's mapping has under that name."""
    if isinstance(value, list):
        return [_filled(entry, seed, where) for entry in value]
    if isinstance(value, Mapping):
        return {key: _filled(entry, seed, where) for key, entry in value.items()}
    if not isinstance(value, str):
        return value
    for name, entry in seed.items():
        value = value.replace(f"{{{name}}}", str(entry))
    return value


def _thresholds(value: Any, where: str) -> dict[str, float]:
    thresholds = _mapping(value, where)
    for name, threshold in thresholds.items():
        if isinstance(threshold, bool) or not isinstance(threshold, int | float):
            raise CommandError(f"{where}.{name} must be a number, not {threshold!r}.")
    return {name: float(threshold) for name, threshold in thresholds.items()}
