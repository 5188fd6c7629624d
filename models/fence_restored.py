"""Conversations that have a tombstone and rows: a restore from a backup brought them back, or somebody disabled the
fence. `expunge purge --again` removes them."""

from collections.abc import Iterator

from sqlalchemy import text
from sqlalchemy.engine import Connection

from expunge.models.fence_reach import Path, Reach, quote
from expunge.models.graph import Rule
from expunge.models.graph_live import LiveGraph


def restored(connection: Connection, live: LiveGraph) -> dict[str, dict[str, int]]:
    """The rows of purged conversations, by conversation and table. What is kept by the graph's word is not counted.

    Reads every table of the graph as a whole. Where tables refer to each other in a circle, rows that only a second
    round would reach are not counted, but a row that leads to them is.
    """
    schema = None
    if connection.dialect.name == "postgresql":
        schema = str(connection.exec_driver_sql("SELECT current_schema()").scalar_one())
    reach = Reach(live, schema)
    found: dict[str, dict[str, int]] = {}
    for table in live.tables.values():
        if table.rule == Rule.KEEP:
            continue
        queries = " UNION ".join(_rows(reach, table.name)).replace(":", r"\:")
        if not queries:
            continue
        rows = connection.execute(
            text(f"SELECT f.conversation, count(*) FROM ({queries}) AS f GROUP BY f.conversation ORDER BY 1")
        )
        for conversation, count in rows:
            found.setdefault(conversation, {})[table.name] = count
    return dict(sorted(found.items()))


def _rows(reach: Reach, table: str) -> Iterator[str]:
    """Queries of the rows that belong to a purged conversation: which one, and what tells rows apart."""
    tombstones = "erasure_tombstone" if reach.schema is None else reach.table("erasure_tombstone")
    graph = reach.live.graph.name.replace("'", "''")
    start = Path((f"{reach.table(table)} AS c", f"{tombstones} AS s"), (f"s.graph = '{graph}'",))
    if reach.schema is not None:
        row = "c.tableoid, c.ctid"
    else:
        row = ", ".join(f"c.{quote(column)}" for column in reach.live.tables[table].key) or "c.rowid"
    for way, conversation in reach.ways(table, "c", start):
        yield way.select(f"s.conversation, {row}", f"s.conversation = {conversation}")
