"""Random hosts: tables, references with and without foreign keys, cycles, rules, rows; and a plain walk over the rows
that says what a purge must leave."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa
from hypothesis import strategies as st

from expunge.models.graph import Graph, Member, Reference, Root, Rule, TargetColumns

ROOT = "talk"
COUNT = 3
"""Conversations: t0, t1, t2. t0 is the one to purge."""

Rows = dict[str, dict[int, dict[str, Any]]]
"""By table and number."""


@dataclass(frozen=True, slots=True)
class Link:
    """A reference of a table."""

    column: str
    to: str
    foreign_key: bool
    on_delete: str | None
    nullable: bool


@dataclass
class Host:
    """Tables with their links, and rows."""

    links: dict[str, list[Link]] = field(default_factory=dict)
    rules: dict[str, Rule] = field(default_factory=dict)
    rows: Rows = field(default_factory=dict)

    @property
    def graph(self) -> Graph:
        members = tuple(
            Member(
                name,
                rule,
                why="for a reason" if rule == Rule.KEEP else None,
                references=tuple(Reference(link.column, link.to) for link in self.links[name] if not link.foreign_key),
                targets=(TargetColumns("=artifacts", "=object", "locator"),) if rule == Rule.DELETE else (),
            )
            for name, rule in self.rules.items()
            if name != ROOT
        )
        return Graph("talks", Root(ROOT), members)

    def create(self, connection: sa.Connection) -> None:
        """The tables, then the rows; references last, since they may go in circles."""
        metadata = sa.MetaData()
        for name, links in self.links.items():
            key = [sa.Column("id", sa.Text if name == ROOT else sa.Integer, primary_key=True)]
            columns = [
                sa.Column(
                    link.column,
                    sa.Text if link.to == ROOT else sa.Integer,
                    *(
                        [sa.ForeignKey(f"{link.to}.id", ondelete=link.on_delete, name=f"{name}_{link.column}")]
                        if link.foreign_key
                        else []
                    ),
                    nullable=link.nullable,
                )
                for link in links
            ]
            sa.Table(name, metadata, *key, *columns, sa.Column("locator", sa.Text))
        if connection.dialect.name == "postgresql":
            for table in metadata.tables.values():
                for constraint in table.foreign_key_constraints:
                    constraint.use_alter = True
            metadata.create_all(connection)
        else:
            for table in metadata.tables.values():
                connection.execute(sa.schema.CreateTable(table))
        for name, rows in self.rows.items():
            required = {link.column for link in self.links[name] if not link.nullable}
            for row in rows.values():
                first = {c: v for c, v in row.items() if c in ("id", "locator") or c in required}
                connection.execute(metadata.tables[name].insert().values(**first))
        for name, rows in self.rows.items():
            table = metadata.tables[name]
            for row in rows.values():
                connection.execute(table.update().where(table.c.id == row["id"]).values(**row))

    def read(self, connection: sa.Connection) -> Rows:
        """What is there."""
        found: Rows = {}
        for name in self.links:
            rows = connection.execute(sa.text(f"SELECT * FROM {name}")).mappings()
            found[name] = {number_of(row["id"]): dict(row) for row in rows}
        return found

    def after_purge(self) -> tuple[Rows, dict[str, int], dict[str, int]]:
        """What must be left, and how many rows go and are detached; found by walking until nothing is new."""
        gone = {name: set() for name in self.links}
        gone[ROOT].add(0)
        while True:
            found = [
                (name, number)
                for name, rows in self.rows.items()
                for number, row in rows.items()
                if name != ROOT
                and self.rules[name] == Rule.DELETE
                and number not in gone[name]
                and any(self._into(link, row, gone) for link in self.links[name])
            ]
            if not found:
                break
            for name, number in found:
                gone[name].add(number)
        left: Rows = {name: {} for name in self.links}
        detached: dict[str, int] = {}
        for name, rows in self.rows.items():
            for number, row in rows.items():
                if number in gone[name]:
                    continue
                loses = (
                    [] if self.rules[name] == Rule.KEEP else [k for k in self.links[name] if self._into(k, row, gone)]
                )
                left[name][number] = {**row, **{link.column: None for link in loses}}
                if loses:
                    detached[name] = detached.get(name, 0) + 1
        return left, {name: len(numbers) for name, numbers in gone.items() if numbers}, detached

    def locators_gone(self) -> set[str]:
        """What the rows that go name at the store."""
        left = self.after_purge()[0]
        return {
            row["locator"]
            for name, rows in self.rows.items()
            for number, row in rows.items()
            if number not in left[name] and row["locator"] is not None and name != ROOT
        }

    def _into(self, link: Link, row: Mapping[str, Any], gone: Mapping[str, set[int]]) -> bool:
        value = row[link.column]
        return value is not None and self.rules[link.to] == Rule.DELETE and number_of(value) in gone[link.to]


def number_of(key: Any) -> int:
    return int(str(key).removeprefix("t"))


def key_of(table: str, number: int) -> Any:
    return f"t{number}" if table == ROOT else number


@st.composite
def hosts(draw: st.DrawFn) -> Host:
    """Up to five members; each refers to the root or to a deleted member, so that a purge can find it."""
    host = Host({ROOT: []}, {ROOT: Rule.DELETE})
    names = [f"m{place}" for place in range(draw(st.integers(1, 5)))]
    for name in names:
        host.rules[name] = draw(st.sampled_from([Rule.DELETE, Rule.DELETE, Rule.DELETE, Rule.DETACH, Rule.KEEP]))
        host.links[name] = []
    deleted = [ROOT, *(name for name in names if host.rules[name] == Rule.DELETE)]
    for place, name in enumerate(names):
        before = [other for other in deleted if other == ROOT or names.index(other) < place]
        host.links[name].append(_link(draw, host, name, 0, draw(st.sampled_from(before)), may_require=True))
        for extra in range(draw(st.integers(0, 2))):
            to = draw(st.sampled_from([ROOT, *names]))
            if host.rules[name] != Rule.KEEP or to in deleted:
                host.links[name].append(_link(draw, host, name, extra + 1, to, may_require=False))
    for extra in range(draw(st.integers(0, 2))):
        host.links[ROOT].append(_link(draw, host, ROOT, extra, draw(st.sampled_from(deleted)), may_require=False))
    host.rows = {name: _rows(draw, host, name) for name in host.links}
    _require_parents(host)
    return host


def _link(draw: st.DrawFn, host: Host, name: str, place: int, to: str, *, may_require: bool) -> Link:
    # a reference of the root needs a foreign key here, since only members declare others; what is kept has none
    foreign = name == ROOT or (host.rules[name] != Rule.KEEP and draw(st.booleans()))
    nullable = not (may_require and host.rules[name] == Rule.DELETE and draw(st.booleans()))
    actions = [None, None, "CASCADE", "RESTRICT", *(["SET NULL"] if nullable else [])]
    return Link(f"r{place}", to, foreign, draw(st.sampled_from(actions)) if foreign else None, nullable)


def _rows(draw: st.DrawFn, host: Host, name: str) -> dict[int, dict[str, Any]]:
    count = COUNT if name == ROOT else draw(st.integers(0, 4))
    rows = {}
    for number in range(count):
        row: dict[str, Any] = {"id": key_of(name, number), "locator": f"bucket/{name}/{number}"}
        if draw(st.integers(0, 3)) == 0:
            row["locator"] = None
        for link in host.links[name]:
            place = draw(st.integers(0, 3 if link.nullable else 2))
            row[link.column] = None if place == 3 else key_of(link.to, place)
        rows[number] = row
    return rows


def _require_parents(host: Host) -> None:
    """A foreign key's row is there; what cannot be is left out."""
    changed = True
    while changed:
        changed = False
        for name, rows in host.rows.items():
            for number, row in list(rows.items()):
                for link in host.links[name]:
                    value = row[link.column]
                    if value is None or number_of(value) in host.rows[link.to]:
                        continue
                    changed = True
                    if link.nullable:
                        row[link.column] = None
                    else:
                        del rows[number]
                        break
