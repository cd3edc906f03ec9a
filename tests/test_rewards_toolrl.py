"""The tool-calling rewards against the table of their definition, the published data and hostile completions."""

import inspect
import json
import pickle
import random
import re
import subprocess
import sys
import time
from collections import Counter
from functools import partial
from pathlib import Path

import pytest

from dara_trl.rewards.toolrl import correctness_reward, format_reward, think_length_reward


SHARED = Path(__file__).parents[2] / "shared" / "data" / "toolrl"
# The rows of rlla_sft.json whose thoughts mention <tool_call>.
MENTIONS = [10, 44, 73, 76, 95, 97, 200, 213, 252, 280, 285, 317, 348, 350, 356, 363, 380]


def call(name, **parameters):
    return json.dumps({"name": name, "parameters": parameters})


def block(*lines):
    return "<tool_call>\n" + "\n".join(lines) + "\n</tool_call>"


def tool(*lines, thoughts=" thoughts "):
    return f"<think>{thoughts}</think>\n{block(*lines)}"


ONE = tool(call("f", x=1))
RESPONSE = "<think> thoughts </think>\n<response> text </response>"
BOTH = f"{ONE}\n<response> text </response>"
THINK = "<think> thoughts </think>"


def score(text, truth=ONE, **kwargs):
    """(format, correctness) of one completion."""
    return format_reward([text], [truth])[0], correctness_reward([text], [truth], **kwargs)[0]


def published_answers():
    if not SHARED.is_dir():
        pytest.skip(f"ToolRL's data is not at {SHARED}")
    pandas = pytest.importorskip("pandas")
    test = [row["ground_truth"] for row in pandas.read_parquet(SHARED / "test.parquet").reward_model]
    sft = [row["output"] for row in json.loads((SHARED / "rlla_sft.json").read_text(encoding="utf-8"))]
    return test, sft


TWO = tool(call("f", x=1), call("g", y="b"))
TABLE = {
    "permuted": (tool(call("g", y="b"), call("f", x=1)), TWO, 1, 3),
    "extra_call": (tool(call("f", x=1), call("g", y=1)), ONE, 1, 2),
    "extra_parameter": (tool(call("f", x=1, y=2)), ONE, 1, 2),
    "text_for_number": (tool(call("f", x="1")), ONE, 1, 1),
    "float_for_int": (tool(call("f", x=1.0)), ONE, 1, 3),
    "true_for_int": (tool(call("f", x=True)), ONE, 1, 3),
    "wrong_name": (tool(call("g", x=1)), ONE, 1, -3),
    "second_missing": (ONE, tool(call("f", x=1), call("g")), 1, 0.75),
    "call_and_response": (BOTH, ONE, 0, 3),
    "text_before_think": (f"Well. {ONE}", ONE, 0, 3),
    "tag_in_thoughts": (tool(call("f", x=1), thoughts=" a <tool_call> is due "), ONE, 0, -3),
}


@pytest.mark.parametrize(("text", "truth", "form", "correct"), TABLE.values(), ids=TABLE)
def test_table_of_the_definition(text, truth, form, correct):
    assert score(text, truth) == (form, correct)


@pytest.mark.parametrize("truth", [ONE, TWO, RESPONSE, BOTH, THINK])
@pytest.mark.parametrize("text", [ONE, TWO, RESPONSE, BOTH, THINK])
def test_format_is_the_structure_of_the_ground_truth(text, truth):
    structure = [[tag in each for tag in ("<tool_call>", "<response>")] for each in (text, truth)]
    assert format_reward([text], [truth]) == [float(structure[0] == structure[1])]


@pytest.mark.parametrize(
    "text",
    [
        "<think></think><tool_call>\n{}\n</tool_call>",
        "<think></think>\n<tool_call>{}\n</tool_call>",
        "<think></think>\n<tool_call>\n{}</tool_call>",
        "<think></think>\n<tool_call>\n</tool_call>",
        "<think></think>\n\n<tool_call>\n{}\n</tool_call>",
        "<think>\n<tool_call>\n{}\n</tool_call>",
        "</think>\n<tool_call>\n{}\n</tool_call>",
        "<think></think>\n<tool_call>\n{}\n</tool_call> end",
        "<think></think>\n<tool_call>\n{}\n</tool_call>\n<tool_call>\n{}\n</tool_call>",
        "<think></tool_call></think>\n<tool_call>\n{}\n</tool_call>",
        "",
    ],
)
def test_format_is_strict_about_newlines_and_tags(text):
    assert format_reward([text], [ONE]) == [0.0]


