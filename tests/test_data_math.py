"""Mathematics problems in their published forms become TRL's, and none is lost in silence."""

import json
import logging

import pytest
from trl import is_conversational

from dara_trl.data.math import INSTRUCTION, load_math


@pytest.fixture
def write(tmp_path):
    def write(rows, name="a.jsonl"):
        path = tmp_path / name
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return path

    return write


@pytest.mark.parametrize(
    ("row", "answer"),
    [
        ({"problem": "P", "answer": "\\frac12", "solution": "\\boxed{9}"}, "\\frac12"),  # DeepScaleR, MATH-500
        ({"problem": "P", "answer": 142.0}, "142"),  # AMC
        ({"problem": "P", "answer": ["9.6\n"], "idx": 1}, "9.6"),  # Minerva
        ({"question": "P", "final_answer": ["$2$", "$3$"], "unit": None}, "2, 3"),  # OlympiadBench
        ({"Problem": "P", "Answer": 204, "ID": "2024-I-1"}, "204"),
        (
            {"problem": "P", "level": "Level 1", "solution": "So \\boxed{1}, no, $\\boxed{\\frac{1}{2}}$."},
            "\\frac{1}{2}",
        ),
        ({"question": "P", "answer": "16 - 3 = <<16-3=13>>13\n#### 1,800"}, "1800"),  # GSM8K
        ({"problem": "P", "answer": None, "solution": "\\boxed{7}"}, "7"),
        ({"problem": "P", "answer": "#### is a mark"}, "is a mark"),
    ],
)
def test_published_forms(write, row, answer):
    dataset = load_math(write([row]))
    assert dataset[:] == {"prompt": [[{"role": "user", "content": f"P\n\n{INSTRUCTION}"}]], "answer": [answer]}
    assert is_conversational(dataset[0])


def test_verl_s_form_keeps_its_messages(write):
    messages = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
    row = {"prompt": messages, "reward_model": {"style": "rule", "ground_truth": "5"}, "data_source": "x"}
    assert load_math(write([row]), instruction="not used")[0] == {"prompt": messages, "answer": "5"}


def test_instruction_and_limit(write):
    path = write([{"problem": str(i), "answer": "1"} for i in range(3)])
    assert [row["prompt"][0]["content"] for row in load_math(path, instruction="", limit=2)] == ["0", "1"]


def test_rows_without_a_reference_are_left_out_and_named(write, caplog):
    path = write([{"problem": "a", "answer": "1"}, {"problem": "b", "answer": None}, {"problem": "c", "answer": " "}])
    with caplog.at_level(logging.WARNING):
        assert len(load_math(path)) == 1
    assert "2 of 3 rows" in caplog.text
    assert "row 1, 2" in caplog.text
    with pytest.raises(ValueError, match=r"No row of .* has a reference"):
        load_math(write([{"problem": "a", "answer": None}]))


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"text": "P", "label": "1"}], r"needs a column `problem` or `question`.*found \['label', 'text'\]"),
        ([{"problem": "P", "grade": "1"}], "`answer`, `final_answer` or `solution`"),
        (
            [{"problem": "P", "answer": "1"}, {"problem": "", "answer": "1"}],
            "1 of 2 rows.*row 1: the problem is not a",
        ),
        ([{"prompt": [], "reward_model": {"ground_truth": "1"}}], "the prompt is not a list of messages"),
    ],
)
def test_bad_files_are_explained(write, rows, message):
    with pytest.raises(ValueError, match=message):
        load_math(write(rows))


@pytest.mark.parametrize(
    ("name", "rows"),
    [
        ("deepscaler_train_math.json", 7470),  # of 7,474: two references are null, two empty
        ("deepscaler_test_math.json", 500),
        ("deepscaler_test_aime.json", 30),
        ("deepscaler_test_amc.json", 83),
        ("deepscaler_test_minerva.json", 272),
        ("deepscaler_test_olympiad_bench.json", 675),
        ("gsm8k_test.jsonl", 1319),
    ],
)
def test_real_files(shared_data, name, rows):
    dataset = load_math(shared_data / "math" / name)
    assert len(dataset) == rows
    assert all(dataset["answer"])
    if name == "gsm8k_test.jsonl":
        assert all(float(answer) == float(answer) for answer in dataset["answer"])
