"""Exchanging a CHECK for another one, without making its table anew: a copy would lose triggers, and receipts with them
if it failed half way."""

import sqlalchemy as sa
from alembic import op


def change_check(table: str, name: str, before: str, after: str) -> None:
    """Put `after` in the place of the CHECK `ck_<table>_<name>`, which says `before`; all within the transaction.

    Raises RuntimeError if a row would break the new one, or if the old one is not as it should be.
    """
    bind = op.get_bind()
    constraint = f"ck_{table}_{name}"
    if bind.execute(sa.text(f"SELECT 1 FROM {table} WHERE NOT ({after}) LIMIT 1")).first():
        raise RuntimeError(f"{table} has rows that {constraint} would forbid: export them, and decide about them first")
    if bind.dialect.name == "postgresql":
        bind.exec_driver_sql(f"ALTER TABLE {table} DROP CONSTRAINT {constraint}")
        bind.exec_driver_sql(f"ALTER TABLE {table} ADD CONSTRAINT {constraint} CHECK ({after})")
    else:
        _edit_sqlite(
            bind, table, f"CONSTRAINT {constraint} CHECK ({before})", f"CONSTRAINT {constraint} CHECK ({after})"
        )


def add_check(table: str, name: str, condition: str) -> None:
    """Add a CHECK over columns that exist."""
    bind = op.get_bind()
    constraint = f"CONSTRAINT ck_{table}_{name} CHECK ({condition})"
    if bind.dialect.name == "postgresql":
        bind.exec_driver_sql(f"ALTER TABLE {table} ADD {constraint}")
    else:
        _edit_sqlite(bind, table, None, constraint)


def drop_check(table: str, name: str, condition: str) -> None:
    """Take a CHECK away that `add_check` added."""
    bind = op.get_bind()
    if bind.dialect.name == "postgresql":
        bind.exec_driver_sql(f"ALTER TABLE {table} DROP CONSTRAINT ck_{table}_{name}")
    else:
        _edit_sqlite(bind, table, f", CONSTRAINT ck_{table}_{name} CHECK ({condition})", "")


def _edit_sqlite(bind: sa.Connection, table: str, before: str | None, after: str) -> None:
    """Edit the table's own statement. SQLite's documentation of ALTER TABLE ("Making Other Kinds Of Table Schema
    Changes") gives this way for changes, such as those of a CHECK, that touch nothing that is stored."""
    query = sa.text("SELECT sql FROM sqlite_schema WHERE type = 'table' AND name = :table")
    statement: str = bind.execute(query, {"table": table}).scalar_one()
    if before is None:
        head, _, tail = statement.rpartition(")")
        changed = f"{head.rstrip()}, {after}){tail}"
    elif statement.count(before) != 1:
        raise RuntimeError(f"{table} is not as an earlier migration made it: its constraints have been changed")
    else:
        changed = statement.replace(before, after)
    version = bind.exec_driver_sql("PRAGMA schema_version").scalar_one()
    bind.exec_driver_sql("PRAGMA writable_schema = ON")
    bind.execute(
        sa.text("UPDATE sqlite_schema SET sql = :sql WHERE type = 'table' AND name = :table"),
        {"sql": changed, "table": table},
    )
    bind.exec_driver_sql(f"PRAGMA schema_version = {version + 1}")
    bind.exec_driver_sql("PRAGMA writable_schema = RESET")
