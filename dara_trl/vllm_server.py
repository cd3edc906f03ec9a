"""Top floor: a vLLM server that is absent, wrong or dies ends the run with a clear error, and in time.

Left alone, TRL waits for ever for a server that is there and does not answer, and for the other side of a weight
transfer that has died. It repeats a request to a dead server for a minute, so that one started anew in the meantime
would generate with the weights it was started with. And it trains with whatever model the server has.
"""

import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from packaging.specifiers import SpecifierSet
from packaging.version import Version
from transformers import AutoConfig
from trl.import_utils import is_vllm_available
from trl.trainer.utils import get_config_model_id
from urllib3.util.retry import Retry

from .doctor import server as questions
from .doctor.findings import Finding
from .doctor.machine import installed_version, trl_vllm_range, vllm_has_scale_out


INTERVAL = 2.0  # seconds between two looks at the server while something is asked of it
REFUSES = 6.0  # seconds for which it may refuse connections, or say that it is broken, before it counts as dead
SILENT = 600.0  # seconds for which it may not answer: while it writes millions of tokens into one answer it is deaf
GRACE = 20.0  # seconds from then until the process is ended, if it cannot be interrupted (in NCCL, for example)

RESUME = "start it anew, then go on from the last checkpoint: trainer.train(resume_from_checkpoint=True)"
# These say whether two models have the same tensors.
SIZES = (
    *("model_type", "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads"),
    *("num_key_value_heads", "head_dim", "tie_word_embeddings"),
)


class VLLMServerError(RuntimeError):
    """The vLLM server cannot be trained with, or not any more."""


