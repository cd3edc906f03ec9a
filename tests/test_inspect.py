"""`dara-trl inspect` says of a logged table what `aggregate` says of the rewards themselves."""

import json
import math
from dataclasses import asdict, replace

import pandas as pd
import pytest
import torch
from rollouts import count_a, maybe, prompts, rare
from rollouts import run as train
from trl import GRPOConfig, GRPOTrainer

from dara_trl import aggregate
from dara_trl.cli import main
from dara_trl.inspect import InspectError, inspect_completions, inspect_files
from dara_trl.telemetry import batch_metrics


NAMES = ["count_a", "rare", "maybe"]
COLUMNS = ["applicable", "density", "energy", "energy_ratio", "weight"]


def train_plain(model, folder, **changes):
    """A run of TRL's own trainer; returns the rewards of each generation batch, as the functions returned them."""
    batches = []

    def capture(function):
        def reward(completions, **kwargs):
            texts = [text if isinstance(text, str) else text[0]["content"] for text in completions]
            values = function(texts)
            if function is count_a:
                batches.append([])
            batches[-1].append([math.nan if value is None else value for value in values])
            return values

        reward.__name__ = function.__name__
        return reward

    dataset = changes.pop("dataset", None) or prompts()
    fields = {
        "output_dir": str(folder),
        "per_device_train_batch_size": 16,
        "num_generations": 4,
        "max_completion_length": 10,
        "max_steps": 3,
        "logging_steps": 1,
        "report_to": "none",
        "use_cpu": True,
        "bf16": False,
        "disable_tqdm": True,
        "save_strategy": "no",
        "log_completions": True,
        "num_completions_to_print": 0,
        "seed": 7,
        **changes,
    }
    GRPOTrainer(
        model, [capture(f) for f in (count_a, rare, maybe)], GRPOConfig(**fields), train_dataset=dataset
    ).train()
    return [torch.tensor(batch).t().contiguous() for batch in batches]


def assert_equal(inspection, batches_NK, size=4):
    assert len(inspection.batches) == len(batches_NK)
    for batch, rewards_NK in zip(inspection.batches, batches_NK, strict=True):
        metrics = batch_metrics(aggregate(rewards_NK, num_generations=size), NAMES)
        assert batch.groups == len(rewards_NK) // size
        assert [figures.name for figures in batch.rewards] == NAMES
        for k, figures in enumerate(batch.rewards):
            for column in COLUMNS:
                assert getattr(figures, column) == metrics[f"dara/{column}/{figures.name}"]
            assert figures.at_cap == metrics[f"dara/weight_at_cap/{figures.name}"]
            assert figures.mean == pytest.approx(rewards_NK[:, k].nanmean().item(), nan_ok=True)
    for k, figures in enumerate(inspection.rewards):
        for column in COLUMNS:
            values = [getattr(batch.rewards[k], column) for batch in inspection.batches]
            assert getattr(figures, column) == pytest.approx(sum(values) / len(values))


def conversations():
    return prompts().map(lambda row: {"prompt": [{"role": "user", "content": row["prompt"]}]})


@pytest.mark.parametrize("kind", ["text", "conversations"])
def test_plain_trl_run(tiny_model, tmp_path, kind):
    dataset = conversations() if kind == "conversations" else None
    batches = train_plain(tiny_model, tmp_path, dataset=dataset)
    inspection = inspect_files([tmp_path])
    assert_equal(inspection, batches)
    assert inspection.num_generations == 4
    assert inspection.num_generations_inferred
    assert inspection.logged_advantages == ("grpo",)
    assert inspection.rewards[2].applicable < 1
    frames = [pd.read_parquet(file) for file in sorted((tmp_path / "completions").glob("*"))]
    assert inspect_completions(pd.concat(frames, ignore_index=True)) == inspection


