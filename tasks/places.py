"""Threads of this process by lane: one slow store must not get them all."""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.Lock()
_running: Counter[str] = Counter()


@contextmanager
def thread_of(lane: str, threads: int) -> Iterator[bool]:
    """Take a thread for a lane; yields False if the lane has all but one of this process's threads already."""
    most = max(1, threads - 1)
    with _lock:
        taken = _running[lane] < most
        if taken:
            _running[lane] += 1
    try:
        yield taken
    finally:
        if taken:
            with _lock:
                _running[lane] -= 1
