"""After a restore: conversations that have a tombstone and rows again. The rows go as they went before, what they name
goes into the outbox once more, and the case is open again; the tombstone is as it was."""

from collections.abc import Sequence

from sqlalchemy.engine import Connection
from sqlalchemy.orm import Session

from expunge.models.errors import ConversationNotFound
from expunge.models.fence_restored import restored
from expunge.models.graph import Graph
from expunge.models.graph_live import LiveGraph, read_graph
from expunge.models.holds import require_unheld
from expunge.models.purge_root import RootLookup
from expunge.models.purge_rows import ConversationRows
from expunge.models.purge_steps import all_or_nothing, close, open_purge_case, remove_rows
from expunge.models.purged import Principal, Purged, PurgeStatus
from expunge.models.tombstones import case_id_of, find_tombstone


def purge_again(where: Session | Connection, graph: Graph, conversation: str) -> Purged:
    """Remove what came back of a purged conversation, inside the caller's transaction, on the word of its tombstone.

    Runs that a restore brought back as active are nobody's, and are not asked about. What is at the stores is erased
    again even where a receipt says that it was: the bytes may have come back as well. Gives `already_purged` if no row
    came back, and `unsupported` as `purge` does.

    Raises InvalidGraph, ConversationNotFound (there is no tombstone: it was never purged), Held, ConversationBusy.
    """
    return all_or_nothing(
        where, graph, lambda connection, live: _purge_again(where, connection, live, str(conversation))
    )


def _purge_again(where: Session | Connection, connection: Connection, live: LiveGraph, conversation: str) -> Purged:
    name = live.graph.name
    stone = find_tombstone(connection, name, conversation)
    if stone is None:
        raise ConversationNotFound("the conversation has no tombstone: it was never purged")
    principal = Principal(stone.principal, stone.tenant)
    close(connection, name, conversation, principal)
    require_unheld(connection, tenant=principal.tenant, subject=principal.id, conversation=conversation)
    rows = ConversationRows(connection, live)
    lookup = RootLookup(connection, live, rows, conversation)
    rows.start(lookup.condition, lookup.parameters)
    if not lookup.look().exists and lookup.may_exist:
        rows.start_without_row(conversation)
    rows.collect()
    if not rows.left():
        rows.close()
        return Purged(PurgeStatus.ALREADY_PURGED, case_id_of(name, conversation))
    open_purge_case(where, name, conversation, principal)
    return remove_rows(where, connection, live, rows, case_id_of(name, conversation))


def came_back(connection: Connection, graph: Graph) -> Sequence[str]:
    """The conversations that have a tombstone and rows, by their ids. Reads all rows of the graph's tables."""
    return sorted(restored(connection, read_graph(connection, graph)))
