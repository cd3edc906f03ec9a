"""Finds the runs below the paths that the user gave, and makes one `Run` of each, in whatever form it was logged."""

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..cli import CommandError
from ..json_text import parse_json
from . import readers
from .readers import Log


RECOGNISED = (
    "a folder with run.json and metrics.jsonl (dara-trl compare), trainer_state.json or a folder of checkpoints "
    "(TRL, transformers), *.wandb (W&B offline), events.out.tfevents.* (TensorBoard), metrics.jsonl (verl)"
)
NO_SETTING = "default"

Series = dict[int, float | None]


@dataclass(frozen=True)
class Run:
    """One training run: its figures by name and step, and where they come from."""

    setting: str
    label: str
    seed: int | str | None
    source: str
    kind: str
    series: Mapping[str, Series]
    thresholds: Mapping[str, float] = field(default_factory=dict)
    baseline: str | None = None
    config: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    revision: str | None = None
    dirty: bool | None = None
    status: str = ""
    notes: tuple[str, ...] = ()
    named: bool = False  # the label was given or logged; else it is only the folder's name

    def curve(self, key: str, until: int | None = None) -> tuple[list[int], list[float]]:
        """Steps and values of one figure, ascending; steps at which it has no value are left out."""
        items = sorted(self.series.get(key, {}).items())
        kept = [(step, value) for step, value in items if value is not None and (until is None or step <= until)]
        return [step for step, _ in kept], [value for _, value in kept]

    def last_step(self, prefix: str = "") -> int:
        """The last step at which anything of training was logged, or with `eval_` of evaluation; 0 without any."""
        wanted = [steps for key, steps in self.series.items() if key.startswith("eval_") == bool(prefix)]
        return max((max(steps) for steps in wanted if steps), default=0)

    @property
    def rewards(self) -> list[str]:
        """Names of the rewards whose means were logged, in training or evaluation."""
        matches = [re.fullmatch(r"(?:eval_)?rewards/(.+)/mean", key, re.DOTALL) for key in self.series]
        return list(dict.fromkeys(match[1] for match in matches if match))


def load_runs(arguments: Sequence[str], partial: bool = False) -> tuple[list[Run], list[str]]:
    """The runs of all `RUN` and `LABEL=PATH` arguments in order, each once, and notes on what was left out.

    Raises:
        CommandError: a path does not exist, or nothing below it can be used.
    """
    runs: list[Run] = []
    notes: list[str] = []
    seen: set[Path] = set()
    for argument in arguments:
        label, path = _split(argument)
        found: list[Run] = []
        skipped: list[str] = []
        failures: list[str] = []
        known = 0
        for place in _places(path, partial, skipped):
            if place.identity in seen:
                known += 1
                continue
            seen.add(place.identity)
            try:
                found.append(_run(place, label))
            except (ValueError, OSError) as error:
                failures.append(f"{place.path}: {error}")
        if not found and not known:
            raise CommandError(_nothing(path, failures, skipped))
        notes += [f"left out: {failure}" for failure in failures] + skipped
        runs += found
    runs, twice = _without_twins(runs)
    return _numbered(runs), notes + twice


def _nothing(path: Path, failures: Sequence[str], skipped: Sequence[str]) -> str:
    if skipped and not failures:
        return f"{path} holds unfinished runs only ({len(skipped)}); --partial includes them"
    reasons = f" ({'; '.join(failures[:3])})" if failures else ""
    return f"nothing usable in {path}{reasons}. Recognised: {RECOGNISED}."


def _split(argument: str) -> tuple[str, Path]:
    if Path(argument).exists():
        return "", Path(argument)
    label, equals, path = argument.partition("=")
    if equals and label and path and Path(path).exists():
        return label, Path(path)
    raise CommandError(f"{path if equals and label else argument} does not exist")


@dataclass(frozen=True)
class _Place:
    """Where one run lies: `path` is what makes it one run, `folder` the folder that is the run's own."""

    form: str
    path: Path
    folder: Path

    @property
    def identity(self) -> Path:
        shared = self.path.is_dir() or self.path.name in ("metrics.jsonl", "trainer_state.json")
        return (self.folder if shared else self.path).resolve()

    @property
    def name(self) -> str:
        if self.path.is_file() and self.path.suffix == ".jsonl" and self.path.name != "metrics.jsonl":
            return self.path.stem
        resolved = self.folder.resolve()
        return (resolved.parent if re.fullmatch(r"checkpoint-\d+", resolved.name) else resolved).name