@pytest.mark.parametrize(
    "text", ["<think></think>\n<tool_call>\n\n</tool_call>", f"<think>a\nb<think></think>\n{block('not JSON')}"]
)
def test_format_looks_at_neither_the_json_nor_the_thoughts(text):
    assert format_reward([text], [ONE]) == [1.0]


@pytest.mark.parametrize("truth", [ONE, BOTH, RESPONSE, THINK])
def test_white_space_around_the_completion_does_not_count(truth):
    assert score(f" \n\t{truth}\r\n ", truth) == score(truth, truth)


@pytest.mark.parametrize(("inapplicable", "expected"), [("zero", 0.0), ("none", None)])
@pytest.mark.parametrize("truth", [RESPONSE, THINK])
def test_a_ground_truth_without_a_call_is_inapplicable(truth, inapplicable, expected):
    rewards = correctness_reward([ONE, truth, "x"], [truth] * 3, inapplicable=inapplicable)
    assert rewards == [expected] * 3


@pytest.mark.parametrize("inapplicable", ["zero", "none"])
def test_inapplicable_changes_no_score_where_there_is_a_call(inapplicable):
    assert correctness_reward([ONE, RESPONSE], [ONE, BOTH], inapplicable=inapplicable) == [3.0, -3.0]


UNPARSABLE = {
    "empty": "",
    "no_call": RESPONSE,
    "no_closing_tag": "<think></think>\n<tool_call>\n" + call("f", x=1),
    "no_opening_tag": call("f", x=1) + "\n</tool_call>",
    "tags_swapped": "</tool_call>\n" + call("f", x=1) + "\n<tool_call>",
    "opened_twice": tool("<tool_call>", call("f", x=1)),
    "empty_block": tool(""),
    "blank_line": tool(call("f", x=1), "", call("g")),
    "bad_json": tool('{"name": "f", "parameters": {"x": 1}'),
    "python_literal": tool("{'name': 'f', 'parameters': {'x': 1}}"),
    "two_on_a_line": tool(call("f", x=1) + call("f", x=1)),
    "second_call_bad": tool(call("f", x=1), "x"),
    "json_list": tool(f"[{call('f', x=1)}]"),
    "null": tool("null"),
    "number": tool("1"),
    "text": tool('"name parameters"'),
    "no_name": tool('{"parameters": {"x": 1}}'),
    "null_name": tool('{"name": null, "parameters": {"x": 1}}'),
    "list_name": tool('{"name": ["f"], "parameters": {"x": 1}}'),
    "no_parameters": tool('{"name": "f"}'),
    "no_parameters_in_another_call": tool(call("f", x=1), '{"name": "g"}'),
    "null_parameters": tool('{"name": "f", "parameters": null}'),
    "list_parameters": tool('{"name": "f", "parameters": ["x"]}'),
    "text_parameters": tool('{"name": "f", "parameters": "x"}'),
    "duplicate_call_key": tool('{"name": "g", "name": "f", "parameters": {"x": 1}}'),
    "duplicate_parameter": tool('{"name": "f", "parameters": {"x": 2, "x": 1}}'),
    "duplicate_deep_down": tool('{"name": "f", "parameters": {"x": [{"a": 1, "a": 1}]}}'),
    "nan": tool('{"name": "f", "parameters": {"x": NaN}}'),
    "infinity": tool('{"name": "f", "parameters": {"x": Infinity}}'),
    "minus_infinity": tool('{"name": "f", "parameters": {"x": -Infinity}}'),
    "huge_int": tool('{"name": "f", "parameters": {"x": ' + "9" * 5000 + "}}"),
    "surrogate": tool('{"name": "f", "parameters": {"x": "\ud800"}}'),
    "escaped_surrogate": tool('{"name": "f", "parameters": {"x": 1, "y": "\\ud800"}}'),
    "escaped_surrogate_key": tool('{"name": "f", "parameters": {"x": 1, "\\udfff": 1}}'),
    "nested_lists": tool('{"name": "f", "parameters": {"x": ' + "[" * 200 + "]" * 200 + "}}"),
    "nested_objects": tool('{"name": "f", "parameters": {"x": ' + '{"a":' * 200 + "1" + "}" * 202),
    "nested_without_end": tool("[" * 1_000_000),
}


