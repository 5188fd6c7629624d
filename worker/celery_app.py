"""The Celery app: two tasks, one queue, and messages that nobody would miss.

A message is acknowledged when it is taken (Celery's default): what it stood for is in the database, so that a broker's
redelivery and visibility timeouts do not matter. No task ever has an ETA, is retried by Celery, or has a result.
"""

import os
import threading
from collections.abc import Callable
from typing import Any

import structlog
from celery import Celery
from kombu import Queue

from expunge.models.targets import is_account
from expunge.tasks.doorbell import (
    DRAIN_TASK,
    EXPIRES_SECONDS,
    QUEUE,
    SWEEP_TASK,
    Doorbell,
    message_settings,
)
from expunge.tasks.drain import drain
from expunge.tasks.runtime import OnSettled, Runtime
from expunge.tasks.sweep import sweep
from expunge.worker.runtime import make_runtime
from expunge.worker.settings import Settings

_CONNECT_SECONDS = 4.0
_POLLING_SECONDS = 0.02
"""Of the broker in memory, which can only be polled."""
_REDIS = {
    "socket_connect_timeout": _CONNECT_SECONDS,
    "socket_timeout": 30.0,
    "socket_keepalive": True,
    "health_check_interval": 10,
}

log = structlog.get_logger()


class OneRuntime:
    """The runtime of this process, made on first use; a forked process makes its own."""

    def __init__(self, settings: Settings, *, embedded: bool = False) -> None:
        self._settings = settings
        self._embedded = embedded
        self._lock = threading.Lock()
        self._runtime: Runtime | None = None
        self.stopping = threading.Event()
        self.on_settled: OnSettled | None = None
        """Given to the runtime when it is made."""
        self.doorbell = Doorbell(settings.broker_url)
        os.register_at_fork(after_in_child=self._forget)

    def get(self) -> Runtime:
        """Raises ConfigurationError."""
        with self._lock:
            if self._runtime is None:
                self._runtime = make_runtime(
                    self._settings, ring=self.doorbell.ring, stopping=self.stopping, embedded=self._embedded
                )
                if self.on_settled is not None:
                    self._runtime.on_settled = self.on_settled
            return self._runtime

    def stop(self) -> None:
        """Begin no further call; what has not been called goes back to `ready` at once."""
        runtime = self._runtime
        if runtime is not None:
            runtime.stop()
        self.stopping.set()

    def close(self) -> None:
        """Close clients and connections; `get` would make them anew."""
        with self._lock:
            runtime, self._runtime = self._runtime, None
        if runtime is not None:
            runtime.close()

    def _forget(self) -> None:
        """In a forked process: the connections are the parent's, and stay open for it."""
        self._lock = threading.Lock()
        runtime, self._runtime = self._runtime, None
        if runtime is not None:
            runtime.database.engine.dispose(close=False)


def make_app(settings: Settings, runtime: OneRuntime, *, embedded: bool = False) -> Celery:
    """The app of a worker or beat with these settings. It does not become anybody's current app."""
    app = Celery("expunge", set_as_current=False, fixups=[], changes=_configuration(settings, embedded=embedded))
    _add_tasks(app, runtime)
    return app


def _configuration(settings: Settings, *, embedded: bool) -> dict[str, Any]:
    interval = settings.sweep_interval(embedded=embedded)
    return {
        **message_settings(),
        "task_queues": [Queue(QUEUE)],
        # both, since CELERY_BROKER_URL of the host's own Celery would win over broker_url
        "broker_read_url": settings.broker_url,
        "broker_write_url": settings.broker_url,
        "broker_transport_options": _worker_transport_options(settings),
        "broker_connection_timeout": _CONNECT_SECONDS,
        "broker_connection_retry_on_startup": True,
        "broker_connection_max_retries": None,
        "broker_heartbeat": 30,
        "task_publish_retry": False,
        "worker_pool": "threads",
        "worker_concurrency": settings.threads,
        "worker_prefetch_multiplier": 1,
        "worker_hijack_root_logger": False,
        "worker_redirect_stdouts": False,
        # in memory, so that any number of beats run from any folder
        "beat_scheduler": "celery.beat:Scheduler",
        "beat_max_loop_interval": interval,
        "beat_schedule": {
            "sweep": {
                "task": SWEEP_TASK,
                "schedule": interval,
                "options": {"expires": EXPIRES_SECONDS, "expiration": EXPIRES_SECONDS, "retry": False},
            }
        },
    }


def _worker_transport_options(settings: Settings) -> dict[str, Any]:
    if settings.in_memory:
        return {"polling_interval": _POLLING_SECONDS}
    return _REDIS if settings.broker_scheme in ("redis", "rediss", "sentinel") else {}


def _add_tasks(app: Celery, runtime: OneRuntime) -> None:
    @app.task(name=DRAIN_TASK)
    def ring_drain(lane: Any) -> None:
        """A doorbell: drain one lane."""
        if not isinstance(lane, str) or not is_account(lane):
            log.warning("doorbell.not_a_lane")
            return
        with structlog.contextvars.bound_contextvars(lane=lane):
            _never_raises("drain", lambda: drain(runtime.get(), lane))

    @app.task(name=SWEEP_TASK)
    def ring_sweep() -> None:
        """Beat's: end leases, ring lanes, complete cases, send notices."""
        _never_raises("sweep", lambda: sweep(runtime.get()))


def _never_raises(task: str, work: Callable[[], object]) -> None:
    """What goes wrong here (the database is away) is logged and tried again at the next ring: Celery has nothing to do
    with it."""
    try:
        work()
    except Exception as error:
        log.error(f"{task}.failed", error=type(error).__name__, exc_info=True)
