"""A real vLLM server on the CPU, for the tests that need one."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import requests


CPU = {  # what a vLLM server on a machine without GPUs needs
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_CI_ENV": "1",
    "VLLM_HOST_IP": "127.0.0.1",
    "GLOO_SOCKET_IFNAME": "lo",
    "VLLM_NO_USAGE_STATS": "1",
}


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Server:
    """`vllm serve` in a process group of its own; what it is asked is read from its log."""

    def __init__(self, model, folder, *options):
        self.model, self.options = str(model), options
        self.log = folder / "server.log"
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"

    def start(self):
        command = [str(Path(sys.executable).with_name("vllm")), "serve", self.model, "--host", "127.0.0.1"]
        command += ["--port", str(self.port), "--enforce-eager", "--dtype", "float32", "--max-logprobs", "-1"]
        command += ["--logprobs-mode", "processed_logprobs", *self.options]
        environment = os.environ | CPU | {"VLLM_SERVER_DEV_MODE": "1", "PYTHONUNBUFFERED": "1"}
        with self.log.open("a") as log:
            self.process = subprocess.Popen(
                command, env=environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )

    def wait(self, seconds=240):
        end = time.monotonic() + seconds
        while time.monotonic() < end and self.process.poll() is None:
            try:
                if requests.get(f"{self.url}/health", timeout=3).status_code == 200:
                    return
            except requests.RequestException:
                pass
            time.sleep(0.5)
        pytest.fail(f"the vLLM server did not start:\n{self.log.read_text()[-3000:]}")

    def signal(self, number):
        os.killpg(self.process.pid, number)

    def kill(self):
        if self.process.poll() is None:
            self.signal(signal.SIGKILL)
        self.process.wait(timeout=30)

    def restart(self):
        self.kill()
        self.start()
        self.wait()

    def asked(self, since=0):
        """The paths, in order, without the questions that change nothing."""
        lines = re.findall(r'"POST (/\S*) HTTP/1\.1" 200', self.log.read_text()[since:])
        return lines
