"""The rules that no CHECK can say, as triggers.

- erasure_record and erasure_decision are append-only: UPDATE, DELETE, TRUNCATE and, on SQLite, INSERT OR REPLACE are
  refused. On PostgreSQL the triggers are ALWAYS ones, so that a replication role does not skip them.
- inserting an entry reopens its case. The case row is locked first (as the foreign key does), so that a completion in
  flight is waited for and then seen.
- SQLite checks foreign keys only on connections that asked for it, and a host's plain SQL may not have asked.
"""

import sqlalchemy as sa

APPEND_ONLY = ("erasure_record", "erasure_decision")
MESSAGE = "expunge: append-only"

_POSTGRESQL_REFUSE = f"""
CREATE FUNCTION erasure_refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '{MESSAGE}: %% is not allowed on %%', TG_OP, TG_TABLE_NAME USING ERRCODE = 'restrict_violation';
END $$
"""

_POSTGRESQL_REOPEN = """
CREATE FUNCTION erasure_reopen_case() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM 1 FROM erasure_case WHERE id IN (SELECT case_id FROM added) ORDER BY id FOR KEY SHARE;
    UPDATE erasure_case SET completed_at = NULL, nothing_found = false
     WHERE id IN (SELECT case_id FROM added) AND (completed_at IS NOT NULL OR nothing_found);
    RETURN NULL;
END $$
"""


def create_triggers(bind: sa.Connection) -> None:
    """Create them; the tables exist."""
    for statement in _postgresql() if bind.dialect.name == "postgresql" else _sqlite():
        bind.exec_driver_sql(statement)


def drop_triggers(bind: sa.Connection) -> None:
    """SQLite drops triggers with their tables; PostgreSQL keeps the functions."""
    if bind.dialect.name != "postgresql":
        return
    for table in APPEND_ONLY:
        bind.exec_driver_sql(f"DROP TRIGGER {table}_append_only ON {table}")
        bind.exec_driver_sql(f"DROP TRIGGER {table}_no_truncate ON {table}")
    bind.exec_driver_sql("DROP TRIGGER erasure_outbox_reopens_case ON erasure_outbox")
    bind.exec_driver_sql("DROP FUNCTION erasure_refuse_change()")
    bind.exec_driver_sql("DROP FUNCTION erasure_reopen_case()")


def protect_postgresql(table: str) -> list[str]:
    """What makes a table append-only on PostgreSQL."""
    return [
        f"CREATE TRIGGER {table}_append_only BEFORE UPDATE OR DELETE ON {table}"
        " FOR EACH STATEMENT EXECUTE FUNCTION erasure_refuse_change()",
        f"CREATE TRIGGER {table}_no_truncate BEFORE TRUNCATE ON {table}"
        " FOR EACH STATEMENT EXECUTE FUNCTION erasure_refuse_change()",
        f"ALTER TABLE {table} ENABLE ALWAYS TRIGGER {table}_append_only",
        f"ALTER TABLE {table} ENABLE ALWAYS TRIGGER {table}_no_truncate",
    ]


def _postgresql() -> list[str]:
    statements = [_POSTGRESQL_REFUSE, _POSTGRESQL_REOPEN]
    for table in APPEND_ONLY:
        statements += protect_postgresql(table)
    statements.append(
        "CREATE TRIGGER erasure_outbox_reopens_case AFTER INSERT ON erasure_outbox"
        " REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION erasure_reopen_case()"
    )
    return statements


def _sqlite() -> list[str]:
    statements = []
    for table in APPEND_ONLY:
        for verb in ("UPDATE", "DELETE"):
            statements.append(
                f"CREATE TRIGGER {table}_no_{verb.lower()} BEFORE {verb} ON {table}"
                f" BEGIN SELECT RAISE(ABORT, '{MESSAGE}: {verb} is not allowed on {table}'); END"
            )
        # REPLACE removes the old row without firing its delete trigger, by id or by rowid
        statements.append(
            f"CREATE TRIGGER {table}_no_replace BEFORE INSERT ON {table}"
            f" WHEN EXISTS (SELECT 1 FROM {table} WHERE id = NEW.id OR rowid = NEW.rowid)"
            f" BEGIN SELECT RAISE(ABORT, '{MESSAGE}: this row exists in {table}'); END"
        )
    statements += [
        "CREATE TRIGGER erasure_outbox_has_case BEFORE INSERT ON erasure_outbox"
        " WHEN NOT EXISTS (SELECT 1 FROM erasure_case WHERE id = NEW.case_id)"
        " BEGIN SELECT RAISE(ABORT, 'expunge: no such case'); END",
        "CREATE TRIGGER erasure_case_keeps_entries BEFORE DELETE ON erasure_case"
        " WHEN EXISTS (SELECT 1 FROM erasure_outbox WHERE case_id = OLD.id)"
        " BEGIN SELECT RAISE(ABORT, 'expunge: the case has entries'); END",
        "CREATE TRIGGER erasure_outbox_reopens_case AFTER INSERT ON erasure_outbox BEGIN"
        " UPDATE erasure_case SET completed_at = NULL, nothing_found = 0"
        " WHERE id = NEW.case_id AND (completed_at IS NOT NULL OR nothing_found <> 0); END",
    ]
    return statements
