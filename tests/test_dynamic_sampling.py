"""Dynamic sampling: which groups are kept, where fresh prompts come from, and that a batch stays of one piece."""

import math
import warnings

import pytest
import torch
import trl
from datasets import Dataset, IterableDataset
from rollouts import PROMPTS, config, count_a, run
from trl.trainer.utils import RepeatSampler

from dara_trl import DARAGRPOConfig, DARAGRPOTrainer, aggregate
from dara_trl.dynamic_sampling import epoch_order, from_the_back, kept_groups
from dara_trl.streams import PromptStream


def numbered(count):
    """Each row knows its number, and the text that its prompt had."""
    texts = [PROMPTS[i % len(PROMPTS)] for i in range(count)]
    return Dataset.from_dict({"prompt": texts, "number": list(range(count)), "told": texts})


class Sparse:
    """A reward that differs within few groups, and the rows and rollouts that it was asked about."""

    __name__ = "sparse"

    def __init__(self, letter="d", column=False):
        self.letter, self.column = letter, column
        self.calls, self.lengths = [], []

    def __call__(self, prompts, completions, completion_ids, number, told, log_extra=None, **kwargs):
        assert list(prompts) == list(told)
        self.lengths.append([len(ids) for ids in completion_ids])
        self.calls.append(list(zip(number, completions, strict=True)))
        if self.column:
            log_extra("row", [str(n) for n in number])
        return [float(text[:1] == self.letter) for text in completions]

    def rows(self):
        """The dataset's rows in the order in which they were generated for, one for each group of 4."""
        return [[number for number, _ in call[::4]] for call in self.calls]


DYNAMIC = {"dynamic_sampling": True, "dynamic_sampling_max_rounds": 40}


@pytest.mark.parametrize("shuffle", [True, False])
def test_order_of_an_epoch_is_the_dataloaders(shuffle):
    theirs = RepeatSampler(range(10), mini_repeat_count=2, batch_size=3, repeat_count=2, shuffle=shuffle, seed=5)
    for epoch in range(3):
        walked = list(theirs)
        first_of_groups = [walked[i] for block in range(0, 36, 12) for i in range(block, block + 6, 2)]
        assert epoch_order(10, epoch, shuffle, 5)[:9] == first_of_groups


def test_fresh_prompts_come_from_the_back_and_go_on_round():
    order = [3, 0, 4, 1, 2]
    assert from_the_back(order, 2, 0) == [2, 1]
    assert from_the_back(order, 2, 2) == [4, 0]
    assert from_the_back(order, 7, 0) == [2, 1, 4, 0, 3, 2, 1]


def test_kept_groups():
    nan = math.nan
    rewards_NK = torch.tensor(
        [[0, 0, 0], [1, 0, 0]]  # the first is active
        + [[0, 0, 0], [1, 1, 0]]  # the first two
        + [[0, nan, 0], [1, nan, 0]]  # the first, and the second does not apply
        + [[0, 0, 0], [0, 0, 1]]  # only the last, which is not trained on
        + [[nan, nan, 0], [nan, nan, 1]],
        dtype=torch.float32,
    )
    active_BK = aggregate(rewards_NK, num_generations=2, batch_norm="none").active_BK
    priorities_K = torch.tensor([1.0, 0.5, 0.0])
    assert kept_groups(rewards_NK, active_BK, priorities_K, "any").tolist() == [True, True, True, False, False]
    assert kept_groups(rewards_NK, active_BK, priorities_K, "all").tolist() == [False, True, True, False, False]