def _places(path: Path, partial: bool, skipped: list[str]) -> Iterator[_Place]:
    if path.is_dir():
        if any(part.endswith(".partial") for part in path.absolute().parts) and not partial:
            skipped.append(f"skipped, unfinished: {path}")
            return
        yield from _walk(path, partial, skipped, set(), owned=False)
    elif path.suffix == ".wandb":
        yield _Place("wandb", path, path.parent)
    elif path.name.startswith("events.out.tfevents"):
        yield _Place("tensorboard", path.parent, path.parent)
    elif path.name == "run.json" and (path.parent / "metrics.jsonl").is_file():
        yield _Place("ours", path.parent, path.parent)
    elif path.suffix == ".jsonl":
        yield _Place("jsonl", path, path.parent)
    elif path.suffix == ".json":
        yield _Place("trainer_state", path, path.parent)
    else:
        raise CommandError(f"{path} is not a log that is known. Recognised: {RECOGNISED}.")


def _walk(folder: Path, partial: bool, skipped: list[str], visited: set[Path], owned: bool) -> Iterator[_Place]:
    """Runs in and below a folder. Below a run's own folder (`owned`), W&B and event files are other forms of it."""
    if folder.resolve() in visited:  # a link in a circle, or W&B's `latest-run`
        return
    visited.add(folder.resolve())
    children = sorted(folder.iterdir(), key=lambda child: (child.is_symlink(), _natural(child.name)))
    names = {child.name for child in children if child.is_file()}
    checkpoints = [child for child in children if re.fullmatch(r"checkpoint-\d+", child.name) and child.is_dir()]
    states = [child for child in checkpoints if (child / "trainer_state.json").is_file()]
    wandb = [child for child in children if child.suffix == ".wandb" and child.is_file()]
    place: _Place | None = None
    if "metrics.jsonl" in names:
        place = _Place("ours" if "run.json" in names else "jsonl", folder, folder)
    elif "trainer_state.json" in names or states:
        place = _Place("trainer_state", folder, folder)
    if place is not None:
        yield place
    elif not owned:
        yield from (_Place("wandb", path, folder) for path in wandb)
        if not wandb and any(name.startswith("events.out.tfevents") for name in names):
            yield _Place("tensorboard", folder, folder)
    for child in children:
        if not child.is_dir() or child in checkpoints or child.name.startswith("."):
            continue
        if child.name.endswith(".partial") and not partial:
            skipped.append(f"skipped, unfinished: {child}")
            continue
        yield from _walk(child, partial, skipped, visited, owned or place is not None)


def _natural(name: str) -> list[tuple[int, int | str]]:
    """Sorts seed2 before seed10."""
    return [(0, int(part)) if part.isdecimal() else (1, part) for part in re.split(r"(\d+)", name) if part]


def _run(place: _Place, label: str) -> Run:
    log, metadata, notes = _read(place)
    notes += log.notes
    if not any(re.fullmatch(r"(eval_)?rewards/.+/mean", key, re.DOTALL) for row in log.rows for key in row):
        raise ValueError("no rewards/<name>/mean (or critic/<name>_score/mean) in it")
    series, repeated = _series(log.rows)
    config = metadata.get("config") or log.config
    git = metadata.get("git") or {}
    own = metadata.get("method") or config.get("aggregation") or log.name
    seed = metadata.get("seed", config.get("seed"))
    return Run(
        setting=str(metadata.get("setting") or NO_SETTING),
        label=label or str(own or place.name),
        seed=seed if isinstance(seed, int | str) else None,
        source=str(place.path),
        kind=log.kind,
        series=series,
        thresholds={
            str(name): float(value)
            for name, value in (metadata.get("thresholds") or {}).items()
            if isinstance(value, int | float) and math.isfinite(value)
        },
        baseline=metadata.get("baseline"),
        config=config,
        versions={str(name): str(value) for name, value in (metadata.get("versions") or {}).items()},
        revision=git.get("revision") or log.revision,
        dirty=git.get("dirty"),
        status=str(metadata.get("status") or ""),
        notes=tuple(notes) + repeated,
        named=bool(label or own),
    )


def _read(place: _Place) -> tuple[Log, dict[str, Any], tuple[str, ...]]:
    metadata: dict[str, Any] = {}
    notes: tuple[str, ...] = ()
    if (place.folder / "run.json").is_file():
        metadata = parse_json((place.folder / "run.json").read_text(encoding="utf-8"))
        if not isinstance(metadata, dict):
            raise ValueError("run.json is not an object")
        for name in ("config", "git", "thresholds", "versions"):
            if not isinstance(metadata.get(name) or {}, dict):
                raise ValueError(f"{name} in its run.json is not a mapping")
        if not isinstance(metadata.get("seed"), int | str | None):
            raise ValueError("seed in its run.json is neither a number nor a name")
        status = metadata.get("status")
        if status not in (None, "finished"):
            notes = (f"its run.json says it is {status}, not finished",)
    if place.form == "wandb":
        return readers.read_wandb(place.path), metadata, notes
    if place.form == "tensorboard":
        return readers.read_tensorboard(place.path), metadata, notes
    if place.form in ("ours", "jsonl"):
        path = place.path / "metrics.jsonl" if place.path.is_dir() else place.path
        return readers.read_jsonl(path), metadata, notes
    if place.path.is_file():
        return readers.read_trainer_state(place.path), metadata, notes
    log, more = _newest_state(place.path)
    return log, metadata, notes + more


