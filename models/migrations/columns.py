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


def time_checks(*columns: str) -> list[sa.CheckConstraint]:
    """SQLite takes any text for a time; only what sorts as a time may be stored."""
    if op.get_bind().dialect.name == "postgresql":
        return []
    digits = "[0-9][0-9]"
    pattern = f"{digits}{digits}-{digits}-{digits} {digits}:{digits}:{digits}*"
    return [sa.CheckConstraint(f"{c} IS NULL OR {c} GLOB '{pattern}'", name=f"{c}_format") for c in columns]


def column(name: str, type_: Any, **options: Any) -> sa.Column[Any]:
    """A column that is NOT NULL unless it says otherwise."""
    options.setdefault("nullable", False)
    return sa.Column(name, type_, **options)


def partial_index(name: str, table: str, columns: list[str], where: str) -> None:
    """An index over the rows that are asked for."""
    op.create_index(name, table, columns, postgresql_where=sa.text(where), sqlite_where=sa.text(where))
