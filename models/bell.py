"""The hook for the doorbell: what happens after a host's transaction has put entries into lanes.

models/ only announces; tasks/doorbell.py hangs the bell here. A lost or doubled ring does no harm: the sweep finds the
rows. A ring that comes before the commit finds nothing, which is the same as a lost one.
"""

from collections.abc import Callable, Iterable

import sqlalchemy as sa
from sqlalchemy.engine import Connection
from sqlalchemy.orm import Session, SessionTransaction

Bell = Callable[[frozenset[str]], None]
"""Gets the lanes. Must return at once, raise nothing, and touch no network in the caller's thread."""

_bells: list[Bell] = []
_SESSION_KEY = "expunge_lanes"


def hang(bell: Bell) -> None:
    """Use this bell from now on, instead of any other."""
    _bells[:] = [bell]


def take_down() -> None:
    """Have no bell: only the sweep finds new entries."""
    _bells.clear()


def ring(lanes: Iterable[str]) -> None:
    """Ring now; does nothing while no bell hangs."""
    named = frozenset(lanes)
    if named:
        for bell in _bells:
            bell(named)


def announce(where: Session | Connection, lanes: Iterable[str]) -> None:
    """Ring once the transaction of this session or connection has ended."""
    named = set(lanes)
    if not named:
        return
    if isinstance(where, Session):
        where.info.setdefault(_SESSION_KEY, set()).update(named)
        if not sa.event.contains(where, "after_transaction_end", _session_ended):
            sa.event.listen(where, "after_transaction_end", _session_ended)
        return
    where.info.setdefault(_SESSION_KEY, set()).update(named)
    if not sa.event.contains(where, "commit", _connection_commits):
        sa.event.listen(where, "commit", _connection_commits)


def _session_ended(session: Session, transaction: SessionTransaction) -> None:
    if transaction.parent is None:
        ring(session.info.pop(_SESSION_KEY, ()))


def _connection_commits(connection: Connection) -> None:
    # SQLAlchemy tells of a connection's commit just before it happens; the bell's own thread is slower than that
    ring(connection.info.pop(_SESSION_KEY, ()))
