"""Tombstones are append-only, as receipts are (triggers.py): taking one away would let a purged conversation return."""

import sqlalchemy as sa

from expunge.models.migrations.triggers import MESSAGE, protect_postgresql

_TABLE = "erasure_tombstone"


def create_tombstone_triggers(bind: sa.Connection) -> None:
    """Create them; the table exists, and so does the function of the first migration."""
    for statement in protect_postgresql(_TABLE) if bind.dialect.name == "postgresql" else _sqlite():
        bind.exec_driver_sql(statement)


def drop_tombstone_triggers(bind: sa.Connection) -> None:
    """SQLite drops triggers with their table."""
    if bind.dialect.name == "postgresql":
        bind.exec_driver_sql(f"DROP TRIGGER {_TABLE}_append_only ON {_TABLE}")
        bind.exec_driver_sql(f"DROP TRIGGER {_TABLE}_no_truncate ON {_TABLE}")


def _sqlite() -> list[str]:
    statements = [
        f"CREATE TRIGGER {_TABLE}_no_{verb.lower()} BEFORE {verb} ON {_TABLE}"
        f" BEGIN SELECT RAISE(ABORT, '{MESSAGE}: {verb} is not allowed on {_TABLE}'); END"
        for verb in ("UPDATE", "DELETE")
    ]
    # REPLACE removes the old row without firing its delete trigger, by key or by rowid
    statements.append(
        f"CREATE TRIGGER {_TABLE}_no_replace BEFORE INSERT ON {_TABLE} WHEN EXISTS (SELECT 1 FROM {_TABLE}"
        " WHERE (graph = NEW.graph AND conversation = NEW.conversation) OR rowid = NEW.rowid)"
        f" BEGIN SELECT RAISE(ABORT, '{MESSAGE}: this row exists in {_TABLE}'); END"
    )
    return statements
