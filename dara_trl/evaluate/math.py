r"""`dara-trl eval math`: is the last `\boxed{…}` right, and was the answer short enough?"""

import argparse
import hashlib
import json
import sys
from collections import deque
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..cli import CommandError
from . import command, outcome
from .generation import Request
from .statistics import Estimate, estimate
from .store import Store, read_answers, read_json


EMBEDDED_SIZE = 64
MEASURES = ("accuracy", "exceed", "joint")


@dataclass(frozen=True)
class Scores:
    """Of one set of problems.

    Attributes:
        problems: how many are scored.
        samples: answers to each.
        unfinished: answers that were cut off, a share of all.
        tokens: mean length of an answer.
        accuracy: right answers (pass@1 over the samples). One that was cut off is wrong.
        exceed: answers of more tokens than the limit.
        joint: answers that are right and within the limit.
    """

    problems: int
    samples: int
    unfinished: float
    tokens: float
    accuracy: Estimate
    exceed: Estimate
    joint: Estimate


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--benchmark",
        action="append",
        default=[],
        metavar="NAME=SOURCE",
        help="problems with references: a .json, .jsonl or .parquet file, a URL or a hub id, with [:SPLIT] after the "
        "hub id (default: test); or 'embedded', sums. Repeatable",
    )
    parser.add_argument("--samples", type=command.positive, default=16, help="answers to each problem (default: 16)")
    parser.add_argument(
        "--length-limit", type=command.positive, default=4000, help="tokens, for Exceed and Joint (default: 4000)"
    )
    parser.add_argument("--instruction", help="follows each problem (default: reason step by step, box the answer)")
    parser.add_argument(
        "--time-limit", type=float, default=5.0, help="seconds that the check of one answer may take (default: 5)"
    )
    command.add_model_arguments(parser, max_new_tokens=32768, output="runs/eval_math")


def run(args: argparse.Namespace) -> int:
    if not args.rescore:
        models = command.models(args)
        benchmarks = _benchmarks(args)
        for model in models:
            _answer(args, model, benchmarks)
    results = {"evaluation": "math", "length_limit": args.length_limit, "models": {}}
    for label, folder in command.evaluated(args.output):
        results["models"][label] = _result(folder, args.length_limit, args.time_limit)
    outcome.publish(results, args.output, as_json=args.json)
    return 0


def _benchmarks(args: argparse.Namespace) -> dict[str, Any]:
    """The sets of problems by name, each a dataset with `prompt` and `answer`."""
    from ..data.math import INSTRUCTION, load_math
    from ..embedded.arithmetic import arithmetic_dataset

    if not args.benchmark:
        raise CommandError(
            "--benchmark NAME=SOURCE is needed, such as math500=HuggingFaceH4/MATH-500 or sums=embedded."
        )
    instruction = INSTRUCTION if args.instruction is None else args.instruction
    found: dict[str, Any] = {}
    for text in args.benchmark:
        name, equals, source = text.partition("=")
        if not equals and text == "embedded":
            name = source = text
        if not source or not command.LABEL.fullmatch(name):
            raise CommandError(f"--benchmark {text}: expected NAME=SOURCE, such as math500=test.json.")
        if name in found:
            raise CommandError(f"--benchmark: {name} is given twice.")
        if source == "embedded":
            found[name] = arithmetic_dataset("test", args.limit or EMBEDDED_SIZE)
            continue
        split = "train" if Path(source).suffix.lower() in (".json", ".jsonl", ".parquet") else "test"
        if split == "test" and "://" not in source and ":" in source:
            source, _, split = source.rpartition(":")
        try:
            found[name] = load_math(source, split=split, limit=args.limit, instruction=instruction)
        except (ValueError, OSError) as error:
            raise CommandError(f"--benchmark {name}: {error}") from error
    return found


