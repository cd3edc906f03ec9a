"""Prints the tables of docs/study.md from the packed runs: the primary outcome, and the last held-out evaluation.

mkdir -p runs/packed && tar xzf docs/study/runs.tar.gz -C runs/packed && python examples/study/tables.py runs/packed
python examples/study/tables.py runs/packed dara_asym     # the same, compared with another method than gdpo
"""

import json
import subprocess
import sys
from pathlib import Path


# Named in the protocol: which rule decides in which regime, and the report's options for it.
PRIMARY = {
    "sparse_g4": ("smoothed", []),
    "sparse_g8": ("smoothed", []),
    "conflict": ("smoothed", []),
    "saturation": ("lasting", ["--stay", "1"]),
}


def report(folder: Path, options: list[str]) -> dict:
    command = [sys.executable, "-m", "dara_trl", "report", str(folder), "--output", str(folder / "report"), "--json"]
    return json.loads(subprocess.run([*command, *options], check=True, capture_output=True, text=True).stdout)


def number(value: float) -> str:
    return f"{value:.2f}"


def step(value: dict) -> str:
    return f"{value['step']:g}" if value["reached"] else f"> {value['last_step']:g}"


def interval(comparison: dict) -> str:
    if comparison["ratio"] is None:
        return ""
    low, high = comparison["ratio_interval"]
    return f"{comparison['bound']}{number(comparison['ratio'])} ({number(low)} to {number(high)})"


def p_value(comparison: dict | None) -> str:
    return "" if comparison is None else f"{comparison['p']:.2g}"


def print_regime(folder: Path, rule_name: str, options: list[str], baseline: str) -> None:
    setting = report(folder, [*options, "--baseline", baseline])["settings"][0]
    threshold = next(entry for entry in setting["thresholds"] if entry["rules"])
    rows = next(rule["rows"] for rule in threshold["rules"] if rule["rule"] == rule_name)
    finals = {
        row["label"]: row
        for values in setting["values"]
        if values["which"] == "held-out" and values["reward"] == "correctness_reward"
        for row in values["rows"]
    }
    print(f"**`{folder.name}`**: {threshold['reward']} ≥ {threshold['threshold']:g}, {rule_name} rule\n")
    compared_with = f"ratio to {baseline} (95 %)"
    print(f"| method | steps (95 %) | reached | {compared_with} | p | correctness at the end | difference | p |")
    print("|---|---|---|---|---|---|---|---|")
    for row in sorted(rows, key=lambda row: row["result"].get("step", 1000 + row["result"].get("last_step", 0))):
        final = finals[row["label"]]
        low, high = (step(end) for end in row["interval"])
        compared, difference = row["comparison"], final["comparison"]
        reached = sum(seed["value"]["reached"] for seed in row["seeds"])
        cells = [
            f"`{row['label']}`",
            f"{step(row['result'])} ({low} to {high})",
            f"{reached} of {len(row['seeds'])}",
            "1" if compared is None else interval(compared),
            p_value(compared),
            number(final["median"]),
            "" if difference is None else f"{difference['mean_difference']:+.2f}",
            p_value(difference),
        ]
        print("| " + " | ".join(cells) + " |")
    print()


if __name__ == "__main__":
    for regime, (rule_name, options) in PRIMARY.items():
        if (Path(sys.argv[1]) / regime).is_dir():
            print_regime(Path(sys.argv[1]) / regime, rule_name, options, (sys.argv[2:] or ["gdpo"])[0])