@pytest.mark.parametrize(
    ("changes", "kept", "repeated"),
    [
        ({"num_iterations": 2, "max_steps": 4}, [0, 1], (2, 4)),
        ({"logging_steps": 2, "max_steps": 4}, [1, 3], ()),
        ({"logging_steps": 2, "max_steps": 3}, [1, 2], ()),
        (
            {"steps_per_generation": 2, "per_device_train_batch_size": 8, "gradient_accumulation_steps": 1},
            [0, 1],
            (2,),
        ),
        ({"gradient_accumulation_steps": 2, "per_device_train_batch_size": 8}, [0, 1, 2], ()),
        (
            {"gradient_accumulation_steps": 4, "steps_per_generation": 2, "per_device_train_batch_size": 8},
            [1, 3, 5],
            (),
        ),
    ],
)
def test_each_logged_batch_counts_once(tiny_model, tmp_path, changes, kept, repeated):
    batches = train_plain(tiny_model, tmp_path, **changes)
    inspection = inspect_files([tmp_path / "completions", tmp_path])
    assert_equal(inspection, [batches[i] for i in kept])
    assert inspection.repeated_steps == repeated


@pytest.mark.parametrize("method", ["dara_asym", "gdpo"])
def test_dara_trl_run(tiny_model, tmp_path, method):
    trainer = train(tiny_model, tmp_path, [count_a, rare, maybe], aggregation=method, log_completions=True)
    inspection = inspect_files([tmp_path])
    assert_equal(inspection, [record["rewards"] for record in trainer.records])
    assert method in inspection.logged_advantages
    rows = [row for row in trainer.state.log_history if "loss" in row]
    for batch, row in zip(inspection.batches, rows, strict=True):
        for figures in batch.rewards:
            assert figures.density == row[f"dara/density/{figures.name}"]


def table(groups, size=2, names=("a", "b"), step=1, **columns):
    """Groups of rows of rewards; a prompt of its own for each."""
    rows = [row for group in groups for row in group]
    frame = pd.DataFrame(rows, columns=list(names), dtype="float64")
    frame.insert(0, "prompt", [f"p{i // size}" for i in range(len(rows))])
    frame.insert(0, "step", step)
    frame["completion"] = [f"{step} {i}" for i in range(len(rows))]
    return frame.assign(**columns)


VARIED = [[(0, 0), (1, 0)], [(0, 1), (1, 0)], [(1, 1), (0, 0)], [(2, 2), (2, 1)]]


def test_a_prompt_twice_in_a_row_is_two_groups():
    frame = table(VARIED)
    expected = inspect_completions(frame)
    frame["prompt"] = ["p0"] * 4 + ["p2", "p2", "p3", "p3"]
    assert inspect_completions(frame) == expected
    frame["prompt"] = "p"
    assert "single prompt" in inspect_completions(frame).notes[0]
    assert inspect_completions(frame, num_generations=2).batches == expected.batches


def test_groups_cut_off_at_the_edges_are_left_out_and_counted():
    whole = table(VARIED * 2)
    cut = inspect_completions(whole.iloc[1:-1])
    assert cut.incomplete_groups == 2
    assert cut.batches == inspect_completions(whole.iloc[2:-2]).batches
    with pytest.raises(InspectError, match="no prompt has all of its 4 rows"):
        inspect_completions(whole.iloc[:3], num_generations=4)


def test_equal_figures_of_different_completions_are_two_batches():
    frames = [table(VARIED, step=1), table(VARIED, step=2)]
    assert inspect_completions(pd.concat(frames)).repeated_steps == ()
    frames[1]["completion"] = frames[0]["completion"]
    assert inspect_completions(pd.concat(frames)).repeated_steps == (2,)


def test_collapse_by_hand():
    # (0.1, 0.2) and (0.3, 0) have one sum, (1, 0) another: 3 combinations, 2 sums. The second group: (1, 0) and
    # (0, 1), of which the row without b does not count: 2 and 1. Together 5 and 3.
    nan = math.nan
    groups = [[(0.1, 0.2), (0.3, 0), (1, 0), (1, 0)], [(1, 0), (0, 1), (1, 0), (0.5, nan)]]
    collapse = inspect_completions(table(groups, 4)).collapse
    assert (collapse.combinations, collapse.sums, collapse.share) == (5, 3, pytest.approx(0.4))
    weighted = inspect_completions(table(groups, 4), reward_weights=[1, 3]).collapse
    assert (weighted.combinations, weighted.sums) == (5, 5)


