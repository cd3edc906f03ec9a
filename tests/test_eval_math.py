"""`dara-trl eval math`: known scores, nothing answered twice, and what goes wrong is said."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from dara_trl.cli import main
from dara_trl.data.math import load_math
from dara_trl.embedded.policy import resolve_model
from dara_trl.evaluate.generation import Generation, Request, Sampling, ServerBackend, TransformersBackend
from dara_trl.evaluate.statistics import estimate


pytest.importorskip("math_verify", reason="needs the extra 'math'")

POLICY = "embedded:arithmetic:steps=2,clean_steps=1,batch_size=4"
QUICK = ["--samples", "2", "--max-new-tokens", "12", "--batch-size", "4"]


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DARA_TRL_CACHE", os.environ.get("DARA_TRL_CACHE") or str(tmp_path_factory.mktemp("cache")))
        resolve_model(POLICY)
        yield


def evaluate(capsys, output, *arguments):
    status = main(["eval", "math", "--output", str(output), *map(str, arguments)])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def save(folder, answers, samples, **sets):
    """An evaluation as it lies on the disk. `answers`: key to (text, reference, tokens, finished)."""
    folder.mkdir(parents=True)
    settings = {"model": "m", "temperature": 0.6, "top_p": 0.95, "max_new_tokens": 100, "samples": samples}
    settings["benchmarks"] = {name: {"problems": problems} for name, problems in sets.items()}
    (folder / "settings.json").write_text(json.dumps(settings))
    names = ("text", "reference", "tokens", "finished")
    lines = [json.dumps({"key": key, **dict(zip(names, row, strict=True))}) + "\n" for key, row in answers.items()]
    (folder / "answers.jsonl").write_text("".join(lines))


# Scores


def test_known_scores(tmp_path, capsys):
    answers = {
        "a/0/0": ("\\boxed{0.5}", "\\frac{1}{2}", 10, True),
        "a/0/1": ("\\boxed{0.5}", "\\frac{1}{2}", 11, True),  # right, and too long
        "a/1/0": ("\\boxed{3}", "3", 5, False),  # right, and cut off
        "a/1/1": ("no box", "3", 50, True),
        "b/0/0": ("\\boxed{2}", "1, 2", 1, True),
        "b/0/1": ("\\boxed{1, 2}", "1, 2", 10, True),
    }
    save(tmp_path / "one", answers, 2, a=2, b=1)
    status, out, _ = evaluate(capsys, tmp_path, "--rescore", "--length-limit", 10, "--json")
    found = json.loads(out)["models"]["one"]
    assert (status, found["missing"]) == (0, 0)
    assert [found["sets"]["a"][name]["value"] for name in ("accuracy", "exceed", "joint")] == [0.5, 0.5, 0.25]
    assert [found["sets"]["b"][name]["value"] for name in ("accuracy", "exceed", "joint")] == [0.5, 0, 0.5]
    assert [found["overall"][name]["value"] for name in ("accuracy", "exceed", "joint")] == [0.5, 0.25, 0.375]
    assert (found["sets"]["a"]["tokens"], found["sets"]["a"]["unfinished"]) == (19, 0.25)
    # Of two problems with 1 and 0, a quarter of the resamples has only the one, a quarter only the other.
    assert [found["sets"]["a"]["accuracy"][end] for end in ("low", "high")] == [0, 1]
    scores = [json.loads(line) for line in (tmp_path / "one" / "scores.jsonl").read_text().splitlines()]
    assert [row["accuracy"] for row in scores] == [1, 1, 0, 0, 0, 1]
    assert json.loads((tmp_path / "results.json").read_text())["models"]["one"] == found


def test_interval_is_that_of_the_normal_approximation():
    values = [i % 2 for i in range(400)]
    found = estimate({"": values})
    assert found.value == 0.5
    assert found.low == pytest.approx(0.5 - 1.96 * 0.5 / 20, abs=0.006)
    assert found.high == pytest.approx(0.5 + 1.96 * 0.5 / 20, abs=0.006)
    two = estimate({"x": values, "y": values})
    assert two.high - two.low == pytest.approx((found.high - found.low) / 2**0.5, rel=0.1)
    assert estimate({"": [1, 1]}).low == 1
    with pytest.raises(ValueError, match="at least one case"):
        estimate({"a": [1], "b": []})


def test_problems_with_missing_answers_are_not_scored(tmp_path, capsys):
    answers = {"a/0/0": ("\\boxed{1}", "1", 1, True), "a/1/0": ("\\boxed{1}", "1", 1, True)}
    answers["a/0/1"] = ("\\boxed{2}", "1", 1, True)
    save(tmp_path / "one", answers, 2, a=2, b=1)
    _, out, _ = evaluate(capsys, tmp_path, "--rescore", "--json")
    found = json.loads(out)["models"]["one"]
    assert found["missing"] == 3
    assert found["sets"]["a"]["problems"] == 1
    assert found["sets"]["a"]["accuracy"]["value"] == 0.5
    assert "b" not in found["sets"]
    assert found["overall"] is None
    _, out, _ = evaluate(capsys, tmp_path, "--rescore")
    assert "3 answers are missing" in out


@pytest.mark.parametrize("name", ["math", "aime", "amc", "minerva", "olympiad_bench"])
def test_references_are_right_against_themselves(shared_data, tmp_path, capsys, name):
    rows = load_math(shared_data / "math" / f"deepscaler_test_{name}.json")
    answers = {f"s/{i}/0": (f"So \\boxed{{{row['answer']}}}.", row["answer"], 9, True) for i, row in enumerate(rows)}
    save(tmp_path / "gold", answers, 1, s=len(rows))
    _, out, _ = evaluate(capsys, tmp_path, "--rescore", "--json")
    found = json.loads(out)["models"]["gold"]["sets"]["s"]
    assert (found["problems"], found["accuracy"]["value"], found["exceed"]["value"]) == (len(rows), 1, 0)


# A model that answers


def test_two_models_and_resuming(tmp_path, capsys):
    arguments = ["--model", f"one={POLICY}", "--model", f"two={POLICY}", "--benchmark", "sums=embedded", "--limit", 5]
    status, out, _ = evaluate(capsys, tmp_path, *arguments, *QUICK)
    assert status == 0
    assert [word for word in ("one", "two", "Accuracy", "macro average") if word not in out] == []
    assert (tmp_path / "results.png").read_bytes()[:4] == b"\x89PNG"
    path = tmp_path / "two" / "answers.jsonl"
    whole = path.read_bytes()
    keys = [json.loads(line)["key"] for line in whole.splitlines()]
    assert sorted(keys) == sorted(f"sums/{problem}/{sample}" for problem in range(5) for sample in range(2))
    # The process died while it wrote the eighth line.
    lines = whole.splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:7]) + lines[7][:20])
    status, _, err = evaluate(capsys, tmp_path, *arguments, *QUICK)
    assert status == 0
    assert "one: all 10 answers are there already" in err
    again = path.read_bytes()
    assert again.startswith(b"".join(lines[:7]))
    assert sorted(json.loads(line)["key"] for line in again.splitlines()) == sorted(keys)


def test_same_seed_same_answers(tmp_path):
    backend = TransformersBackend(POLICY, batch_size=3)
    sampling = Sampling(1.0, 1.0, 12, seed=3)
    requests = [Request(f"k{i}", [{"role": "user", "content": "Compute 12+3+4."}]) for i in range(3)]

    def answers(sampling):
        return list(backend.generate(deque(requests), sampling))

    first, again = answers(sampling), answers(sampling)
    assert first == again
    assert len({one.text for one in first}) == 3  # a draw of its own for each sample
    assert answers(Sampling(1.0, 1.0, 12, seed=4)) != first
    greedy = answers(Sampling(0.0, 1.0, 12))
    assert len({one.text for one in greedy}) == 1
    assert all(one.tokens <= 12 for one in [*first, *greedy])
    assert all(one.finished == (one.tokens < 12) for one in first if one.tokens != 12)


@pytest.mark.slow
def test_killed_and_resumed(tmp_path, capsys):
    arguments = ["--model", f"one={POLICY}", "--benchmark", "sums=embedded", "--limit", "40", "--samples", "8"]
    arguments += ["--max-new-tokens", "100", "--batch-size", "4", "--output", str(tmp_path)]
    process = subprocess.Popen([sys.executable, "-m", "dara_trl", "eval", "math", *arguments])
    path = tmp_path / "one" / "answers.jsonl"
    end = time.monotonic() + 120
    while time.monotonic() < end and not (path.is_file() and path.read_bytes().count(b"\n") >= 20):
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    before = [json.loads(line)["key"] for line in path.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]
    assert 20 <= len(before) < 320
    assert main(["eval", "math", *arguments]) == 0
    after = [json.loads(line)["key"] for line in path.read_text().splitlines()]
    assert after[: len(before)] == before
    assert len(after) == len(set(after)) == 320


# What goes wrong


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--benchmark", "a=embedded"], "--model PATH is needed"),
        (["--model", POLICY], "--benchmark NAME=SOURCE is needed"),
        (["--model", POLICY, "--benchmark", "x.json"], "expected NAME=SOURCE"),
        (["--model", POLICY, "--benchmark", "a/b=x.json"], "expected NAME=SOURCE"),
        (["--model", POLICY, "--benchmark", "a=nowhere.json"], "--benchmark a: .*does not exist"),
        (["--model", POLICY, "--benchmark", "a=embedded", "--benchmark", "a=embedded"], "a is given twice"),
        (["--model", POLICY, "--model", POLICY, "--benchmark", "a=embedded"], "two models are called"),
        (["--model", "embedded:nothing", "--benchmark", "a=embedded"], "cannot be loaded: Unknown embedded model"),
        (["--model", "./nowhere", "--benchmark", "a=embedded"], "--model ./nowhere cannot be loaded"),
        (["--model", POLICY, "--backend", "server", "--benchmark", "a=embedded"], "do not go together"),
        (["--server", "http://127.0.0.1:9", "--benchmark", "a=embedded"], "does not answer /v1/models"),
        (["--rescore"], "has no evaluated models"),
    ],
)
def test_bad_arguments(tmp_path, capsys, arguments, message):
    import re

    status, _, err = evaluate(capsys, tmp_path / "out", *arguments)
    assert status == 2
    assert re.search(message, err), err


@pytest.mark.parametrize("argument", [["--samples", "0"], ["--top-p", "0"], ["--temperature", "-1"], ["--limit", "x"]])
def test_bad_numbers(tmp_path, capsys, argument):
    with pytest.raises(SystemExit):
        evaluate(capsys, tmp_path, *argument)
    assert argument[0] in capsys.readouterr().err


def test_other_settings_are_refused(tmp_path, capsys):
    arguments = ["--model", f"one={POLICY}", "--benchmark", "sums=embedded", "--limit", 2, *QUICK]
    assert evaluate(capsys, tmp_path, *arguments)[0] == 0
    status, _, err = evaluate(capsys, tmp_path, *arguments, "--temperature", 1)
    assert status == 2
    assert "temperature was 0.6, now 1.0" in err
    assert "Give another --output" in err


def test_damaged_files_are_named(tmp_path, capsys):
    save(tmp_path / "one", {"a/0/0": ("x", "1", 1, True)}, 1, a=1)
    path = tmp_path / "one" / "answers.jsonl"
    path.write_text("{}\n" + path.read_text())
    assert "answers.jsonl, line 1: not an answer" in evaluate(capsys, tmp_path, "--rescore")[2]
    path.write_text("")
    (tmp_path / "one" / "settings.json").write_text("{")
    assert "settings.json is not JSON" in evaluate(capsys, tmp_path, "--rescore")[2]


# A server that misbehaves; a real one is in test_eval_vllm.py


@contextmanager
def serving(answer):
    """`answer(number, body)`: status and JSON of the number-th question."""
    asked = []

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *args):
            pass

        def reply(self, status, body):
            content = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def do_GET(self):
            self.reply(200, {"data": [{"id": "m"}]})

        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            asked.append(body)
            self.reply(*answer(len(asked), body))

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", asked
        finally:
            server.shutdown()


def completion(text, reason="stop", **message):
    choice = {"message": {"content": text, **message}, "finish_reason": reason}
    return {"choices": [choice], "usage": {"completion_tokens": 7}}


def test_server_that_stumbles(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("time.sleep", lambda seconds: None)

    def answer(number, body):
        if number == 1:
            return 503, {"error": "busy"}
        if number == 2:
            return 200, completion("cut", reason="length")
        return 200, completion("\\boxed{1}", reasoning_content="hm")

    with serving(answer) as (url, asked):
        arguments = ["--server", url, "--benchmark", "s=embedded", "--limit", 3, "--samples", 1, "--at-once", 1]
        status, _, err = evaluate(capsys, tmp_path, *arguments)
    assert status == 0, err
    assert len(asked) == 4
    assert {body["model"] for body in asked} == {"m"}
    assert len({body["seed"] for body in asked}) == 3  # the one that was tried again has its own again
    rows = [json.loads(line) for line in (tmp_path / "server" / "answers.jsonl").read_text().splitlines()]
    assert [row["finished"] for row in rows] == [False, True, True]
    assert rows[1]["text"] == "<think>hm</think>\\boxed{1}"


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (400, {"error": "temperature is too high"}, "refuses s/0/0: status 400.*temperature is too high"),
        (500, {}, "did not answer s/0/0 in 5 tries.*What was answered is kept"),
        (200, {"choices": []}, "cannot be read"),
        (200, {"choices": [{"message": None, "finish_reason": "stop"}]}, "cannot be read"),
    ],
)
def test_server_that_fails(tmp_path, capsys, monkeypatch, status, body, message):
    import re

    monkeypatch.setattr("time.sleep", lambda seconds: None)
    with serving(lambda number, asked: (status, body)) as (url, _):
        arguments = ["--server", url, "--benchmark", "s=embedded", "--limit", 1, "--samples", 1]
        ended, _, err = evaluate(capsys, tmp_path, *arguments)
    assert ended == 2
    assert re.search(message, err), err


def test_server_whose_context_is_full(tmp_path, capsys):
    """It is asked again without a limit; a conversation that leaves no room at all has an empty, wrong answer."""
    full = 400, {"error": "This model's maximum context length is 512 tokens."}

    def answer(number, body):
        if "max_tokens" in body or number > 3:
            return full
        return 200, completion("\\boxed{1}", reason="length")

    with serving(answer) as (url, asked):
        arguments = ["--server", url, "--benchmark", "s=embedded", "--limit", 2, "--samples", 1, "--at-once", 1]
        status, out, err = evaluate(capsys, tmp_path, *arguments)
    assert status == 0, err
    assert ["max_tokens" in body for body in asked] == [True, False, True, False]
    rows = [json.loads(line) for line in (tmp_path / "server" / "answers.jsonl").read_text().splitlines()]
    assert [(row["text"], row["tokens"], row["finished"]) for row in rows] == [
        ("\\boxed{1}", 7, False),
        ("", 0, False),
    ]
    assert "server: 2 answers were cut off where the model's context ended" in out


def test_follow_up_requests(tmp_path):
    """What is appended while answers are read is answered too, with never more on the way than allowed."""
    flying, most, lock = [0], [0], threading.Lock()

    def answer(number, body):
        with lock:
            flying[0] += 1
            most[0] = max(most[0], flying[0])
        time.sleep(0.05)
        with lock:
            flying[0] -= 1
        return 200, completion(body["messages"][0]["content"])

    with serving(answer) as (url, _):
        server = ServerBackend(url, None, at_once=2, answer_seconds=10)
        policy = TransformersBackend(POLICY, batch_size=2)
        for backend in (server, policy):
            requests = deque(Request(f"{i}/0", [{"role": "user", "content": f"{i}"}]) for i in range(5))
            keys = []
            for one in backend.generate(requests, Sampling(1.0, 1.0, 4)):
                keys.append(one.key)
                if one.key.endswith("/0"):
                    requests.append(Request(one.key[:-1] + "1", [{"role": "user", "content": "again"}]))
            assert sorted(keys) == [f"{i}/{step}" for i in range(5) for step in range(2)]
    assert most[0] == 2


def test_answers_end_where_the_context_does():
    """One long conversation neither stops nor shortens the others of its batch."""
    backend = TransformersBackend(POLICY, batch_size=4)
    short, sampling = [{"role": "user", "content": "Compute 12+3+4."}], Sampling(1.0, 1.0, 40)
    length = len(backend._tokenizer.apply_chat_template(short, add_generation_prompt=True, return_dict=False))
    alone = list(backend.generate(deque([Request("a", short)]), sampling))
    backend._context = length + 50
    word = [{"role": "user", "content": "Compute " + "1+" * 22 + "4."}]
    endless = [{"role": "user", "content": "Compute " + "1+" * 60 + "4."}]
    requests = [Request("a", short), Request("near", word), Request("over", endless)]
    found = {one.key: one for one in backend.generate(deque(requests), sampling)}
    assert found["over"] == Generation("over", "", 0, False)
    room = (
        length + 50 - len(backend._tokenizer.apply_chat_template(word, add_generation_prompt=True, return_dict=False))
    )
    assert 0 < room < 40
    assert 0 < found["near"].tokens <= room
    assert (found["a"].tokens > 0, alone[0].tokens > 0) == (True, True)
    backend._context = length
    assert list(backend.generate(deque([Request("a", short)]), sampling)) == [Generation("a", "", 0, False)]


def test_server_without_the_model(tmp_path, capsys):
    with serving(lambda number, asked: (200, {})) as (url, _):
        _, _, err = evaluate(capsys, tmp_path, "--server", url, "--model", "other", "--benchmark", "s=embedded")
    assert "has the model m, not other" in err


def test_report_shows_an_evaluation(tmp_path, capsys):
    from report_logs import rising, rows, write_run

    write_run(tmp_path / "runs", "gdpo", 0, rows(rising(9, 30)))
    name = "<b>name</b>"
    save(tmp_path / "eval" / "one", {"a/0/0": ("\\boxed{1}", "1", 1, True)}, 1, a=1)
    assert evaluate(capsys, tmp_path / "eval", "--rescore")[0] == 0
    results = json.loads((tmp_path / "eval" / "results.json").read_text())
    results["models"][name] = results["models"].pop("one")
    (tmp_path / "eval" / "results.json").write_text(json.dumps(results))
    report = ["report", str(tmp_path / "runs"), "--output", str(tmp_path / "out"), "--evaluation"]
    assert main([*report, str(tmp_path / "eval")]) == 0
    page = (tmp_path / "out" / "report.html").read_text()
    assert "Right and within the limit" in page
    assert "100.0 (100.0 to 100.0)" in page
    assert name not in page
    assert (tmp_path / "out" / "figures" / "evaluation-math-dark.svg").is_file()
    assert main([*report, str(tmp_path / "nowhere")]) == 2
    (tmp_path / "bad.json").write_text('{"evaluation": "math", "models": {"a": {}}}')
    assert main([*report, str(tmp_path / "bad.json")]) == 2
    assert "is not what `dara-trl eval` writes" in capsys.readouterr().err


def test_example_is_the_command():
    script = Path(__file__).resolve().parents[1] / "examples" / "eval_math.py"
    done = subprocess.run([sys.executable, str(script), "--help"], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert "--benchmark" in done.stdout
