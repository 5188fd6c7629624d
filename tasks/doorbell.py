"""The doorbell: a message that names a lane and nothing else. Losing every one of them loses nothing.

**The caller never waits and never sees an error**: one background thread sends, with short timeouts. What cannot be
sent is dropped; the sweep finds the rows. A host's rings of one lane that come together are sent once.
"""

import logging
import os
import threading
import time
import weakref
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from celery import Celery
    from kombu import Connection, Producer

DRAIN_TASK = "expunge.drain"
SWEEP_TASK = "expunge.sweep"
QUEUE = "expunge"
EXPIRES_SECONDS = 60.0
"""Nobody needs an old ring: the sweep has rung since."""
NETWORK_SECONDS = 2.0
GAP_SECONDS = 0.02
"""Between two sendings: a burst of commits is a few messages, not thousands."""
IDLE_SECONDS = 30.0
"""A connection that was idle for longer is made anew: something on the way may have forgotten it."""
PAUSE_SECONDS = (1.0, 15.0)
"""After a failure: from, doubling, up to. What rings meanwhile is dropped."""
MOST_LANES = 10_000
"""Waiting to be sent."""
MOST_RINGS = 64
"""Of one lane, waiting to be sent; each may start one more drain."""

# not structlog: in a host's process nobody has configured it, and it would print
log = logging.getLogger(__name__)
_all: "weakref.WeakSet[Doorbell]" = weakref.WeakSet()


def message_settings() -> dict[str, Any]:
    """What sender and worker must agree on."""
    return {
        "task_default_queue": QUEUE,
        "task_serializer": "json",
        "accept_content": ["json"],
        "task_ignore_result": True,
        "enable_utc": True,
    }


def transport_options(broker_url: str) -> dict[str, Any]:
    """Short timeouts, in the words of each transport."""
    scheme = broker_url.partition("://")[0].lower()
    if scheme in ("redis", "rediss", "sentinel"):
        return {"socket_timeout": NETWORK_SECONDS, "socket_connect_timeout": NETWORK_SECONDS}
    if scheme in ("amqp", "amqps", "pyamqp"):
        return {"read_timeout": NETWORK_SECONDS, "write_timeout": NETWORK_SECONDS}
    return {}


class Doorbell:
    """Rings lanes over a broker. A Runtime gets its `ring`, `expunge.models.bell.hang` the doorbell itself."""

    def __init__(self, broker: "Celery | str") -> None:
        if isinstance(broker, str):
            # here, since every command asks for its bell, and few ring it
            from celery import Celery

            # not the host's own Celery app, nor its environment: both stay as they are
            self._app = Celery("expunge-doorbell", set_as_current=False, fixups=[], changes=message_settings())
            self._url = broker
        else:
            self._app = broker
            self._url = broker.conf.broker_write_url
        self._begin()
        _all.add(self)

    def _begin(self) -> None:
        """The state of one process: after a fork it is made anew, since thread and connection are the parent's."""
        self._changed = threading.Condition()
        self._waiting: dict[str, int] = {}
        self._closing = False
        self._thread: threading.Thread | None = None
        self._connection: Connection | None = None
        self._producer: Producer | None = None
        self._used_at = 0.0
        self._pause = 0.0
        self._quiet_until = 0.0

    def __call__(self, lanes: Iterable[str]) -> None:
        """Something came into these lanes: one drain each will do, however many transactions said so."""
        for lane in lanes:
            self._wait(lane, at_most=1)

    def ring(self, lane: str) -> None:
        """One more drain of this lane may start."""
        self._wait(lane, at_most=MOST_RINGS)

    def _wait(self, lane: str, *, at_most: int) -> None:
        with self._changed:
            if self._closing or (lane not in self._waiting and len(self._waiting) >= MOST_LANES):
                return
            rings = self._waiting.get(lane, 0)
            self._waiting[lane] = max(rings, min(rings + 1, at_most))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="expunge-doorbell", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def close(self, timeout: float = 1.0) -> None:
        """Send what waits, for `timeout` seconds at the most, and be silent from then on."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
            thread = self._thread
        if thread is not None:
            thread.join(timeout)

    def _run(self) -> None:
        try:
            while lanes := self._next():
                for lane, rings in lanes.items():
                    for _ in range(rings):
                        self._send(lane)
                with self._changed:
                    self._changed.wait_for(lambda: self._closing, GAP_SECONDS)
        finally:
            self._disconnect()

    def _next(self) -> dict[str, int]:
        """The lanes to ring, and how often; none when the doorbell was closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closing)
            lanes, self._waiting = self._waiting, {}
            return lanes

    def _send(self, lane: str) -> None:
        now = time.monotonic()
        if now < self._quiet_until:
            return
        if now - self._used_at > IDLE_SECONDS:
            self._disconnect()
        try:
            try:
                fresh = self._producer is None
                self._publish(lane)
            except Exception:
                self._disconnect()
                if fresh:
                    raise
                # the broker was restarted since: one more, on a new connection
                self._publish(lane)
        except Exception as error:
            self._disconnect()
            self._pause = min(max(self._pause * 2, PAUSE_SECONDS[0]), PAUSE_SECONDS[1])
            self._quiet_until = time.monotonic() + self._pause
            log.debug("doorbell.lost: %s; silent for %s s", type(error).__name__, self._pause)
        else:
            self._pause = 0.0
            self._used_at = time.monotonic()

    def _publish(self, lane: str) -> None:
        if self._producer is None:
            from kombu import Connection

            options = {**self._app.conf.broker_transport_options, **transport_options(self._url)}
            self._connection = Connection(self._url, connect_timeout=NETWORK_SECONDS, transport_options=options)
            self._producer = self._app.amqp.Producer(self._connection, auto_declare=False)
        self._app.send_task(
            DRAIN_TASK,
            args=(lane,),
            producer=self._producer,
            expires=EXPIRES_SECONDS,
            expiration=EXPIRES_SECONDS,
            retry=False,
            add_to_parent=False,
        )

    def _disconnect(self) -> None:
        connection, self._producer, self._connection = self._connection, None, None
        if connection is not None:
            with suppress(Exception):
                connection.release()


def _after_fork() -> None:
    for doorbell in list(_all):
        doorbell._begin()


os.register_at_fork(after_in_child=_after_fork)
