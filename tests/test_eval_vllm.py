"""The evaluations with a real vLLM, as a server and in this process, on CPUs. `make test-vllm` runs it."""

import json
from importlib.util import find_spec

import pytest
from vllm_serving import CPU, Server

from dara_trl.cli import main
from dara_trl.embedded.policy import resolve_model


pytestmark = [
    pytest.mark.vllm,
    pytest.mark.skipif(find_spec("vllm") is None, reason="needs vLLM: make test-vllm"),
    pytest.mark.timeout(600),
]

SUMS = "embedded:arithmetic:steps=150,clean_steps=20"
MATH = ["--benchmark", "sums=embedded", "--limit", "8", "--samples", "1", "--temperature", "0", "--dtype", "float32"]


@pytest.fixture(scope="module", autouse=True)
def cpu(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DARA_TRL_CACHE", str(tmp_path_factory.mktemp("cache")))
        for name, value in CPU.items():
            patch.setenv(name, value)
        yield


def answered(folder):
    rows = map(json.loads, (folder / "answers.jsonl").read_text().splitlines())
    return {row.pop("key"): row for row in rows}


def evaluate(task, output, *arguments):
    assert main(["eval", task, "--output", str(output), *arguments]) == 0


@pytest.fixture(scope="module")
def serving(tmp_path_factory):
    """Starts a server of a model; all end with the module."""
    servers = []

    def start(model):
        servers.append(Server(resolve_model(model), tmp_path_factory.mktemp("server")))
        servers[-1].start()
        servers[-1].wait()
        return servers[-1].url

    yield start
    for one in servers:
        one.kill()


def test_server_process_and_transformers_answer_alike(serving, tmp_path):
    url = serving(SUMS)
    tokens = ["--max-new-tokens", "40"]
    evaluate("math", tmp_path, "--model", f"here={SUMS}", "--backend", "transformers", *MATH, *tokens)
    evaluate("math", tmp_path, "--server", url, *MATH, *tokens)
    evaluate("math", tmp_path, "--model", f"process={SUMS}", "--backend", "vllm", *MATH, *tokens)
    ours = answered(tmp_path / "here")
    assert len(ours) == 8
    assert any(row["finished"] for row in ours.values())
    assert answered(tmp_path / "server") == ours
    assert answered(tmp_path / "process") == ours
    results = json.loads((tmp_path / "results.json").read_text())
    accuracies = {label: model["overall"]["accuracy"] for label, model in results["models"].items()}
    assert accuracies["here"] == accuracies["server"] == accuracies["process"]
    # More tokens than the model's context has room for: the answers end with it, they do not fail.
    evaluate("math", tmp_path / "long", "--server", url, *MATH, "--max-new-tokens", "100000")
    long = answered(tmp_path / "long" / "server")
    assert {key: row["text"] for key, row in long.items() if row["finished"]} == {
        key: row["text"] for key, row in long.items() if ours[key]["finished"]
    }
