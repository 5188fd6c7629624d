"""Waiting on conditions, with a deadline."""

import threading
import time
from collections.abc import Callable
from typing import TypeVar

from expunge.models.database import Database

T = TypeVar("T")
_never = threading.Event()


def wait_for(condition: Callable[[], T], *, seconds: float = 30.0, what: str = "it", pause: float = 0.02) -> T:
    """Ask, each `pause` seconds, until the condition is true and give what it gave. Raises AssertionError when the time
    is over."""
    deadline = time.monotonic() + seconds
    while True:
        found = condition()
        if found:
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {seconds} s for {what}")
        _never.wait(pause)


def someone_waits(database: Database) -> bool:
    """Whether a session of this PostgreSQL database waits for a lock."""
    with database.read() as tx:
        waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
        return tx.first(waiting) is not None
