"""Our trainer with a real vLLM server, on CPUs. Only NCCL is replaced, by the stand-in in tests/vllm_env.

`make test-vllm` runs it, in an environment of its own. One server serves all tests; those at the end kill it.
"""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib.util import find_spec
from pathlib import Path

import pytest
import requests
import torch
from rollouts import config, count_a, prompts, rare
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM
from vllm_serving import CPU, Server, free_port

from dara_trl import DARAGRPOTrainer
from dara_trl.checkpoints import checkpoint_fault, newest_checkpoint
from dara_trl.doctor import server as questions
from dara_trl.vllm_server import VLLMServerError


pytestmark = [
    pytest.mark.vllm,
    pytest.mark.skipif(find_spec("vllm_gloo") is None, reason="needs vLLM and tests/vllm_env: make test-vllm"),
    pytest.mark.timeout(400),
]

ROOT = Path(__file__).resolve().parents[1]
DIFFERENCE = "sampling/sampling_logp_difference/max"
SYNC = ["/start_weight_update", "/update_weights", "/finish_weight_update", "/reset_prefix_cache"]


def save_policy(tokenizer_of, folder, hidden_size=64):
    """Random weights, over the tokenizer of `tiny_model`; heads of 32, a size that vLLM has on any CPU."""
    tokenizer = AutoTokenizer.from_pretrained(tokenizer_of)
    torch.manual_seed(0)
    LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=hidden_size,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=hidden_size // 32,
            max_position_embeddings=256,
            bos_token_id=None,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
    ).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def policy(tiny_model, tmp_path_factory):
    return save_policy(tiny_model, tmp_path_factory.mktemp("policy"))


@pytest.fixture(scope="module")
def servers(policy, tmp_path_factory):
    """The server, and one without weight transfer that has the policy under another name."""
    import shutil

    renamed = tmp_path_factory.mktemp("renamed") / "model"
    shutil.copytree(policy, renamed)
    gloo = ("--weight-transfer-config", '{"backend": "gloo"}')
    both = [Server(policy, tmp_path_factory.mktemp("server"), *gloo), Server(renamed, tmp_path_factory.mktemp("bare"))]
    try:
        for one in both:
            one.start()
        for one in both:
            one.wait()
        yield both
    finally:
        for one in both:
            one.kill()


@pytest.fixture(scope="module", autouse=True)
def gloo_in_the_place_of_nccl():
    import vllm_gloo

    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**CPU, "NO_PROXY": "*"}.items():
            patch.setenv(name, value)
        patch.setattr(questions, "BACKEND", "gloo")
        vllm_gloo.use_gloo_in_trl()
        yield


@pytest.fixture
def server(servers):
    return servers[0]


def build(model, folder, url, peft_config=None, callbacks=None, **changes):
    """A learning rate that changes every log-probability visibly."""
    fields = {
        "max_steps": 4,
        "learning_rate": 2e-2,
        "use_vllm": True,
        "vllm_mode": "server",
        "vllm_server_base_url": url,
        "vllm_server_timeout": 5,
        "vllm_group_port": free_port(),
        **changes,
    }
    return DARAGRPOTrainer(
        model,
        [count_a, rare],
        config(folder, **fields),
        train_dataset=prompts(64),
        peft_config=peft_config,
        callbacks=callbacks,
    )


def steps_of(trainer):
    """What was logged, by step."""
    return {row["step"]: row for row in trainer.state.log_history if "loss" in row}


def assert_in_sync(trainer, steps, below=1e-4):
    rows = steps_of(trainer)
    assert list(rows) == list(steps)
    # Step 1 tells nothing: the server begins with the same weights.
    assert all(rows[step][DIFFERENCE] < below for step in steps if step >= 2), [rows[i][DIFFERENCE] for i in rows]
    assert all("dara/density/count_a" in row and "dara/weight/rare" in row for row in rows.values())
    assert any(row["dara/density/count_a"] > 0 for row in rows.values())


def test_steps_with_the_server(server, policy, tmp_path):
    since = server.log.stat().st_size
    trainer = build(policy, tmp_path, server.url)
    trainer.train()
    assert_in_sync(trainer, range(1, 5))
    expected = ["/init_weight_transfer_engine", *[*SYNC, "/v1/completions"] * 4]
    assert server.asked(since) == expected


