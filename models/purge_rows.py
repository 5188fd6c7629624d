"""The rows of one conversation in the host's tables: found, taken out as targets, detached and removed, all on the
database's side, so that a conversation of a million events costs this process no memory.

Keys are collected in temporary tables, one for each table that others refer to; the rest is found by its references.
Every statement follows one reference, so that an index on it is used. What is removed are the rows that the root's row
reaches through tables with the rule `delete`. Another conversation's root row is never one of them: what it refers to
in this conversation becomes NULL, as with `detach`.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from sqlalchemy import text
from sqlalchemy.engine import Connection, CursorResult

from expunge.models.graph import Rule
from expunge.models.graph_live import Edge, LiveGraph
from expunge.models.purge_order import groups_of, is_followed


class ConversationRows:
    """What belongs to one conversation. Use it in one transaction, with `close` at the end."""

    def __init__(self, connection: Connection, live: LiveGraph) -> None:
        self._connection = connection
        self._live = live
        self._root = live.graph.root.table
        self._postgresql = connection.dialect.name == "postgresql"
        self._columns: dict[str, tuple[str, ...]] = {}
        """Of each table with collected keys: its own key, and what others refer to."""
        self._collected: set[str] = set()

    # -- finding ------------------------------------------------------------------------------------------------------

    def start(self, where: str, parameters: dict[str, object]) -> None:
        """Begin with the root's rows that a condition names: one row, or none."""
        self._create(self._root)
        found = f"SELECT {self._selected(self._root)}, 0 FROM {self.name(self._root)} WHERE {where}"
        self._insert(self._root, found, parameters)
        self._analyze(self._root)

    def start_without_row(self, conversation: str) -> None:
        """Begin with the id alone, where a restore has brought back rows without their root's. What refers to another
        column of the root cannot be found then."""
        key = self._live.graph.root.key
        columns = ", ".join(
            f"CAST(:conversation AS {self.type_of(self._root, column)})" if column == key else "NULL"
            for column in self._columns[self._root]
        )
        self._insert(self._root, f"SELECT {columns}, 0", {"conversation": conversation})

    def collect(self, only: str | None = None) -> None:
        """Collect the keys of all tables that others refer to; `only`: of those that this table is reached through."""
        groups = groups_of(self._live, with_root=False)
        wanted = None if only is None else _above(self._live, only)
        for group in reversed(groups):
            names = [name for name in group if name not in self._collected and self._is_referred(name)]
            if not names or (wanted is not None and not wanted.intersection(names)):
                continue
            self._collect(names)
            self._collected.update(names)

    def _collect(self, names: Sequence[str]) -> None:
        """The tables of one group; in a cycle each round follows what the round before found."""
        inner = set(names)
        for name in names:
            self._create(name)
        turn = 0
        found = sum(self._follow(name, turn, [e for e in self._edges(name) if e.parent not in inner]) for name in names)
        for name in names:
            self._analyze(name)
        while found and any(edge.parent in inner for name in names for edge in self._edges(name)):
            turn += 1
            found = sum(
                self._follow(name, turn, [e for e in self._edges(name) if e.parent in inner], turn - 1)
                for name in names
            )

    def _follow(self, name: str, turn: int, edges: Sequence[Edge], last: int | None = None) -> int:
        if not edges:
            return 0
        columns = self._selected(name)
        found = " UNION ".join(
            f"SELECT {columns} FROM {self.name(name)} WHERE {self._into(edge, last)}" for edge in edges
        )
        if last is not None:
            known = ", ".join(f"c{place}" for place in range(len(self._columns[name])))
            found += f" EXCEPT SELECT {known} FROM {self._keys(name)}"
        return self._insert(name, f"SELECT found.*, {turn} FROM ({found}) AS found", {})

    def _create(self, name: str) -> None:
        table = self._live.tables[name]
        referred = [
            column
            for child in self._live.tables.values()
            for edge in child.edges
            if edge.parent == name
            for column in edge.parent_columns
        ]
        if name == self._root:
            referred.insert(0, self._live.graph.root.key)
        self._columns[name] = tuple(dict.fromkeys([*table.key, *referred]))
        at_commit = " ON COMMIT DROP" if self._postgresql else ""
        self._run(
            f"CREATE TEMPORARY TABLE {self._bare_keys(name)}{at_commit} AS"
            f" SELECT {self._selected(name)}, 0 AS turn FROM {self.name(name)} WHERE 1 = 0"
        )

    def _insert(self, name: str, select: str, parameters: dict[str, object]) -> int:
        return self._run(f"INSERT INTO {self._keys(name)} {select}", parameters).rowcount

    def _analyze(self, name: str) -> None:
        """Nobody else does so for a temporary table, and a plan for a thousand rows reads a whole table for one."""
        if self._postgresql:
            self._run(f"ANALYZE {self._keys(name)}")

    def close(self) -> None:
        """Drop the temporary tables; a rollback has done it already."""
        for name in self._columns:
            self._run(f"DROP TABLE {self._keys(name)}")
        self._columns.clear()

    # -- asking -------------------------------------------------------------------------------------------------------

    def conditions(self, name: str) -> list[str]:
        """One for each reference by which a row of this table belongs to the conversation; a row may meet several."""
        if name == self._root:
            key = self.column(self._live.graph.root.key)
            return [f"{key} IN (SELECT c{self._place(name, self._live.graph.root.key)} FROM {self._keys(name)})"]
        return [self._into(edge) for edge in self._edges(name)]

    def left(self) -> list[str]:
        """The tables that have a row that a purge removes or changes."""
        return [
            name
            for name in self._live.tables
            if is_followed(self._live, name)
            and any(
                self._has_row(name, condition)
                for condition in [
                    *self.conditions(name),
                    *(map(self._into, self._edges(name)) if name == self._root else ()),
                ]
            )
        ]

    def reaches_shared(self) -> bool:
        """Whether a row that is to be removed or changed is also another conversation's."""
        return any(self._has_row(name, condition) for name, condition in self._shared())

    def _shared(self) -> Iterator[tuple[str, str]]:
        for name in self._live.tables:
            if not is_followed(self._live, name):
                continue
            edges = self._edges(name)
            if name == self._root:
                own = self.conditions(name)[0]
                yield from ((name, f"{self._into(edge)} AND NOT ({own})") for edge in edges)
                yield from ((name, f"{own} AND {self._elsewhere(edge)}") for edge in edges)
                continue
            for edge in edges:
                others = " OR ".join(self._elsewhere(other) for other in edges if other != edge)
                if others:
                    yield name, f"{self._into(edge)} AND ({others})"

    def _elsewhere(self, edge: Edge) -> str:
        """The condition that a row of `t` refers to something that was not collected."""
        told = " AND ".join(f"t.{self.column(column)} IS NOT NULL" for column in edge.columns)
        same = " AND ".join(
            f"k.c{self._place(edge.parent, to)} = t.{self.column(own)}"
            for own, to in zip(edge.columns, edge.parent_columns, strict=True)
        )
        return f"({told} AND NOT EXISTS (SELECT 1 FROM {self._keys(edge.parent)} k WHERE {same}))"

    def _has_row(self, name: str, condition: str) -> bool:
        return self._run(f"SELECT 1 FROM {self.name(name)} t WHERE {condition} LIMIT 1").first() is not None

    # -- changing -----------------------------------------------------------------------------------------------------

    def detach(self) -> dict[str, int]:
        """Make the references of rows that stay NULL where they point into what is removed; gives how many rows.

        All references of a row at once: the fence lets a row leave a purged conversation, not stay in it a little.
        """
        counts: dict[str, int] = {}
        for name, table in self._live.tables.items():
            edges = [edge for edge in self._edges(name) if edge.nullable]
            if not edges or not (name == self._root or table.rule == Rule.DETACH):
                continue
            stays = f" AND NOT ({self.conditions(name)[0]})" if name == self._root else ""
            statement = f"UPDATE {self.name(name)} SET {', '.join(self._nulls(edges))}"
            changed = sum(self._run(f"{statement} WHERE {self._into(edge)}{stays}").rowcount for edge in edges)
            if changed:
                counts[name] = changed
        return counts

    def _nulls(self, edges: Sequence[Edge]) -> Iterator[str]:
        for column in dict.fromkeys(column for edge in edges for column in edge.columns):
            into = " OR ".join(self._into(edge) for edge in edges if column in edge.columns)
            yield f"{self.column(column)} = CASE WHEN {into} THEN NULL ELSE {self.column(column)} END"

    def remove(self) -> dict[str, int]:
        """Remove the rows, children first; gives how many by table."""
        counts: dict[str, int] = {}
        for group in groups_of(self._live, with_root=True):
            if len(group) == 1 and not self._refers_to_itself(group[0]):
                name = group[0]
                counts[name] = sum(self._delete(name, condition) for condition in self.conditions(name))
            else:
                counts |= self._remove_cycle(group)
        return {name: count for name, count in counts.items() if count}

    def _remove_cycle(self, group: Sequence[str]) -> dict[str, int]:
        """Tables that refer to each other, or to themselves. PostgreSQL looks at foreign keys when a statement has
        ended, so one statement removes them all. SQLite can put that off to the commit."""
        counts = {name: int(self._run(f"SELECT count(*) FROM {self._keys(name)}").scalar_one()) for name in group}
        if self._postgresql:
            parts = ", ".join(
                f"d{place} AS (DELETE FROM {self.name(name)} WHERE {self._by_key(name)})"
                for place, name in enumerate(group)
            )
            self._run(f"WITH {parts} SELECT 1")
            return counts
        with self._deferred():
            for name in group:
                self._delete(name, self._by_key(name))
        return counts

    @contextmanager
    def _deferred(self) -> Iterator[None]:
        before = self._run("PRAGMA defer_foreign_keys").scalar_one()
        self._run("PRAGMA defer_foreign_keys = ON")
        yield
        self._run(f"PRAGMA defer_foreign_keys = {before}")

    def _delete(self, name: str, condition: str) -> int:
        return self._run(f"DELETE FROM {self.name(name)} WHERE {condition}").rowcount

    # -- words --------------------------------------------------------------------------------------------------------

    def name(self, table: str) -> str:
        """A table's name as SQL has it."""
        parts = table.split(".") if self._postgresql else [table]
        return ".".join(map(self.column, parts))

    def column(self, name: str) -> str:
        """A column's name as SQL has it."""
        return self._quoted(name).replace(":", r"\:")

    def _quoted(self, name: str) -> str:
        return self._connection.dialect.identifier_preparer.quote_identifier(name)

    def _keys(self, name: str) -> str:
        return f"{'pg_temp' if self._postgresql else 'temp'}.{self._bare_keys(name)}"

    def _bare_keys(self, name: str) -> str:
        return f"expunge_keys_{sorted(self._live.tables).index(name)}"

    def _selected(self, name: str) -> str:
        return ", ".join(f"{self.column(column)} AS c{place}" for place, column in enumerate(self._columns[name]))

    def _place(self, name: str, column: str) -> int:
        return self._columns[name].index(column)

    def _into(self, edge: Edge, turn: int | None = None) -> str:
        """The condition that a row's reference points into what was collected, in one turn or in all."""
        columns = ", ".join(map(self.column, edge.columns))
        to = ", ".join(f"c{self._place(edge.parent, column)}" for column in edge.parent_columns)
        of_turn = "" if turn is None else f" WHERE turn = {turn}"
        left = f"({columns})" if len(edge.columns) > 1 else columns
        return f"{left} IN (SELECT {to} FROM {self._keys(edge.parent)}{of_turn})"

    def _by_key(self, name: str) -> str:
        if name == self._root:
            return self.conditions(name)[0]
        key = self._live.tables[name].key or next(
            edge.parent_columns for table in self._live.tables.values() for edge in table.edges if edge.parent == name
        )
        columns = ", ".join(map(self.column, key))
        found = ", ".join(f"c{self._place(name, column)}" for column in key)
        return f"{f'({columns})' if len(key) > 1 else columns} IN (SELECT {found} FROM {self._keys(name)})"

    def type_of(self, table: str, column: str) -> str:
        """A column's type, as SQL has it."""
        if not self._postgresql:
            row = self._run(
                "SELECT type FROM pragma_table_info(:name) WHERE name = :column", {"name": table, "column": column}
            ).scalar_one()
            return str(row) or "TEXT"
        return str(
            self._run(
                "SELECT format_type(atttypid, atttypmod) FROM pg_attribute"
                " WHERE attrelid = CAST(:name AS regclass) AND attname = :column",
                {"name": ".".join(map(self._quoted, table.split("."))), "column": column},
            ).scalar_one()
        )

    def _edges(self, name: str) -> list[Edge]:
        return [edge for edge in self._live.tables[name].edges if self._is_removed(edge.parent)]

    def _is_removed(self, name: str) -> bool:
        return self._live.tables[name].rule == Rule.DELETE

    def _is_referred(self, name: str) -> bool:
        return name != self._root and any(
            is_followed(self._live, child) and edge.parent == name
            for child, table in self._live.tables.items()
            for edge in table.edges
        )

    def _refers_to_itself(self, name: str) -> bool:
        return name != self._root and any(edge.parent == name for edge in self._live.tables[name].edges)

    def _run(self, statement: str, parameters: dict[str, object] | None = None) -> CursorResult[Any]:
        return self._connection.execute(text(statement), parameters or {})


def _above(live: LiveGraph, name: str) -> set[str]:
    """The tables that this one is reached through."""
    found: set[str] = set()
    ahead = [name]
    while ahead:
        for edge in live.tables[ahead.pop()].edges:
            if edge.parent not in found:
                found.add(edge.parent)
                if edge.parent != live.graph.root.table:
                    ahead.append(edge.parent)
    return found
