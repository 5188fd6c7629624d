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

from typing import Any

from sqlalchemy import text
from sqlalchemy.engine import Connection
from sqlalchemy.orm import Session

from expunge.models.errors import ConversationNotFound, InvalidCase, RunActive
from expunge.models.graph import Graph
from expunge.models.graph_live import LiveGraph
from expunge.models.holds import require_none_held, require_unheld
from expunge.models.plain_text import require_plain
from expunge.models.purge_root import Found, RootLookup
from expunge.models.purge_rows import ConversationRows
from expunge.models.purge_rules import may, require_version, require_version_column
from expunge.models.purge_steps import all_or_nothing, close, open_purge_case, remove_rows
from expunge.models.purged import Principal, Purged, PurgeStatus
from expunge.models.tombstones import case_id_of, write_tombstone

__all__ = ["case_id_of", "purge"]


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

    def work(connection: Connection, live: LiveGraph) -> Purged:
        require_version_column(graph, expected_version)
        return _purge(where, connection, live, conversation, principal, expected_version, reserve_absent)

    return all_or_nothing(where, graph, work)


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
        require_version(found.version, expected_version)
        rows.start(lookup.condition, lookup.parameters)
        _require_idle(connection, live, rows)
    require_unheld(connection, tenant=principal.tenant, subject=principal.id, conversation=conversation)
    open_purge_case(where, graph.name, conversation, principal)
    require_none_held(connection, case_id)
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
