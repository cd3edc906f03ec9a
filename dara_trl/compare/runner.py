"""Runs a grid: each run a process through `accelerate launch`, resumable after any kind of death.

A run works in `<name>.partial`; only when it has ended well does the folder get its final name, in one rename. So a
folder without that ending is a whole run, and all else is started afresh.
"""

import contextlib
import importlib.metadata
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil
import yaml

from ..cli import CommandError
from ..json_text import parse_json
from ..metrics_file import VARIABLE, read_rows
from .grid import Grid, Run


PARTIAL = ".partial"
METRICS, RECORD, LOG, CONFIG = "metrics.jsonl", "run.json", "log.txt", "config.yaml"
PACKAGES = ("dara-trl", "trl", "transformers", "accelerate", "torch", "datasets", "peft", "deepspeed", "vllm")
GRACE = 10.0  # seconds between SIGTERM and SIGKILL


@dataclass
class Job:
    """A run's process and what it has logged so far."""

    run: Run
    folder: Path
    process: subprocess.Popen
    slot: int
    started: float
    rows: list[dict[str, Any]] = field(default_factory=list)
    offset: int = 0
    first_row: float | None = None

    def read(self) -> None:
        """Takes up what the run has logged since the last call."""
        if (self.folder / METRICS).exists():
            rows, self.offset = read_rows(self.folder / METRICS, self.offset)
            self.rows += rows
            if self.rows and self.first_row is None:
                self.first_row = time.monotonic()


@dataclass(frozen=True)
class Failure:
    """A run that ended badly: why, and where its log is."""

    run: Run
    reason: str
    log: Path


class Runner:
    """Works through a grid's runs, at most `jobs` at once. Call `step` until `unfinished` is False, then `close`.

    Args:
        grid: the comparison.
        jobs: processes at once.
        devices: one `CUDA_VISIBLE_DEVICES` per job, or None.

    Raises:
        CommandError: a finished run in the output folder has another configuration than the grid gives it.
    """

    def __init__(self, grid: Grid, jobs: int, devices: Sequence[str] | None = None) -> None:
        self.grid = grid
        self.devices = devices
        self.finished = [run for run in grid.runs if is_finished(grid, run)]
        self.waiting = [run for run in grid.runs if run not in self.finished]
        self.running: list[Job] = []
        self.failed: list[Failure] = []
        self._free_slots = list(range(jobs))

    @property
    def unfinished(self) -> bool:
        """Whether runs are still to be started or awaited."""
        return bool(self.waiting or self.running)

    def step(self) -> list[Run | Failure]:
        """Collects what has ended, starts what there is room for; returns the runs that ended in this step."""
        ended: list[Run | Failure] = []
        for job in list(self.running):
            code = job.process.poll()
            job.read()
            if code is None:
                continue
            self.running.remove(job)
            self._free_slots.append(job.slot)
            ended.append(self._end(job, code))
        while self.waiting and self._free_slots:
            self.running.append(self._start(self.waiting.pop(0), self._free_slots.pop(0)))
        return ended

    def close(self) -> None:
        """Ends the processes that still run. Their folders stay unfinished."""
        for sign in (signal.SIGTERM, signal.SIGKILL):
            for job in self.running:
                _signal_group(job.process, sign)
            deadline = time.monotonic() + GRACE
            while time.monotonic() < deadline and any(job.process.poll() is None for job in self.running):
                time.sleep(0.05)
        for job in self.running:
            _end_leftovers(job.folder)
        self.running.clear()

    def _start(self, run: Run, slot: int) -> Job:
        folder = self.grid.output_dir.resolve() / (run.name + PARTIAL)
        _end_leftovers(folder)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        config = {**run.config, "output_dir": str(folder)}
        (folder / CONFIG).write_text(yaml.safe_dump(config, sort_keys=False), encoding="utf-8")
        _write_record(folder, _record(self.grid, run))
        environment = {**os.environ, VARIABLE: str(folder / METRICS)}
        if self.devices is not None:
            environment["CUDA_VISIBLE_DEVICES"] = self.devices[slot]
        command = [sys.executable, "-m", "accelerate.commands.launch", *self.grid.launch]
        with (folder / LOG).open("wb") as log:
            process = subprocess.Popen(
                [*command, str(self.grid.script), "--config", str(folder / CONFIG)],
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env=environment,
                start_new_session=True,  # Ctrl-C reaches us alone, and we end the runs in order
            )
        return Job(run, folder, process, slot, time.monotonic())

    def _end(self, job: Job, code: int) -> Run | Failure:
        _end_leftovers(job.folder)  # of a launcher that died
        trained = [row for row in job.rows if "loss" in row]
        if code != 0 or not trained:
            reason = f"exit status {code}" if code else "it logged no training step: does it use DARAGRPOTrainer?"
            self.failed.append(Failure(job.run, reason, job.folder / LOG))
            return self.failed[-1]
        record = parse_json((job.folder / RECORD).read_text(encoding="utf-8"))
        _write_record(job.folder, {**record, "status": "finished", "finished": _now()})
        job.folder.replace(self.grid.output_dir.resolve() / job.run.name)
        self.finished.append(job.run)
        return job.run


def is_finished(grid: Grid, run: Run) -> bool:
    """Whether the run's whole folder is there, made with the same configuration.

    Raises:
        CommandError: it was made with another one; names the differences.
    """
    folder = grid.output_dir / run.name
    if not folder.exists():
        return False
    try:
        made_with = parse_json((folder / RECORD).read_text(encoding="utf-8"))["config"]
    except (OSError, ValueError, KeyError) as error:
        raise CommandError(f"{folder} is no run of this command ({error}): move it away.") from error
    wanted = json.loads(json.dumps(run.config, default=str))
    changed = sorted(key for key in {**made_with, **wanted} if made_with.get(key) != wanted.get(key))
    if changed:
        differences = "; ".join(f"{key} was {made_with.get(key)!r}, now {wanted.get(key)!r}" for key in changed)
        raise CommandError(f"{folder} was made with other arguments ({differences}): delete it, or change output_dir.")
    return True


def _record(grid: Grid, run: Run) -> dict[str, Any]:
    return {
        "name": run.name,
        "setting": run.setting,
        "method": run.method,
        "seed": run.seed,
        "status": "running",
        "started": _now(),
        "baseline": grid.baseline,
        "thresholds": grid.thresholds,
        "launch": grid.launch,
        "script": str(grid.script),
        "config": run.config,
        "versions": _versions(),
        "git": _git(grid.script.resolve().parent),
    }


def _write_record(folder: Path, record: dict[str, Any]) -> None:
    (folder / RECORD).write_text(json.dumps(record, indent=1, default=str) + "\n", encoding="utf-8")


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _git(folder: Path) -> dict[str, Any]:
    """The revision of the script's repository, and whether tracked files differ from it; None without one."""

    def git(*arguments: str) -> str | None:
        try:
            done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=False)
        except OSError:
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    status = git("status", "--porcelain", "--untracked-files=no")
    return {"revision": git("rev-parse", "HEAD"), "dirty": None if status is None else bool(status)}


def _signal_group(process: subprocess.Popen, sign: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, sign)


def _end_leftovers(folder: Path) -> None:
    """Ends processes that still work in the folder, whoever started them.

    Those of a comparison that was killed go on without it; and a launcher's workers have sessions of their own, which
    no signal to the launcher's reaches.
    """
    marker = str(folder / CONFIG)
    for process in psutil.process_iter(["cmdline"]):
        if marker in (process.info["cmdline"] or []):
            try:
                process.kill()
                process.wait(GRACE)
            except psutil.Error:
                continue
