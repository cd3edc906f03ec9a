"""What stale and streamed densities would do to DARA's weights, on the densities of the study's runs. Writes
docs/asynchronous.md.

python examples/study/asynchronous.py
"""

import json
import math
import random
import tarfile
from collections import deque
from pathlib import Path
from statistics import fmean, median, quantiles


DOCS = Path(__file__).parents[2] / "docs"
REGIMES = {"sparse_g4": "format_reward", "saturation": "think_length_reward"}
GROUPS = {"sparse_g4": 48, "saturation": 24}
OTHER, CAP = "correctness_reward", 5.0
DELAYS = (1, 2, 4, 8, 16)
WINDOWS = (12, 24, 48, 96, 192, 384)
REPEATS = 40

TEXT = """\
# Asynchronous rollouts, on paper and in simulation

Written by `python examples/study/asynchronous.py`, from the densities that the [study](study.md)'s `dara_asym` runs
logged (docs/study/runs.tar.gz): not to be edited. DARA as published weighs by the density of *one* generation batch.
With asynchronous rollouts there is no such batch: groups arrive one by one, from policies that are some steps old.
Two questions, then: what does an old density do to the weight, and how well does an estimate over a stream replace
the batch?

## An old density

The watched reward's weight, min(5, √(π_ref / π)), from the batch of k steps ago, against the weight from this step's
own batch: size of the relative error, over all steps of eight runs in which both batches have an active group.
*Noise* is the same error between two independent batches of one policy, drawn with the run's density (a mean of five
steps). The share in which the old batch had no active group, so that its weight is 1 by definition, comes last.

{stale}
From a sparse start a density of one or two steps ago costs little more than the noise that a batch has anyway; from
four on it is clearly the worse estimate, and one weight in ten is wrong by a factor of 1.7 and more, as the density
is rising fast. Near saturation, where few groups are active and little changes from step to step, age is lost in the
noise. An old weight never turns an advantage round: it shifts energy between the rewards, by the square of these
ratios.

## A stream of groups

Groups arrive one by one; the reward is active in each with the density of the run's current step. The estimate is the
share of active groups among the last M, or an exponential mean with the same mean age (decay 1 - 2/(M + 1)); each
group is weighed by what was known when it arrived, the group included. Before M groups have come, those that are
there count. Error: root mean square of ln(weight / true weight), where the true weight knows the density; over
{repeats} streams a run. Without any active group so far, the weight is 1.

{stream}
From a sparse start, where the density moves fast, the last two batches' worth of groups (96) are as good as the batch
itself; near saturation, where single batches are mostly noise, eight batches' worth (192) more than halve the error.
A few groups alone (12, 24) are too few, 384 lag. The exponential mean is never worse than the window, is less
sensitive to M, and needs one number of state for each reward. So an asynchronous DARA would keep an exponential mean
over 100 to 200 groups, whatever the batch, and restore it on resume. That is for these densities; a faster learner
needs a shorter memory.

## Why it is not in the trainer

TRL's asynchronous trainer computes a group's advantages inside its rollout worker, from the group's weighted sum,
with no hook between the rewards and the advantage. To change it, the package would have to subclass code of
`trl.experimental`, which may change in any release. Batch normalisation, the second thing that needs a batch, has no
counterpart there either.
"""


def runs(regime: str) -> list[list[tuple[float, float]]]:
    """(density of the watched reward, of correctness) by step, of each `dara_asym` run."""
    watched = REGIMES[regime]
    found = []
    with tarfile.open(DOCS / "study" / "runs.tar.gz") as archive:
        for member in sorted(archive.getnames()):
            if member.startswith(f"{regime}/dara_asym/") and member.endswith("metrics.jsonl"):
                file = archive.extractfile(member)
                assert file is not None
                rows = [json.loads(line) for line in file.read().decode().splitlines()]
                keys = [f"dara/density/{name}" for name in (watched, OTHER)]
                found.append([(row[keys[0]], row[keys[1]]) for row in rows if keys[0] in row])
    return found


def weight(density: float, other: float) -> float:
    return min(CAP, (max(density, other) / density) ** 0.5) if density > 0 else 1.0


