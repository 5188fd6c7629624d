"""The hook for the doorbell: what happens after a host's transaction has put entries into lanes.

models/ only announces; the bell is hung here by whoever has one, or found by the entry point group `expunge.bell` when
the first ring finds none. A lost or doubled ring does no harm: the sweep finds the rows. A ring that comes before the
commit finds nothing, which is the same as a lost one. Whatever a bell does, the host's transaction notices nothing.
"""

import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable
from contextlib import suppress
from importlib.metadata import entry_points

import sqlalchemy as sa
from sqlalchemy.engine import Connection
from sqlalchemy.orm import Session, SessionTransaction

BELL_GROUP = "expunge.bell"
"""Entry points here are called without arguments and give a bell, or None."""
AFTER_COMMIT_SECONDS = 0.02
"""SQLAlchemy tells of a connection's commit just before it happens, so that ring waits this long."""

Bell = Callable[[frozenset[str]], None]
"""Gets the lanes. Must return at once, and touch no network in the caller's thread."""


class _Late:
    """One background thread that rings a little later. It also looks for a bell, which may take a while."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Begin anew: after a fork the thread is gone, and the lock may be held by nobody."""
        self._changed = threading.Condition()
        self._due: dict[str, float] = {}
        self._thread: threading.Thread | None = None

    def ring(self, lanes: frozenset[str], seconds: float) -> None:
        """Ring these lanes once the time has passed; a lane that waits already is rung once, at the later time."""
        with self._changed:
            due = time.monotonic() + seconds
            self._due.update(dict.fromkeys(lanes, due))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="expunge-late-ring", daemon=True)
                self._thread.start()
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                while (lanes := self._take()) is None:
                    self._changed.wait(min(self._due.values()) - time.monotonic() if self._due else None)
            _find()
            _strike(lanes)

    def _take(self) -> frozenset[str] | None:
        now = time.monotonic()
        ready = frozenset(lane for lane, due in self._due.items() if due <= now)
        for lane in ready:
            del self._due[lane]
        return ready or None


_bell: Bell | None = None
_may_look = True
"""Nobody has hung or taken down a bell, and the entry points have not been asked."""
_late = _Late()
_announced: "weakref.WeakKeyDictionary[Session | Connection, set[str]]" = weakref.WeakKeyDictionary()
"""The lanes of each open transaction; who is in here is listened to."""

os.register_at_fork(after_in_child=_late.forget)


def hang(bell: Bell) -> None:
    """Use this bell from now on, instead of any other."""
    global _bell, _may_look
    _bell, _may_look = bell, False


def take_down() -> None:
    """Have no bell: only the sweep finds new entries."""
    global _bell, _may_look
    _bell, _may_look = None, False


def ring(lanes: Iterable[str]) -> None:
    """Ring now. Without a bell, the first ring looks for one in the background."""
    named = frozenset(lanes)
    if not named:
        return
    if _bell is None and _may_look:
        _late.ring(named, 0.0)
    else:
        _strike(named)


def announce(where: Session | Connection, lanes: Iterable[str]) -> None:
    """Ring once the transaction of this session or connection has committed."""
    named = set(lanes)
    if not named:
        return
    if where not in _announced:
        if isinstance(where, Session):
            sa.event.listen(where, "after_commit", _session_committed)
            sa.event.listen(where, "after_transaction_end", _session_ended)
        else:
            sa.event.listen(where, "commit", _connection_commits)
            sa.event.listen(where, "commit_twophase", _connection_commits_prepared)
            sa.event.listen(where, "rollback", _forget)
            sa.event.listen(where, "rollback_twophase", _forget_prepared)
    _announced.setdefault(where, set()).update(named)


def _strike(lanes: frozenset[str]) -> None:
    bell = _bell
    if bell is not None:
        with suppress(Exception):
            bell(lanes)


def _find() -> None:
    """Ask the entry points, once. Any trouble means that there is no bell."""
    global _may_look
    if not _may_look:
        return
    with suppress(Exception):
        for point in entry_points(group=BELL_GROUP):
            bell = point.load()()
            if bell is not None and _may_look:
                hang(bell)
    _may_look = False


def _take_announced(where: Session | Connection) -> frozenset[str]:
    lanes = frozenset(_announced.get(where, ()))
    if lanes:
        _announced[where] = set()
    return lanes


def _session_committed(session: Session) -> None:
    # a savepoint's release is told here too
    if not session.in_nested_transaction():
        ring(_take_announced(session))


def _session_ended(session: Session, transaction: SessionTransaction) -> None:
    if transaction.parent is None:
        _take_announced(session)


def _connection_commits(connection: Connection) -> None:
    lanes = _take_announced(connection)
    if lanes and (_bell is not None or _may_look):
        _late.ring(lanes, AFTER_COMMIT_SECONDS)


def _connection_commits_prepared(connection: Connection, xid: object, is_prepared: bool) -> None:
    _connection_commits(connection)


def _forget(connection: Connection) -> None:
    _take_announced(connection)


def _forget_prepared(connection: Connection, xid: object, is_prepared: bool) -> None:
    _take_announced(connection)
