"""What the migrations build columns of: defaults, types and checks in the words of this database."""

from typing import Any

import sqlalchemy as sa
from alembic import op


def defaults() -> tuple[sa.TextClause, sa.TextClause]:
    """(now, random id) in this database's words."""
    if op.get_bind().dialect.name == "postgresql":
        return sa.text("clock_timestamp()"), sa.text("gen_random_uuid()")
    return sa.text("(strftime('%Y-%m-%d %H:%M:%f000', 'now'))"), sa.text("(lower(hex(randomblob(16))))")


def byte_length(column: str) -> str:
    """Its length in bytes, where `length` counts characters."""
    if op.get_bind().dialect.name == "postgresql":
        return f"octet_length({column})"
    return f"length(CAST({column} AS BLOB))"


_FIRST, _END, _COUNTED_END = "1900-01-01", "9000-01-01", "9900-01-01"
_COUNTED = ("due_at", "purge_due_at")
"""These are counted on from other times, and may lie later."""


def time_checks(*columns: str) -> list[sa.CheckConstraint]:
    """A time that a plain INSERT brings must be one that every reader can take and count on from: PostgreSQL has
    `infinity` and years that Python has not, SQLite takes any text."""
    ends = {name: _COUNTED_END if name in _COUNTED else _END for name in columns}
    if op.get_bind().dialect.name == "postgresql":
        return [
            sa.CheckConstraint(f"{name} >= '{_FIRST}' AND {name} < '{end}'", name=f"{name}_range")
            for name, end in ends.items()
        ]
    return [
        sa.CheckConstraint(
            f"{name} IS NULL OR ({_reads_as_time(name)} AND {name} >= '{_FIRST}' AND {name} < '{end}')",
            name=f"{name}_format",
        )
        for name, end in ends.items()
    ]


def _reads_as_time(name: str) -> str:
    seconds, fraction = f"substr({name}, 1, 19)", f"substr({name}, 20)"
    digits = "[0-9][0-9]"
    pattern = f"{digits}{digits}-{digits}-{digits} {digits}:{digits}:{digits}"
    return (
        # with a modifier `strftime` counts 2026-02-30 on into March; it gives NULL for what it cannot read
        f"{seconds} GLOB '{pattern}' AND strftime('%Y-%m-%d %H:%M:%S', {seconds}, '+0 days') IS {seconds}"
        f" AND ({fraction} = '' OR ({fraction} GLOB '.[0-9]*' AND ltrim(substr({name}, 21), '0123456789') = ''))"
    )


def column(name: str, type_: Any, **options: Any) -> sa.Column[Any]:
    """A column that is NOT NULL unless it says otherwise."""
    options.setdefault("nullable", False)
    return sa.Column(name, type_, **options)


def partial_index(name: str, table: str, columns: list[str], where: str) -> None:
    """An index over the rows that are asked for."""
    op.create_index(name, table, columns, postgresql_where=sa.text(where), sqlite_where=sa.text(where))
