"""The ToolRL loader on the published files and on files it must refuse."""

import json
import subprocess
import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from datasets import Dataset, config
from trl import is_conversational

from dara_trl.data.toolrl import load_toolrl


SHARED = Path(__file__).parents[2] / "shared" / "data" / "toolrl"
ANSWER = "<think> t </think>\n<response> r </response>"
MESSAGES = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
VERL = {"data_source": "rlla", "prompt": MESSAGES, "reward_model": {"style": "rule", "ground_truth": ANSWER}}
SFT = {"instruction": "s", "input": "u", "output": ANSWER}


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setattr(config, "HF_DATASETS_CACHE", tmp_path / "cache")


@pytest.fixture
def write(tmp_path):
    def write(name, rows):
        path = tmp_path / name
        if path.suffix == ".parquet":
            Dataset.from_list(rows).to_parquet(path)
        elif path.suffix == ".jsonl":
            path.write_text("\n".join(map(json.dumps, rows)))
        else:
            path.write_text(json.dumps(rows))
        return path

    return write


@pytest.mark.parametrize(("name", "length"), [("test.parquet", 80), ("rlla_sft.json", 400)])
def test_published_files_load_whole(name, length):
    if not SHARED.is_dir():
        pytest.skip(f"ToolRL's data is not at {SHARED}")
    dataset = load_toolrl(SHARED / name)
    assert len(dataset) == length
    assert all([message["role"] for message in row["prompt"]] == ["system", "user"] for row in dataset)
    assert all(row["answer"].startswith("<think>") for row in dataset)


def test_published_parquet_answers_are_the_ground_truths():
    if not SHARED.is_dir():
        pytest.skip(f"ToolRL's data is not at {SHARED}")
    raw = Dataset.from_parquet(str(SHARED / "test.parquet"))
    assert load_toolrl(SHARED / "test.parquet")["answer"][:] == [row["ground_truth"] for row in raw["reward_model"]]


@pytest.mark.parametrize("row", [VERL, SFT], ids=["verl", "sft"])
@pytest.mark.parametrize("name", ["a.parquet", "a.json", "a.jsonl"])
def test_both_forms_load_from_every_kind_of_file(write, name, row):
    dataset = load_toolrl(write(name, [row, row]))
    assert dataset.column_names == ["prompt", "answer"]
    assert dataset[:] == {"prompt": [MESSAGES] * 2, "answer": [ANSWER] * 2}


def test_trl_sees_a_conversation(write):
    assert is_conversational(load_toolrl(write("a.json", [SFT]))[0])


def test_messages_keep_role_and_content_only(write):
    row = VERL | {"prompt": [message | {"name": None} for message in MESSAGES]}
    assert load_toolrl(write("a.parquet", [row]))[0]["prompt"] == MESSAGES


def test_a_text_path_loads_like_a_path(write, monkeypatch):
    path = write("a.json", [SFT])
    monkeypatch.chdir(path.parent)
    assert [len(load_toolrl(each)) for each in (str(path), "a.json", "./a.json")] == [1, 1, 1]


def test_a_folder_loads_by_split(write, tmp_path):
    (tmp_path / "folder").mkdir()
    write("folder/train.json", [SFT])
    write("folder/test.json", [SFT, SFT])
    assert [len(load_toolrl(tmp_path / "folder", split=split)) for split in ("train", "test")] == [1, 2]


def test_a_url_loads(write, monkeypatch):
    pytest.importorskip("aiohttp", reason="datasets reads http URLs with aiohttp")
    monkeypatch.setattr(config, "HF_HUB_OFFLINE", False)  # the server is this process
    path = write("a.json", [SFT])

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *args):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(path.parent))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            assert len(load_toolrl(f"http://127.0.0.1:{server.server_port}/a.json?download=true")) == 1
        finally:
            server.shutdown()


@pytest.mark.parametrize(("limit", "expected"), [(None, 3), (1, 1), (3, 3), (9, 3)])
def test_limit_takes_the_first_rows(write, limit, expected):
    rows = [SFT | {"input": str(index)} for index in range(3)]
    dataset = load_toolrl(write("a.json", rows), limit=limit)
    assert [row["prompt"][1]["content"] for row in dataset] == ["0", "1", "2"][:expected]


@pytest.mark.parametrize("limit", [0, -1, 1.5, True, "1"])
def test_bad_limit_is_named(write, limit):
    with pytest.raises(ValueError, match=r"`limit` must be a positive int or None, got"):
        load_toolrl(write("a.json", [SFT]), limit=limit)


@pytest.mark.parametrize(
    "source", ["nowhere.parquet", "no/where.json", "x.jsonl", "./nowhere", "../x/y", "/x/y", "~/x/y"]
)
def test_a_missing_path_is_not_looked_up_on_the_hub(source):
    with pytest.raises(FileNotFoundError, match=r"`source`.*does not exist"):
        load_toolrl(source)