class VLLMServer:
    """
    The server of `vllm_mode="server"`, as the main process sees it.

    Args:
        url (`str`): `vllm_server_base_url`, or what `vllm_server_host` and `vllm_server_port` make.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self._identity: str | None = None  # of the server that gets our weights
        self._fault: str | None = None

    @classmethod
    def of(cls, args: Any, model: Any) -> "VLLMServer | None":
        """The server of this training, checked; None where there is none, or where another process looks after it.

        Raises:
            VLLMServerError: it is not up within `vllm_server_timeout` seconds, or not fit for this training.
        """
        wanted = args.use_vllm and args.vllm_mode == "server" and args.process_index == 0
        if not wanted or not is_vllm_available():  # TRL says so
            return None
        from trl.generation.vllm_client import VLLMClient

        if not hasattr(VLLMClient, "get_server_info"):  # an older TRL, with a server of its own
            return None
        server = cls(args.vllm_server_base_url or f"http://{args.vllm_server_host}:{args.vllm_server_port}")
        server.check(model, args.vllm_server_timeout, args.vllm_group_port)
        return server

    def check(self, model: Any, timeout: float, group_port: int) -> None:
        """Waits until the server is up, `timeout` seconds at most; then asks what it is: half a minute at most.

        Raises:
            VLLMServerError: with every fault, and what to do about it.
        """
        if fault := questions.check_url(self.url):
            raise VLLMServerError(self._message(fault.found, fault.advice))
        name = model if isinstance(model, str) else get_config_model_id(model.config)
        scale_out = vllm_has_scale_out(installed_version("vllm"))
        until = time.monotonic() + timeout
        while seen := self._unwell():
            if time.monotonic() >= until:
                start = questions.serve_command(name, questions.port_of(self.url), scale_out)
                advice = f"start it and wait for 'Application startup complete', or raise vllm_server_timeout: {start}"
                raise VLLMServerError(self._message(f"not up after {timeout:g} s: {seen[0]}", advice))
            time.sleep(min(INTERVAL, max(0.0, until - time.monotonic())))
        findings = questions.check_server(self.url, name, group_port, scale_out) + self._versions()
        findings = [self._other_model(model, one) if one.check == "vLLM model" else one for one in findings]
        for one in findings:
            if one.level == "warning":
                warnings.warn(self._message(one.found, one.advice), stacklevel=5)
        if errors := [one for one in findings if one.level == "error"]:
            raise VLLMServerError("\n".join(self._message(one.found, one.advice) for one in errors))
        self._identity = self._ask_identity()

    def attach(self, client: Any) -> None:
        """Takes the requests of TRL's client in hand.

        A broken connection is tried again for three seconds, less than any vLLM needs to start. A transfer that the
        server refuses is not, as the trainer sends the weights only once; it is noticed while the trainer still sends.
        """
        retry = Retry(total=3, backoff_factor=0.5, status_forcelist=[502, 503], allowed_methods=None)
        client.session.get_adapter(self.url).max_retries = retry
        client.session.hooks["response"].append(self._look_at)

    @contextmanager
    def watch(self) -> Iterator[None]:
        """While the block runs, the server is looked at; if it is gone, the block ends with a `VLLMServerError`.

        That is some seconds after it died (`REFUSES` and two `INTERVAL`s), or `SILENT` seconds after its last answer.
        A block that cannot be interrupted is ended together with its process, `GRACE` seconds later.

        Raises:
            VLLMServerError: the server is dead, silent, was started anew, or refuses our weights.
        """
        over, lock, interrupted = threading.Event(), threading.Lock(), threading.Event()
        block = threading.current_thread()

        def interrupt() -> None:
            with lock:
                if not over.is_set() and block is threading.main_thread():
                    interrupted.set()
                    signal.pthread_kill(block.ident, signal.SIGINT)  # type: ignore[arg-type]

        watcher = threading.Thread(target=self._watch, args=(over, interrupt), daemon=True)
        watcher.start()
        try:
            try:
                if fault := self._fault or self._replaced():
                    raise VLLMServerError(fault)
                yield
            finally:
                with lock:  # an interrupt comes before this, or not at all
                    over.set()
        except KeyboardInterrupt as error:
            over.set()
            if not interrupted.is_set():
                raise
            raise VLLMServerError(self._fault) from error
        except VLLMServerError:
            raise
        except Exception as error:
            fault = self._fault or self._dead() or self._replaced()
            if fault is None:
                raise
            raise VLLMServerError(fault) from error

    def _watch(self, over: threading.Event, interrupt: Any) -> None:
        well = time.monotonic()
        while not over.wait(INTERVAL):
            seen = self._unwell()
            if seen is None:
                well = time.monotonic()
            elif time.monotonic() - well > seen[1]:
                self._fault = self._fault or self._message(f"{seen[0]}, for {seen[1]:g} s", RESUME)
            if self._fault is None:
                continue
            interrupt()
            if not over.wait(GRACE):
                self._end_process()
            # At its end Python waits for requests of TRL's thread, which may wait for a silent server.
            threading.main_thread().join()
            time.sleep(GRACE)
            if any(isinstance(one, threading.Thread) and "ThreadPool" in one.name for one in threading.enumerate()):
                self._end_process()
            return

    def _end_process(self) -> None:
        print(f"{VLLMServerError.__name__}: {self._fault}", file=sys.stderr, flush=True)
        os._exit(1)

    def _unwell(self) -> tuple[str, float] | None:
        """What is wrong with it now, and for how many seconds that may be; None if it is well."""
        try:
            status, _ = questions.ask(f"{self.url}/health")
        except questions.NoConnectionError:
            return "nothing answers there", REFUSES
        except questions.NoAnswerError as error:
            return f"/health: {error}", SILENT
        return None if status == 200 else (f"/health answers with status {status}", REFUSES)

    def _dead(self) -> str | None:
        seen = self._unwell()
        return self._message(seen[0], RESUME) if seen and seen[1] == REFUSES else None

    def _replaced(self) -> str | None:
        now = self._ask_identity()
        if self._identity in (None, now) or now is None:
            return None
        return self._message("it was started anew, and has not the weights of this run", RESUME)

    def _ask_identity(self) -> str | None:
        try:
            return questions.server_info(self.url)[1]["vllm_config"]["instance_id"]
        except (questions.NoAnswerError, LookupError, TypeError):
            return None

    def _look_at(self, response: Any, *args: Any, **kwargs: Any) -> None:
        path = response.url.removeprefix(self.url)
        if response.status_code >= 400 and path in ("/init_weight_transfer_engine", "/update_weights"):
            found = f"{path} answers with status {response.status_code}: {response.text[:500]}"
            self._fault = self._message(found, f"the server's log says why; {RESUME}")

    def _other_model(self, model: Any, finding: Finding) -> Finding:
        """A model of another name is an error if its tensors have other sizes, and nothing if they have the same.

        The first transfer makes it ours then. Where its configuration is not at hand nobody knows: a warning.
        """
        if finding.level != "error":
            return finding
        try:
            served = questions.ask(f"{self.url}/v1/models")[1]["data"][0]
        except (questions.NoAnswerError, LookupError, TypeError):
            return finding
        try:
            theirs = AutoConfig.from_pretrained(served.get("root") or served["id"], local_files_only=True)
            ours = AutoConfig.from_pretrained(model, local_files_only=True) if isinstance(model, str) else model.config
        except (LookupError, TypeError, AttributeError, OSError, ValueError):
            return replace(finding, level="warning")
        sizes = [(size, *(getattr(one.get_text_config(), size, None) for one in (theirs, ours))) for size in SIZES]
        other = [f"{size} {their} instead of {our}" for size, their, our in sizes if their != our]
        if not other:
            return replace(finding, level="ok")
        return replace(finding, found=f"{finding.found} ({', '.join(other)})")

    def _versions(self) -> list[Finding]:
        """The server's vLLM and the trainer's: an error below TRL's range; above it, and if they differ, a warning."""
        check, allowed = "vLLM version", SpecifierSet(trl_vllm_range())
        try:
            theirs = Version(questions.ask(f"{self.url}/version")[1]["version"])
            ours = Version(installed_version("vllm") or "none")
        except (questions.NoAnswerError, LookupError, TypeError, ValueError) as error:
            found = f"its version cannot be told ({error})"
            return [Finding("warning", check, found, f"use vLLM {allowed} for the server and the trainer")]
        findings = []
        for whose, version in (("the server's", theirs), ("the trainer's", ours)):
            if not allowed.contains(version.base_version):
                old = any(
                    Version(version.base_version) < Version(one.version) for one in allowed if one.operator == ">="
                )
                found = f"{whose} vLLM is {version}, and the installed TRL supports {allowed}"
                findings.append(Finding("error" if old else "warning", check, found, f"pip install 'vllm{allowed}'"))
        if theirs.release[:2] != ours.release[:2] and not findings:
            found = f"the server's vLLM is {theirs}, the trainer's {ours}, and both take part in sending the weights"
            findings.append(
                Finding("warning", check, found, f"pip install 'vllm=={theirs.base_version}' here, or there")
            )
        return findings

    def _message(self, found: str, advice: str) -> str:
        return f"The vLLM server at {self.url} (vllm_server_base_url): {found} -> {advice}"
