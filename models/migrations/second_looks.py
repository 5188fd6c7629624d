"""The case of an entry whose second look found it again is open again, whoever says so."""

import sqlalchemy as sa

_NAME = "erasure_outbox_comes_back"
_FUNCTION = """
CREATE FUNCTION erasure_reopen_case_again() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE erasure_case SET completed_at = NULL, nothing_found = false
     WHERE id = NEW.case_id AND (completed_at IS NOT NULL OR nothing_found);
    RETURN NULL;
END $$
"""


def create_look_triggers(bind: sa.Connection) -> None:
    """Create them; the column `settled` exists."""
    if bind.dialect.name == "postgresql":
        bind.exec_driver_sql(_FUNCTION)
        bind.exec_driver_sql(
            f"CREATE TRIGGER {_NAME} AFTER UPDATE OF settled ON erasure_outbox FOR EACH ROW"
            " WHEN (OLD.settled AND NOT NEW.settled) EXECUTE FUNCTION erasure_reopen_case_again()"
        )
    else:
        bind.exec_driver_sql(
            f"CREATE TRIGGER {_NAME} AFTER UPDATE OF settled ON erasure_outbox"
            " WHEN OLD.settled AND NOT NEW.settled BEGIN"
            " UPDATE erasure_case SET completed_at = NULL, nothing_found = 0"
            " WHERE id = NEW.case_id AND (completed_at IS NOT NULL OR nothing_found <> 0); END"
        )


def drop_look_triggers(bind: sa.Connection) -> None:
    """As it was before."""
    if bind.dialect.name == "postgresql":
        bind.exec_driver_sql(f"DROP TRIGGER {_NAME} ON erasure_outbox")
        bind.exec_driver_sql("DROP FUNCTION erasure_reopen_case_again()")
    else:
        bind.exec_driver_sql(f"DROP TRIGGER {_NAME}")
