"""What is to be kept elsewhere is noted with the row itself: receipts, decisions, tombstones, what becomes of holds.

While there is no archive the triggers cost one look at an empty table: on PostgreSQL for each statement, on SQLite for
each row. A queue row says which row, and nothing of it.
"""

import sqlalchemy as sa

_PLAIN = {"receipt": "erasure_record", "decision": "erasure_decision", "tombstone": "erasure_tombstone"}
_HOLD = "erasure_hold"
_THERE = "EXISTS (SELECT 1 FROM erasure_archive)"
_QUEUE = "INSERT INTO erasure_archive_queue (kind, ref)"
_REF = {
    "sqlite": {
        "receipt": "{row}.id",
        "decision": "CAST({row}.id AS TEXT)",
        "tombstone": "json_array({row}.graph, {row}.conversation)",
    },
    "postgresql": {
        "receipt": "{row}.id::text",
        "decision": "{row}.id::text",
        "tombstone": "json_build_array({row}.graph, {row}.conversation)::text",
    },
}


def reference(dialect: str, kind: str, row: str) -> str:
    """What names a row in the queue, as SQL over the alias `row`."""
    return _REF[dialect][kind].format(row=row)


def create_archive_triggers(bind: sa.Connection) -> None:
    """Create them; the tables exist."""
    for statement in _postgresql() if bind.dialect.name == "postgresql" else _sqlite():
        bind.exec_driver_sql(statement)


def drop_archive_triggers(bind: sa.Connection) -> None:
    """As it was before."""
    on = " ON {table}" if bind.dialect.name == "postgresql" else ""
    for table in _PLAIN.values():
        bind.exec_driver_sql(f"DROP TRIGGER {table}_archived{on.format(table=table)}")
    for verb in ("placed", "released"):
        bind.exec_driver_sql(f"DROP TRIGGER {_HOLD}_{verb}_archived{on.format(table=_HOLD)}")
    if bind.dialect.name == "postgresql":
        for kind in (*_PLAIN, "hold"):
            bind.exec_driver_sql(f"DROP FUNCTION erasure_archive_{kind}()")


def _postgresql() -> list[str]:
    statements = []
    for kind, table in _PLAIN.items():
        ref = reference("postgresql", kind, "added")
        statements += [
            f"CREATE FUNCTION erasure_archive_{kind}() RETURNS trigger LANGUAGE plpgsql AS $$\nBEGIN\n"
            f"    IF {_THERE} THEN\n        {_QUEUE} SELECT '{kind}', {ref} FROM added;\n    END IF;\n"
            "    RETURN NULL;\nEND $$",
            f"CREATE TRIGGER {table}_archived AFTER INSERT ON {table}"
            f" REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION erasure_archive_{kind}()",
        ]
    return [
        *statements,
        "CREATE FUNCTION erasure_archive_hold() RETURNS trigger LANGUAGE plpgsql AS $$\nBEGIN\n"
        f"    IF {_THERE} THEN\n        {_QUEUE} VALUES ('hold', NEW.id::text || TG_ARGV[0]);\n    END IF;\n"
        "    RETURN NULL;\nEND $$",
        f"CREATE TRIGGER {_HOLD}_placed_archived AFTER INSERT ON {_HOLD}"
        " FOR EACH ROW EXECUTE FUNCTION erasure_archive_hold('')",
        f"CREATE TRIGGER {_HOLD}_released_archived AFTER UPDATE ON {_HOLD}"
        " FOR EACH ROW EXECUTE FUNCTION erasure_archive_hold('/released')",
    ]


def _sqlite() -> list[str]:
    statements = [
        f"CREATE TRIGGER {table}_archived AFTER INSERT ON {table} WHEN {_THERE}"
        f" BEGIN {_QUEUE} VALUES ('{kind}', {reference('sqlite', kind, 'NEW')}); END"
        for kind, table in _PLAIN.items()
    ]
    return [
        *statements,
        f"CREATE TRIGGER {_HOLD}_placed_archived AFTER INSERT ON {_HOLD} WHEN {_THERE}"
        f" BEGIN {_QUEUE} VALUES ('hold', CAST(NEW.id AS TEXT)); END",
        f"CREATE TRIGGER {_HOLD}_released_archived AFTER UPDATE ON {_HOLD} WHEN {_THERE}"
        f" BEGIN {_QUEUE} VALUES ('hold', NEW.id || '/released'); END",
    ]