def test_a_transfer_that_is_left_out_is_seen_from_the_second_step_on(server, policy, tmp_path):
    trainer = build(policy, tmp_path, server.url, max_steps=3)
    sync, done = trainer.vllm_generation.sync_weights, []
    trainer.vllm_generation.sync_weights = lambda: done or (sync(), done.append(1))
    trainer.train()
    rows = steps_of(trainer)
    assert rows[1][DIFFERENCE] < 1e-4
    assert rows[2][DIFFERENCE] > 1e-2
    assert rows[3][DIFFERENCE] > 1e-2


def test_lora(server, policy, tmp_path):
    from peft import LoraConfig

    peft_config = LoraConfig(r=4, target_modules="all-linear")
    trainer = build(policy, tmp_path, server.url, peft_config=peft_config, learning_rate=5e-2)
    trainer.train()
    assert_in_sync(trainer, range(1, 5))
    adapters = [value for name, value in trainer.model.named_parameters() if "lora_B" in name]
    assert all(value.abs().max() > 1e-3 for value in adapters)  # so that there was something to merge


def test_dynamic_sampling_and_reused_batches(server, policy, tmp_path):
    """Several generations with the same weights, and several steps with the same generation."""
    changes = {"dynamic_sampling": True, "dynamic_sampling_keep": "all", "dynamic_sampling_max_rounds": 3}
    trainer = build(policy, tmp_path, server.url, **changes, num_iterations=2)
    since = server.log.stat().st_size
    trainer.train()
    rounds = [row["dara/sampling/rounds"] for row in steps_of(trainer).values() if "dara/sampling/rounds" in row]
    assert max(rounds) > 1
    asked = server.asked(since)
    assert asked == [path for count in rounds for path in [*SYNC, *["/v1/completions"] * int(count)]]
    assert steps_of(trainer)[3][DIFFERENCE] < 1e-4


COLOCATED = """
import sys, vllm_gloo
vllm_gloo.register()
from test_vllm import DIFFERENCE, build, steps_of
trainer = build(*sys.argv[1:], None, vllm_mode="colocate", vllm_gpu_memory_utilization=0.05,
                vllm_max_model_length=64, max_steps=3)
trainer.train()
print("DIFFERENCES", *[row[DIFFERENCE] for row in steps_of(trainer).values()])
"""

RUN = """
import sys, time, vllm_gloo
from pathlib import Path
vllm_gloo.use_gloo_in_trl()
from dara_trl import vllm_server
from dara_trl.doctor import server
from transformers import TrainerCallback
from test_vllm import build
server.BACKEND = "gloo"
vllm_server.SILENT, vllm_server.GRACE = 12, 5
model, folder, url, mode, steps = sys.argv[1:]

class Pause(TrainerCallback):
    def on_step_begin(self, args, state, control, **kwargs):
        if mode == "pause" and state.global_step == 3:
            Path(folder, "paused").touch()
            while not Path(folder, "go").exists():
                time.sleep(0.1)

trainer = build(model, folder, url, max_steps=int(steps), save_strategy="steps", save_steps=1, save_total_limit=3,
                callbacks=[Pause()])
if mode == "refused":
    import torch
    trainer.model.model.layers[0].surprise = torch.nn.Linear(3, 3)
trainer.train(resume_from_checkpoint=mode == "resume")
print("ENDED AT", trainer.state.global_step)
"""


