"""Worker and beat in one process: a real Celery worker in a thread, over a broker in memory or any other.

Beat is a thread, since as a process it could not reach a broker in memory.
"""

import socket
import threading
from typing import Any

import structlog
from celery import beat, bootsteps
from celery.worker import state

from expunge.models import bell
from expunge.tasks.runtime import OnSettled, Runtime
from expunge.worker.celery_app import OneRuntime, make_app
from expunge.worker.settings import Settings

_STOP_SECONDS = 0.1
"""How long the worker's loop may take to notice that it should stop."""
_BEAT_PAUSE = 1

log = structlog.get_logger()
_worker_state: Any = state
_running: Any = bootsteps.RUN  # type: ignore[attr-defined]


class Embedded:
    """A running worker and beat. Use it as a context; at the end what was not called is `ready` again, and what was is
    settled."""

    def __init__(self, settings: Settings, on_settled: OnSettled | None = None) -> None:
        self._settings = settings
        self._one = OneRuntime(settings, embedded=True)
        self._one.on_settled = on_settled
        self._app = make_app(settings, self._one, embedded=True)
        self._beat_stop = threading.Event()
        self._ready = threading.Event()
        self._threads: list[threading.Thread] = []

    @property
    def runtime(self) -> Runtime:
        """What the tasks in this process work with."""
        return self._one.get()

    @property
    def alive(self) -> bool:
        """Whether the worker still runs; it outlives a broker that is away."""
        return all(thread.is_alive() for thread in self._threads)

    def __enter__(self) -> "Embedded":
        self._one.get()
        bell.hang(self._one.doorbell)
        _worker_state.should_stop = _worker_state.should_terminate = None
        worker: Any = self._app.WorkController(
            hostname=f"expunge-up@{socket.gethostname()}",
            pool="threads",
            concurrency=self._settings.threads,
            ready_callback=lambda _: self._ready.set(),
            without_gossip=True,
            without_mingle=True,
            without_heartbeat=True,
        )
        if not worker.use_eventloop:
            worker.consumer.loop = _loop
        self._threads = [
            threading.Thread(target=self._work, args=(worker,), name="expunge-worker", daemon=True),
            threading.Thread(target=self._beat, name="expunge-beat", daemon=True),
        ]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        bell.take_down()
        self._one.doorbell.close()
        self._one.close()

    def stopping(self) -> None:
        """Begin no further call."""
        self._one.stop()
        self._beat_stop.set()

    def stop(self) -> None:
        """Stop beat, then the worker, which waits for the calls that are under way. Doing it again does nothing."""
        self.stopping()
        _worker_state.should_stop = 0
        for thread in self._threads:
            thread.join()
        self._threads = []
        _worker_state.should_stop = None

    def _work(self, worker: Any) -> None:
        worker.start()
        if not self._one.stopping.is_set():
            log.error("worker.ended")

    def _beat(self) -> None:
        """Celery's own scheduler, with a wait that a stop interrupts."""
        scheduler = _Scheduler(app=self._app)
        for entry in scheduler.schedule.values():
            self._at_once(scheduler, entry)
        wait = 0.0
        while not self._beat_stop.wait(wait):
            try:
                wait = max(scheduler.tick(), 0.0)
            except Exception as error:
                # the broker is away
                log.warning("beat.failed", error=type(error).__name__)
                wait = _BEAT_PAUSE
        scheduler.close()

    def _at_once(self, scheduler: beat.Scheduler, entry: Any) -> None:
        """What waits already need not wait for the first interval."""
        try:
            scheduler.apply_entry(entry, producer=scheduler.producer)
        except Exception as error:
            log.warning("beat.failed", error=type(error).__name__)


class _Scheduler(beat.Scheduler):
    """Gives up quickly when the broker is away, so that a stop is not kept waiting."""

    def _ensure_connected(self) -> Any:
        return self.connection.ensure_connection(max_retries=1, interval_start=0, timeout=_BEAT_PAUSE)


def _loop(obj: Any, connection: Any, consumer: Any, blueprint: Any, hub: Any, qos: Any, *_: Any) -> None:
    """Celery's loop for transports without an event loop (celery.worker.loops.synloop) waits up to two seconds, twice,
    before it notices a stop; this is the same one with a shorter wait."""
    consumer.on_message = obj.create_task_handler()
    consumer.consume()
    obj.on_ready()
    while blueprint.state == _running and obj.connection:
        _worker_state.maybe_shutdown()
        if qos.prev != qos.value:
            qos.update()
        try:
            obj.perform_pending_operations()
            connection.drain_events(timeout=_STOP_SECONDS)
        except TimeoutError:
            continue
        except OSError:
            if blueprint.state == _running:
                raise
