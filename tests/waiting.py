"""Waiting on conditions, with a deadline."""

import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
_never = threading.Event()


def wait_for(condition: Callable[[], T], *, seconds: float = 30.0, what: str = "it") -> T:
    """Ask until the condition is true and give what it gave. Raises AssertionError when the time is over."""
    deadline = time.monotonic() + seconds
    while True:
        found = condition()
        if found:
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {seconds} s for {what}")
        _never.wait(0.02)
