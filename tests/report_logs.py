"""Made-up logs of runs, in the forms that `dara-trl report` reads."""

import json
from pathlib import Path


def rows(values, reward="format", densities=None, evaluations=None):
    """Logged rows from step 1 on; None is a step without a value."""
    logged = [{"step": step, "loss": 0.1, f"rewards/{reward}/mean": value} for step, value in enumerate(values, 1)]
    for row in logged:
        row["rewards/other/mean"] = 1.0
        density = (densities or {}).get(row["step"], 0.5)
        row |= {
            f"dara/density/{reward}": density,
            "dara/density/other": 1.0,
            f"dara/weight/{reward}": 5.0,
            "dara/weight/other": 1.0,
            f"dara/weight_at_cap/{reward}": 1.0,
            "dara/weight_at_cap/other": 0.0,
            f"dara/energy_ratio/{reward}": density,
            "dara/energy_ratio/other": 1.0,
            f"dara/calibrated_energy/{reward}": 50.0,
            "dara/calibrated_energy/other": 100.0,
        }
    return logged + [{"step": step, f"eval_rewards/{reward}/mean": v} for step, v in (evaluations or {}).items()]


def write_jsonl(path: Path, logged):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in logged), encoding="utf-8")
    return path


def write_run(root: Path, method, seed, logged, setting="s", folder=None, **more):
    """A finished run as `dara-trl compare` leaves it."""
    folder = root / (folder or f"{setting}/{method}/seed{seed}")
    write_jsonl(folder / "metrics.jsonl", logged)
    about = {
        "status": "finished",
        "setting": setting,
        "method": method,
        "seed": seed,
        "name": f"{setting}/{method}/seed{seed}",
        "config": {"aggregation": method, "seed": seed},
        "versions": {"trl": "1.16.0"},
        "git": {"revision": "0123456789abcdef", "dirty": True},
        "thresholds": {"format": 0.8},
        "baseline": "gdpo",
    }
    (folder / "run.json").write_text(json.dumps(about | more), encoding="utf-8")
    return folder


def rising(at, length=40, low=0.1, high=0.9):
    """`low` until the step `at`, from which on it is `high`."""
    return [high if step >= at else low for step in range(1, length + 1)]
