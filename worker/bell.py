"""Hangs the doorbell: in a host's process by itself (entry point group `expunge.bell`), and on the command line."""

import click

from expunge.models import bell
from expunge.tasks.doorbell import Doorbell
from expunge.worker.settings import Settings
from expunge.worker.sources import load_settings

_FLUSH_SECONDS = 1.0


def default_bell() -> bell.Bell | None:
    """The bell of a host that configured nothing else: the broker of EXPUNGE_CONFIG, ./expunge.toml or the environment.

    None for a broker in memory, which no other process hears. Raises ConfigurationError.
    """
    settings = load_settings()
    return None if settings.in_memory else Doorbell(settings.broker_url)


def hang_for(settings: Settings) -> None:
    """Hang the bell for one command, and send what waits before the process ends."""
    if settings.in_memory:
        bell.take_down()
        return
    doorbell = Doorbell(settings.broker_url)
    bell.hang(doorbell)
    context = click.get_current_context(silent=True)
    if context is not None:
        context.find_root().call_on_close(lambda: doorbell.close(_FLUSH_SECONDS))
