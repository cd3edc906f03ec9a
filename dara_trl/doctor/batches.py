"""How rollouts divide into groups, generation batches and optimiser updates: TRL's rules, in plain numbers."""

import math
from dataclasses import dataclass

from .findings import Finding


FEW_GROUPS = 16


@dataclass(frozen=True)
class Batches:
    """The sizes of a recipe, with TRL's defaults; `generation_batch_size` and `steps_per_generation` as given."""

    processes: int
    per_device: int
    accumulation: int
    num_generations: int
    steps_per_generation: int | None = None
    generation_batch_size: int | None = None
    num_iterations: int = 1
    evaluates: bool = False
    per_device_eval: int = 8
    num_generations_eval: int | None = None

    @property
    def steps(self) -> int:
        """Micro-batches of each process in a generation batch."""
        if self.generation_batch_size is not None:
            return max(1, self.generation_batch_size // (self.per_device * self.processes))
        return self.accumulation if self.steps_per_generation is None else self.steps_per_generation

    @property
    def rollouts(self) -> int:
        """Rollouts in a generation batch."""
        if self.generation_batch_size is not None:
            return self.generation_batch_size
        return self.per_device * self.processes * self.steps

    @property
    def updates(self) -> float:
        """Optimiser updates on a generation batch."""
        return self.steps * self.num_iterations / self.accumulation


def nearest_multiples(value: int, divisor: int) -> str:
    """The multiples of `divisor` next to `value`, as words: '8 or 16'."""
    below = value - value % divisor
    return " or ".join(str(number) for number in (below, below + divisor) if number > 0)


def check_batches(sizes: Batches) -> list[Finding]:
    """TRL's divisibility rules, with the nearest values that would work, and what the sizes mean for density."""
    wrong = [
        name
        for name in ("per_device", "accumulation", "steps_per_generation", "generation_batch_size", "num_iterations")
        if getattr(sizes, name) is not None and getattr(sizes, name) < 1
    ]
    if wrong or sizes.num_generations < 2:
        found = f"{wrong[0]} is {getattr(sizes, wrong[0])}" if wrong else f"num_generations is {sizes.num_generations}"
        return [Finding("error", "batches", found, "sizes must be at least 1, num_generations at least 2")]
    if sizes.steps_per_generation is not None and sizes.generation_batch_size is not None:
        found = "generation_batch_size and steps_per_generation are both set"
        return [Finding("error", "generation batch", found, "drop generation_batch_size")]
    findings = _check_generation_batch(sizes)
    if sizes.evaluates:
        findings.append(_check_evaluation(sizes))
    return findings


def _check_generation_batch(sizes: Batches) -> list[Finding]:
    at_once = sizes.per_device * sizes.processes
    group = sizes.num_generations
    if sizes.rollouts % at_once:
        found = f"generation_batch_size {sizes.rollouts} is no multiple of {sizes.per_device} x {sizes.processes}"
        multiple = math.lcm(at_once, group)
        advice = f"generation_batch_size: {nearest_multiples(sizes.rollouts, multiple)}"
        return [Finding("error", "generation batch", found, advice)]
    product = f"{sizes.per_device} x {sizes.processes} x {sizes.steps} = {sizes.rollouts:,} rollouts"
    if sizes.rollouts % group:
        return [Finding("error", "generation batch", f"{product} make no whole groups of {group}", _repairs(sizes))]

    groups = sizes.rollouts // group
    text = f"{product}, {groups} groups of {group}"
    if groups < FEW_GROUPS:
        advice = f"raise steps_per_generation: density over fewer than {FEW_GROUPS} groups is a coarse estimate"
        findings = [Finding("warning", "generation batch", text, advice)]
    else:
        findings = [Finding("ok", "generation batch", text)]
    if sizes.per_device * sizes.steps % group:
        found = "some groups span two processes, which is fine: rewards are gathered first"
        findings.append(Finding("ok", "groups over processes", found))
    if (sizes.steps * sizes.num_iterations) % sizes.accumulation:
        found = f"{sizes.steps} micro-batches do not divide into updates of {sizes.accumulation}"
        divisors = [number for number in range(1, sizes.steps + 1) if sizes.steps % number == 0]
        below = max((number for number in divisors if number <= sizes.accumulation), default=1)
        above = min((number for number in divisors if number > sizes.accumulation), default=None)
        advice = f"gradient_accumulation_steps: {below}" + ("" if above is None else f" or {above}")
        findings.append(Finding("warning", "updates", found, advice + "; now an update mixes two generation batches"))
    else:
        findings.append(Finding("ok", "updates", f"{sizes.updates:g} a generation batch"))
    return findings


def _repairs(sizes: Batches) -> str:
    group = sizes.num_generations
    if sizes.generation_batch_size is not None:
        multiple = math.lcm(sizes.per_device * sizes.processes, group)
        return f"generation_batch_size: {nearest_multiples(sizes.rollouts, multiple)}"
    others = sizes.processes * sizes.steps
    advice = f"per_device_train_batch_size: {nearest_multiples(sizes.per_device, group // math.gcd(group, others))}"
    others = sizes.per_device * sizes.processes
    advice += f"; or steps_per_generation: {nearest_multiples(sizes.steps, group // math.gcd(group, others))}"
    divisors = [number for number in range(2, sizes.rollouts + 1) if sizes.rollouts % number == 0]
    if divisors:
        below = [number for number in divisors if number < group][-1:]
        above = [number for number in divisors if number > group][:1]
        advice += f"; or num_generations: {' or '.join(map(str, below + above))}"
    return advice


def _check_evaluation(sizes: Batches) -> Finding:
    group = sizes.num_generations_eval or sizes.num_generations
    batch = sizes.per_device_eval * sizes.processes
    text = f"{sizes.per_device_eval} x {sizes.processes} = {batch} rollouts"
    if group < 1 or sizes.per_device_eval < 1:
        advice = "per_device_eval_batch_size and num_generations_eval must be at least 1"
        return Finding("error", "evaluation batch", text, advice)
    if batch % group:
        step = group // math.gcd(group, sizes.processes)
        advice = f"per_device_eval_batch_size: {nearest_multiples(sizes.per_device_eval, step)}"
        advice += ", or num_generations_eval: 1"
        return Finding("error", "evaluation batch", f"{text} make no whole groups of {group}", advice)
    return Finding("ok", "evaluation batch", f"{text}, {batch // group} groups of {group}")
