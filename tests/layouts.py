"""The same training on several layouts of processes: forks gloo workers from one warm parent, as importing dominates.

    python tests/layouts.py MODEL FOLDER < cases.json

Each case is {"name", "processes", "config", ...}; each process writes FOLDER/<name>/rank<i>.pt. Completions depend on
the step and the row of the global generation batch only, so that every layout sees the same rollouts.
"""

import json
import os
import socket
import sys
import traceback
from pathlib import Path

import torch
import torch.distributed as dist
from rollouts import RecordingTrainer, config, count_a, maybe, prompts, rare
from torch.multiprocessing import start_processes

from dara_trl.metrics_file import VARIABLE


COLLECTIVES = ("all_gather", "all_gather_into_tensor", "all_gather_object", "all_reduce", "broadcast", "gather_object")


class ScriptedTrainer(RecordingTrainer):
    """Generates letters that follow from the call and the row in the global batch."""

    _calls = 0

    def _generate_single_turn(self, prompt_ids, *args, **kwargs):
        self._calls += 1
        first = self.accelerator.process_index * len(prompt_ids)
        letters = self.processing_class.convert_tokens_to_ids(list("abcdefgh"))
        completions = []
        for row in range(first, first + len(prompt_ids)):
            random = torch.Generator().manual_seed(1000 * self._calls + row)
            length = int(torch.randint(2, 10, (1,), generator=random))
            picked = torch.randint(len(letters), (length,), generator=random).tolist()
            completions.append([letters[i] for i in picked] + [self.processing_class.eos_token_id])
        return completions, None


def count_collectives(counts):
    """Counts what torch.distributed is asked for, by name."""
    for name in COLLECTIVES:
        original = getattr(dist, name)

        def counted(*args, _name=name, _original=original, **kwargs):
            counts[_name] = counts.get(_name, 0) + 1
            return _original(*args, **kwargs)

        setattr(dist, name, counted)


def work(rank, case, port, model, folder):
    processes = case["processes"]
    os.environ.update(
        RANK=str(rank),
        LOCAL_RANK=str(rank),
        WORLD_SIZE=str(processes),
        LOCAL_WORLD_SIZE=str(processes),
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(port),
        **{VARIABLE: str(folder / "metrics.jsonl")},
        **case.get("environment", {}),
    )
    with (folder / f"rank{rank}.log").open("w") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    torch.set_num_threads(1)
    counts = {}
    try:
        args = config(folder / "out", **case["config"])
        trainer = ScriptedTrainer(model, [count_a, rare, maybe], args, train_dataset=prompts(64))
        count_collectives(counts)
        trainer.train()
        torch.save(
            {
                "processes": trainer.accelerator.num_processes,
                "records": [
                    {key: record[key] for key in ("rewards", "lengths", "trained_on", "prompts")}
                    for record in trainer.records
                ],
                "history": trainer.state.log_history,
                "collectives": counts,
                "parameters": {name: value.detach().clone() for name, value in trainer.model.named_parameters()},
            },
            folder / f"rank{rank}.pt",
        )
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        raise
    if dist.is_initialized():
        dist.barrier()
        dist.destroy_process_group()


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def main():
    model, root = sys.argv[1], Path(sys.argv[2])
    os.environ.update(GLOO_SOCKET_IFNAME="lo", OMP_NUM_THREADS="1")
    for case in json.load(sys.stdin):
        folder = root / case["name"]
        folder.mkdir(parents=True)
        start_processes(
            work, args=(case, free_port(), model, folder), nprocs=case["processes"], start_method="fork", join=True
        )


if __name__ == "__main__":
    main()
