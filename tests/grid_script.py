"""What a training script looks like to `dara-trl compare`: `--config FILE`, and metrics as they come. No training."""

import json
import os
import sys
import time
from pathlib import Path

import yaml


config = yaml.safe_load(Path(sys.argv[sys.argv.index("--config") + 1]).read_text())
print("seed", config["seed"], "text", config.get("text"), "devices", os.environ.get("CUDA_VISIBLE_DEVICES"))
with Path(config["output_dir"]).parents[3].joinpath("starts.txt").open("a") as starts:
    starts.write(Path(config["output_dir"]).name + "\n")
for step in range(1, config["max_steps"] + 1):
    row = {"step": step, "max_steps": config["max_steps"], "loss": 0.0, "pid": os.getpid()}
    with Path(os.environ["DARA_TRL_METRICS_FILE"]).open("a") as file:
        file.write(json.dumps(row) + "\n")
    time.sleep(config["seconds"])
if config.get("fail"):
    raise SystemExit(f"this run was told to fail: [bold]{config['seed']}")