@pytest.mark.parametrize("source", ["", "http://127.0.0.1/data.csv", "hf://datasets/owner/name"])
def test_an_unusable_source_is_named(source):
    with pytest.raises(ValueError, match="`source` must be"):
        load_toolrl(source)


def test_a_file_of_another_kind_is_refused(tmp_path):
    (tmp_path / "a.csv").write_text("prompt,reward_model\n")
    with pytest.raises(ValueError, match=r"must be a \.parquet, \.json or \.jsonl file, got .*a\.csv"):
        load_toolrl(tmp_path / "a.csv")


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"prompt": MESSAGES}, r"missing: \['reward_model'\].*found \['prompt'\]"),
        ({"instruction": "s", "output": "o"}, r"missing: \['input'\].*found \['instruction', 'output'\]"),
        (
            {"text": "x"},
            r"missing: \['prompt', 'reward_model'\].*missing: \['input', 'instruction', 'output'\].*'text'",
        ),
    ],
)
def test_missing_columns_are_named(write, row, message):
    with pytest.raises(ValueError, match=message):
        load_toolrl(write("a.json", [row]))


BAD_ROWS = {
    "empty_answer": (SFT | {"output": " \n"}, "the ground truth is not a text, or empty"),
    "null_answer": (SFT | {"output": None}, "the ground truth is not a text, or empty: None"),
    "foreign_answer": (SFT | {"output": "42"}, "the ground truth has no <think>, <tool_call> or <response>: '42'"),
    "unparsable_call": (
        SFT | {"output": "<think> t </think>\n<tool_call>\nf(1)\n</tool_call>"},
        "the ground truth's tool calls are not one JSON object a line",
    ),
    "null_instruction": (SFT | {"instruction": None}, "a prompt message has no text role and content"),
    "empty_input": (SFT | {"input": ""}, "a prompt message has no text role and content"),
    "null_reward_model": (VERL | {"reward_model": None}, "the ground truth is not a text, or empty: None"),
    "null_ground_truth": (VERL | {"reward_model": {"style": "rule", "ground_truth": None}}, "or empty: None"),
    "null_prompt": (VERL | {"prompt": None}, "the prompt is not a list of messages but None"),
    "empty_prompt": (VERL | {"prompt": []}, r"the prompt is not a list of messages but \[\]"),
    "no_content": (VERL | {"prompt": [{"role": "user", "content": None}]}, "no text role and content"),
}


@pytest.mark.parametrize("name", ["a.json", "a.parquet"])
@pytest.mark.parametrize(("bad", "message"), BAD_ROWS.values(), ids=BAD_ROWS)
def test_unusable_rows_are_named(write, bad, message, name):
    good = VERL if "prompt" in bad else SFT
    with pytest.raises(ValueError, match=rf"1 of 3 rows of .* cannot be used: row 1: .*{message}"):
        load_toolrl(write(name, [good, bad, good]))


@pytest.mark.parametrize(
    "row", [VERL | {"prompt": "text"}, VERL | {"prompt": ["text"]}, VERL | {"reward_model": "text"}]
)
def test_columns_of_another_type_are_refused(write, row):
    with pytest.raises(ValueError, match="row 0: "):
        load_toolrl(write("a.json", [row]))


def test_many_unusable_rows_make_a_short_error(write):
    rows = [SFT | {"output": "x" * 10_000}] * 50
    with pytest.raises(ValueError, match=r"50 of 50 rows .*row 4: .*; \.\.\.$") as error:
        load_toolrl(write("a.json", rows))
    assert len(str(error.value)) < 1500


def test_rows_past_the_limit_are_not_judged(write):
    assert len(load_toolrl(write("a.json", [SFT, SFT | {"output": ""}]), limit=1)) == 1


def test_a_path_is_not_a_pattern(write, tmp_path):
    (tmp_path / "a[1]*").mkdir()
    assert len(load_toolrl(write("a[1]*/a.json", [SFT]))) == 1


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("a.json", "", "no data"),
        ("a.json", "[]", "no data"),
        ("a.json", '{"instruction":', "JSON parse error"),
        ("a.parquet", "version https://git-lfs.github.com/spec/v1", "not a parquet file"),
    ],
)
def test_an_unreadable_file_is_named(tmp_path, name, text, reason):
    (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=rf"{name}' cannot be loaded with split 'train': .*{reason}"):
        load_toolrl(tmp_path / name)


def test_an_unknown_split_is_named(write):
    with pytest.raises(ValueError, match=r"with split 'test': Unknown split"):
        load_toolrl(write("a.json", [SFT]), split="test")
    with pytest.raises(TypeError, match="`split` must be a str, got None"):
        load_toolrl(write("a.json", [SFT]), split=None)


def test_importing_the_loader_is_light():
    code = "import sys, dara_trl.data.toolrl; print([m for m in ('torch', 'trl', 'datasets') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
