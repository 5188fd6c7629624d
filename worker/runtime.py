"""Makes what the tasks need from the settings."""

import threading

from expunge.tasks.runtime import Ring, Runtime
from expunge.worker.settings import Settings


def make_runtime(
    settings: Settings,
    *,
    ring: Ring | None = None,
    stopping: threading.Event | None = None,
    embedded: bool = False,
) -> Runtime:
    """One for this process; nothing is connected yet. Raises ConfigurationError.

    `ring` rings the doorbell of one lane; without it only the sweep finds new entries.
    """
    runtime = Runtime(
        database=settings.database(),
        policy=settings.policy(embedded=embedded),
        accounts=settings.accounts,
        webhook=settings.webhook(),
        archive=settings.archive(),
    )
    if ring is not None:
        runtime.ring = ring
    if stopping is not None:
        runtime.stopping = stopping
    return runtime