def python(script, *arguments):
    path = os.pathsep.join([str(Path(__file__).parent), str(ROOT)])
    return subprocess.Popen(
        [sys.executable, "-c", script, *map(str, arguments)],
        env=os.environ | {"PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_vllm_in_the_trainers_process(policy, tmp_path):
    run = python(COLOCATED, policy, tmp_path)
    out, _ = run.communicate(timeout=300)
    assert run.returncode == 0, out[-3000:]
    (line,) = [line for line in out.splitlines() if line.startswith("DIFFERENCES")]
    differences = [float(word) for word in line.split()[1:]]
    assert len(differences) == 3
    assert max(differences) < 2e-2  # weights and cache are in bfloat16 there


def test_server_that_is_down(policy, tmp_path):
    start = time.monotonic()
    url = f"http://127.0.0.1:{free_port()}"
    with pytest.raises(
        VLLMServerError, match=f"{url}.*not up after 5 s: nothing answers there -> start it.*vllm serve"
    ):
        build(policy, tmp_path, url)
    assert time.monotonic() - start < 15


def test_server_without_weight_transfer(servers, policy, tmp_path):
    """Its model has another name, but the same sizes, which is no fault."""
    start = time.monotonic()
    with pytest.raises(
        VLLMServerError, match=r"no weight-transfer engine -> start it with one: .*vllm serve"
    ) as error:
        build(policy, tmp_path, servers[1].url)
    assert str(error.value).count("->") == 1
    assert time.monotonic() - start < 60


def test_server_with_another_model(server, tiny_model, tmp_path):
    other = save_policy(tiny_model, tmp_path / "other", hidden_size=32)
    start = time.monotonic()
    with pytest.raises(VLLMServerError, match=r"hidden_size 64 instead of 32.*Start it anew: .*vllm serve \S*other"):
        build(other, tmp_path / "out", server.url)
    assert time.monotonic() - start < 60


class Old(BaseHTTPRequestHandler):
    """Passes on what the real server says, but its version."""

    def do_GET(self):
        answer = requests.get(self.server.behind + self.path, timeout=20)
        body = b'{"version": "0.10.2"}' if self.path == "/version" else answer.content
        self.send_response(answer.status_code)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


def test_server_of_an_old_version(server, policy, tmp_path):
    old = HTTPServer(("127.0.0.1", 0), Old)
    old.behind = server.url
    threading.Thread(target=old.serve_forever, daemon=True).start()
    with pytest.raises(VLLMServerError, match=r"the server's vLLM is 0\.10\.2, and the installed TRL supports .*>="):
        build(policy, tmp_path, f"http://127.0.0.1:{old.server_port}")
    old.shutdown()


def wait_for(path, process):
    end = time.monotonic() + 180
    while not path.exists():
        assert process.poll() is None, process.stdout.read()[-3000:]
        assert time.monotonic() < end
        time.sleep(0.1)


def go_on(server, policy, folder):
    """The newest checkpoint is whole; two steps more from there."""
    newest = newest_checkpoint(folder)
    assert checkpoint_fault(newest) is None
    last = int(newest.name.partition("-")[2])
    resumed = python(RUN, policy, folder, server.url, "resume", last + 2)
    out, _ = resumed.communicate(timeout=200)
    assert resumed.returncode == 0, out[-3000:]
    assert f"ENDED AT {last + 2}" in out


@pytest.mark.parametrize(
    ("sign", "limit", "words"),
    [
        (signal.SIGKILL, 30, r"nothing answers there"),
        (signal.SIGSTOP, 60, r"/health: no answer within 3 s, for 12 s"),
    ],
)
def test_server_that_dies_or_hangs_in_the_middle_of_a_run(server, policy, tmp_path, sign, limit, words):
    run = python(RUN, policy, tmp_path, server.url, "", 5000)
    try:
        wait_for(tmp_path / "checkpoint-3" / "trainer_state.json", run)
        start = time.monotonic()
        server.signal(sign)
        out, _ = run.communicate(timeout=limit)
        assert run.returncode == 1, out[-3000:]
        assert re.search(rf"VLLMServerError: The vLLM server at {server.url} .*{words}.* -> start it anew, then", out)
        assert time.monotonic() - start < limit
    finally:
        run.kill()
        server.restart()
    if sign == signal.SIGKILL:
        go_on(server, policy, tmp_path)


def test_server_that_was_started_anew_between_two_steps(server, policy, tmp_path):
    """It has the weights that it was started with, and knows no trainer."""
    run = python(RUN, policy, tmp_path, server.url, "pause", 5000)
    try:
        wait_for(tmp_path / "paused", run)
        server.restart()
        (tmp_path / "go").touch()
        out, _ = run.communicate(timeout=30)
    finally:
        run.kill()
    assert run.returncode == 1, out[-3000:]
    assert "it was started anew, and has not the weights of this run -> start it anew, then go on from" in out


def test_trainer_that_is_killed_goes_on_with_the_same_server(server, policy, tmp_path):
    run = python(RUN, policy, tmp_path, server.url, "", 5000)
    wait_for(tmp_path / "checkpoint-3" / "trainer_state.json", run)
    run.kill()
    run.communicate()
    go_on(server, policy, tmp_path)


def test_server_that_refuses_the_weights(server, policy, tmp_path):
    """The last test, as the server is not to be used after it."""
    run = python(RUN, policy, tmp_path, server.url, "refused", 5000)
    try:
        out, _ = run.communicate(timeout=120)
    finally:
        run.kill()
    assert run.returncode == 1, out[-3000:]
    assert "/update_weights answers with status 500" in out
    assert "the server's log says why" in out