def test_conflict_and_correlation_by_hand():
    # Groups: a alone; a against b; together; b alone. Both judge 4 rollouts of 8, 2 of them against each other.
    (pair,) = inspect_completions(table(VARIED)).pairs
    assert (pair.both, pair.opposite) == (4, 2)
    assert (pair.opposite_share_of_both, pair.opposite_share_of_all) == (0.5, 0.25)
    assert pair.correlation == pytest.approx(0, abs=1e-6)
    (pair,) = inspect_completions(table([VARIED[1]] * 3)).pairs
    assert pair.correlation == pytest.approx(-1)
    (pair,) = inspect_completions(table([VARIED[0], VARIED[3]])).pairs
    assert (pair.opposite_share_of_both, pair.correlation) == (None, None)


def test_settings_change_the_weights():
    frame = table([[(0, 0), (1, 1)]] + [[(0, 0), (1, 0)]] * 8)

    def weight(**settings):
        return inspect_completions(frame, **settings).rewards[1].weight

    assert weight() == pytest.approx(3)
    assert weight(max_weight=2) == 2
    assert weight(method="gdpo") == 1
    assert weight(reward_weights=[0, 1]) == 1
    assert inspect_completions(frame, eps=1.0).rewards[0].energy < inspect_completions(frame).rewards[0].energy
    assert [figures.name for figures in inspect_completions(frame, rewards=["b", "a"]).rewards] == ["b", "a"]


def sentences(groups, names=("a", "b"), **settings):
    return inspect_completions(table(groups, names=names), **settings).sentences


def test_sentences():
    one, two, three = sentences([[(0,), (1,)]] * 40, names=("a",))
    assert "only reward: it tells rollouts of a prompt apart in 100 %" in one
    assert "nothing to hide" in two
    assert "DARA would change nothing" in three

    one, two, three = sentences([[(0, 0), (1, 1)]] * 4 + [[(0, 0), (1, 0)]] * 36)
    assert "a supplies the most signal" in one
    assert "b in 10 %, with 0.1 times its energy: starved" in one
    assert "hides nothing" in two
    assert "no two rewards pull" in two
    assert three == "DARA would give the weights a 1, b 3.2: worth trying here."

    one, two, three = sentences([[(0, 1, 0), (1, 0, 0)]] * 40, names=("a", "b", "c"))
    assert "c never does and supplies none" in one
    assert "hides 50 % of the differences: 80 distinct combinations of rewards within groups have only 40" in two
    assert "a and b conflict most often: they pull in opposite directions in 100 %" in two
    assert three == "DARA would weigh them nearly equally; expect the same as GDPO."

    one, two, three = sentences([[(1, 0), (1, 0)]] * 40)
    assert "No reward tells any two rollouts of a prompt apart in any of the 40 groups" in one
    assert "DARA would change nothing" in three

    assert "With 29 groups (fewer than 30) it is too early" in sentences([VARIED[0]] + [VARIED[1]] * 28)[2]
    assert "at the cap of 2 in 100 %" in sentences([VARIED[2]] + [VARIED[0]] * 39, max_weight=2)[2]


def test_methods_without_density_say_so():
    groups = [[(0, 0), (1, 5)]] * 20 + [[(0, 0), (1, 0)]] * 20
    assert sentences(groups, method="gdpo")[2] == (
        "gdpo does not weigh rewards by density: all have weight 1; --method dara_asym would."
    )
    assert sentences(groups, method="dvao")[2] == "dvao does not weigh rewards by density; --method dara_asym would."
    with pytest.raises(InspectError, match=r"--method must be one of grpo, gdpo, .*rvpo, not 'saw'"):
        sentences(groups, method="saw")


def write(folder, frame, name="f.parquet"):
    path = folder / name
    frame.to_parquet(path)
    return path


