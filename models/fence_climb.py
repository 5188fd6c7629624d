"""What a row's parents know of its conversation, as one query for a trigger.

The query has one column: the conversations, and NULL for each parent that should be there and is not. A graph without
cycles is climbed by joins, one query for each way up; where a climb may come back to where it was (a table that refers
to itself, tables that refer to each other), by a recursive query over the rows above, each seen once.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from expunge.models.fence_reach import Path, Reach, as_text, quote, select
from expunge.models.graph_live import Edge

Guard = Callable[[Edge], str | None]
"""The condition under which a missing parent counts; None: never."""


@dataclass(frozen=True, slots=True)
class Climb:
    """How a climb is written down for one table."""

    reach: Reach
    near: Guard
    """For a parent of the row itself."""
    far: Guard
    """For one farther up, by the row's own reference that leads there."""

    def query(self, table: str, row: str) -> str:
        """The query; empty if the table has no parent to ask."""
        if not self.reach.circling(table):
            return self.flat(table, row)
        return "\nUNION ALL ".join([*self._missing_parents(table, row), *self._round(table, row)])

    def flat(self, table: str, row: str) -> str:
        """The query without what is found by going round: all that there is, unless `circles`."""
        return "\nUNION ALL ".join([*self._missing_parents(table, row), *self._by_joins(table, row)])

    def circles(self, table: str, row: str) -> str:
        """The condition under which a climb from this row begins to go round; empty if none ever does."""
        return " OR ".join(self._turns(table, row, Path()))

    def _turns(self, table: str, row: str, climbed: Path) -> Iterator[str]:
        circling = self.reach.circling(table)
        for edge in self.reach.climbed(table):
            if edge in circling:
                goes_on = " AND ".join(f"{row}.{quote(column)} IS NOT NULL" for column in edge.columns)
                yield f"EXISTS ({climbed.select('1', goes_on)})" if climbed.tables else f"({goes_on})"
            elif edge.parent != self.reach.root.table:
                path, parent = self.reach.step(climbed, edge, row)
                yield from self._turns(edge.parent, parent, path)

    def _missing_parents(self, table: str, row: str) -> Iterator[str]:
        for edge in self.reach.climbed(table):
            condition = self.near(edge)
            if condition is None or self.reach.may_come_later(edge):
                continue
            # a row that is its own parent is not stored yet
            itself = f" AND NOT ({self.reach.match(row, edge, row)})" if edge.parent == table else ""
            yield select("CAST(NULL AS text)", (), (condition, self.reach.has_no(edge, row) + itself))

    def _by_joins(self, table: str, row: str) -> Iterator[str]:
        circling = self.reach.circling(table)
        for edge in self.reach.climbed(table):
            if edge in circling:
                continue
            path, parent = self.reach.step(Path(), edge, row)
            yield from _queries(self.reach, edge, parent, path, circling)
            condition = self.far(edge)
            if condition is not None:
                yield from self._gaps(edge.parent, parent, path, condition)

    def _gaps(self, table: str, row: str, climbed: Path, condition: str) -> Iterator[str]:
        if table == self.reach.root.table:
            return
        circling = self.reach.circling(table)
        for edge in self.reach.climbed(table):
            if edge in circling:
                continue
            yield climbed.select("CAST(NULL AS text)", condition, self.reach.has_no(edge, row))
            path, parent = self.reach.step(climbed, edge, row)
            yield from self._gaps(edge.parent, parent, path, condition)

    def _round(self, table: str, row: str) -> Iterator[str]:
        reach = self.reach
        passed = sorted(reach.above(table))
        places = _Places(reach, passed)
        starts, moves, ends = [], [], []
        for edge in reach.climbed(table):
            path, parent = reach.step(Path(), edge, row)
            if edge.parent == reach.root.table:
                yield from _queries(reach, edge, parent, path)
            else:
                starts.append(path.select(f"{places.of(edge.parent, parent)}, {self.far(edge) or 'false'}"))
        for name in passed:
            here = (f"{reach.table(name)} AS c", places.are(name, "c"))
            for column in reach.own(name):
                value = f"c.{quote(column)}"
                ends.append(select(as_text(value), ("up", here[0]), (here[1], f"{value} IS NOT NULL")))
            for edge in reach.climbed(name):
                if not reach.may_come_later(edge):
                    gap = ("up.entered", here[1], reach.has_no(edge, "c"))
                    ends.append(select("CAST(NULL AS text)", ("up", here[0]), gap))
                joined = (here[0], f"{reach.table(edge.parent)} AS p")
                meets = (here[1], reach.match("p", edge, "c"))
                if edge.parent == reach.root.table:
                    ends.append(select(as_text(f"p.{quote(reach.root.key)}"), ("up", *joined), meets))
                else:
                    moves.append((f"{places.of(edge.parent, 'p')}", joined, meets))
        yield (
            f"SELECT * FROM (WITH RECURSIVE up({places.columns}, entered) AS (\n"
            + "\nUNION ".join([*starts, *places.recursion(moves)])
            + ")\n"
            + "\nUNION ALL ".join(ends)
            + ") AS climbed"
        )


def _queries(
    reach: Reach, edge: Edge, parent: str, path: Path, without: frozenset[Edge] = frozenset()
) -> Iterator[str]:
    return (way.select(conversation) for way, conversation in reach.ways(edge.parent, parent, path, without))


class _Places:
    """How a row above is remembered: which table, and where in it. By its physical place on PostgreSQL, where keys of
    different types fit in no one column; by its primary key, else its rowid, on SQLite, where types are no matter."""

    def __init__(self, reach: Reach, tables: list[str]) -> None:
        self._numbers = {name: number for number, name in enumerate(tables)}
        self._sqlite = reach.schema is None
        self._keys = {name: _key(reach, name) for name in tables}
        self._width = max(map(len, self._keys.values()), default=0)
        names = [f"k{n}" for n in range(self._width)] if self._sqlite else ["part", "place"]
        self.columns = ", ".join(["t", *names])

    def of(self, table: str, row: str) -> str:
        """The values that name a row."""
        if not self._sqlite:
            return f"{self._numbers[table]}, {row}.tableoid, {row}.ctid"
        values = [f"{row}.{column}" for column in self._keys[table]]
        return ", ".join([str(self._numbers[table]), *values, *["NULL"] * (self._width - len(values))])

    def are(self, table: str, row: str) -> str:
        """The condition under which `up` names this row."""
        if not self._sqlite:
            return f"up.t = {self._numbers[table]} AND {row}.ctid = up.place AND {row}.tableoid = up.part"
        keys = " AND ".join(f"{row}.{column} = up.k{n}" for n, column in enumerate(self._keys[table]))
        return f"up.t = {self._numbers[table]} AND {keys}"

    def recursion(self, moves: Sequence[tuple[str, Sequence[str], Sequence[str]]]) -> list[str]:
        """The recursive parts. SQLite takes several; PostgreSQL one, that refers to `up` once."""
        if self._sqlite:
            return [select(f"{value}, up.entered", ("up", *tables), meets) for value, tables, meets in moves]
        found = " UNION ALL ".join(select(value, tables, meets) for value, tables, meets in moves)
        return [f"SELECT s.*, up.entered FROM up CROSS JOIN LATERAL ({found}) AS s(t, part, place)"]


def _key(reach: Reach, table: str) -> list[str]:
    return [quote(column) for column in reach.live.tables[table].key] or ["rowid"]