def _answer(args: argparse.Namespace, model: command.Model, benchmarks: dict[str, Any]) -> None:
    """Has the model answer whatever it has not answered yet."""
    from tqdm import tqdm

    sets = {
        name: {"problems": len(rows), "sha256": hashlib.sha256(json.dumps(rows[:]).encode()).hexdigest()[:16]}
        for name, rows in benchmarks.items()
    }
    settings = {**command.settings(args, model), "samples": args.samples, "benchmarks": sets}
    store = Store(args.output / model.label, settings)
    try:
        asked = {
            f"{name}/{problem}/{sample}": row
            for name, rows in benchmarks.items()
            for problem, row in enumerate(rows)
            for sample in range(args.samples)
        }
        requests = deque(Request(key, row["prompt"]) for key, row in asked.items() if key not in store.answers)
        if not requests:
            print(f"{model.label}: all {len(asked)} answers are there already.", file=sys.stderr)
            return
        backend = command.open_backend(args, model)
        try:
            done = len(asked) - len(requests)
            with tqdm(total=len(asked), initial=done, desc=model.label, unit="answer", smoothing=0.05) as bar:
                for one in backend.generate(requests, command.sampling(args)):
                    answer = {"reference": asked[one.key]["answer"], "tokens": one.tokens, "finished": one.finished}
                    store.append(one.key, {**answer, "text": one.text})
                    bar.update()
        finally:
            backend.close()
    finally:
        store.close()


def _result(folder: Path, length_limit: int, time_limit: float) -> dict[str, Any]:
    """Scores what is saved, with the scores of each answer in `scores.jsonl`."""
    from ..rewards.math import correctness_reward

    settings = read_json(folder / "settings.json")
    answers = read_answers(folder)
    try:
        keys = list(answers)
        rows = [answers[key] for key in keys]
        right = correctness_reward(
            [row["text"] for row in rows], [row["reference"] for row in rows], time_limit=time_limit
        )
        samples, sets = settings["samples"], settings["benchmarks"]
        scored = {
            key: {
                "accuracy": float(bool(value) and row["finished"]),
                "exceed": float(row["tokens"] > length_limit),
                "joint": float(bool(value) and row["finished"] and row["tokens"] <= length_limit),
                "tokens": row["tokens"],
                "finished": row["finished"],
            }
            for key, row, value in zip(keys, rows, right, strict=True)
        }
    except (KeyError, TypeError) as error:
        raise CommandError(f"{folder} holds no answers of `dara-trl eval math` ({error!r}).") from error
    lines = [json.dumps({"key": key, **row}) + "\n" for key, row in scored.items()]
    (folder / "scores.jsonl").write_text("".join(lines), encoding="utf-8")
    by_problem: dict[str, list[list[dict[str, Any]]]] = {}
    missing = 0
    for name, one in sets.items():
        for problem in range(one["problems"]):
            found = [scored[key] for s in range(samples) if (key := f"{name}/{problem}/{s}") in scored]
            missing += samples - len(found)
            if len(found) == samples:
                by_problem.setdefault(name, []).append(found)
    cut = command.cut_by_context(settings, ((row["tokens"], row["finished"]) for row in rows))
    result = {"settings": settings, "missing": missing, "cut_by_context": cut, "sets": {}, "overall": None}
    result["sets"] = {name: asdict(_scores(problems, samples)) for name, problems in by_problem.items()}
    if by_problem.keys() == sets.keys():
        result["overall"] = {
            measure: asdict(estimate({name: _means(problems, measure) for name, problems in by_problem.items()}))
            for measure in MEASURES
        }
    return result


def _means(problems: list[list[dict[str, Any]]], measure: str) -> list[float]:
    return [sum(answer[measure] for answer in answers) / len(answers) for answers in problems]


def _scores(problems: list[list[dict[str, Any]]], samples: int) -> Scores:
    flat = [answer for answers in problems for answer in answers]
    return Scores(
        problems=len(problems),
        samples=samples,
        unfinished=sum(not answer["finished"] for answer in flat) / len(flat),
        tokens=sum(answer["tokens"] for answer in flat) / len(flat),
        **{measure: estimate({"": _means(problems, measure)}) for measure in MEASURES},
    )
