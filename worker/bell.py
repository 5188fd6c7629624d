"""Hangs the doorbell: in a host's process by itself (entry point group `expunge.bell`), and on the command line.

What rings is imported where it is made: that takes as long as a short command's own work, and most ring nothing.
"""

import threading
from typing import TYPE_CHECKING

import click

from expunge.models import bell
from expunge.worker.settings import Settings
from expunge.worker.sources import load_settings

if TYPE_CHECKING:
    from expunge.tasks.doorbell import Doorbell

_FLUSH_SECONDS = 1.0


def default_bell() -> bell.Bell | None:
    """The bell of a host that configured nothing else: the broker of EXPUNGE_CONFIG, ./expunge.toml or the environment.

    None for a broker in memory, which no other process hears. Raises ConfigurationError.
    """
    settings = load_settings()
    return None if settings.in_memory else _make(settings)


def hang_for(settings: Settings, *, at_once: bool = False) -> None:
    """Hang the bell for one command, and send what waits before the process ends. It is made when it is first rung, or
    `at_once`, for a command whose threads should not wait for that."""
    if settings.in_memory:
        bell.take_down()
        return
    context = click.get_current_context(silent=True)
    lock = threading.Lock()
    made: list[Doorbell] = []

    def doorbell() -> "Doorbell":
        with lock:
            if not made:
                made.append(_make(settings))
                if context is not None:
                    context.find_root().call_on_close(lambda: made[0].close(_FLUSH_SECONDS))
            return made[0]

    bell.hang(doorbell() if at_once else lambda lanes: doorbell()(lanes))


def _make(settings: Settings) -> "Doorbell":
    from expunge.tasks.doorbell import Doorbell

    return Doorbell(settings.broker_url)
