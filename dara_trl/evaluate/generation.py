"""Answers from a model: by transformers, by vLLM in this process, or by a server with OpenAI's chat protocol."""

import hashlib
import queue
import re
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ..cli import CommandError


CONNECT_SECONDS = 10.0
TRIES = 5
# What servers say where a conversation and its answer do not fit: vLLM and OpenAI, in their versions' words.
TOO_LONG = re.compile(r"context.length|maximum model length|max_model_len|context window", re.IGNORECASE)


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
    """An answer: its text, its number of tokens, and whether it ended by itself.

    Where the model's context is full, an answer is cut off there; to a conversation that leaves no room it is empty.
    """

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

    def generate(self, requests: deque[Request], sampling: Sampling) -> Iterator[Generation]:
        """The answers, as they are ready, in any order.

        Takes requests from the left until there are none. Who reads the answers may append more meanwhile: the next
        message of a conversation.
        """
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

    def generate(self, requests: deque[Request], sampling: Sampling) -> Iterator[Generation]:
        """Answers batch by batch; a batch's random numbers follow from its keys."""
        import torch

        while requests:
            batch = _next(requests, self.at_once)
            with torch.random.fork_rng():
                torch.manual_seed(sum(request.seed(sampling) for request in batch) % 2**31)
                answers = self._batch(batch, sampling)
            yield from answers

    def _batch(self, batch: Sequence[Request], sampling: Sampling) -> list[Generation]:
        prompts = [(one, *_prompt(self._tokenizer, one, self._context, sampling)) for one in batch]
        together = [(one, ids) for one, ids, room in prompts if room == sampling.max_new_tokens]
        found = self._answer(together, sampling, sampling.max_new_tokens) if together else []
        # Alone: in a batch they would run over the context's end, or have the others cut off too.
        for one, ids, room in prompts:
            if room < 1:
                found.append(Generation(one.key, "", 0, False))
            elif room < sampling.max_new_tokens:
                found.extend(self._answer([(one, ids)], sampling, room))
        return found

    def _answer(
        self, prompts: Sequence[tuple[Request, list[int]]], sampling: Sampling, max_new_tokens: int
    ) -> list[Generation]:
        import torch

        inputs = self._tokenizer.pad({"input_ids": [ids for _, ids in prompts]}, return_tensors="pt")
        length = inputs["input_ids"].shape[1]
        draws: dict[str, Any] = {"do_sample": False, "temperature": None, "top_p": None, "top_k": None}
        if sampling.temperature > 0:
            draws = {"do_sample": True, "temperature": sampling.temperature, "top_p": sampling.top_p, "top_k": 0}
        with torch.inference_mode():
            out_NT = self._model.generate(
                input_ids=inputs["input_ids"].to(self._model.device),
                attention_mask=inputs["attention_mask"].to(self._model.device),
                max_new_tokens=max_new_tokens,
                pad_token_id=self._tokenizer.pad_token_id,
                **draws,
            )[:, length:].tolist()
        ends = self._model.generation_config.eos_token_id
        ends = set(ends if isinstance(ends, list) else [ends])
        found = []
        for (one, _), ids in zip(prompts, out_NT, strict=True):
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

    def generate(self, requests: deque[Request], sampling: Sampling) -> Iterator[Generation]:
        """Answers in groups of `at_once`, so that they can be saved in between."""
        from vllm import SamplingParams

        tokenizer = self._llm.get_tokenizer()
        context = self._llm.model_config.max_model_len
        while requests:
            batch, prompts, draws = [], [], []
            for one in _next(requests, self.at_once):
                ids, room = _prompt(tokenizer, one, context, sampling)
                if room < 1:
                    yield Generation(one.key, "", 0, False)
                    continue
                batch.append(one)
                prompts.append({"prompt_token_ids": ids})
                draws.append(
                    SamplingParams(
                        temperature=sampling.temperature,
                        top_p=sampling.top_p,
                        max_tokens=room,
                        seed=one.seed(sampling),
                    )
                )
            results: Any = self._llm.generate(prompts, draws, use_tqdm=False) if batch else []
            for one, result in zip(batch, results, strict=True):
                output = result.outputs[0]
                yield Generation(one.key, output.text, len(output.token_ids), finished=output.finish_reason == "stop")

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

    def generate(self, requests: deque[Request], sampling: Sampling) -> Iterator[Generation]:
        """Answers as they come, at most `at_once` requests being on the way."""
        waiting: queue.SimpleQueue[Request | None] = queue.SimpleQueue()
        ready: queue.SimpleQueue[Generation | BaseException] = queue.SimpleQueue()

        def work() -> None:
            while (request := waiting.get()) is not None:
                try:
                    ready.put(self._ask(request, sampling))
                except BaseException as error:
                    ready.put(error)

        flying = threads = 0
        try:
            while requests or flying:
                for request in _next(requests, self.at_once - flying):
                    waiting.put(request)
                    flying += 1
                while threads < flying:
                    threading.Thread(target=work, daemon=True).start()
                    threads += 1
                item = ready.get()
                flying -= 1
                if isinstance(item, BaseException):
                    raise item
                yield item
        finally:
            for _ in range(threads):
                waiting.put(None)

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
                if response.status_code == 400 and TOO_LONG.search(response.text):
                    if "max_tokens" not in body:
                        return Generation(request.key, "", 0, False)
                    del body["max_tokens"]  # the server then gives what room there is
                    continue
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


def _next(requests: deque[Request], count: int) -> list[Request]:
    return [requests.popleft() for _ in range(min(count, len(requests)))]


def _prompt(tokenizer: Any, request: Request, context: int | None, sampling: Sampling) -> tuple[list[int], int]:
    """A conversation's tokens, and how many an answer to it may have."""
    text = tokenizer.apply_chat_template(list(request.messages), tokenize=False, add_generation_prompt=True)
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    room = sampling.max_new_tokens if context is None else min(sampling.max_new_tokens, context - len(ids))
    return ids, room
