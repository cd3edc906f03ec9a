"""`dara-trl eval bfcl`: does the model call functions as BFCL-v4 wants it, and in the format of its training?"""

import argparse
import json
import sys
from collections import deque
from pathlib import Path
from typing import Any

from ..cli import CommandError
from . import command, outcome
from .bfcl import CATEGORIES, Case, Episode, judge, load_cases, scores
from .generation import Generation, Request
from .store import Store, read_answers, read_json


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--category",
        action="append",
        choices=CATEGORIES,
        help="only this category; repeatable (default: all 14, Non-Live, Live and Multi-Turn)",
    )
    command.add_model_arguments(parser, max_new_tokens=8192, output="runs/eval_bfcl")


def run(args: argparse.Namespace) -> int:
    if not args.rescore:
        models = command.models(args)
        categories = [category for category in CATEGORIES if category in (args.category or CATEGORIES)]
        cases = load_cases(categories, args.limit)
        for model in models:
            _answer(args, model, categories, cases)
    results: dict[str, Any] = {"evaluation": "bfcl", "models": {}}
    for label, folder in command.evaluated(args.output):
        results["models"][label] = _result(folder)
    outcome.publish(results, args.output, as_json=args.json)
    return 0


def _answer(args: argparse.Namespace, model: command.Model, categories: list[str], cases: list[Case]) -> None:
    """Has the model work on whatever case it has not finished yet."""
    from tqdm import tqdm

    settings = {**command.settings(args, model), "categories": categories, "limit": args.limit}
    store = Store(args.output / model.label, settings)
    try:
        waiting = [case for case in cases if case.id not in store.answers]
        if not waiting:
            print(f"{model.label}: all {len(cases)} cases are finished already.", file=sys.stderr)
            return
        backend = command.open_backend(args, model)
        try:
            with tqdm(total=len(cases), initial=len(cases) - len(waiting), desc=model.label, unit="case") as bar:
                play = _Play(waiting)
                for one in backend.generate(play.requests, command.sampling(args)):
                    finished = play.feed(one)
                    if finished is not None:
                        store.append(*finished)
                        bar.update()
        finally:
            backend.close()
    finally:
        store.close()


class _Play:
    """The cases that are being worked on. A request's key is the case's id, the turn, and the output in the turn."""

    def __init__(self, cases: list[Case]) -> None:
        self._episodes = {case.id: Episode(case) for case in cases}
        self._answers: dict[str, list[Generation]] = {}
        self.requests = deque(Request(f"{name}/0/0", one.messages) for name, one in self._episodes.items())

    def feed(self, one: Generation) -> tuple[str, dict[str, Any]] | None:
        """Takes an output; the case's id and what is kept of it, where that was its last."""
        name = one.key.split("/")[0]
        episode = self._episodes[name]
        self._answers.setdefault(name, []).append(one)
        episode.feed(one.text)
        if not episode.done:
            turn, step = len(episode.outputs) - 1, len(episode.outputs[-1])
            # Before the cases that wait: so one is finished soon, and a killed evaluation loses little.
            self.requests.appendleft(Request(f"{name}/{turn}/{step}", episode.messages))
            return None
        del self._episodes[name]
        given = self._answers.pop(name)
        drawn = {"tokens": [each.tokens for each in given], "finished": [each.finished for each in given]}
        return name, {"outputs": episode.outputs, **drawn}


def _result(folder: Path) -> dict[str, Any]:
    """Judges what is saved, with the verdict over each case in `scores.jsonl`."""
    settings = read_json(folder / "settings.json")
    answers = read_answers(folder)
    try:
        cases = load_cases(settings["categories"], settings["limit"])
        there = [case for case in cases if case.id in answers]
        rows = [answers[case.id] for case in there]
        verdicts = judge([(case, row["outputs"]) for case, row in zip(there, rows, strict=True)])
        drawn = [pair for row in rows for pair in zip(row["tokens"], row["finished"], strict=True)]
        cut = command.cut_by_context(settings, drawn)
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise CommandError(f"{folder} holds no answers of `dara-trl eval bfcl` ({error!r}).") from error
    lines = [
        json.dumps({"key": case.id, "correct": one.correct, "format": one.format, "error": one.error}) + "\n"
        for case, one in zip(there, verdicts, strict=True)
    ]
    (folder / "scores.jsonl").write_text("".join(lines), encoding="utf-8")
    by_category: dict[str, list[Any]] = {}
    for case, one in zip(there, verdicts, strict=True):
        by_category.setdefault(case.category, []).append(one)
    whole = len(there) == len(cases)
    sets, overall = scores(by_category)
    result = {"settings": settings, "missing": len(cases) - len(there), "cut_by_context": cut}
    return {**result, "sets": sets, "overall": overall if whole else None}
