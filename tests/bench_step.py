"""A whole training step with `dara_asym` against TRL's own GDPO: `make bench`.

python tests/bench_step.py, or torchrun --nproc_per_node 2 tests/bench_step.py. Two trainers in one process take turns,
one step each, so that a slow moment of the machine meets both; they are built anew several times, as a trainer may be
lucky with its memory for all of its life. The policy is as small as policies get, so what we add weighs the most, and
all completions have the same length. What our code adds is also timed by itself: that figure is not drowned in noise.
"""

import tempfile
import threading
import time
import warnings
from statistics import median

import torch
from accelerate import PartialState
from transformers import PrinterCallback, TrainerCallback
from transformers.utils import logging
from trl import GRPOConfig, GRPOTrainer

from dara_trl import DARAGRPOConfig, DARAGRPOTrainer
from dara_trl.embedded.policy import resolve_model
from dara_trl.embedded.world import tool_calling_dataset
from dara_trl.rewards.toolrl import correctness_reward, format_reward


BLOCKS, STEPS, WARM_UP, LENGTH, ROLLOUTS = 5, 30, 3, 16, 64
LIMIT = 0.02  # of a step may be ours
TRAINERS = {
    "ours": (DARAGRPOTrainer, DARAGRPOConfig, {"aggregation": "dara_asym"}),
    "trl": (GRPOTrainer, GRPOConfig, {"multi_objective_aggregation": "normalize_then_sum"}),
}


class TakeTurns(TrainerCallback):
    """Seconds of each step, logging included. A trainer works only while it has the turn, which it gives away before
    each step: so that several processes meet in the same collectives, too."""

    def __init__(self, mine, other):
        self.mine, self.other, self.start, self.seconds = mine, other, None, []

    def train(self, trainer):
        self.mine.acquire()
        trainer.train()
        self.other.release()

    def on_step_begin(self, args, state, control, **kwargs):
        if self.start is not None:
            self.seconds.append(time.perf_counter() - self.start)
        self.other.release()
        self.mine.acquire()
        self.start = time.perf_counter()

    def on_train_end(self, args, state, control, **kwargs):
        self.seconds.append(time.perf_counter() - self.start)


class OwnTime:
    """Seconds by step that `DARAGRPOTrainer` adds around what it inherits (generation, rewards, loss)."""

    def __init__(self):
        self.seconds = []
        self._inside = 0.0
        name = "_generate_and_score_completions"
        ours, theirs = getattr(DARAGRPOTrainer, name), getattr(GRPOTrainer, name)

        def timed_theirs(trainer, inputs):
            start = time.perf_counter()
            output = theirs(trainer, inputs)
            self._inside = time.perf_counter() - start
            return output

        def timed_ours(trainer, inputs):
            start = time.perf_counter()
            output = ours(trainer, inputs)
            self.seconds.append(time.perf_counter() - start - self._inside)
            return output

        setattr(GRPOTrainer, name, timed_theirs)
        setattr(DARAGRPOTrainer, name, timed_ours)


def seconds_by_step(model, dataset, folder, names):
    """Of each trainer; the first of `names` is built first, and begins."""
    turns = {name: threading.Semaphore(int(name == names[0])) for name in names}
    trainers, takes = {}, {}
    for name, other in zip(names, reversed(names), strict=True):
        trainer_class, config_class, fields = TRAINERS[name]
        args = config_class(
            output_dir=f"{folder}/{name}",
            per_device_train_batch_size=ROLLOUTS // PartialState().num_processes,
            num_generations=4,
            max_completion_length=LENGTH,
            generation_kwargs={"min_new_tokens": LENGTH},
            max_steps=STEPS + WARM_UP,
            logging_steps=1,
            learning_rate=0.0,
            report_to="none",
            save_strategy="no",
            use_cpu=True,
            bf16=False,
            disable_tqdm=True,
            **fields,
        )
        takes[name] = TakeTurns(turns[name], turns[other])
        trainers[name] = trainer_class(
            model, [format_reward, correctness_reward], args, train_dataset=dataset, callbacks=[takes[name]]
        )
        trainers[name].remove_callback(PrinterCallback)
    threads = [threading.Thread(target=takes[name].train, args=[trainers[name]]) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {name: take.seconds[WARM_UP:] for name, take in takes.items()}


def main() -> None:
    warnings.simplefilter("ignore")
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    torch.set_num_threads(1)
    state = PartialState(cpu=True)
    with state.main_process_first():
        model = resolve_model("embedded:tiny")
    dataset = tool_calling_dataset("train", 512, seed=3)
    own, all_seconds, ratios = OwnTime(), [], []
    with tempfile.TemporaryDirectory() as folder:
        for block in range(BLOCKS):
            seconds = seconds_by_step(model, dataset, folder, sorted(TRAINERS, reverse=block % 2 == 1))
            all_seconds += seconds["trl"]
            ratios.append(median(one / other for one, other in zip(seconds["ours"], seconds["trl"], strict=True)))
    share = median(own.seconds) / median(all_seconds)
    if state.is_main_process:
        print(
            f"{state.num_processes} process(es), {ROLLOUTS} rollouts of {LENGTH} tokens, TRL's step "
            f"{1e3 * median(all_seconds):.0f} ms. Ours against it: median ratio {median(ratios):.3f} "
            f"({min(ratios):.3f} to {max(ratios):.3f} by block of {STEPS} pairs). Our own code: "
            f"{1e3 * median(own.seconds):.2f} ms, {share:.2%} of a step."
        )
        if share > LIMIT:
            raise SystemExit(f"Our own code takes more than {LIMIT:.0%} of a step.")


if __name__ == "__main__":
    main()
