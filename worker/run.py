"""The main thread of `expunge up` and `expunge demo`: waits, looks at the database now and then, and decides when it
is over."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

import structlog
from sqlalchemy.exc import SQLAlchemyError
from tenacity import Retrying, retry_if_exception, stop_after_delay, stop_never, wait_fixed

from expunge.models import schema
from expunge.models.database import Database, is_locked, is_unreachable
from expunge.models.errors import ExpungeError
from expunge.models.idle import Standing, can_move, standing
from expunge.tasks.runtime import OnSettled
from expunge.tasks.sweep import sweep
from expunge.worker.embedded import Embedded
from expunge.worker.settings import Settings
from expunge.worker.signals import StopSignals

LOOK_SECONDS = 0.25
_LOOK_SHARE = 10
"""A look that takes long is made less often, so that it takes a tenth of the time at the most."""

OnLook = Callable[[Database, bool], None]
"""Looks at the database; the second is True when it is the last look."""

log = structlog.get_logger()
T = TypeVar("T")


class Ending(Enum):
    """Why a run is over."""

    IDLE = "nothing is left that can move by itself"
    TIMEOUT = "its time was up"
    STOPPED = "it was asked to stop"


@dataclass(frozen=True, slots=True)
class Ran:
    """How a run ended."""

    ending: Ending
    standing: Standing

    @property
    def nothing_left(self) -> bool:
        """Every entry is gone."""
        return self.standing.left == 0


class WorkerEnded(ExpungeError):
    """The worker ended by itself; its last log lines say why."""


def prepare(database: Database) -> None:
    """SQLite gets its tables; elsewhere they must be there. Raises SchemaError."""
    if database.dialect == "sqlite":
        schema.migrate(database)
    schema.require(database)


def when_unlocked(work: Callable[[], T], timeout: float | None = None) -> T:
    """Do it, again and again while another process has SQLite locked, for `timeout` seconds at the most: who is about
    to work need not end because somebody else is slow. Raises what the last try raised."""
    retrying = Retrying(
        retry=retry_if_exception(is_locked),
        wait=wait_fixed(LOOK_SECONDS),
        stop=stop_never if timeout is None else stop_after_delay(timeout),
        before_sleep=lambda _: log.warning("database.locked"),
        reraise=True,
    )
    return retrying(work)


def run(
    settings: Settings,
    signals: StopSignals,
    *,
    until_idle: bool = False,
    timeout: float | None = None,
    on_look: OnLook = lambda database, last: None,
    on_settled: OnSettled | None = None,
) -> Ran:
    """Run worker and beat until a signal, the timeout in seconds, or until nothing is left that can move by itself
    within `retry_max_seconds`; then the last step is a sweep. `on_look` is called about four times a second, and at
    last when all is settled. A database that is away is waited for; once a signal came or the time is up, what it
    raises is raised. Raises WorkerEnded."""
    ends = None if timeout is None else time.monotonic() + timeout
    with Embedded(settings, on_settled) as embedded:
        database = embedded.runtime.database
        try:
            ending = _wait(settings, signals, embedded, until_idle, ends, on_look)
        finally:
            embedded.stopping()
            log.info("run.stopping")
            embedded.stop()

        def last_look() -> Standing:
            on_look(database, True)
            with database.read() as tx:
                return standing(tx)

        def pause(seconds: float) -> None:
            signals.wait(seconds)

        retrying = Retrying(
            retry=retry_if_exception(is_unreachable),
            wait=wait_fixed(LOOK_SECONDS),
            stop=lambda _: signals.asked or (ends is not None and time.monotonic() >= ends),
            sleep=pause,
            before_sleep=lambda _: log.warning("database.unreachable"),
            reraise=True,
        )
        return Ran(ending, retrying(last_look))


def _wait(
    settings: Settings,
    signals: StopSignals,
    embedded: Embedded,
    until_idle: bool,
    ends: float | None,
    on_look: OnLook,
) -> Ending:
    database = embedded.runtime.database
    away = False
    while True:
        began = time.monotonic()
        if not embedded.alive:
            raise WorkerEnded("the worker ended by itself: its log says why")
        try:
            on_look(database, False)
            if until_idle and _is_idle(settings, embedded):
                return Ending.IDLE
            away = False
        except SQLAlchemyError as error:
            if not is_unreachable(error):
                raise
            if not away:
                log.warning("database.unreachable", error=type(error).__name__)
            away = True
        now = time.monotonic()
        if ends is not None and now >= ends:
            return Ending.TIMEOUT
        pause = max(LOOK_SECONDS, (now - began) * _LOOK_SHARE)
        if signals.wait(pause if ends is None else max(0.0, min(pause, ends - now))):
            return Ending.STOPPED


def _is_idle(settings: Settings, embedded: Embedded) -> bool:
    """Nothing can move, and a sweep has found nothing to move either."""
    runtime = embedded.runtime
    if _moves(settings, runtime.database):
        return False
    sweep(runtime)
    return not _moves(settings, runtime.database)


def _moves(settings: Settings, database: Database) -> bool:
    with database.read() as tx:
        return can_move(tx, settings.retry_max_seconds)
