"""How the tables of a graph hang together in the database: the edges between them, and the order that follows."""

from collections.abc import Mapping
from dataclasses import dataclass

from expunge.models.graph import Graph, Member, Rule, TargetColumns
from expunge.models.graph_schema import Schema, SchemaTable


@dataclass(frozen=True, slots=True)
class Edge:
    """How a row of `child` says that it belongs to one of `parent`."""

    child: str
    columns: tuple[str, ...]
    parent: str
    parent_columns: tuple[str, ...]
    nullable: bool
    """Every column may be NULL."""
    foreign_key: str | None
    """Name of the constraint, empty if it has none and on SQLite; None: declared, without a foreign key."""
    deferrable: bool = False
    on_delete: str | None = None
    """`CASCADE`, `SET NULL` …; None: NO ACTION, or no foreign key."""


@dataclass(frozen=True, slots=True)
class LiveTable:
    """The root or a member, as it is in the database."""

    name: str
    rule: Rule
    key: tuple[str, ...]
    """Primary key; empty if it has none."""
    edges: tuple[Edge, ...]
    """To the root and to members."""
    targets: tuple[TargetColumns, ...]
    columns: tuple[str, ...]


@dataclass(frozen=True)
class LiveGraph:
    """A graph that fits its database."""

    graph: Graph
    tables: Mapping[str, LiveTable]
    """The root's too, under its own name (rule DELETE)."""
    order: tuple[str, ...]
    """Children before parents, the root last; those of a cycle beside each other, in any order."""
    cyclic: frozenset[str]
    """Tables in a cycle, or that refer to themselves."""


def lay_out(graph: Graph, schema: Schema) -> LiveGraph:
    """Tables and edges that are there; what is missing is left out."""
    root = Member(graph.root.table, targets=graph.root.targets)
    members = {member.table: member for member in (*graph.members, root) if member.table in schema.tables}
    tables = {name: _live_table(graph, member, members, schema) for name, member in members.items()}
    above = {name: _ancestors(name, tables) for name in tables}
    # a child has all the ancestors of its parent, and itself: sorted by how many, children come first
    order = sorted(tables, key=lambda name: (name == graph.root.table, -len(above[name] | {name}), name))
    return LiveGraph(graph, tables, tuple(order), frozenset(name for name in tables if name in above[name]))


def _live_table(graph: Graph, member: Member, members: Mapping[str, Member], schema: Schema) -> LiveTable:
    table = schema.tables[member.table]
    edges = [
        Edge(
            child=table.name,
            columns=key.columns,
            parent=key.parent,
            parent_columns=key.parent_columns,
            nullable=may_be_null(table, key.columns),
            foreign_key=key.name,
            deferrable=key.deferrable,
            on_delete=key.on_delete,
        )
        for key in table.foreign_keys
        if key.parent in members
    ]
    said = {(edge.columns, edge.parent) for edge in edges}
    for reference in member.references:
        columns, to = (reference.column,), schema.tables.get(reference.to)
        if to is None or to.name not in members or reference.column not in table.columns:
            continue
        to_column = reference.to_column or referred_column(graph, to)
        if to_column is None or to_column not in to.columns:
            continue
        if (columns, to.name) not in said:
            edges.append(Edge(table.name, columns, to.name, (to_column,), may_be_null(table, columns), None))
    return LiveTable(table.name, member.rule, table.key, tuple(edges), member.targets, tuple(table.columns))


def referred_column(graph: Graph, to: SchemaTable) -> str | None:
    """What a reference without `to_column` holds: the root's key, or a member's primary key if that is one column."""
    if to.name == graph.root.table:
        return graph.root.key
    return to.key[0] if len(to.key) == 1 else None


def may_be_null(table: SchemaTable, columns: tuple[str, ...]) -> bool:
    """Whether a row may lose this reference and stay."""
    return all(
        column in table.columns
        and table.columns[column].nullable
        and not table.columns[column].generated
        and column not in table.key
        for column in columns
    )


def _ancestors(name: str, tables: Mapping[str, LiveTable]) -> frozenset[str]:
    """What is reached by following edges, at least one; the table itself, if there is a way back."""
    found: set[str] = set()
    ahead = [name]
    while ahead:
        for edge in tables[ahead.pop()].edges:
            if edge.parent not in found:
                found.add(edge.parent)
                ahead.append(edge.parent)
    return frozenset(found)