@pytest.mark.parametrize("changes", [{}, {"steps_per_generation": 2, "num_iterations": 2, "max_steps": 4}])
def test_batch_is_filled_and_stays_of_one_piece(tiny_model, tmp_path, changes):
    reward = Sparse(column=True)
    changes = {"max_steps": 1, "log_completions": True, "num_completions_to_print": 0, **changes}
    trainer = run(tiny_model, tmp_path, [reward], numbered(400), **DYNAMIC, **changes)
    groups = trainer.args.generation_batch_size // 4
    (record,) = trainer.records
    # Every group of the batch has signal, and the reward that each row had when it was generated is the one it keeps.
    assert (record["rewards"].view(groups, 4).std(dim=1) > 0).all()
    logged = trainer._logs
    scored = {(number, text): float(text[:1] == "d") for call in reward.calls for number, text in call}
    rows = [int(row) for row in logged["extra"]["row"]]
    assert list(logged["prompt"]) == [PROMPTS[row % len(PROMPTS)] for row in rows]
    assert record["rewards"][:, 0].tolist() == [scored[key] for key in zip(rows, logged["completion"], strict=True)]
    assert list(logged["rewards"]["sparse"]) == record["rewards"][:, 0].tolist()
    for group in range(groups):
        assert len(set(rows[4 * group : 4 * group + 4])) == 1
    texts = trainer.processing_class.batch_decode(
        [
            [token for token, kept in zip(ids, mask, strict=True) if kept]
            for ids, mask in zip(record["completion_ids"].tolist(), record["completion_mask"].tolist(), strict=True)
        ],
        skip_special_tokens=True,
    )
    assert texts == list(logged["completion"])

    # Groups that were good at once stay where they were; only the slots of the others were generated for again.
    first = reward.calls[0]
    good = [len({text[:1] == "d" for _, text in first[4 * group : 4 * group + 4]}) == 2 for group in range(groups)]
    assert 0 < sum(good) < groups
    for group in range(groups):
        assert (rows[4 * group] == first[4 * group][0]) == good[group]
    missing = groups - sum(good)
    for call in reward.calls[1:]:
        assert len(call) == 4 * missing
        missing -= sum(len({text[:1] == "d" for _, text in call[i : i + 4]}) == 2 for i in range(0, len(call), 4))
    assert missing == 0


def test_figures_before_and_after(tiny_model, tmp_path):
    reward = Sparse()
    trainer = run(tiny_model, tmp_path, [reward, count_a], numbered(400), dynamic_sampling_keep="all", **DYNAMIC)
    log = trainer.state.log_history[0]
    second = trainer.state.log_history[1]
    rounds = int(log["dara/sampling/rounds"])
    of_first = [float(text[:1] == "d") for call in reward.calls[:rounds] for _, text in call]
    assert rounds + int(second["dara/sampling/rounds"]) == len(reward.calls)
    assert log["dara/prefilter/reward/sparse"] == pytest.approx(sum(of_first) / len(of_first))
    assert log["rewards/sparse/mean"] == pytest.approx(trainer.records[0]["rewards"][:, 0].mean().item())
    assert log["rewards/sparse/mean"] > log["dara/prefilter/reward/sparse"]
    generated = len(of_first) // 4
    active = [len(set(of_first[i : i + 4])) == 2 for i in range(0, len(of_first), 4)]
    assert log["dara/prefilter/density/sparse"] == pytest.approx(sum(active) / generated)
    assert log["dara/density/sparse"] == 1
    assert log["dara/sampling/wasted_rollouts"] == len(of_first) - 32
    assert log["dara/sampling/unfilled_groups"] == 0
    assert 8 / generated <= log["dara/sampling/kept_share"] < 1
    # TRL's lengths are those of all that was generated.
    lengths = [length for call in reward.lengths[:rounds] for length in call]
    assert log["completions/mean_length"] == pytest.approx(sum(lengths) / len(lengths))
    assert log["completions/min_length"] == min(lengths)
    assert log["completions/max_length"] == max(lengths)


def test_no_prompt_twice_before_all_were_seen(tiny_model, tmp_path):
    reward = Sparse()
    run(tiny_model, tmp_path, [reward], numbered(60), max_steps=7, **DYNAMIC)  # an epoch has seven batches of 8
    seen = [row for rows in reward.rows() for row in rows]
    assert len(seen) > 60
    assert len(set(seen[:56])) == 56
    assert set(seen) == set(range(60))


