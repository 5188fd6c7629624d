"""A graph over rows in memory: to which conversations a row belongs, and which rows belong to a conversation.

Works on a LiveGraph: of a store in memory, where references are all there is, or one that was read from a database, for
whoever has its rows in memory.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from expunge.models.errors import ConversationPurged, InvalidGraph
from expunge.models.graph import Graph, Rule
from expunge.models.graph_edges import Edge, LiveGraph, lay_out
from expunge.models.graph_problems import problems_of
from expunge.models.graph_schema import LiveColumn, Schema, SchemaTable

Key = tuple[Any, ...]
Row = Mapping[str, Any]
Tables = Mapping[str, Mapping[Key, Row]]


@dataclass(slots=True)
class Reach:
    """What a purge of one conversation touches."""

    doomed: dict[str, dict[Key, Row]] = field(default_factory=dict)
    detached: dict[str, dict[Key, set[str]]] = field(default_factory=dict)
    """The columns that become NULL, of rows that stay."""


def lay_out_in_memory(graph: Graph, keys: Mapping[str, tuple[str, ...]]) -> LiveGraph:
    """The graph over a store whose tables have these keys, whatever columns are named, and no foreign keys.

    Raises InvalidGraph with everything that is wrong.
    """
    root = graph.root
    named: dict[str, set[str]] = {table: set(key) for table, key in keys.items()}
    unique: dict[str, set[str]] = {table: set() for table in keys}
    named[root.table] |= {column for column in (root.key, root.tenant, root.owner, root.version) if column}
    for member in graph.members:
        for reference in member.references:
            named[member.table].add(reference.column)
            if reference.to in named and reference.to_column:
                named[reference.to].add(reference.to_column)
                unique[reference.to].add(reference.to_column)
    for table, targets in ((root.table, root.targets), *((member.table, member.targets) for member in graph.members)):
        for columns in targets:
            said = (columns.account, columns.kind, columns.locator)
            named[table] |= {column for column in said if not column.startswith("=")}
    active = root.active_run
    if active is not None and active.table in named:
        named[active.table] |= {active.key, active.state}
    schema = Schema(
        {
            table: SchemaTable(
                table,
                {column: LiveColumn(column, column not in keys[table]) for column in sorted(columns)},
                keys[table],
                frozenset((column,) for column in unique[table]),
                (),
            )
            for table, columns in named.items()
        },
        {},
    )
    live = lay_out(graph, schema)
    problems = problems_of(graph, live, schema)
    if problems:
        raise InvalidGraph(problems)
    return live


class MemoryGraph:
    """Follows the edges of a graph, up from a row and down from a conversation."""

    def __init__(self, live: LiveGraph) -> None:
        self.graph = live.graph
        self.live = live
        self.down: dict[str, list[Edge]] = {table: [] for table in live.tables}
        for table in live.tables.values():
            for edge in table.edges:
                self.down[edge.parent].append(edge)

    def conversations_of(self, tables: Tables, table: str, row: Row) -> set[str]:
        """The ids, as text, of every conversation that this row of `tables` belongs to.

        Raises ConversationPurged if a parent is not there, so that it cannot be told.
        """
        root = self.graph.root
        found: set[str] = set()
        seen: set[int] = set()
        todo = [(table, row)]
        while todo:
            table, row = todo.pop()
            if id(row) in seen:
                continue
            seen.add(id(row))
            if table == root.table:
                found.add(str(row[root.key]))
            for edge in self.live.tables[table].edges:
                value = _values(row, edge.columns)
                if value is None:
                    continue
                if edge.parent == root.table and edge.parent_columns == (root.key,):
                    found.add(str(value[0]))  # which is known even if the root's row is not there
                parents = [parent for _, parent in self._rows_with(tables, edge.parent, edge.parent_columns, {value})]
                if not parents:
                    raise ConversationPurged(
                        f"{edge.child}.{', '.join(edge.columns)}: no such row of {edge.parent}, so that nobody can tell"
                        " to which conversation this one belongs; it may have been purged"
                    )
                if edge.parent != root.table:
                    todo += [(edge.parent, parent) for parent in parents]
                else:
                    found |= {str(parent[root.key]) for parent in parents}
        return found

    def reach(self, tables: Tables, conversation: str) -> Reach:
        """Every row that belongs to the conversation through rows that are removed with it, cycles included."""
        found = Reach()
        root = self.graph.root
        rows = tables.get(root.table, {})
        todo = [(root.table, {key: row for key, row in rows.items() if str(row[root.key]) == conversation})]
        while todo:
            table, fresh = todo.pop()
            doomed = found.doomed.setdefault(table, {})
            fresh = {key: row for key, row in fresh.items() if key not in doomed}
            doomed.update(fresh)
            for edge in self.down[table] if fresh else ():
                values = {_values(row, edge.parent_columns) for row in fresh.values()} - {None}
                children = dict(self._rows_with(tables, edge.child, edge.columns, values))
                rule = self.live.tables[edge.child].rule
                if edge.child == root.table or rule == Rule.DETACH:
                    # another conversation that refers to this one is its own
                    for key in children:
                        found.detached.setdefault(edge.child, {}).setdefault(key, set()).update(edge.columns)
                elif rule == Rule.DELETE:
                    todo.append((edge.child, children))
        for table, kept in found.detached.items():
            for key in found.doomed.get(table, {}):
                kept.pop(key, None)
        return found

    def referring(self, tables: Tables, table: str, row: Row, columns: Iterable[str] | None = None) -> Iterator[str]:
        """The references, as `table.column`, by which other rows refer to these columns of this row; None: to any."""
        changed = None if columns is None else set(columns)
        for edge in self.down[table]:
            value = _values(row, edge.parent_columns)
            if value is None or (changed is not None and changed.isdisjoint(edge.parent_columns)):
                continue
            children = (child for _, child in self._rows_with(tables, edge.child, edge.columns, {value}))
            if any(child is not row for child in children):
                yield f"{edge.child}.{', '.join(edge.columns)}"

    def _rows_with(
        self, tables: Tables, table: str, columns: tuple[str, ...], values: Iterable[Key | None]
    ) -> Iterator[tuple[Key, Row]]:
        rows, wanted = tables.get(table, {}), set(values)
        if self.live.tables[table].key == columns:
            yield from ((value, rows[value]) for value in wanted if value is not None and value in rows)
        else:
            yield from ((key, row) for key, row in rows.items() if _values(row, columns) in wanted - {None})


def _values(row: Row, columns: tuple[str, ...]) -> Key | None:
    """None if one of them is NULL: the row refers to nothing then."""
    found = tuple(row.get(column) for column in columns)
    return None if None in found else found
