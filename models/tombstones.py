"""Which conversations were purged for ever. There is no way to take a tombstone away: the database refuses it."""

import hashlib
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Row
from sqlalchemy.orm import Session

from expunge.models.database import Database
from expunge.models.errors import ExpungeError
from expunge.models.graph import Graph
from expunge.models.plain_text import require_plain
from expunge.models.purge_tables import Tombstone
from expunge.models.purged import Principal
from expunge.models.tables import MAX_CASE_ID

TOMBSTONE_COLUMNS = [column.name for column in Tombstone.__table__.columns]
_PAGE = 1000


def is_purged(where: Session | Connection, graph: Graph, conversation: str) -> bool:
    """Whether the conversation was purged, whoever asked for it. A host shows it as empty or absent then."""
    connection = where.connection() if isinstance(where, Session) else where
    return find_tombstone(connection, graph.name, str(conversation)) is not None


def case_id_of(graph_name: str, conversation: str) -> str:
    """The id of the case of a purge: the same for the same conversation, at most 200 characters, and plain text."""
    readable = f"purge-{graph_name}-{conversation}"
    try:
        require_plain({"conversation": conversation}, ExpungeError)
    except ExpungeError:
        pass
    else:
        if len(readable) <= MAX_CASE_ID:
            return readable
    digest = hashlib.sha256(conversation.encode(errors="surrogatepass")).hexdigest()
    return f"purge.{graph_name}.{digest}"


def find_tombstone(connection: Connection, graph_name: str, conversation: str) -> Row[str | None, str, datetime] | None:
    """Its tenant, principal and time, or None."""
    return connection.execute(
        sa.select(Tombstone.tenant, Tombstone.principal, Tombstone.purged_at).where(
            Tombstone.graph == graph_name, Tombstone.conversation == conversation
        )
    ).first()


def write_tombstone(connection: Connection, graph_name: str, conversation: str, principal: Principal) -> None:
    """The last statement of a purge."""
    connection.execute(
        sa.insert(Tombstone.__table__).values(  # type: ignore[arg-type]
            graph=graph_name, conversation=conversation, tenant=principal.tenant, principal=principal.id
        )
    )


def list_tombstones(database: Database, graph_name: str | None = None) -> Iterator[Sequence[dict[str, Any]]]:
    """Pages of tombstones, by graph and conversation."""
    graph, conversation = "", ""
    while True:
        after = sa.or_(
            Tombstone.graph > graph, sa.and_(Tombstone.graph == graph, Tombstone.conversation > conversation)
        )
        query = sa.select(Tombstone.__table__).where(after)
        if graph_name is not None:
            query = query.where(Tombstone.graph == graph_name)
        with database.read() as tx:
            rows = tx.connection.execute(
                query.order_by(Tombstone.graph, Tombstone.conversation).limit(_PAGE)
            ).mappings()
            page = [dict(row) for row in rows]
        if not page:
            return
        yield page
        graph, conversation = page[-1]["graph"], page[-1]["conversation"]
