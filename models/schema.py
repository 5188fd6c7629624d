"""Creating and upgrading the tables, and telling whether they are there."""

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy.engine import Connection

from expunge.models.database import Database
from expunge.models.errors import SchemaError

VERSION_TABLE = "erasure_schema_version"
_ADVISORY_KEY = 0x65787075


def _config(connection: Connection | None = None) -> Config:
    config = Config()
    config.set_main_option("script_location", "expunge.models:migrations")
    config.attributes["connection"] = connection
    return config


def migrate(database: Database, revision: str = "head") -> None:
    """Create or upgrade the tables. Safe when several processes do it at once; if there is nothing to do, it waits for
    no lock."""
    if revision == "head" and current(database) == head():
        return
    with database.engine.begin() as connection:
        if database.dialect == "postgresql":
            connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_ADVISORY_KEY})")
        command.upgrade(_config(connection), revision)


def downgrade(database: Database, revision: str) -> None:
    """Go back to an older version; refused while receipts exist that it would drop."""
    with database.engine.begin() as connection:
        command.downgrade(_config(connection), revision)


def head() -> str:
    """The version that this code needs."""
    revision = ScriptDirectory.from_config(_config()).get_current_head()
    if revision is None:  # pragma: no cover  the package always has migrations
        raise SchemaError("this installation has no migrations: reinstall it")
    return revision


def current(database: Database) -> str | None:
    """The version of the tables in the database; None if there are none."""
    with database.read() as transaction:
        context = MigrationContext.configure(transaction.connection, opts={"version_table": VERSION_TABLE})
        return context.get_current_revision()


def require(database: Database) -> None:
    """Raises SchemaError, with what to do, unless the tables are those of this version. Creates no SQLite file: a
    mistyped path would leave an empty one, and hide the mistake."""
    missing = database.missing_file
    if missing is not None:
        raise SchemaError(f"the SQLite file {missing} does not exist: correct database_url, or run expunge migrate")
    found, needed = current(database), head()
    if found is None:
        raise SchemaError("the database has no Expunge tables yet: run expunge migrate")
    if found != needed:
        raise SchemaError(f"the database's tables are version {found}, this is {needed}: run expunge migrate")
