"""Creates the reference host's tables (sessions.py), their trigger, and the fence around them. Safe to run again."""

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from expunge.models.database import Database
from expunge.models.errors import SchemaError
from expunge.models.fence import install
from expunge.models.graph_live import read_graph
from expunge.models.sessions import SESSIONS, metadata, session
from expunge.models.types import SQLITE_TIME

_ADVISORY_KEY = 0x65787068

# strictly later than before, also in the same millisecond and when the clock was set back
_SQLITE_NOW = f"strftime('{SQLITE_TIME}000', 'now')"
_SQLITE_LATER = f"""
CASE WHEN {_SQLITE_NOW} > updated_at THEN {_SQLITE_NOW}
     WHEN substr(updated_at || '000000', 21, 6) < '999999' THEN
          substr(updated_at || '.000000', 1, 20)
          || printf('%06d', CAST(substr(updated_at || '000000', 21, 6) AS INTEGER) + 1)
     ELSE strftime('%Y-%m-%d %H:%M:%S', substr(updated_at, 1, 19), '+1 second') || '.000000' END
"""
_SQLITE = f"""
CREATE TRIGGER IF NOT EXISTS event_advances_session AFTER INSERT ON event BEGIN
    UPDATE session SET version = version + 1, updated_at = {_SQLITE_LATER} WHERE id = NEW.session_id;
END
"""
_POSTGRESQL = (
    # a bulk insert changes each of its sessions once; locked in one order, so that two of them do not deadlock
    """
CREATE OR REPLACE FUNCTION event_advances_session() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM 1 FROM session WHERE id IN (SELECT session_id FROM added) ORDER BY id FOR NO KEY UPDATE;
    UPDATE session SET version = session.version + appended.events,
        updated_at = greatest(clock_timestamp(), session.updated_at + interval '1 microsecond')
      FROM (SELECT session_id, count(*) AS events FROM added GROUP BY session_id) AS appended
     WHERE session.id = appended.session_id;
    RETURN NULL;
END $$
""",
    """
CREATE OR REPLACE TRIGGER event_advances_session AFTER INSERT ON event
    REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION event_advances_session()
""",
)


def create_sessions(database: Database) -> list[str]:
    """Create what is missing, in one transaction; gives the tables that were created.

    Raises SchemaError, before anything is written, if a table of one of these names is there and is another host's.
    """
    with database.engine.begin() as connection:
        if database.dialect == "postgresql":
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_ADVISORY_KEY)))
        _require_ours(connection)
        there = set(sa.inspect(connection).get_table_names())
        metadata.create_all(connection)
        for statement in _POSTGRESQL if database.dialect == "postgresql" else (_SQLITE,):
            connection.exec_driver_sql(statement.replace("%", "%%") if database.dialect == "postgresql" else statement)
        install(connection, read_graph(connection, SESSIONS))
        return [table.name for table in metadata.sorted_tables if table.name not in there]


def have_sessions(database: Database) -> bool:
    """Whether the reference host's tables are there."""
    if database.missing_file is not None:
        return False
    with database.read() as tx:
        return sa.inspect(tx.connection).has_table(session.name)


def require_sessions(database: Database) -> None:
    """Raises SchemaError, with what to do, unless the tables are there."""
    if not have_sessions(database):
        raise SchemaError("the reference host's tables are not there: run expunge migrate --with-sessions")


def _require_ours(connection: Connection) -> None:
    inspector = sa.inspect(connection)
    names = set(inspector.get_table_names()) & set(metadata.tables)
    for name in sorted(names):
        found = {column["name"] for column in inspector.get_columns(name)}
        missing = sorted({column.name for column in metadata.tables[name].columns} - found)
        if missing:
            raise SchemaError(
                f"there is a table {name} already, without {', '.join(missing)}: it is not the reference host's, which"
                " belongs into a database of its own; nothing was written"
            )
