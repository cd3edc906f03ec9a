"""Writes docs/methods.md from the lists that config validation reads, and from the tables of docs/study.md.

python examples/study/methods_table.py
"""

import re
from pathlib import Path

from dara_trl.aggregation import METHODS, SETTINGS


DOCS = Path(__file__).parents[2] / "docs"
REGIMES = ("sparse_g4", "sparse_g8", "conflict", "saturation")
STUDIED_AS = {"static_asym": "static_5"}

TOP = """\
# The methods

Written by `python examples/study/methods_table.py` from `METHODS` and `SETTINGS` of `dara_trl.aggregation`: not to be
edited. One file a method in `dara_trl/aggregation/methods/`; its docstring says what the paper leaves open, and which
we follow where the authors' code differs.

rₖ is reward k, μₖ and σₖ are its mean and standard deviation in the group, Aₖ = (rₖ - μₖ) / (σₖ + ε) is its group
advantage (0 where it is the same for all rollouts or does not apply), αₖ the user's `reward_weights`, πₖ the share of
groups in which Aₖ is not 0. S is the rollout's score; batch normalisation makes it the advantage. All methods see one
generation batch of all processes and keep no state between steps. `dara/weight` logs w, 1 where a method weighs none;
of `dvao` the mean of αₖσₖ / Σ αₗσₗ over the groups in which the reward is active, of `rvpo` the mean of the reward's
share in the soft minimum over its share in the mean.

*Measured* is our own [CPU study](study.md), one small policy and synthetic task: steps to the threshold relative to
`gdpo` (below 1 is faster; in brackets the difference in final correctness, on a scale of 6), in the regimes
{regimes}; - where neither gets there in the median.
Intervals and tests are there. What helps and what hurts is otherwise read off the equations.
"""

SETTINGS_TOP = """
## Settings

The keyword of `aggregate`; in `DARAGRPOConfig` with the prefix `aggregation_` (`scale_rewards` is TRL's own). The
configuration refuses a setting that the method does not read.
"""

LACKS_TOP = """
## Invariances

Tested for every method, with ε = 0 (tests/test_invariances.py): the order of groups and of rollouts; scaling one
reward, or all (`joint_scale`), with their ranges; adding a constant to one; a further reward that is the same for all
rollouts (`dead`) or has priority 0; a further rollout that nothing scores; float16 and bfloat16 input; repetition, bit
for bit. The tests also check that these are really lacking:
"""


def studied(text: str) -> dict[str, dict[str, str]]:
    """Of each method and regime of the study: ratio of steps, and difference in correctness.

    A regime has no entry where there is no ratio: neither the method nor the baseline gets there in the median.
    """
    found: dict[str, dict[str, str]] = {}
    for regime, table in re.findall(r"\*\*`(\w+)`\*\*[^\n]*\n\n((?:\|[^\n]*\n)+)", text):
        header, _, *rows = (
            [cell.strip() for cell in line.strip().strip("|").split("|")] for line in table.strip().splitlines()
        )
        for row in rows:
            cells = dict(zip(header, row, strict=False))
            ratio = cells["ratio to gdpo (95 %)"].split(" ")[0]
            difference = cells["difference"]
            if not ratio:
                continue
            found.setdefault(row[0].strip("`"), {})[regime] = f"{ratio} ({difference})" if difference else ratio
    return found


def table(*rows: tuple[str, ...]) -> list[str]:
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return [lines[0], "|" + "---|" * len(rows[0]), *lines[1:]]


def render() -> str:
    measured = studied((DOCS / "study.md").read_text(encoding="utf-8"))
    rows = [("method", "equation", "parameters", "helps with", "is hurt by", "measured")]
    for name, method in METHODS.items():
        figures = measured.get(STUDIED_AS.get(name, name), {})
        number = method.paper.split()[-1]
        rows.append(
            (
                f"`{name}` [{number}](https://arxiv.org/abs/{number})",
                method.equation,
                ", ".join(f"`{setting}`" for setting in method.reads) or "none",
                method.helps,
                method.hurts,
                ", ".join(figures.get(regime, "-") for regime in REGIMES) if figures else "not yet measured",
            )
        )
    settings = [("setting", "default", "what", "read by")]
    for name, setting in SETTINGS.items():
        default = "must be given" if setting.default is None else f"{setting.default}"
        readers = ", ".join(f"`{method}`" for method, candidate in METHODS.items() if name in candidate.reads)
        settings.append((f"`{name}`", default, setting.help, readers))
    lacking = [("method", "lacks")]
    lacking += [(f"`{name}`", ", ".join(f"`{lack}`" for lack in m.lacks)) for name, m in METHODS.items() if m.lacks]
    lines = [TOP.format(regimes=", ".join(f"`{regime}`" for regime in REGIMES)), *table(*rows)]
    lines += [SETTINGS_TOP, *table(*settings), LACKS_TOP, *table(*lacking)]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    (DOCS / "methods.md").write_text(render(), encoding="utf-8")