@pytest.mark.parametrize("text", UNPARSABLE.values(), ids=UNPARSABLE)
def test_unparsable_calls_score_the_minimum(text):
    assert correctness_reward([text], [ONE]) == [-3.0]


@pytest.mark.parametrize(
    "line",
    [
        '{"name": "f", "parameters": {"x": "\\ud83d\\ude00", "y": ' + "[" * 50 + "]" * 50 + "}}",
        '{"name": "f", "parameters": {"x": 1e999}}',
        '{"name": "f", "parameters": {"x": "<think> NaN"}}',
        '{"name": "f", "parameters": {"x": [' + "[]," * 500 + "[]]}}",
        '  {"parameters": {}, "name": "", "id": 1}\r',
    ],
)
def test_unusual_but_valid_calls_equal_themselves(line):
    assert correctness_reward([tool(line)], [tool(line)]) == [3.0]


def test_an_equal_call_without_parameters_is_a_full_match():
    assert correctness_reward([tool(call("f"), call("g"))], [tool(call("g"), call("f"))]) == [3.0]


def test_a_call_matches_only_once():
    # names 1/2, one of two calls matched in full: 2.5 of 5
    assert correctness_reward([ONE], [tool(call("f", x=1), call("f", x=1))]) == [0.0]


def test_a_call_that_shares_nothing_is_not_used_up():
    # The first reference call gets 0 from the only call, which leaves it to the second.
    truth = tool(call("f", y=1), call("f", x=1))
    assert correctness_reward([ONE], [truth]) == [6 * (1 / 2 + 2) / 5 - 3]


def test_matching_is_greedy_in_the_order_of_the_reference_calls():
    # Both reference calls want the first call most; the first one takes it.
    text = tool(call("f", x=1, y=1), call("f", x=2))
    truth = tool(call("f", x=1), call("f", x=1, y=1))
    assert correctness_reward([text], [truth]) == [pytest.approx(6 * (1 + (1 / 2 + 1) + 1 / 2) / 6 - 3)]


def literal_scores(text, truth):
    """The definition, word by word, for well-formed calls."""
    text, has_tool, has_response = text.strip(), "<tool_call>" in truth, "<response>" in truth
    pattern = "<think>.*?</think>"
    pattern += "\n<tool_call>\n.*?\n</tool_call>" if has_tool else ""
    pattern += "\n<response>.*?</response>" if has_response else ""
    tags = ["<tool_call>", "</tool_call>"] * has_tool + ["<response>", "</response>"] * has_response
    form = re.fullmatch(pattern, text, re.DOTALL) is not None and all(text.count(tag) == 1 for tag in tags)

    def jaccard(left, right):
        if left == right:
            return 1.0
        common = sum((Counter(left) & Counter(right)).values())
        return common / (len(left) + len(right) - common)

    calls, wanted = (
        [json.loads(line) for line in each.split("<tool_call>")[1].split("</tool_call>")[0].strip().split("\n")]
        for each in (text, truth)
    )
    if calls == wanted:
        return form, 3
    total, s_max, used = jaccard([c["name"] for c in calls], [w["name"] for w in wanted]), 1, set()
    for want in wanted:
        s_max += 1 + len(want["parameters"])
        best, best_index = 0.0, None
        for index, given in enumerate(calls):
            if index in used or given["name"] != want["name"]:
                continue
            ours, theirs = given["parameters"], want["parameters"]
            value = jaccard(sorted(ours), sorted(theirs)) + sum(k in ours and ours[k] == v for k, v in theirs.items())
            if value > best:
                best, best_index = value, index
        used.add(best_index)
        total += best
    return form, 6 * total / s_max - 3


def test_random_calls_score_as_the_definition_says():
    rng = random.Random(0)

    def random_tool():
        def value():
            return rng.choice([0, 1, 1.0, True, "1", "", None, [1], {"a": 1}])

        lines = [
            call(rng.choice("fg"), **{key: value() for key in rng.sample("xyz", rng.randrange(4))})
            for _ in range(rng.randrange(1, 5))
        ]
        text = rng.choice(["<think> a\n</think>\n", "<think></think>", "a", "<think></think>\n"]) + block(*lines)
        return text + rng.choice(["", "", "\n", "\n<response> </response>", "<response>a</response>", "</tool_call>"])

    for _ in range(5000):
        text, truth = random_tool(), random_tool()
        assert score(text, truth) == literal_scores(text, truth), (text, truth)