ERRORS = {
    "no prompt": (lambda f: f.drop(columns="prompt"), [], "has no column 'prompt'"),
    "no step": (lambda f: f.drop(columns="step"), [], "has no column 'step'"),
    "no rewards": (lambda f: f.drop(columns=["a", "b"]), [], "has no column of rewards"),
    "not numbers": (lambda f: f, ["--rewards", "a", "c"], "column 'c' is of type"),
    "not a reward": (lambda f: f, ["--rewards", "step"], "column 'step' is TRL's own"),
    "unknown": (lambda f: f, ["--rewards", "z"], "has no column 'z'"),
    "twice": (lambda f: f, ["--rewards", "a", "a"], "named twice"),
    "infinite": (lambda f: f.assign(b=math.inf), [], "column 'b' is inf in row 0"),
    "empty": (lambda f: f.iloc[:0], [], "has no rows"),
    "one rollout": (lambda f: f.iloc[::2], [], "each prompt has one row"),
    "unequal": (lambda f: f.drop(index=3), [], "a prompt has 1 consecutive rows"),
    "wrong G": (lambda f: f, ["--num-generations", "4"], "no multiple of 4"),
    "G of 1": (lambda f: f, ["--num-generations", "1"], "at least 2"),
    "method": (lambda f: f, ["--method", "static_sym"], "--method must be one of"),
    "weights": (lambda f: f, ["--reward-weights", "1"], "reward_weights has 1 entries"),
    "cap": (lambda f: f, ["--max-weight", "0"], "max_weight must be"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_bad_input_is_explained(tmp_path, capsys, name):
    change, options, message = ERRORS[name]
    path = write(tmp_path, change(table(VARIED, c="text")))
    assert main(["inspect", str(path), *options]) == 2
    error = capsys.readouterr().err
    assert message in error
    if name not in ("G of 1", "method", "weights", "cap"):
        assert str(path) in error


def test_bad_files_are_explained(tmp_path, capsys):
    (tmp_path / "text.parquet").write_text("no parquet")
    (tmp_path / "zero.parquet").touch()
    (tmp_path / "folder").mkdir()
    one, other = write(tmp_path, table(VARIED), "1.parquet"), write(tmp_path, table(VARIED), "same.parquet")
    different = write(tmp_path, table(VARIED, names=("a", "z"), step=2), "2.parquet")
    for paths, message in (
        ([tmp_path / "text.parquet"], "text.parquet: is not a readable parquet"),
        ([tmp_path / "zero.parquet"], "zero.parquet: is not a readable parquet"),
        ([tmp_path / "none.parquet"], "none.parquet: no such file"),
        ([tmp_path / "folder"], "folder: holds neither"),
        ([one, other], "both hold step 1"),
        ([one, different], f"{one}: has no column 'z'"),
    ):
        assert main(["inspect", *map(str, paths)]) == 2
        assert message in capsys.readouterr().err


def test_tables_of_another_group_size_are_refused():
    frames = [table(VARIED * 2, step=1), table(VARIED, size=4, step=2)]
    with pytest.raises(InspectError, match="step 2: every prompt has 4 rows"):
        inspect_completions(pd.concat([frames[0], table(VARIED * 2, size=4, step=2)]))
    assert inspect_completions(pd.concat(frames), num_generations=2).groups == 12


def test_json_is_the_dataclasses_and_names_are_literal(tmp_path, capsys):
    names = ("[red]x[/red]", "a.b\x1b[2J")
    path = write(tmp_path, table([*VARIED, [(0, math.nan), (1, math.nan)]], names=names))
    assert main(["inspect", str(path), "--json"]) == 0
    expected = asdict(inspect_files([path]))
    assert json.loads(capsys.readouterr().out) == json.loads(json.dumps(expected))
    assert main(["inspect", str(path), "--by-step"]) == 0
    out = capsys.readouterr().out
    assert "[red]x[/red]" in out
    assert r"a.b\x1b[2J" in out
    assert "\x1b" not in out
    assert "by step" in out


def test_whole_numbers_are_pointed_out(tmp_path):
    path = write(tmp_path, table(VARIED, tokens=3))
    with_tokens = inspect_files([path])
    assert "'tokens' has whole numbers" in with_tokens.notes[0]
    without = inspect_files([path], rewards=["a", "b"])
    assert without.notes == ()
    assert replace(without, sentences=()) == replace(inspect_completions(table(VARIED)), sentences=())


def test_column_without_a_value_is_pointed_out(tmp_path):
    path = write(tmp_path, table(VARIED, never=None))
    assert "'never' has no value in any row and is left out" in inspect_files([path]).notes[0]
    both = inspect_files([path], rewards=["a", "b", "never"])
    assert not both.notes
    assert both.rewards[-1].applicable == 0
