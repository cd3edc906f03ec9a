"""Names of embedded policies, and the two tiny ones: a short warm start on bad demonstrations makes them ready for RL.

`embedded:tiny` calls tools: content often right, format almost never, so the format reward is sparse and correctness
dense when RL begins. Its content is right at first, because a model of this size does not find out that values are
copied from the request where many are wrong. `embedded:arithmetic` adds numbers: nearly always short enough, so the
length reward is close to saturation.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from . import arithmetic, tokenizer, warm_start, world
from .cache import cached_folder


PREFIX = "embedded:"

# Raise it when the training changes; the worlds, the tokenizer and the recipes are in the cache's key by themselves.
FORMAT_VERSION = 1


@dataclass(frozen=True)
class Recipe:
    """How the tiny policy is made.

    Attributes:
        steps: optimiser steps of the warm start.
        clean_steps: how many of them, from the first, have right content.
        batch_size: demonstrations per step.
        learning_rate: its peak.
        good: chance of each of three format habits to be right in a demonstration.
        err: chance of each content slot to be wrong in a later demonstration.
        careless: the same where the first two format habits are right; None is `err`.
        rambling: chance of one more thought after each, in every demonstration.
        seed: of the weights and the demonstrations.
    """

    steps: int = 500
    clean_steps: int = 350
    batch_size: int = 64
    learning_rate: float = 5e-3
    good: float = 0.23
    err: float = 0.3
    careless: float | None = None
    rambling: float = 0.0
    seed: int = 0


@dataclass(frozen=True)
class ArithmeticRecipe:
    """How the policy for sums is made.

    Attributes:
        steps: optimiser steps of the warm start.
        clean_steps: how many of them, from the first, add rightly.
        batch_size: demonstrations per step.
        learning_rate: its peak.
        err: chance of each addition to be wrong in a later demonstration.
        checking: chance of each addition to be checked in one more line, in every demonstration.
        seed: of the weights and the demonstrations.
    """

    steps: int = 600
    clean_steps: int = 450
    batch_size: int = 64
    learning_rate: float = 5e-3
    err: float = 0.15
    checking: float = 0.06
    seed: int = 0


def resolve_model(name_or_path: str) -> str:
    """The local folder of an embedded model, which `from_pretrained` can load; it is built at the first call.

    Args:
        name_or_path (`str`): `"embedded:tiny"`, `"embedded:arithmetic"`, `"embedded:smollm2"`, or anything else, which
            is returned unchanged. Fields of [`Recipe`] or [`ArithmeticRecipe`] can follow the first two:
            `"embedded:tiny:seed=1,err=0.4"`.

    Raises:
        ValueError: an unknown `embedded:` name, or a recipe that has no such field or value.
        ImportError: `embedded:smollm2` without the package that carries it.
        OSError: the cache folder cannot be written.
    """
    if not name_or_path.startswith(PREFIX):
        return name_or_path
    name, colon, settings = name_or_path.removeprefix(PREFIX).partition(":")
    if name == "tiny" and bool(colon) == bool(settings):
        return str(tiny_policy(_recipe(Recipe, name, settings)))
    if name == "arithmetic" and bool(colon) == bool(settings):
        return str(arithmetic_policy(_recipe(ArithmeticRecipe, name, settings)))
    if name == "smollm2" and not colon:
        from .smollm2 import smollm2

        return str(smollm2())
    known = "embedded:tiny, embedded:arithmetic, embedded:smollm2"
    raise ValueError(f"Unknown embedded model {name_or_path!r}. Known: {known}.")


def _recipe(kind: Callable[..., Any], policy: str, settings: str) -> Any:
    types = {"steps": int, "clean_steps": int, "batch_size": int, "seed": int}
    names = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    values: dict[str, Any] = {}
    for setting in filter(None, settings.split(",")):
        name, _, value = setting.partition("=")
        if name not in names:
            raise ValueError(f"embedded:{policy} has no setting {name!r}. Known: {', '.join(names)}.")
        try:
            values[name] = types.get(name, float)(value)
        except ValueError:
            raise ValueError(f"embedded:{policy}: {name} must be a number, not {value!r}.") from None
    return kind(**values)


def tiny_policy(recipe: Recipe | None = None) -> Path:
    """The tiny policy's folder; trained, in one to two minutes on one core, unless the cache has it.

    Raises:
        OSError: the cache folder cannot be written.
    """
    recipe = recipe or Recipe()
    rng = random.Random(0)
    sample = [
        (example.prompt, example.answer, _demonstration(example, rng, recipe, clean=False))
        for example in world.examples("train", 64)
    ]
    key = [FORMAT_VERSION, asdict(recipe), tokenizer.vocabulary(), tokenizer.CHAT_TEMPLATE, sample]

    def batches() -> Iterator[tuple[list[warm_start.Conversation], list[str]]]:
        rng = random.Random(recipe.seed)
        examples = world.examples("train", recipe.steps * recipe.batch_size, seed=recipe.seed + 1)
        for step in range(recipe.steps):
            batch = examples[step * recipe.batch_size : (step + 1) * recipe.batch_size]
            clean = step < recipe.clean_steps
            yield [one.prompt for one in batch], [_demonstration(one, rng, recipe, clean=clean) for one in batch]

    return _cached("tiny", key, batches, recipe, heads=4)


def _demonstration(example: world.Example, rng: random.Random, recipe: Recipe, *, clean: bool) -> str:
    err, careless = (0.0, None) if clean else (recipe.err, recipe.careless)
    return world.demonstration(example, rng, recipe.good, err, careless=careless, rambling=recipe.rambling)


def arithmetic_policy(recipe: ArithmeticRecipe | None = None) -> Path:
    """The folder of the policy for sums; trained, in about a minute on one core, unless the cache has it.

    Raises:
        OSError: the cache folder cannot be written.
    """
    recipe = recipe or ArithmeticRecipe()
    rng = random.Random(0)
    sample = [
        (one.prompt, one.answer, arithmetic.demonstration(one, rng, err=0.3, checking=0.3))
        for one in arithmetic.sums("train", 64)
    ]
    key = [FORMAT_VERSION, asdict(recipe), tokenizer.vocabulary(), tokenizer.CHAT_TEMPLATE, sample]

    def batches() -> Iterator[tuple[list[warm_start.Conversation], list[str]]]:
        rng = random.Random(recipe.seed)
        problems = arithmetic.sums("train", recipe.steps * recipe.batch_size, seed=recipe.seed + 1)
        for step in range(recipe.steps):
            batch = problems[step * recipe.batch_size : (step + 1) * recipe.batch_size]
            err = 0.0 if step < recipe.clean_steps else recipe.err
            yield (
                [one.prompt for one in batch],
                [arithmetic.demonstration(one, rng, err=err, checking=recipe.checking) for one in batch],
            )

    # Heads of 32: vLLM's CPU build has no smaller ones on every machine.
    return _cached("arithmetic", key, batches, recipe, heads=2)


def _cached(name: str, key: Any, batches: Callable[[], Any], recipe: Recipe | ArithmeticRecipe, *, heads: int) -> Path:
    def build(folder: Path) -> None:
        warm_start.build(
            folder,
            batches(),
            name=PREFIX + name,
            heads=heads,
            steps=recipe.steps,
            learning_rate=recipe.learning_rate,
            seed=recipe.seed,
        )

    return cached_folder(name, key, build, cost="one to two minutes")
