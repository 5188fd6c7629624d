"""The purge: a conversation is removed whole, in one transaction, and can never come back.

Call it first in a transaction of its own, and commit. Whatever it raises, nothing was changed, also if the caller then
commits: it works inside a savepoint.

**Locks.** On PostgreSQL the exclusive lock of the conversation's bucket is taken before any row, and waits for writers
that are under way; those that come later are told ConversationBusy by the fence (fence.py). Under that lock the root's
row and the runs stand still, so no row is locked before it is removed: two purges of conversations that refer to each
other would wait for each other's rows. Where rows belong to several conversations, the purges of a graph go one by one.
On SQLite the purge begins with a write, so that it has the only write lock: a transaction that has read before may be
refused it (ConversationBusy). An engine made by `database.py` begins with BEGIN IMMEDIATE; a host's own one must at
least be inside a transaction, which the driver's autocommit is not: such a connection is `unsupported`.
"""

import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa
from sqlalchemy import text
from sqlalchemy.engine import Connection
from sqlalchemy.orm import Session

from expunge.models import bell
from expunge.models.cases import open_case
from expunge.models.database import Transaction, is_locked
from expunge.models.errors import (
    ConversationBusy,
    ConversationNotFound,
    InvalidCase,
    InvalidGraph,
    RunActive,
    VersionConflict,
    translate,
)
from expunge.models.fence import close_for_purge, why_open
from expunge.models.graph import Graph
from expunge.models.graph_live import LiveGraph, read_graph
from expunge.models.holds import keep_holds_out, require_unheld
from expunge.models.plain_text import require_plain
from expunge.models.purge_root import Found, RootLookup
from expunge.models.purge_rows import ConversationRows
from expunge.models.purge_targets import queue_targets
from expunge.models.purged import Principal, Purged, PurgeStatus
from expunge.models.states import Scope
from expunge.models.take_tracked import Owner, exclude
from expunge.models.tombstones import case_id_of, may, write_tombstone

__all__ = ["case_id_of", "purge"]

_RETRYABLE = ("40001", "40P01", "55P03")
"""PostgreSQL: serialization failure, deadlock, lock not available."""
_ADVISORY_CLASS = 0x65787073
"""Of the lock that lets purges which share rows go one by one."""


def purge(
    where: Session | Connection,
    graph: Graph,
    conversation: str,
    *,
    principal: Principal,
    expected_version: Any = None,
    reserve_absent: bool = True,
) -> Purged:
    """Remove a conversation for ever, inside the caller's transaction: its rows, and what they and the inventory name
    at stores, which goes into a case's outbox. Its tombstone stays.

    An id that never was is reserved for the principal; with `reserve_absent=False` it is ConversationNotFound.
    `expected_version` is compared with the root's version column, before anything else is looked at; it is not when the
    conversation was purged already, so that a call whose answer was lost can be repeated as it was. After the commit
    the doorbell rings by itself.

    Gives `unsupported`, and has touched nothing, where the promise cannot be kept: no fence, or one that is not this
    graph's; PostgreSQL at another isolation than READ COMMITTED; a connection that commits each statement by itself.

    Raises InvalidGraph, InvalidCase (an id or principal that is no plain text), ConversationNotFound, VersionConflict,
    RunActive, Held, ConversationBusy (roll back and try again) or CaseConflict.
    """
    conversation = str(conversation)
    # before the database is asked: PostgreSQL takes no text with a zero byte
    require_plain({"conversation": conversation, "principal": principal.id, "tenant": principal.tenant}, InvalidCase)
    with inside(where) as connection:
        reason = begin(connection)
        if reason is not None:
            return Purged(PurgeStatus.UNSUPPORTED, reason=reason)
        with savepoint(connection):
            live = read_graph(connection, graph)
            reason = why_open(connection, live)
            if reason is not None:
                return Purged(PurgeStatus.UNSUPPORTED, reason=reason)
            if expected_version is not None and graph.root.version is None:
                raise InvalidGraph([f"graph {graph.name}: expected_version needs a version column of the root"])
            return _purge(where, connection, live, conversation, principal, expected_version, reserve_absent)


def _purge(
    where: Session | Connection,
    connection: Connection,
    live: LiveGraph,
    conversation: str,
    principal: Principal,
    expected_version: Any,
    reserve_absent: bool,
) -> Purged:
    graph = live.graph
    case_id = case_id_of(graph.name, conversation)
    rows = ConversationRows(connection, live)
    lookup = RootLookup(connection, live, rows, conversation)
    # before the lock as well: who may not purge it cannot hold up its writers by asking
    if connection.dialect.name == "postgresql" and _is_theirs(live, lookup.look(), principal, reserve_absent):
        return Purged(PurgeStatus.ALREADY_PURGED, case_id)
    close(connection, graph.name, conversation, principal)
    found = lookup.look()
    if _is_theirs(live, found, principal, reserve_absent):
        return Purged(PurgeStatus.ALREADY_PURGED, case_id)
    if found.exists:
        _require_version(found.version, expected_version)
        rows.start(lookup.condition, lookup.parameters)
        _require_idle(connection, live, rows)
    require_unheld(connection, tenant=principal.tenant, subject=principal.id, conversation=conversation)
    open_purge_case(where, graph.name, conversation, principal)
    purged = Purged(PurgeStatus.PURGED, case_id)
    if found.exists:
        purged = remove_rows(where, connection, live, rows, case_id)
    write_tombstone(connection, graph.name, conversation, principal)
    return purged


def _is_theirs(live: LiveGraph, found: Found, principal: Principal, reserve_absent: bool) -> bool:
    """Whether it was purged already. Raises ConversationNotFound, the same for whatever reason."""
    known = found.purged or found.exists
    if known and may(live.graph.root, found.tenant, found.owner, principal):
        return found.purged
    if known or not reserve_absent:
        raise ConversationNotFound("no such conversation")
    return False


def _require_version(version: Any, expected: Any) -> None:
    if expected is not None and version != expected and str(version) != str(expected):
        raise VersionConflict("the conversation is not at the expected version: read it again")


def _require_idle(connection: Connection, live: LiveGraph, rows: ConversationRows) -> None:
    active = live.graph.root.active_run
    if active is None:
        return
    rows.collect(only=active.table)
    key, state = rows.column(active.key), rows.column(active.state)
    states = {f"state{place}": name for place, name in enumerate(active.states)}
    for condition in rows.conditions(active.table):
        run = connection.execute(
            text(
                f"SELECT CAST({key} AS text) FROM {rows.name(active.table)} WHERE {condition}"
                f" AND CAST({state} AS text) IN ({', '.join(f':{name}' for name in states)}) ORDER BY {key} LIMIT 1"
            ),
            states,
        ).first()
        if run is not None:
            raise RunActive(str(run[0]))


# -- shared with purge_again.py ---------------------------------------------------------------------------------------


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
def savepoint(connection: Connection) -> Iterator[None]:
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
def inside(where: Session | Connection) -> Iterator[Connection]:
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
            known = ConversationBusy("somebody writes near this conversation: roll back and try again")
        if known is None:
            raise
        raise known from error


def begin(connection: Connection) -> str | None:
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
