"""Answers from a model: by transformers, by vLLM in this process, or by a server with OpenAI's chat protocol."""

import hashlib
import queue
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ..cli import CommandError


CONNECT_SECONDS = 10.0
TRIES = 5


@dataclass(frozen=True)
class Sampling:
    """How answers are drawn.

    Attributes:
        temperature: 0 takes the likeliest token.
        top_p: share of the probability that is drawn from.
        max_new_tokens: where an answer is cut off.
        seed: of all answers; the same gives the same answers only with the same batches and kernels.
    """

    temperature: float
    top_p: float
    max_new_tokens: int
    seed: int = 0


@dataclass(frozen=True)
class Request:
    """A conversation to be answered, and the key of the answer, which its random numbers follow from."""

    key: str
    messages: Sequence[dict[str, str]]

    def seed(self, sampling: Sampling) -> int:
        """31 bits."""
        digest = hashlib.sha256(f"{sampling.seed} {self.key}".encode()).digest()
        return int.from_bytes(digest[:4], "big") >> 1


@dataclass(frozen=True)
class Generation:
    """An answer: its text, its number of tokens, and whether it ended by itself."""

    key: str
    text: str
    tokens: int
    finished: bool


class Backend(Protocol):
    """A model that answers.

    Attributes:
        at_once: how many requests it works on at the same time.
    """

    at_once: int

    def generate(self, requests: Sequence[Request], sampling: Sampling) -> Iterator[Generation]:
        """The answers, as they are ready, in any order."""
        ...

    def close(self) -> None:
        """Frees the model."""
        ...