def smooth(run: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Mean over five steps, at the ends over fewer."""
    near = [run[max(0, i - 2) : i + 3] for i in range(len(run))]
    return [(fmean(a for a, _ in rows), fmean(b for _, b in rows)) for rows in near]


def draw(rng: random.Random, density: float, count: int) -> float:
    return sum(rng.random() < density for _ in range(count)) / count


def errors(pairs: list[tuple[tuple[float, float], tuple[float, float]]]) -> tuple[str, str, str]:
    """Median and 90 % quantile of the relative error, and the share of old batches without an active group."""
    live = [(old, new) for old, new in pairs if new[0] > 0]
    sizes = [abs(weight(*old) / weight(*new) - 1) for old, new in live if old[0] > 0]
    empty = sum(old[0] == 0 for old, _ in live) / len(live)
    return f"{median(sizes):.0%}", f"{quantiles(sizes, n=10)[-1]:.0%}", f"{empty:.1%}"


def stale_table() -> str:
    lines = ["| regime | k | median | 90 % of the steps below | no active group |", "|---|---|---|---|---|"]
    for regime in REGIMES:
        data, rng = runs(regime), random.Random(0)
        noise = [
            tuple((draw(rng, a, GROUPS[regime]), draw(rng, b, GROUPS[regime])) for _ in range(2))
            for run in data
            for a, b in smooth(run)
            for _ in range(REPEATS)
        ]
        lines.append("| " + " | ".join([f"`{regime}`", "noise", *errors(noise)]) + " |")  # type: ignore[arg-type]
        for delay in DELAYS:
            pairs = [pair for run in data for pair in zip(run, run[delay:], strict=False)]
            lines.append("| " + " | ".join([f"`{regime}`", str(delay), *errors(pairs)]) + " |")
    return "\n".join(lines) + "\n"


def log_error(estimate: tuple[float, float], truth: tuple[float, float]) -> float:
    return math.log(weight(*estimate) / weight(*truth)) ** 2


def stream_errors(run: list[tuple[float, float]], groups: int, rng: random.Random) -> dict[str, float]:
    """Sums of squared errors by estimator, over all groups of one stream."""
    totals: dict[str, float] = {}
    windows = {size: deque(maxlen=size) for size in WINDOWS}
    means: dict[int, tuple[float, float, float]] = dict.fromkeys(WINDOWS, (0.0, 0.0, 0.0))
    for truth in smooth(run):
        batch = [(float(rng.random() < truth[0]), float(rng.random() < truth[1])) for _ in range(groups)]
        whole = (fmean(a for a, _ in batch), fmean(b for _, b in batch))
        totals["batch"] = totals.get("batch", 0.0) + groups * log_error(whole, truth)
        for active in batch:
            for size in WINDOWS:
                windows[size].append(active)
                seen = windows[size]
                estimate = (sum(a for a, _ in seen) / len(seen), sum(b for _, b in seen) / len(seen))
                totals[f"window {size}"] = totals.get(f"window {size}", 0.0) + log_error(estimate, truth)
                decay = 1 - 2 / (size + 1)
                mass, a, b = (decay * old + new for old, new in zip(means[size], (1.0, *active), strict=True))
                means[size] = (mass, a, b)
                totals[f"mean {size}"] = totals.get(f"mean {size}", 0.0) + log_error((a / mass, b / mass), truth)
    return totals


def stream_table() -> str:
    lines = ["| regime | the batch | M | last M groups | exponential mean |", "|---|---|---|---|---|"]
    for regime in REGIMES:
        rng, totals, count = random.Random(0), {}, 0
        for run in runs(regime):
            for _ in range(REPEATS // 8):
                for name, value in stream_errors(run, GROUPS[regime], rng).items():
                    totals[name] = totals.get(name, 0.0) + value
                count += len(run) * GROUPS[regime]
        rms = {name: (value / count) ** 0.5 for name, value in totals.items()}
        lines += [
            f"| `{regime}`, {GROUPS[regime]} groups | {rms['batch']:.2f} | {size} | {rms[f'window {size}']:.2f} | "
            f"{rms[f'mean {size}']:.2f} |"
            for size in WINDOWS
        ]
    return "\n".join(lines) + "\n"


def render() -> str:
    return TEXT.format(stale=stale_table(), stream=stream_table(), repeats=REPEATS // 8)


if __name__ == "__main__":
    (DOCS / "asynchronous.md").write_text(render(), encoding="utf-8")
