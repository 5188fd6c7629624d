"""Which conversations a row belongs to, in the words of SQL: by its own columns, and by its parents.

A reference to the root by its key names the conversation itself; the root's row need not be there. Any other reference
is climbed, all ways, up to the root, where a climb ends: what the root's row refers to says nothing of its children.

Rows are named by an alias: NEW and OLD in a trigger, a table's in a query.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from expunge.models.graph_live import Edge, LiveGraph


def quote(name: str) -> str:
    """An identifier."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """A string constant."""
    return "'" + text.replace("'", "''") + "'"


def as_text(expression: str) -> str:
    """Conversations are compared as text, so that integer and UUID keys work."""
    return f"CAST({expression} AS text)"


def select(value: str, tables: Sequence[str] = (), conditions: Sequence[str] = ()) -> str:
    """A query of one column."""
    said = f" FROM {', '.join(tables)}" if tables else ""
    return f"SELECT {value}{said}" + (f" WHERE {' AND '.join(conditions)}" if conditions else "")


@dataclass(frozen=True, slots=True)
class Path:
    """One way up from a row: the tables that are joined, and how."""

    tables: tuple[str, ...] = ()
    """With their aliases."""
    conditions: tuple[str, ...] = ()

    def select(self, value: str, *conditions: str) -> str:
        """A query of one column."""
        return select(value, self.tables, (*self.conditions, *conditions))


class Reach:
    """The references of one graph. `schema` is that of every table whose name has none; None on SQLite."""

    def __init__(self, live: LiveGraph, schema: str | None = None) -> None:
        self.live = live
        self.root = live.graph.root
        self.schema = schema

    def table(self, name: str) -> str:
        """A table as statements name it."""
        if self.schema is None:
            return quote(name)
        schema, dot, table = name.rpartition(".")
        return f"{quote(schema if dot else self.schema)}.{quote(table)}"

    def changed(self, columns: Sequence[str]) -> str:
        """The condition under which an update gives one of the columns another value."""
        differs = "IS NOT" if self.schema is None else "IS DISTINCT FROM"
        return "(" + " OR ".join(f"NEW.{quote(column)} {differs} OLD.{quote(column)}" for column in columns) + ")"

    def named(self, edge: Edge) -> str | None:
        """The child's column that itself holds the conversation; None if a parent has to be asked."""
        if edge.parent != self.root.table or self.root.key not in edge.parent_columns:
            return None
        return edge.columns[edge.parent_columns.index(self.root.key)]

    def own(self, table: str) -> list[str]:
        """The columns that hold a conversation."""
        found = [self.root.key] if table == self.root.table else []
        named = (self.named(edge) for edge in self.live.tables[table].edges)
        return list(dict.fromkeys([*found, *(column for column in named if column is not None)]))

    def climbed(self, table: str) -> list[Edge]:
        """The references whose parent has to be asked."""
        return [edge for edge in self.live.tables[table].edges if self.named(edge) is None]

    def columns(self, table: str) -> list[str]:
        """All columns that decide which conversations a row belongs to."""
        found = (column for edge in self.climbed(table) for column in edge.columns)
        return list(dict.fromkeys([*self.own(table), *found]))

    def is_parent(self, table: str) -> bool:
        """Whether rows find their conversation by asking this table."""
        return any(edge.parent == table for name in self.live.tables for edge in self.climbed(name))

    def above(self, table: str) -> set[str]:
        """The members that a climb passes; it ends at the root."""
        found: set[str] = set()
        ahead = [table]
        while ahead:
            for edge in self.climbed(ahead.pop()):
                if edge.parent != self.root.table and edge.parent not in found:
                    found.add(edge.parent)
                    ahead.append(edge.parent)
        return found

    def circling(self, table: str) -> frozenset[Edge]:
        """The references of a climb that may come back to where they start."""
        names = {table, *self.above(table)} - {self.root.table}
        edges = (edge for name in names for edge in self.climbed(name))
        return frozenset(edge for edge in edges if edge.child in {edge.parent, *self.above(edge.parent)})

    def may_come_later(self, edge: Edge) -> bool:
        """Whether a parent may be inserted after its child: PostgreSQL looks for it when the transaction ends, and in a
        cycle there is no other order."""
        circle = edge.child != edge.parent and {edge.child, edge.parent} <= self.live.cyclic
        return self.schema is not None and edge.deferrable and edge.foreign_key is not None and circle

    def match(self, parent: str, edge: Edge, row: str) -> str:
        """The condition under which `parent` is what the row refers to."""
        pairs = zip(edge.columns, edge.parent_columns, strict=True)
        return " AND ".join(f"{parent}.{quote(theirs)} = {row}.{quote(ours)}" for ours, theirs in pairs)

    def has_no(self, edge: Edge, row: str) -> str:
        """The condition under which the row refers to a parent that is not there."""
        refers = " AND ".join(f"{row}.{quote(column)} IS NOT NULL" for column in edge.columns)
        return (
            f"{refers} AND NOT EXISTS (SELECT 1 FROM {self.table(edge.parent)} AS m WHERE {self.match('m', edge, row)})"
        )

    def step(self, path: Path, edge: Edge, row: str) -> tuple[Path, str]:
        """One step up, and the alias of the parent there."""
        alias = f"p{len(path.tables) + 1}"
        tables = (*path.tables, f"{self.table(edge.parent)} AS {alias}")
        return Path(tables, (*path.conditions, self.match(alias, edge, row))), alias

    def ways(
        self, table: str, row: str, start: Path = Path(), seen: frozenset[Edge] = frozenset()
    ) -> Iterator[tuple[Path, str]]:
        """The ways from the row to its conversations, each with the expression that names it; none uses a reference
        twice."""
        at_root = table == self.root.table and bool(start.tables)
        for column in [self.root.key] if at_root else self.own(table):
            known = f"{row}.{quote(column)} IS NOT NULL"
            yield Path(start.tables, (*start.conditions, known)), as_text(f"{row}.{quote(column)}")
        for edge in [] if at_root else self.climbed(table):
            if edge not in seen:
                path, parent = self.step(start, edge, row)
                yield from self.ways(edge.parent, parent, path, seen | {edge})
