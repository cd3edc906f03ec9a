"""Untrusted text is scored in processes of its own, with a wall-clock limit for each answer.

A checker that hangs, dies or eats memory costs its answer the time limit and the score; the others are not touched. No
signal is used in the trainer's process, and the trainer's script is not run again in the workers, as
`multiprocessing` would do.
"""

import atexit
import contextlib
import json
import os
import selectors
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any


START_LIMIT = 120.0  # seconds in which a worker must have imported what it needs, and warmed up
MEMORY_LIMIT = 4 << 30  # bytes of address space
CHUNK = 16


class WorkerError(RuntimeError):
    """A worker could not be started."""


class _GoneError(Exception):
    """The worker has gone, or has not answered in time."""


class _Worker:
    """One process; answers come back one line each, so that the time of each is known."""

    def __init__(self, function: str, warm_up: Any) -> None:
        self._function, self._warm_up = function, warm_up
        self._process: subprocess.Popen | None = None

    def start(self) -> None:
        if self._process is not None:
            return
        path = os.pathsep.join(entry for entry in sys.path if entry)
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, self._function, str(os.getpid()), json.dumps(self._warm_up)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
        )
        assert self._process.stdout is not None
        self._buffer = b""
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._process.stdout, selectors.EVENT_READ)
        try:
            greeting = self._line(START_LIMIT)
        except _GoneError:
            greeting = f"ended, or said nothing for {START_LIMIT:g} s"
        if greeting != "ready":
            self.stop()
            raise WorkerError(f"A worker for {self._function} did not start: {greeting}.")

    def stop(self) -> None:
        if self._process is None:
            return
        self._process.kill()
        self._process.wait()
        self._selector.close()
        for pipe in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):
                pipe.close()  # type: ignore[union-attr]
        self._process = None

    def score(self, chunk: Sequence[Any], limit: float) -> list[Any]:
        """The answers to a chunk, None from the one on that it died of or was killed over."""
        self.start()
        stdin: Any = self._process.stdin  # type: ignore[union-attr]
        values: list[Any] = []
        try:
            stdin.write(json.dumps(chunk).encode() + b"\n")
            stdin.flush()
            while len(values) < len(chunk):
                values.append(json.loads(self._line(limit)))
        except (_GoneError, OSError, ValueError):
            self.stop()
        return values

    def _line(self, limit: float) -> str:
        end = time.monotonic() + limit
        while b"\n" not in self._buffer:
            left = end - time.monotonic()
            if left <= 0 or not self._selector.select(left):
                raise _GoneError
            read = os.read(self._process.stdout.fileno(), 65536)  # type: ignore[union-attr]
            if not read:
                raise _GoneError
            self._buffer += read
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line.decode()


class WorkerPool:
    """
    Worker processes that apply one function to many answers, in order.

    They start with the first call and stay. To be used by one thread at a time.

    Args:
        function (`str`): `"package.module:name"` of a function of one JSON value that returns a number.
        num_workers (`int`): how many processes.
        warm_up: a value that each worker applies the function to when it starts, so that what the function imports at
            its first call does not count as an answer's time.
    """

    def __init__(self, function: str, num_workers: int, *, warm_up: Any = None) -> None:
        self._workers = [_Worker(function, warm_up) for _ in range(num_workers)]
        self._lock = threading.Lock()
        atexit.register(self.close)

    def close(self) -> None:
        """Ends the processes; another call starts them anew."""
        for worker in self._workers:
            worker.stop()

    def map(self, values: Sequence[Any], limit: float, failed: Any) -> list[Any]:
        """The function of each value; `failed` for those that take longer than `limit` seconds or kill their worker.

        Raises:
            WorkerError: no worker can be started; says why.
        """
        results: list[Any] = [failed] * len(values)
        waiting = deque(range(start, min(start + CHUNK, len(values))) for start in range(0, len(values), CHUNK))
        errors: list[BaseException] = []

        def work(worker: _Worker) -> None:
            while waiting and not errors:
                try:
                    places = waiting.popleft()
                except IndexError:
                    return
                try:
                    while places:
                        found = worker.score([values[i] for i in places], limit)
                        for i, value in zip(places, found, strict=False):
                            results[i] = value
                        places = places[len(found) + 1 :]  # the one after them has failed
                except BaseException as error:
                    errors.append(error)

        with self._lock:
            threads = [threading.Thread(target=work, args=[worker]) for worker in self._workers[1:]]
            for thread in threads[: max(0, len(waiting) - 1)]:
                thread.start()
            work(self._workers[0])
            for thread in threads:
                if thread.ident is not None:
                    thread.join()
        if errors:
            raise errors[0]
        return results


def default_workers() -> int:
    """One for each core that is there for this process, eight at most."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(8, cores // max(1, int(os.environ.get("LOCAL_WORLD_SIZE", "1")))))


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(0)


def _serve(path: str, parent: int, warm_up: Any) -> None:
    """The worker's side: a list of values a line comes in, a value a line goes out."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever prints goes nowhere
    threading.Thread(target=_watch, args=[parent], daemon=True).start()
    try:
        module, _, name = path.partition(":")
        function: Callable[[Any], Any] = getattr(import_module(module), name)
        if warm_up is not None:
            function(warm_up)
        greeting = "ready"
    except Exception as error:
        greeting = f"{type(error).__name__}: {error}".replace("\n", " ")
    print(greeting, file=answers, flush=True)
    if greeting != "ready":
        return
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT, resource.getrlimit(resource.RLIMIT_AS)[1]))
    except (ImportError, ValueError, OSError):
        pass  # not on this system
    for line in sys.stdin:
        for value in json.loads(line):
            print(json.dumps(function(value)), file=answers, flush=True)


if __name__ == "__main__":
    _serve(sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3]))
