"""How a conversation hangs together in the host's database: what a purge removes, what it keeps, and why.

A host declares the root table and one rule for every table that belongs to it. What foreign keys say is read from the
live database (graph_live.py); only references without a foreign key are declared here. A table that the foreign keys
reach, or a column that looks like a reference, and that nobody declared, is an error: a migration that forgot the graph
is found by `expunge graph` before a purge forgets the table.

Everything is a name. A host that has SQLAlchemy's tables or mapped classes gives those instead to the `over` of each
part, which takes their names at once.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Mapper, QueryableAttribute

from expunge.models.errors import InvalidGraph

TableLike = str | sa.Table | type[Any]
"""A table's name, the table, or the class that is mapped to it."""
ColumnLike = str | sa.Column[Any] | QueryableAttribute[Any]
"""A column's name, the column, or the attribute that is mapped to it."""


def table_name(table: TableLike) -> str:
    """The name in the database, with the schema if the table has one. Raises InvalidGraph for what has no table."""
    if isinstance(table, str):
        return table
    mapper = sa.inspect(table, raiseerr=False)
    found = mapper.local_table if isinstance(mapper, Mapper) else table
    if not isinstance(found, sa.Table):
        raise InvalidGraph([f"{table!r}: is no table, mapped class or table's name"])
    return found.fullname


def column_name(column: ColumnLike) -> str:
    """The name in the database, which an attribute need not share. Raises InvalidGraph for what is no column."""
    return column if isinstance(column, str) else _column(column).name


def _column(column: sa.Column[Any] | QueryableAttribute[Any]) -> sa.Column[Any]:
    found = column.__clause_element__() if isinstance(column, QueryableAttribute) else column
    if not isinstance(found, sa.Column):
        raise InvalidGraph([f"{column!r}: is no column, mapped attribute or column's name"])
    return found


def _optional(column: ColumnLike | None) -> str | None:
    return None if column is None else column_name(column)


class Rule(StrEnum):
    """What a purge does with a member's rows."""

    DELETE = "delete"
    """Remove them."""
    DETACH = "detach"
    """Set their references NULL and keep the rows: they outlive the conversation that formed them."""
    KEEP = "keep"
    """Leave them as they are, for a declared reason."""


@dataclass(frozen=True, slots=True)
class Reference:
    """A reference that has no foreign key: `column` of the member holds what `to_column` of the table `to` holds."""

    column: str
    to: str
    to_column: str | None = None
    """None: its key."""

    @classmethod
    def over(cls, column: ColumnLike, to: TableLike, to_column: ColumnLike | None = None) -> "Reference":
        """Of SQLAlchemy's columns and tables. Raises InvalidGraph."""
        return cls(column_name(column), table_name(to), _optional(to_column))


@dataclass(frozen=True, slots=True)
class TargetColumns:
    """Which columns of a row name something to erase at a store. A text that begins with `=` is itself the value:
    `=openai_eu`. Rows in which one of them is NULL name nothing."""

    account: str
    kind: str
    locator: str

    @classmethod
    def over(cls, account: ColumnLike, kind: ColumnLike, locator: ColumnLike) -> "TargetColumns":
        """Of SQLAlchemy's columns. Raises InvalidGraph."""
        return cls(column_name(account), column_name(kind), column_name(locator))


@dataclass(frozen=True, slots=True)
class Member:
    """A table that belongs to the conversation."""

    table: str
    rule: Rule = Rule.DELETE
    why: str | None = None
    """Required with `keep`."""
    references: tuple[Reference, ...] = ()
    targets: tuple[TargetColumns, ...] = ()

    @classmethod
    def over(
        cls,
        table: TableLike,
        rule: Rule = Rule.DELETE,
        *,
        why: str | None = None,
        references: Sequence[Reference] = (),
        targets: Sequence[TargetColumns] = (),
    ) -> "Member":
        """Of a table of SQLAlchemy's. Raises InvalidGraph."""
        return cls(table_name(table), rule, why, tuple(references), tuple(targets))


@dataclass(frozen=True, slots=True)
class ActiveRun:
    """How to see that somebody works on the conversation: rows of `table` whose `state` is one of `states`."""

    table: str
    states: tuple[str, ...]
    key: str = "id"
    state: str = "state"

    @classmethod
    def over(
        cls, table: TableLike, states: Sequence[str], *, key: ColumnLike = "id", state: ColumnLike = "state"
    ) -> "ActiveRun":
        """Of a table of SQLAlchemy's. Raises InvalidGraph."""
        return cls(table_name(table), tuple(states), column_name(key), column_name(state))


@dataclass(frozen=True, slots=True)
class Root:
    """The conversation's own table."""

    table: str
    key: str = "id"
    tenant: str | None = None
    """The column that says whose tenant it is; None if the host has one tenant only."""
    owner: str | None = None
    """The column that says which principal owns it; None if every principal of the tenant does."""
    version: str | None = None
    """The column that a purge's `expected_version` is compared with."""
    active_run: ActiveRun | None = None
    targets: tuple[TargetColumns, ...] = ()

    @classmethod
    def over(
        cls,
        table: TableLike,
        *,
        key: ColumnLike = "id",
        tenant: ColumnLike | None = None,
        owner: ColumnLike | None = None,
        version: ColumnLike | None = None,
        active_run: ActiveRun | None = None,
        targets: Sequence[TargetColumns] = (),
    ) -> "Root":
        """Of a table of SQLAlchemy's. Raises InvalidGraph."""
        return cls(
            table_name(table),
            column_name(key),
            _optional(tenant),
            _optional(owner),
            _optional(version),
            active_run,
            tuple(targets),
        )


@dataclass(frozen=True, slots=True)
class Unrelated:
    """A column that looks like a reference to the root, and is none."""

    table: str
    column: str
    why: str

    @classmethod
    def over(cls, table: TableLike, column: ColumnLike, why: str) -> "Unrelated":
        """Of a table of SQLAlchemy's. Raises InvalidGraph."""
        return cls(table_name(table), column_name(column), why)


@dataclass(frozen=True, slots=True)
class Graph:
    """One kind of conversation."""

    name: str
    """`[a-z][a-z0-9_]*`, at most 64 characters; part of every tombstone, so it never changes."""
    root: Root
    members: tuple[Member, ...] = ()
    unrelated: tuple[Unrelated, ...] = ()
