"""A hold's history is append-only: a hold may be released, once, and nothing else about it ever changes."""

import sqlalchemy as sa

from expunge.models.migrations.triggers import MESSAGE

_TABLE = "erasure_hold"
_FIXED = ("id", "tenant", "subject", "conversation", "case_id", "account", "locator_prefix", "matter",
          "placed_at", "placed_by", "placed_why")  # fmt: skip
_OLD = ", ".join(f"OLD.{name}" for name in _FIXED)
_NEW = ", ".join(f"NEW.{name}" for name in _FIXED)
_REFUSAL = f"{MESSAGE}: a hold may only be released, once"

_FUNCTION = f"""
CREATE FUNCTION erasure_refuse_hold_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.released_at IS NOT NULL OR NEW.released_at IS NULL
       OR ({_OLD}) IS DISTINCT FROM ({_NEW})
    THEN
        RAISE EXCEPTION '{_REFUSAL}' USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END $$
"""


def create_hold_triggers(bind: sa.Connection) -> None:
    """Create them; the table and the function of the first migration exist."""
    for statement in _postgresql() if bind.dialect.name == "postgresql" else _sqlite():
        bind.exec_driver_sql(statement.replace("%", "%%") if bind.dialect.name == "postgresql" else statement)


def drop_hold_triggers(bind: sa.Connection) -> None:
    """As it was before."""
    if bind.dialect.name == "postgresql":
        for name in ("release_only", "no_delete", "no_truncate"):
            bind.exec_driver_sql(f"DROP TRIGGER {_TABLE}_{name} ON {_TABLE}")
        bind.exec_driver_sql("DROP FUNCTION erasure_refuse_hold_change()")
    else:
        for name in ("release_only", "no_delete", "no_replace"):
            bind.exec_driver_sql(f"DROP TRIGGER {_TABLE}_{name}")


def _postgresql() -> list[str]:
    statements = [
        _FUNCTION,
        f"CREATE TRIGGER {_TABLE}_release_only BEFORE UPDATE ON {_TABLE}"
        " FOR EACH ROW EXECUTE FUNCTION erasure_refuse_hold_change()",
        f"CREATE TRIGGER {_TABLE}_no_delete BEFORE DELETE ON {_TABLE}"
        " FOR EACH STATEMENT EXECUTE FUNCTION erasure_refuse_change()",
        f"CREATE TRIGGER {_TABLE}_no_truncate BEFORE TRUNCATE ON {_TABLE}"
        " FOR EACH STATEMENT EXECUTE FUNCTION erasure_refuse_change()",
    ]
    names = ("release_only", "no_delete", "no_truncate")
    return statements + [f"ALTER TABLE {_TABLE} ENABLE ALWAYS TRIGGER {_TABLE}_{name}" for name in names]


def _sqlite() -> list[str]:
    changed = " OR ".join(f"OLD.{name} IS NOT NEW.{name}" for name in _FIXED)
    return [
        f"CREATE TRIGGER {_TABLE}_release_only BEFORE UPDATE ON {_TABLE}"
        f" WHEN OLD.released_at IS NOT NULL OR NEW.released_at IS NULL OR {changed}"
        f" BEGIN SELECT RAISE(ABORT, '{_REFUSAL}'); END",
        f"CREATE TRIGGER {_TABLE}_no_delete BEFORE DELETE ON {_TABLE}"
        f" BEGIN SELECT RAISE(ABORT, '{MESSAGE}: DELETE is not allowed on {_TABLE}'); END",
        # REPLACE removes the old row without firing its delete trigger
        f"CREATE TRIGGER {_TABLE}_no_replace BEFORE INSERT ON {_TABLE}"
        f" WHEN EXISTS (SELECT 1 FROM {_TABLE} WHERE id = NEW.id)"
        f" BEGIN SELECT RAISE(ABORT, '{MESSAGE}: this row exists in {_TABLE}'); END",
    ]
