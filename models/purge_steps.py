"""What a purge, and a purge after a restore, are made of: transaction, locks, case, and the removing."""

import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import sqlalchemy as sa
from sqlalchemy import text
from sqlalchemy.engine import Connection
from sqlalchemy.orm import Session

from expunge.models import bell
from expunge.models.cases import open_case
from expunge.models.database import Transaction, is_locked
from expunge.models.errors import SOMEBODY_WRITES, ConversationBusy, InvalidGraph, translate
from expunge.models.fence import close_for_purge, why_open
from expunge.models.graph import Graph
from expunge.models.graph_live import LiveGraph, read_graph
from expunge.models.holds import keep_holds_out, require_none_held
from expunge.models.purge_rows import ConversationRows
from expunge.models.purge_targets import queue_targets
from expunge.models.purged import Principal, Purged, PurgeStatus
from expunge.models.states import Scope
from expunge.models.take_tracked import Owner, exclude
from expunge.models.tombstones import case_id_of

_RETRYABLE = ("40001", "40P01", "55P03")
"""PostgreSQL: serialization failure, deadlock, lock not available."""
_ADVISORY_CLASS = 0x65787073
"""Of the lock that lets purges which share rows go one by one."""


def all_or_nothing(
    where: Session | Connection, graph: Graph, work: Callable[[Connection, LiveGraph], Purged]
) -> Purged:
    """Run this inside the caller's transaction, in a savepoint, if the fence stands and the connection can keep the
    promise; else `unsupported`, and nothing was touched. Raises our errors for the database's."""
    with _inside(where) as connection:
        reason = _begin(connection)
        if reason is not None:
            return Purged(PurgeStatus.UNSUPPORTED, reason=reason)
        with _savepoint(connection):
            live = read_graph(connection, graph)
            reason = why_open(connection, live)
            if reason is not None:
                return Purged(PurgeStatus.UNSUPPORTED, reason=reason)
            return work(connection, live)


def close(connection: Connection, graph_name: str, conversation: str, principal: Principal) -> None:
    """Take all locks that a purge waits for, in the one order, before any row."""
    close_for_purge(connection, graph_name, conversation)
    exclude(Transaction(connection), Owner(principal.tenant, conversation=conversation))
    keep_holds_out(connection)


def open_purge_case(where: Session | Connection, graph_name: str, conversation: str, principal: Principal) -> None:
    """The case of the purge, with everything that was tracked of the conversation."""
    open_case(
        where,
        case_id=case_id_of(graph_name, conversation),
        subject=principal.id,
        tenant=principal.tenant,
        basis="request",
        scope=Scope.CONVERSATION,
        conversation=conversation,
        inventory=True,
        nothing_found=True,
    )


def remove_rows(
    where: Session | Connection, connection: Connection, live: LiveGraph, rows: ConversationRows, case_id: str
) -> Purged:
    """Everything that `rows` has begun with: its targets into the outbox, then detached and removed."""
    rows.collect()
    if connection.dialect.name == "postgresql" and rows.reaches_shared():
        key = zlib.crc32(live.graph.name.encode()) - 2**31
        connection.execute(text(f"SELECT pg_advisory_xact_lock({_ADVISORY_CLASS}, {key})"))
    bell.announce(where, queue_targets(connection, live, rows, case_id))
    require_none_held(connection, case_id)
    detached = rows.detach()
    deleted = rows.remove()
    left = rows.left()
    if left:
        raise InvalidGraph(
            [f"{name}: its rows are still there: a trigger or rule of the database keeps them" for name in left]
        )
    rows.close()
    return Purged(PurgeStatus.PURGED, case_id, deleted, detached)


@contextmanager
def _savepoint(connection: Connection) -> Iterator[None]:
    """All or nothing, also for a caller who catches the error and commits."""
    nested = connection.begin_nested()
    try:
        yield
    except BaseException:
        if nested.is_active and not connection.invalidated:
            nested.rollback()
        raise
    else:
        nested.commit()


@contextmanager
def _inside(where: Session | Connection) -> Iterator[Connection]:
    """The connection of the caller's transaction; raises our errors for the database's."""
    try:
        if isinstance(where, Session):
            where.flush()
            yield where.connection()
            where.expire_all()
        else:
            yield where
    except sa.exc.DBAPIError as error:
        known = translate(error)
        if known is None and (getattr(error.orig, "sqlstate", None) in _RETRYABLE or is_locked(error)):
            known = ConversationBusy(SOMEBODY_WRITES)
        if known is None:
            raise
        raise known from error


def _begin(connection: Connection) -> str | None:
    """Begin to write where that is what keeps others out; why this connection cannot keep the promise, or None."""
    if connection.dialect.name == "postgresql":
        isolation = str(connection.exec_driver_sql("SHOW transaction_isolation").scalar_one())
        if getattr(connection.connection.dbapi_connection, "autocommit", False):
            return "the connection commits each statement by itself: purge in a transaction"
        if isolation != "read committed":
            return f"the transaction is at {isolation.upper()}: the purge needs READ COMMITTED"
        return None
    if connection.dialect.name == "sqlite":
        # SAVEPOINT alone begins a transaction that its RELEASE commits, so the driver must have begun one before
        connection.exec_driver_sql("UPDATE erasure_fence SET graph = graph WHERE 1 = 0")
        if not getattr(connection.connection.dbapi_connection, "in_transaction", True):
            return "the connection commits each statement by itself: purge in a transaction"
        return None
    return f"{connection.dialect.name} is not supported: SQLite and PostgreSQL are"
