"""The purge of a conversation in a store in memory: as models/purge.py, for rows that are no database's."""

from typing import TYPE_CHECKING, Any

from expunge.models.errors import ConversationNotFound, Held, InvalidCase, RunActive
from expunge.models.graph import Graph, Root, TargetColumns
from expunge.models.memory_graph import Reach, Row
from expunge.models.memory_state import MemoryCase, MemoryTombstone
from expunge.models.plain_text import require_text
from expunge.models.purge_rules import may, require_version, require_version_column
from expunge.models.purge_targets import UNUSABLE
from expunge.models.purged import Principal, Purged, PurgeStatus
from expunge.models.tables import MAX_ACCOUNT, MAX_LOCATOR_BYTES
from expunge.models.targets import Target
from expunge.models.tombstones import case_id_of

if TYPE_CHECKING:
    from expunge.models.memory import MemoryTransaction

MAX_KIND = 64


def purge_in_memory(
    tx: "MemoryTransaction",
    graph: Graph,
    conversation: str,
    *,
    principal: Principal,
    expected_version: Any = None,
    reserve_absent: bool = True,
) -> Purged:
    """Remove a conversation for ever, inside the caller's transaction; the same results and errors as the purge of a
    database, but for ConversationBusy: whoever has the transaction is alone. Whatever it raises, nothing was changed.

    Raises InvalidGraph, InvalidCase, ConversationNotFound, VersionConflict, RunActive or Held.
    """
    store = tx.store
    own = store.graphs.get(graph.name)
    if not store.fenced or own is None or own.graph != graph:
        why = "the store is not fenced" if not store.fenced else f"the store was not made with this graph {graph.name}"
        return Purged(PurgeStatus.UNSUPPORTED, reason=f"{why}: rows could be written back")
    require_version_column(graph, expected_version)
    conversation = str(conversation)
    require_text({"conversation": conversation, "subject": principal.id, "tenant": principal.tenant}, InvalidCase)
    case_id = case_id_of(graph.name, conversation)
    tombstone = tx.tombstone(graph, conversation)
    if tombstone is not None:
        if not may(graph.root, tombstone.tenant, tombstone.principal, principal):
            raise ConversationNotFound("no such conversation")
        return Purged(PurgeStatus.ALREADY_PURGED, case_id=case_id)
    reach = own.reach(tx.state.tables, conversation)
    if not reach.doomed[graph.root.table] and not reserve_absent:
        raise ConversationNotFound("no such conversation")
    for row in reach.doomed[graph.root.table].values():
        _authorise(graph.root, row, principal, expected_version)
    _require_idle(graph.root, reach)
    if any(h.covers(subject=principal.id, tenant=principal.tenant, conversation=conversation) for h in tx.holds):
        raise Held("a legal hold covers the conversation: nothing was deleted")
    targets = _targets(graph, reach)

    tables = {table: dict(rows) for table, rows in tx.state.tables.items()}
    for table, doomed in reach.doomed.items():
        for key in doomed:
            del tables[table][key]
    for table, kept in reach.detached.items():
        for key, columns in kept.items():
            tables[table][key] = {**tables[table][key], **dict.fromkeys(columns)}
    now = store.clock()
    case = MemoryCase(case_id, principal.id, principal.tenant, conversation, targets, now)
    stone = MemoryTombstone(graph.name, conversation, principal.tenant, principal.id, now)
    tx.change(
        tables=tables,
        cases={**tx.state.cases, case_id: case},
        tombstones={**tx.state.tombstones, (graph.name, conversation): stone},
    )
    return Purged(
        PurgeStatus.PURGED,
        case_id=case_id,
        deleted={table: len(rows) for table, rows in reach.doomed.items() if rows},
        detached={table: len(rows) for table, rows in reach.detached.items() if rows},
    )


def _authorise(root: Root, row: Row, principal: Principal, expected_version: Any) -> None:
    tenant = None if root.tenant is None else row.get(root.tenant)
    owner = None if root.owner is None else row.get(root.owner)
    if not may(root, tenant, owner, principal):
        raise ConversationNotFound("no such conversation")
    require_version(None if root.version is None else row.get(root.version), expected_version)


def _require_idle(root: Root, reach: Reach) -> None:
    active = root.active_run
    if active is None:
        return
    for row in reach.doomed.get(active.table, {}).values():
        if row.get(active.state) in active.states:
            raise RunActive(str(row.get(active.key)))


def _targets(graph: Graph, reach: Reach) -> tuple[Target, ...]:
    """As purge_targets.py: a locator of the wrong shape is not lost; for what no outbox can hold, a person is told."""
    declared = {graph.root.table: graph.root.targets, **{member.table: member.targets for member in graph.members}}
    found: dict[Target, None] = {}
    for table, rows in reach.doomed.items():
        for columns in declared[table]:
            for target in filter(None, (_target(columns, row) for row in rows.values())):
                fits = (
                    1 <= len(target.account) <= MAX_ACCOUNT
                    and 1 <= len(target.kind) <= MAX_KIND
                    and 1 <= len(target.locator.encode(errors="surrogatepass")) <= MAX_LOCATOR_BYTES
                )
                found[target if fits else Target(UNUSABLE, UNUSABLE, f"{table}.{columns.locator}")] = None
    return tuple(found)


def _target(columns: TargetColumns, row: Row) -> Target | None:
    parts = [
        column[1:] if column.startswith("=") else row.get(column)
        for column in (columns.account, columns.kind, columns.locator)
    ]
    return None if None in parts else Target(*(str(part) for part in parts))
