"""One training step on every process; each writes what it saw. Launched by test_launch.py: MODEL FOLDER."""

import sys
from pathlib import Path

import torch
from rollouts import count_a, rare, run


model, folder = sys.argv[1], Path(sys.argv[2])
# 2 processes x 12 rows = 6 groups of 4, or 3 of 8, of which the middle one spans both processes.
trainer = run(
    model,
    folder / "out",
    [count_a, rare],
    per_device_train_batch_size=12,
    num_generations=8,
    max_steps=2,
    aggregation_batch_norm="token",
)
accelerator = trainer.accelerator
torch.save(
    {
        "processes": accelerator.num_processes,
        "rewards": [record["rewards"] for record in trainer.records],
        "lengths": [record["lengths"] for record in trainer.records],
        "trained_on": [record["trained_on"] for record in trainer.records],
        "logged": [row["dara/density/count_a"] for row in trainer.state.log_history[:2]],
    },
    folder / f"rank{accelerator.process_index}.pt",
)
accelerator.wait_for_everyone()
accelerator.end_training()