def _newest_state(folder: Path) -> tuple[Log, tuple[str, ...]]:
    """The longest readable history among a folder's own trainer_state.json and those of its checkpoints."""
    own = folder / "trainer_state.json"
    checkpoints = sorted(
        folder.glob("checkpoint-*/trainer_state.json"), key=lambda path: _natural(path.parent.name), reverse=True
    )
    notes: list[str] = []
    best: tuple[int, Log] | None = None
    for path in [own] * own.is_file() + checkpoints[: len(checkpoints) if not own.is_file() else 1]:
        try:
            log = readers.read_trainer_state(path)
        except (ValueError, OSError) as error:
            notes.append(f"{path.relative_to(folder)} is unreadable and was passed over: {error}")
            continue
        last = max((row["step"] for row in log.rows), default=-1)
        if best is None or last > best[0]:
            best = (last, log)
        if path != own:
            break
    if best is None:
        raise ValueError("no readable trainer_state.json: " + "; ".join(notes))
    return best[1], tuple(notes)


def _series(rows: Iterable[Mapping[str, Any]]) -> tuple[dict[str, Series], tuple[str, ...]]:
    """Figures by name and step. Where a step was logged twice (a resumed run), the last value wins."""
    series: dict[str, Series] = {}
    repeated: set[int] = set()
    resumed_from, last_life, last = None, 0, 0
    for row in rows:
        step = row["step"]
        for key, value in row.items():
            if key == "step":
                continue
            steps = series.setdefault(key, {})
            if step in steps:
                repeated.add(step)
            steps[step] = value
        if step in repeated and step < last:
            resumed_from, last_life = step, last
            last = step
        last = max(last, step)
    if not repeated:
        return series, ()
    note = f"{_span(repeated)} logged more than once (a resumed run): the last value counts"
    if resumed_from is not None and last < last_life:
        note += f"; steps {last + 1} to {last_life} are from before it was resumed"
    return series, (note,)


def _span(steps: set[int]) -> str:
    first, last = min(steps), max(steps)
    if first == last:
        return f"step {first} was"
    return f"steps {first} to {last} were" if len(steps) == last - first + 1 else f"{len(steps)} steps were"


def _without_twins(runs: list[Run]) -> tuple[list[Run], list[str]]:
    """Drops a run that is another form of an earlier one: every figure that both have is the same at every step.

    What only the dropped form says of the run (method, seed, arguments) is kept.
    """
    kept: list[Run] = []
    notes = []
    for run in runs:
        i = next((i for i, other in enumerate(kept) if _same(other, run)), None)
        if i is None:
            kept.append(run)
            continue
        twin = kept[i]
        notes.append(f"counted once: {run.source} ({run.kind}) logs the same run as {twin.source} ({twin.kind})")
        kept[i] = replace(
            twin,
            label=twin.label if twin.named or not run.named else run.label,
            seed=run.seed if twin.seed is None else twin.seed,
            config=twin.config or run.config,
            revision=twin.revision or run.revision,
            named=twin.named or run.named,
        )
    return kept, notes


def _same(one: Run, other: Run) -> bool:
    if one.kind == other.kind or (one.named and other.named and one.label != other.label):
        return False
    keys = [key for key in one.series if key in other.series]
    if not any(key.startswith("rewards/") for key in keys):
        return False
    values = [(one.series[key], other.series[key]) for key in keys]
    if any(a.keys() != b.keys() for a, b in values):
        return False
    pairs = [(a[step], b[step]) for a, b in values for step in a]
    # TensorBoard keeps float32.
    return all(a == b if a is None or b is None else math.isclose(a, b, rel_tol=1e-5, abs_tol=1e-7) for a, b in pairs)


def _numbered(runs: list[Run]) -> list[Run]:
    """Gives runs without a seed 0, 1, 2, ... in order of their group, and tells runs of the same seed apart."""
    taken: dict[tuple[str, str], list[int | str]] = {}
    numbered = []
    for run in runs:
        group = taken.setdefault((run.setting, run.label), [])
        seed, notes = run.seed, run.notes
        if seed is None:
            seed = next(i for i in range(len(group) + 1) if i not in group)
            notes += (f"no seed in the log: counted as seed {seed}, in order of path",)
        elif seed in group:
            seed = next(name for i in range(2, len(group) + 3) if (name := f"{run.seed} ({i})") not in group)
            notes += (f"another run of {run.label} has seed {run.seed} too: counted as {seed}, in order of path",)
        group.append(seed)
        numbered.append(replace(run, seed=seed, notes=notes))
    return numbered
