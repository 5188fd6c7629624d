"""The fence on SQLite: the statements that build it.

SQLite has one writer at a time, so looking for the tombstone is enough. The triggers are part of the file: they stop
every connection, also one that was open before, and whatever SQL it uses. An inserted root row is looked at when it is
there, since SQLite chooses an INTEGER PRIMARY KEY only then, and may choose the last purged one again.
"""

from collections.abc import Iterator

from expunge.models.errors import PURGED_MARK, UNRESOLVED_MARK
from expunge.models.fence_climb import Climb
from expunge.models.fence_names import trigger_name
from expunge.models.fence_reach import Reach, as_text, literal, quote, select
from expunge.models.graph import Rule
from expunge.models.graph_live import Edge

_PURGED = literal(f"{PURGED_MARK}: nothing may be written to it")


def statements(reach: Reach) -> Iterator[str]:
    """All of them but the fingerprint's."""
    for table in reach.live.order:
        at_root = table == reach.root.table
        insert = [_refuse_unresolved(table, climb := Climb(reach, near=_always, far=_always).query(table, "NEW"))]
        insert.append(_refuse_purged(reach, [*_own(reach, table, "NEW"), climb]))
        yield from _trigger(reach, table, f"{'AFTER' if at_root else 'BEFORE'} INSERT", insert)
        yield from _trigger(reach, table, "BEFORE UPDATE", _update(reach, table))


def _trigger(reach: Reach, table: str, when: str, body: list[str]) -> Iterator[str]:
    name = quote(trigger_name(reach.live.graph.name, table, when.split()[1].lower()))
    yield f"DROP TRIGGER IF EXISTS {name}"
    inner = "\n".join(f"{statement};" for statement in body if statement)
    yield f"CREATE TRIGGER {name} {when} ON {reach.table(table)} BEGIN\n{inner}\nEND"


def _update(reach: Reach, table: str) -> list[str]:
    def goes_on(edge: Edge) -> str:
        # taking away a reference to what is not there, as ON DELETE SET NULL does, brings nothing back
        told = " AND ".join(f"NEW.{quote(column)} IS NOT NULL" for column in edge.columns)
        return f"{reach.changed(edge.columns)} AND {told}"

    # a farther parent is missing, too, while SQLite carries out a cascade: only a reference that is set now counts
    new = Climb(reach, near=_always, far=lambda edge: reach.changed(edge.columns)).query(table, "NEW")
    found = [*_own(reach, table, "NEW"), new]
    missing = [new]
    if table == reach.root.table:
        # what it referred to it may leave, as a purge makes it do
        found += _own(reach, table, "OLD")[:1]
    elif reach.live.tables[table].rule != Rule.DETACH:
        old = Climb(reach, near=goes_on, far=lambda _: None).query(table, "OLD")
        found += [*_own(reach, table, "OLD"), old]
        missing.append(old)
    return [*(_refuse_unresolved(table, query) for query in missing), _refuse_purged(reach, found)]


def _own(reach: Reach, table: str, row: str) -> list[str]:
    values = [f"{row}.{quote(column)}" for column in reach.own(table)]
    return [select(as_text(value), (), (f"{value} IS NOT NULL",)) for value in values]


def _refuse_unresolved(table: str, query: str) -> str:
    if not query:
        return ""
    message = literal(f"{UNRESOLVED_MARK}: a row of {table} belongs to no conversation that can be told")
    missing = f"WITH found(conversation) AS (\n{query})\nSELECT 1 FROM found WHERE conversation IS NULL"
    return f"SELECT RAISE(ABORT, {message}) WHERE EXISTS ({missing})"


def _refuse_purged(reach: Reach, queries: list[str]) -> str:
    told = "\nUNION ALL ".join(filter(None, queries))
    if not told:
        return "SELECT 1"
    graph = literal(reach.live.graph.name)
    return (
        f"SELECT RAISE(ABORT, {_PURGED}) WHERE EXISTS (\nWITH found(conversation) AS (\n{told})\n"
        "SELECT 1 FROM found CROSS JOIN erasure_tombstone AS t"
        f" ON t.graph = {graph} AND t.conversation = found.conversation)"
    )


def _always(_: Edge) -> str:
    return "1"
