"""Whether the vLLM server of a recipe is the one that TRL needs. Asks it only what changes nothing."""

import shlex
import socket
import threading
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import requests

from ..json_text import parse_json
from .findings import Finding, short


TIMEOUT = 3.0  # seconds for each question, from its start to the last byte of its answer
INFO_TIMEOUT = 15.0  # of /server_info, which looks about the server's machine the first time it is asked
LARGEST_ANSWER = 4_000_000  # bytes
BACKEND = "nccl"  # by which TRL sends weights
LOCAL_HOSTS = ("localhost", "0.0.0.0", "::1", "::")


class NoAnswerError(Exception):
    """The server does not answer, or not in time, or not in JSON."""


class NoConnectionError(NoAnswerError):
    """Nothing listens there, or it closed the connection."""


def is_local(url: str) -> bool:
    """Whether a URL speaks of this machine, by its name."""
    host = urlsplit(url).hostname or ""
    return host in LOCAL_HOSTS or host.startswith("127.")


def serve_command(model: str, port: int, scale_out: bool = False) -> str:
    """The command that starts the server for a model, as TRL needs it. `scale_out`: from vLLM 0.30 on."""
    where = "" if port == 8000 else f" --port {port}"
    return (
        f"CUDA_VISIBLE_DEVICES=... VLLM_SERVER_DEV_MODE=1 vllm serve {shlex.quote(model)}{where} "
        '--weight-transfer-config \'{"backend":"nccl"}\' --logprobs-mode processed_logprobs --max-logprobs -1'
        + (" --enable-scale-out" if scale_out else "")
    )


def port_of(url: str) -> int:
    """The port of a server's URL, as TRL would ask it."""
    return urlsplit(url).port or 8000


def check_url(url: str) -> Finding | None:
    """What is wrong with the URL itself."""
    try:
        parts = urlsplit(url)
        port_of(url)
    except ValueError:
        parts = urlsplit("")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return Finding("error", "vLLM server", f"{short(url)} is no URL", "vllm_server_base_url: http://HOST:8000")
    if parts.path.endswith("/"):
        found = f"{short(url)} ends with a slash, and TRL would ask for //health"
        return Finding("error", "vLLM server", found, f"vllm_server_base_url: {url.rstrip('/')}")
    return None


def check_server(url: str, model: str, group_port: int, scale_out: bool = False) -> list[Finding]:
    """Reachable, the right model, the endpoints of weight transfer; the port that the trainer opens for it is free.

    Args:
        url: base URL of the server.
        model: the recipe's model.
        group_port: `vllm_group_port`.
        scale_out: whether the command to start the server has `--enable-scale-out`.
    """
    if fault := check_url(url):
        return [fault]
    start = serve_command(model, port_of(url), scale_out)
    try:
        status, _ = ask(f"{url}/health")
        if status != 200:
            raise NoAnswerError(f"/health answers with status {status}")
    except NoAnswerError as error:
        advice = f"start it, and wait for 'Application startup complete': {start}"
        return [Finding("error", "vLLM server", f"{url} is not ready: {error}", advice)]
    findings = [Finding("ok", "vLLM server", f"{url} is up")]
    findings += _check_model(url, model, start)
    findings += _check_weight_transfer(url, start)
    findings.append(check_group_port(group_port))
    return findings