class TransformersBackend:
    """A checkpoint's folder, hub id or embedded name, generated with by transformers, one batch after the other."""

    def __init__(self, model: str, *, batch_size: int, dtype: str = "auto", device: str | None = None) -> None:
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer

        from ..embedded.policy import resolve_model

        self.at_once = batch_size
        try:
            folder = resolve_model(model)
            self._tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="left")
            self._model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).eval()
        except (ValueError, ImportError, OSError) as error:
            raise CommandError(f"--model {model} cannot be loaded: {error}") from error
        if self._tokenizer.chat_template is None:
            raise CommandError(f"--model {model} has no chat template: it cannot be asked in conversations.")
        if self._tokenizer.pad_token is None:
            self._tokenizer.pad_token = self._tokenizer.eos_token
        self._model.to(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        self._context = getattr(self._model.config, "max_position_embeddings", None)

    def generate(self, requests: Sequence[Request], sampling: Sampling) -> Iterator[Generation]:
        """Answers batch by batch; a batch's random numbers follow from its keys."""
        import torch

        for start in range(0, len(requests), self.at_once):
            batch = requests[start : start + self.at_once]
            with torch.inference_mode(), torch.random.fork_rng():
                torch.manual_seed(sum(request.seed(sampling) for request in batch) % 2**31)
                yield from self._batch(batch, sampling)

    def _batch(self, batch: Sequence[Request], sampling: Sampling) -> list[Generation]:
        texts = [
            self._tokenizer.apply_chat_template(list(one.messages), tokenize=False, add_generation_prompt=True)
            for one in batch
        ]
        inputs = self._tokenizer(texts, return_tensors="pt", padding=True, add_special_tokens=False)
        length = inputs["input_ids"].shape[1]
        room = sampling.max_new_tokens if self._context is None else self._context - length
        if room < 1:
            return [Generation(one.key, "", 0, False) for one in batch]
        draws: dict[str, Any] = {"do_sample": False, "temperature": None, "top_p": None, "top_k": None}
        if sampling.temperature > 0:
            draws = {"do_sample": True, "temperature": sampling.temperature, "top_p": sampling.top_p, "top_k": 0}
        out_NT = self._model.generate(
            input_ids=inputs["input_ids"].to(self._model.device),
            attention_mask=inputs["attention_mask"].to(self._model.device),
            max_new_tokens=min(room, sampling.max_new_tokens),
            pad_token_id=self._tokenizer.pad_token_id,
            **draws,
        )[:, length:].tolist()
        ends = self._model.generation_config.eos_token_id
        ends = set(ends if isinstance(ends, list) else [ends])
        found = []
        for one, ids in zip(batch, out_NT, strict=True):
            end = next((place for place, token in enumerate(ids) if token in ends), None)
            kept = ids if end is None else ids[: end + 1]
            text = str(self._tokenizer.decode(kept, skip_special_tokens=True))
            found.append(Generation(one.key, text, len(kept), end is not None))
        return found

    def close(self) -> None:
        """Frees the model's memory."""
        import gc

        import torch

        del self._model
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


class VllmBackend:
    """A checkpoint's folder, hub id or embedded name, generated with by vLLM in this process."""

    def __init__(
        self, model: str, *, at_once: int, dtype: str = "auto", settings: dict[str, Any] | None = None
    ) -> None:
        try:
            from vllm import LLM
        except ImportError as error:
            raise CommandError("--backend vllm needs vLLM: pip install 'dara-trl[vllm]'") from error
        from ..embedded.policy import resolve_model

        self.at_once = at_once
        try:
            self._llm = LLM(model=resolve_model(model), dtype=dtype, **(settings or {}))
        except (ValueError, ImportError, OSError) as error:
            raise CommandError(f"--model {model} cannot be loaded: {error}") from error

    def generate(self, requests: Sequence[Request], sampling: Sampling) -> Iterator[Generation]:
        """Answers in groups of `at_once`, so that they can be saved in between."""
        from vllm import SamplingParams

        for start in range(0, len(requests), self.at_once):
            batch = requests[start : start + self.at_once]
            draws = [
                SamplingParams(
                    temperature=sampling.temperature,
                    top_p=sampling.top_p,
                    max_tokens=sampling.max_new_tokens,
                    seed=request.seed(sampling),
                )
                for request in batch
            ]
            conversations: Any = [list(request.messages) for request in batch]
            for request, result in zip(batch, self._llm.chat(conversations, draws, use_tqdm=False), strict=True):
                output = result.outputs[0]
                yield Generation(
                    request.key, output.text, len(output.token_ids), finished=output.finish_reason == "stop"
                )

    def close(self) -> None:
        """Frees the model's memory."""
        import gc

        del self._llm
        gc.collect()


class ServerBackend:
    """A server with OpenAI's `/v1/chat/completions`, such as `vllm serve`."""

    def __init__(self, url: str, model: str | None, *, at_once: int, answer_seconds: float) -> None:
        import requests

        self.at_once, self._url, self._seconds = at_once, url.rstrip("/").removesuffix("/v1"), answer_seconds
        try:
            response = requests.get(f"{self._url}/v1/models", timeout=CONNECT_SECONDS)
            response.raise_for_status()
            served = [one["id"] for one in response.json()["data"]]
        except (requests.RequestException, ValueError, KeyError, TypeError) as error:
            raise CommandError(f"--server {url} does not answer /v1/models: {error}") from error
        if model is None and len(served) == 1:
            model = served[0]
        if model not in served:
            raise CommandError(f"--server {url} has the model {' and '.join(served)}, not {model}: --model NAME.")
        self.model = str(model)

    def generate(self, requests: Sequence[Request], sampling: Sampling) -> Iterator[Generation]:
        """Answers as they come, `at_once` requests being on the way."""
        waiting: queue.SimpleQueue[Request] = queue.SimpleQueue()
        ready: queue.SimpleQueue[Generation | BaseException] = queue.SimpleQueue()
        stopped = threading.Event()
        for request in requests:
            waiting.put(request)

        def work() -> None:
            try:
                while not stopped.is_set():
                    ready.put(self._ask(waiting.get_nowait(), sampling))
            except queue.Empty:
                pass
            except BaseException as error:
                ready.put(error)

        for _ in range(min(self.at_once, len(requests))):
            threading.Thread(target=work, daemon=True).start()
        try:
            for _ in requests:
                item = ready.get()
                if isinstance(item, BaseException):
                    raise item
                yield item
        finally:
            stopped.set()

    def _ask(self, request: Request, sampling: Sampling) -> Generation:
        import requests

        body: dict[str, Any] = {
            "model": self.model,
            "messages": list(request.messages),
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "max_tokens": sampling.max_new_tokens,
            "seed": request.seed(sampling),
        }
        url = f"{self._url}/v1/chat/completions"
        for attempt in range(TRIES):
            try:
                response = requests.post(url, json=body, timeout=(CONNECT_SECONDS, self._seconds))
            except requests.RequestException as error:
                reason = str(error)
            else:
                if response.ok:
                    return self._read(request, response)
                reason = f"status {response.status_code}: {response.text[:500]}"
                if response.status_code < 500 and response.status_code != 429:
                    raise CommandError(f"{url} refuses {request.key}: {reason}")
            time.sleep(min(2.0**attempt, 10.0) if attempt < TRIES - 1 else 0)
        raise CommandError(
            f"{url} did not answer {request.key} in {TRIES} tries: {reason}. What was answered is kept; the same "
            "command goes on."
        )

    def _read(self, request: Request, response: Any) -> Generation:
        try:
            answer = response.json()
            choice = answer["choices"][0]
            message = choice["message"]
            text = message.get("content") or ""
            thoughts = message.get("reasoning_content") or message.get("reasoning")
            if thoughts:  # a server with a reasoning parser takes the tags away
                text = f"<think>{thoughts}</think>{text}"
            tokens = int(answer["usage"]["completion_tokens"])
            return Generation(request.key, text, tokens, finished=choice["finish_reason"] == "stop")
        except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
            raise CommandError(f"{self._url} gave an answer that cannot be read: {error!r}") from error

    def close(self) -> None:
        """Nothing: the server is not ours."""