@pytest.mark.parametrize("inapplicable", ["zero", "none"])
def test_published_answers_score_full_marks(inapplicable):
    test, sft = published_answers()
    answers = test + [answer for index, answer in enumerate(sft) if index not in MENTIONS]
    assert len(answers) == 80 + 383
    assert format_reward(answers, answers) == [1.0] * len(answers)
    otherwise = 0.0 if inapplicable == "zero" else None
    expected = [3.0 if "<tool_call>" in answer else otherwise for answer in answers]
    assert expected.count(3.0) == 71 + 329
    assert correctness_reward(answers, answers, inapplicable=inapplicable) == expected


def test_published_answers_with_the_tag_in_their_thoughts_can_be_matched():
    """As completions they are worth nothing; as ground truths they ask for what follows the thoughts."""
    _, sft = published_answers()
    assert [index for index, answer in enumerate(sft) if answer.count("<tool_call>") > 1] == MENTIONS
    for answer in (sft[index] for index in MENTIONS):
        assert score(answer, answer) == (0.0, -3.0)
        assert score("<think> thoughts </think>" + answer.rpartition("</think>")[2], answer) == (1.0, 3.0)


def test_no_completion_scores_against_an_unparsable_ground_truth():
    assert correctness_reward([ONE, tool("x")], [tool("x")] * 2) == [-3.0, -3.0]


def mutated(rng, text):
    tags = ["<think>", "</think>", "<tool_call>", "</tool_call>", "<response>", "</response>", "\n", '"', "{", "}"]
    noise = [
        lambda: "".join(map(chr, (rng.randrange(0x110000) for _ in range(5)))),
        lambda: rng.randbytes(8).decode("utf-8", "surrogateescape"),
        lambda: chr(rng.randrange(0xD800, 0xE000)),
        lambda: "\\u" + rng.choice(["d800", "dfff", "0000", "d83d\\ude00", "12"]),
        lambda: rng.choice("[{") * rng.choice([1, 50, 5000]),
        lambda: rng.choice(['{"a":', '"name": 1, ', "null", "NaN", "-Infinity", "1e999", "9" * 5000, "\x00", "\\"]),
        lambda: rng.choice(tags),
    ]
    for _ in range(rng.randrange(1, 4)):
        here, there = sorted(rng.randrange(len(text) + 1) for _ in range(2))
        kind = rng.randrange(6)
        if kind == 0:
            text = text[:here]
        elif kind == 1:
            text = text[:here] + text[there:]
        elif kind == 2:
            text = text.replace(rng.choice(tags), rng.choice(tags))
        elif kind == 3:
            text = text[:there] + text[here:]
        else:
            text = text[:here] + rng.choice(noise)() + text[here:]
    return text


def test_fuzzed_completions_raise_nothing_and_stay_in_range():
    rng = random.Random(0)
    truths = [
        rng.choice([ONE, TWO, RESPONSE, BOTH, THINK, tool(call("f", x={"a": [1, None]}, y="é"))])
        for _ in range(10_000)
    ]
    texts = [mutated(rng, truth) for truth in truths]
    start = time.perf_counter()
    formats, corrects = format_reward(texts, truths), correctness_reward(texts, truths)
    lengths = [think_length_reward(texts, form="toolrl"), think_length_reward(texts)]
    assert time.perf_counter() - start < 20
    assert set(formats) == {0.0, 1.0}
    assert all(-3 <= each <= 3 for each in corrects)
    assert len(set(corrects)) > 5
    assert set(lengths[1]) == {0.0, 1.0}
    assert all(0 <= each <= 1 for each in lengths[0])