def test_after_the_last_round_the_batch_is_used_as_it_is(tiny_model, tmp_path):
    never = Sparse(letter="?")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trainer = run(
            tiny_model, tmp_path, [never], numbered(100), max_steps=2, **{**DYNAMIC, "dynamic_sampling_max_rounds": 3}
        )
    assert len(never.calls) == 6
    assert trainer.state.global_step == 2
    assert trainer.state.log_history[0]["dara/sampling/unfilled_groups"] == 8
    said = [str(warning.message) for warning in caught if "dynamic_sampling_max_rounds" in str(warning.message)]
    assert len(said) == 1
    assert "Step 1: after 3 rounds 8 of 8 groups" in said[0]


def test_evaluation_is_not_touched(tiny_model, tmp_path):
    reward = Sparse()
    trainer = run(
        tiny_model,
        tmp_path,
        [reward],
        numbered(100),
        eval_dataset=numbered(8),
        eval_strategy="steps",
        eval_steps=1,
        max_steps=1,
        per_device_eval_batch_size=32,
        **DYNAMIC,
    )
    (log,) = [log for log in trainer.state.log_history if "eval_rewards/sparse/mean" in log]
    assert not [key for key in log if "prefilter" in key or "sampling" in key]
    assert len(reward.calls[-1]) == 32


def test_resume_goes_on_with_the_prompts_that_come_next(tiny_model, tmp_path):
    fields = {**DYNAMIC, "max_steps": 4, "save_strategy": "steps", "save_steps": 1, "steps_per_generation": 2}
    whole = Sparse()
    uninterrupted = run(tiny_model, tmp_path / "a", [whole], numbered(400), **fields)
    for step in (1, 2):
        reward = Sparse()
        checkpoint = str(tmp_path / "a" / f"checkpoint-{step}")
        resumed = run(
            tiny_model, tmp_path / f"b{step}", [reward], numbered(400), resume_from_checkpoint=checkpoint, **fields
        )
        assert reward.calls == whole.calls[-len(reward.calls) :]
        assert len(reward.calls) < len(whole.calls)
        for mine, theirs in zip(resumed.model.parameters(), uninterrupted.model.parameters(), strict=True):
            assert torch.equal(mine, theirs)


def test_rows_of_a_rollout_func_move_with_their_rollout(tiny_model, tmp_path):
    def rollout(prompts, trainer):
        ids = [trainer.processing_class(prompt)["input_ids"] for prompt in prompts]
        letters = trainer.processing_class.convert_tokens_to_ids(list("abcdefgh"))
        picked = [letters[i] for i in torch.randint(len(letters), (len(prompts),)).tolist()]
        return {
            "prompt_ids": ids,
            "completion_ids": [[letter, trainer.processing_class.eos_token_id] for letter in picked],
            "logprobs": [[-2.0, -0.1] for _ in picked],
            "letter": [trainer.processing_class.decode([letter]) for letter in picked],
        }

    seen = []

    def sparse(completions, letter, **kwargs):
        assert [text.strip() for text in completions] == [text.strip() for text in letter]
        seen.append(len(letter))
        return [float(text.strip() == "d") for text in letter]

    args = config(tmp_path, max_steps=1, **DYNAMIC)
    trainer = DARAGRPOTrainer(tiny_model, [sparse], args, train_dataset=numbered(400), rollout_func=rollout)
    trainer.train()
    assert len(seen) > 1
    assert trainer.state.log_history[0]["dara/density/sparse"] == 1


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"dynamic_sampling": "yes"}, "dynamic_sampling must be true or false, not 'yes'"),
        ({"dynamic_sampling": True, "dynamic_sampling_keep": "some"}, "must be one of any, all, not 'some'"),
        ({"dynamic_sampling": True, "dynamic_sampling_max_rounds": 0}, "at least 1, not 0"),
        ({"dynamic_sampling": True, "dynamic_sampling_max_rounds": 1.5}, "at least 1, not 1.5"),
        ({"dynamic_sampling_keep": "all"}, "need dynamic_sampling=True"),
        ({"dynamic_sampling_max_rounds": 3}, "need dynamic_sampling=True"),
    ],
)
def test_wrong_settings(tmp_path, fields, words):
    with pytest.raises(ValueError, match=words):
        DARAGRPOConfig(str(tmp_path), use_cpu=True, bf16=False, **fields)


