"""The same training on several layouts of processes: forks gloo workers from one warm parent, as importing dominates.

    python tests/layouts.py MODEL FOLDER < cases.json

Each case is {"name", "processes", "config", ...}; each process writes FOLDER/<name>/rank<i>.pt. Completions depend on
the step and the row of the global generation batch only, so that every layout sees the same rollouts.
"""

import json
import os
import signal
import socket
import sys
import traceback
from pathlib import Path

import sharded
import torch
import torch.distributed as dist
from datasets import IterableDataset
from peft import LoraConfig
from rollouts import RecordingTrainer, config, count_a, maybe, prompts, rare
from torch.multiprocessing import ProcessExitedException, start_processes

from dara_trl.metrics_file import VARIABLE


COLLECTIVES = ("all_gather", "all_gather_into_tensor", "all_gather_object", "all_reduce", "broadcast", "gather_object")


class ScriptedTrainer(RecordingTrainer):
    """Generates letters that follow from the step, the round and the row in the global batch."""

    _last = (-1, 0)  # step, and calls in it
    scripted = True
    kill = None  # {"ranks", "step", "where": "loss" or "save"}

    def _die(self, where):
        kill = self.kill or {"ranks": []}
        here = self.accelerator.process_index in kill["ranks"]
        if here and (kill["where"], kill["step"]) == (where, self.state.global_step):
            os.kill(os.getpid(), signal.SIGKILL)

    def _compute_loss(self, model, inputs):
        self._die("loss")
        return super()._compute_loss(model, inputs)

    def _save_optimizer_and_scheduler(self, output_dir):
        self._die("save")
        super()._save_optimizer_and_scheduler(output_dir)

    def _generate_single_turn(self, prompt_ids, *args, **kwargs):
        if not self.scripted:
            return super()._generate_single_turn(prompt_ids, *args, **kwargs)
        self._last = (self._step, self._last[1] + 1 if self._last[0] == self._step else 0)
        seed = 1_000_000 * self._last[1] + 1000 * self._step
        first = self.accelerator.process_index * len(prompt_ids)
        letters = self.processing_class.convert_tokens_to_ids(list("abcdefgh"))
        completions = []
        for row in range(first, first + len(prompt_ids)):
            random = torch.Generator().manual_seed(seed + row)
            length = int(torch.randint(2, 10, (1,), generator=random))
            picked = torch.randint(len(letters), (length,), generator=random).tolist()
            completions.append([letters[i] for i in picked] + [self.processing_class.eos_token_id])
        return completions, None


def streamed(dataset):
    rows = list(dataset)
    return IterableDataset.from_generator(lambda: iter(rows))


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
        if "accelerate" in case:
            sharded.use_accelerate_config(case["accelerate"], processes)
        args = config(folder.parent / case.get("output", case["name"]) / "out", **case["config"])
        peft_config = LoraConfig(r=4, target_modules="all-linear") if case.get("lora") else None
        trainer = ScriptedTrainer(
            model,
            [count_a, rare, maybe],
            args,
            train_dataset=streamed(prompts(64)) if case.get("streamed") else prompts(64),
            eval_dataset=prompts(12),
            peft_config=peft_config,
        )
        trainer.scripted, trainer.kill = case.get("scripted", True), case.get("kill")
        count_collectives(counts)
        resume = case.get("resume")
        trainer.train(resume_from_checkpoint=str(folder.parent / resume) if isinstance(resume, str) else resume)
        torch.save(
            {
                "processes": trainer.accelerator.num_processes,
                "records": [
                    {key: record[key] for key in ("rewards", "lengths", "trained_on", "prompts")}
                    for record in trainer.records
                ],
                "history": trainer.state.log_history,
                "collectives": counts,
                "sharding": sharded.sharding(trainer),
                "parameters": sharded.whole_parameters(trainer),
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
        try:
            arguments = (case, free_port(), model, folder)
            start_processes(work, args=arguments, nprocs=case["processes"], start_method="fork", join=True)
        except ProcessExitedException as error:  # which ends the other processes too
            if "kill" not in case or error.signal_name != "SIGKILL":
                raise


if __name__ == "__main__":
    main()