MEGA = 1_000_000
HOSTILE = {
    "think_tags": "<think>" * (MEGA // 7),
    "closing_tags": "<think>" + "</think>\n" * (MEGA // 9) + "<tool_call>\n",
    "openings": "<think></think>\n<tool_call>\n" * (MEGA // 28),
    "responses": "<think>" + "</think>\n<response>" * (MEGA // 19),
    "angle_brackets": "<" * MEGA,
    "newlines": tool("\n" * MEGA),
    "spaces": tool(" " * MEGA),
    "digits": tool('{"name": "f", "parameters": {"x": ' + "9" * MEGA + "}}"),
    "fraction": tool('{"name": "f", "parameters": {"x": 0.' + "9" * MEGA + "}}"),
    "open_text": tool('{"name": "f", "parameters": {"x": "' + "\\\\" * (MEGA // 2)),
    "siblings": tool('{"name": "f", "parameters": {"x": [' + "[]," * (MEGA // 3) + "1]}}"),
    "calls": tool(*[call("f", x=2)] * 10_000),
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_hostile_completions_are_scored_in_linear_time(text):
    start = time.perf_counter()
    format_reward([text] * 2, [ONE, BOTH])
    correctness_reward([text], [ONE])
    think_length_reward([text])
    assert time.perf_counter() - start < 2  # 0.1 s at most on an idle machine; a quadratic scan takes minutes


def test_ten_thousand_calls_score_as_the_definition_says():
    calls = [call("f", x=2)] * 10_000
    assert correctness_reward([tool(*calls)], [ONE]) == [6 * (1 / 10_000 + 1) / 3 - 3]


def thoughts(words):
    return f"<think> {'word ' * words}</think>\n<response> r </response>"


@pytest.mark.parametrize(("words", "expected"), [(0, 1.0), (16, 1.0), (17, 0.0), (600, 0.0)])
def test_length_limit(words, expected):
    assert think_length_reward([thoughts(words)]) == [expected]


@pytest.mark.parametrize(("max_words", "expected"), [(4, 0.0), (5, 1.0)])
def test_max_words_moves_the_limit(max_words, expected):
    assert think_length_reward([thoughts(5)], max_words=max_words) == [expected]


@pytest.mark.parametrize(("words", "expected"), [(0, 0.0), (5, 0.01), (128, 0.25), (512, 1.0), (5000, 1.0)])
def test_toolrl_length_grows_with_the_thoughts(words, expected):
    assert think_length_reward([thoughts(words)], form="toolrl") == [expected]


@pytest.mark.parametrize("form", ["limit", "toolrl"])
@pytest.mark.parametrize("text", ["", "word", "<think> a", "a </think>", "<THINK> a </THINK>"])
def test_length_without_both_tags_is_zero(text, form):
    assert think_length_reward([text], form=form) == [0.0]


def test_length_counts_the_last_thoughts():
    text = "<think>" + "a " * 64 + "</think>\n<think>" + "b\t\n" * 128 + "</think> c <response> d </response>"
    assert think_length_reward([text], form="toolrl") == [0.25]


ALL = [
    format_reward,
    correctness_reward,
    partial(correctness_reward, inapplicable="none"),
    think_length_reward,
    partial(think_length_reward, form="toolrl"),
    partial(think_length_reward, max_words=1),
]
TOOL_USE = [{"role": "assistant", "content": None}, {"role": "tool", "content": ONE}]
TEXTS = [ONE, RESPONSE, "", tool(call("f", x=2))]
TRUTHS = [ONE, ONE, BOTH, RESPONSE]


@pytest.mark.parametrize("reward", ALL)
@pytest.mark.parametrize(
    "as_messages",
    [
        lambda text: [{"role": "assistant", "content": text}],
        lambda text: [{"role": "assistant", "content": [{"type": "text", "text": text}]}],
        lambda text: [
            {"role": "assistant", "content": [{"type": "text", "text": part} for part in (text[:9], text[9:])]}
        ],
        lambda text: [{"role": "assistant", "content": text or None}],
        lambda text: [*TOOL_USE, {"role": "assistant", "content": text}],
    ],
    ids=["text", "block", "blocks", "none", "after_a_tool"],
)
def test_conversations_score_as_plain_texts(reward, as_messages):
    conversations = [as_messages(text) for text in TEXTS]
    assert reward(completions=conversations, answer=TRUTHS) == reward(completions=TEXTS, answer=TRUTHS)


def test_several_assistant_messages_are_read_as_one_text():
    completion = [{"role": "assistant", "content": part} for part in ONE.split("\n", 1)]
    assert score(completion) == (1.0, 3.0)


@pytest.mark.parametrize("reward", ALL)
def test_rewards_survive_pickling(reward):
    copy = pickle.loads(pickle.dumps(reward))
    assert copy(completions=TEXTS, answer=TRUTHS) == reward(completions=TEXTS, answer=TRUTHS)


@pytest.mark.parametrize("reward", ALL)
def test_rewards_take_what_trl_passes(reward):
    def never(*args):
        raise AssertionError("a reward function reports nothing")

    rewards = reward(
        prompts=["p"] * 4,
        completions=TEXTS,
        completion_ids=[[1]] * 4,
        answer=TRUTHS,
        another_column=[None] * 4,
        trainer_state=None,
        log_extra=never,
        log_metric=never,
    )
    assert len(rewards) == 4
    assert all(each is None or type(each) is float for each in rewards)
    assert not inspect.iscoroutinefunction(reward)


def test_rewards_have_distinct_names():
    names = [reward.__name__ for reward in (format_reward, correctness_reward, think_length_reward)]
    assert names == ["format_reward", "correctness_reward", "think_length_reward"]


@pytest.mark.parametrize("reward", ALL)
def test_rewards_are_silent(reward, capfd, caplog):
    reward(completions=list(UNPARSABLE.values()), answer=[ONE] * len(UNPARSABLE))
    assert capfd.readouterr() == ("", "")
    assert not caplog.records


@pytest.mark.parametrize("reward", ALL)
def test_rewards_leave_their_arguments_alone(reward):
    conversations, answer = [[{"role": "assistant", "content": text}] for text in TEXTS], list(TRUTHS)
    before = pickle.dumps((conversations, answer))
    reward(completions=conversations, answer=answer)
    assert pickle.dumps((conversations, answer)) == before


@pytest.mark.parametrize("reward", ALL)
def test_no_completions_no_rewards(reward):
    assert reward(completions=[], answer=[]) == []


@pytest.mark.parametrize("reward", [format_reward, correctness_reward])
@pytest.mark.parametrize(
    ("answer", "error", "message"),
    [
        ([ONE], ValueError, r"`answer`.*got 1 for 2"),
        (ONE, TypeError, r"`answer` must be a list.*got str"),
        (None, TypeError, r"`answer` must be a list.*got NoneType"),
        ([ONE, None], TypeError, r"`answer\[1\]` must be a str.*got NoneType"),
    ],
)
def test_bad_answers_are_named(reward, answer, error, message):
    with pytest.raises(error, match=message):
        reward([ONE, ONE], answer)


@pytest.mark.parametrize("reward", ALL)
@pytest.mark.parametrize(
    ("completions", "message"),
    [
        (ONE, r"`completions` must be a list.*got str"),
        ([None], r"`completions\[0\]` must be a str or a list of message dicts, got NoneType"),
        ([["text"]], r"`completions\[0\]` must be a str or a list of message dicts"),
        ([[{"role": "assistant", "content": 1}]], r"`completions\[0\]`.*content is a int"),
        ([[{"role": "assistant", "content": ["text"]}]], r"`completions\[0\]`.*content is a list"),
    ],
)
def test_bad_completions_are_named(reward, completions, message):
    with pytest.raises(TypeError, match=message):
        reward(completions=completions, answer=[ONE])


@pytest.mark.parametrize(
    ("reward", "error", "message"),
    [
        (
            partial(correctness_reward, inapplicable=None),
            ValueError,
            '`inapplicable` must be "zero" or "none", got None',
        ),
        (partial(correctness_reward, inapplicable="None"), ValueError, "got 'None'"),
        (partial(think_length_reward, form="words"), ValueError, '`form` must be "limit" or "toolrl", got \'words\''),
        (partial(think_length_reward, max_words=0), ValueError, "`max_words` must be a positive int, got 0"),
        (partial(think_length_reward, max_words=-1), ValueError, "`max_words` must be a positive int, got -1"),
        (partial(think_length_reward, max_words=1.5), TypeError, "`max_words` must be a positive int, got 1.5"),
        (partial(think_length_reward, max_words=True), TypeError, "`max_words` must be a positive int, got True"),
    ],
)
def test_bad_settings_are_named(reward, error, message):
    with pytest.raises(error, match=message):
        reward(completions=[ONE], answer=[ONE])


def test_rewards_import_nothing_heavy():
    code = "import sys, dara_trl.rewards.toolrl; print([m for m in ('torch', 'trl', 'datasets') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