def check_group_port(port: int) -> Finding:
    """Whether the trainer's main process could open the port at which the server's workers join it."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("", port))
    except (OSError, OverflowError) as error:
        return Finding(
            "error",
            "vLLM group port",
            f"port {port} cannot be opened here: {error}",
            "end what holds it (another trainer?), or set vllm_group_port to a free port",
        )
    return Finding(
        "ok",
        "vLLM group port",
        f"port {port} is free here; whether the server's machine can reach it is seen only when training starts",
    )


def server_info(url: str) -> tuple[int, Any]:
    """Status and answer of `/server_info`; raises `NoAnswerError`."""
    return ask(f"{url}/server_info?config_format=json", INFO_TIMEOUT)


def _check_model(url: str, model: str, start: str) -> list[Finding]:
    try:
        status, answer = ask(f"{url}/v1/models")
        entries = answer["data"] if status == 200 else []
        first = entries[0]
        names = [str(first["id"]), str(first.get("root") or first["id"])]
    except (NoAnswerError, LookupError, TypeError, AttributeError) as error:
        found = f"{url}/v1/models names no model ({type(error).__name__})"
        return [Finding("error", "vLLM model", found, f"is it a vLLM server? Start one: {start}")]
    if model in names or any(_same_folder(model, name) for name in names):
        return [Finding("ok", "vLLM model", f"the server has {short(model)}")]
    found = f"the server has {short(names[0])}, the recipe {short(model)}"
    return [Finding("error", "vLLM model", found, f"TRL takes what the server has. Start it anew: {start}")]


def _check_weight_transfer(url: str, start: str) -> list[Finding]:
    check = "vLLM weight transfer"
    try:
        status, answer = server_info(url)
    except NoAnswerError as error:
        return [Finding("error", check, f"/server_info: {error}", f"TRL asks for it at the start: {start}")]
    if status == 404:
        found = "the server does not show its development endpoints"
        return [Finding("error", check, found, f"start it with VLLM_SERVER_DEV_MODE=1: {start}")]
    try:
        config = answer["vllm_config"]["weight_transfer_config"]
    except (LookupError, TypeError):
        found = f"/server_info has status {status} and no weight_transfer_config"
        return [Finding("error", check, found, f"use a vLLM that the installed TRL supports: {start}")]
    if config is None:
        return [Finding("error", check, "the server has no weight-transfer engine", f"start it with one: {start}")]
    backend = config.get("backend") if isinstance(config, dict) else None
    if backend != BACKEND:
        found = f"the backend is {short(backend)}"
        return [Finding("error", check, found, f"TRL sends weights by NCCL: {start}")]
    try:
        status, answer = ask(f"{url}/get_world_size")
        workers = int(answer["world_size"]) if status == 200 else None
    except (NoAnswerError, LookupError, TypeError, ValueError):
        workers = None
    if workers is None:
        found = "/get_world_size does not tell the number of workers"
        return [Finding("error", check, found, f"use a vLLM that the installed TRL supports: {start}")]
    found = (
        f"NCCL, {workers} worker{'' if workers == 1 else 's'}; a transfer itself cannot be tried without changing it"
    )
    return [Finding("ok", check, found)]


def _same_folder(one: str, other: str) -> bool:
    try:
        return Path(one).is_dir() and Path(other).is_dir() and Path(one).samefile(other)
    except (OSError, ValueError):
        return False


def ask(url: str, timeout: float | None = None) -> tuple[int, Any]:
    """Status, and the JSON of the answer or None. Raises `NoAnswerError` after `timeout` (`TIMEOUT`) seconds.

    The deadline is the thread's, because a timeout of `requests` starts anew with every byte that comes in.
    """
    seconds = TIMEOUT if timeout is None else timeout
    result: list[tuple[int, Any] | NoAnswerError] = []
    worker = threading.Thread(target=lambda: result.append(_ask(url, seconds)), daemon=True)
    worker.start()
    worker.join(seconds)
    if not result:
        raise NoAnswerError(f"no answer within {seconds:g} s")
    if isinstance(result[0], NoAnswerError):
        raise result[0]
    return result[0]


def _ask(url: str, timeout: float) -> tuple[int, Any] | NoAnswerError:
    try:
        with requests.get(url, timeout=timeout, stream=True) as response:
            body = b""
            for piece in response.iter_content(65536):
                body += piece
                if len(body) > LARGEST_ANSWER:
                    return NoAnswerError(f"the answer is longer than {LARGEST_ANSWER:,} bytes")
    except requests.exceptions.ConnectTimeout:  # a ConnectionError too, but only slow
        return NoAnswerError("no answer to a connection")
    except requests.exceptions.ConnectionError:
        return NoConnectionError("no connection")
    except (requests.exceptions.RequestException, ValueError) as error:
        return NoAnswerError(type(error).__name__)
    try:
        return response.status_code, parse_json(body)
    except ValueError:
        return response.status_code, None