def streamed(count):
    rows = list(numbered(count))
    return IterableDataset.from_generator(lambda: iter(rows))


needs_streams = pytest.mark.skipif(
    not hasattr(trl.trainer.utils, "repeat_iterable_dataset"), reason="this TRL has no streamed datasets for GRPO"
)


@needs_streams
@pytest.mark.parametrize("shuffle", [True, False])
def test_no_prompt_of_a_stream_twice_before_all_were_seen(tiny_model, tmp_path, shuffle):
    reward = Sparse()
    run(tiny_model, tmp_path, [reward], streamed(60), max_steps=3, shuffle_dataset=shuffle, **DYNAMIC)
    seen = [row for rows in reward.rows() for row in rows]
    assert len(seen) > 60
    # The dataloader has fetched one batch of 8 ahead, and may have to leave a last incomplete one.
    first = list(dict.fromkeys(seen))
    repeated = next(i for i, row in enumerate(seen) if row in seen[:i])
    assert repeated >= 60 - 2 * 8
    assert set(first) <= set(range(60))
    if not shuffle:
        assert seen[:8] == list(range(8))
        assert seen[8:].index(16) < len(seen)  # fresh ones come from behind the batch that is fetched ahead
        assert 8 not in reward.rows()[1]


@needs_streams
def test_resume_goes_on_in_the_stream(tiny_model, tmp_path):
    fields = {**DYNAMIC, "max_steps": 4, "save_strategy": "steps", "save_steps": 1, "steps_per_generation": 2}
    whole = Sparse()
    uninterrupted = run(tiny_model, tmp_path / "a", [whole], streamed(400), **fields)
    for step in (1, 2, 3):
        reward = Sparse()
        checkpoint = str(tmp_path / "a" / f"checkpoint-{step}")
        resumed = run(
            tiny_model, tmp_path / f"b{step}", [reward], streamed(400), resume_from_checkpoint=checkpoint, **fields
        )
        assert reward.calls == (whole.calls[-len(reward.calls) :] if reward.calls else [])
        for mine, theirs in zip(resumed.model.parameters(), uninterrupted.model.parameters(), strict=True):
            assert torch.equal(mine, theirs)


def places(stream, count):
    return [row["number"] for row in stream.fresh(count)]


def test_a_stream_read_and_taken_from_by_turns():
    stream = PromptStream(streamed(10))
    rows = iter(stream.for_dataloader())
    assert [next(rows)["number"] for _ in range(3)] == [0, 1, 2]
    assert places(stream, 2) == [3, 4]
    assert next(rows)["number"] == 5
    assert places(stream, 1) == [6]
    assert [next(rows)["number"] for _ in range(2)] == [7, 8]
    assert places(stream, 4) == [9, 0, 1, 2]  # all were seen: from the start again
    assert list(rows) == []
    assert stream.taken == (0, (3, 4, 6, 9), 3)
    second = iter(stream.for_dataloader())
    assert next(second)["number"] == 0
    assert stream.taken == (1, (), 0)
    assert places(stream, 1) == [1]


def test_a_stream_goes_on_where_it_was():
    stream = PromptStream(streamed(10))
    rows = iter(stream.for_dataloader())
    next(rows)
    places(stream, 2)
    next(rows)
    other = PromptStream(streamed(10))
    other.taken = stream.taken
    again = iter(other.for_dataloader())
    assert [next(again)["number"] for _ in range(2)] == [0, 3]
    assert places(other, 9) == places(stream, 9) == [4, 5, 6, 7, 8, 9, 0, 1, 2]


def test_an_empty_stream_is_named():
    with pytest.raises(ValueError, match="The training dataset has no rows"):
        PromptStream(IterableDataset.from_generator(lambda: iter([]))).fresh(1)
