"""What the tests' workers do; WorkerPool imports it by name."""

import os
import signal
import time


def double(value):
    return 2 * value


def moody(value):
    if value == "hang":
        time.sleep(60)
    if value == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if value == "raise":
        raise RuntimeError
    if value == "print":
        print("noise")
    return value


_warm = []


def slow_at_first(value):
    if not _warm:
        time.sleep(1.5)
        _warm.append(value)
    return value
