"""Creating and upgrading the tables, and telling whether they are there.

Every command asks for the version, and hardly any migrates: alembic is imported by what migrates, since its import
takes as long as such a command's own work.
"""

from typing import TYPE_CHECKING

from sqlalchemy import inspect
from sqlalchemy.engine import Connection

from expunge.models.database import Database
from expunge.models.errors import SchemaError

if TYPE_CHECKING:
    from alembic.config import Config

HEAD = "0004"
"""The version that this code needs: that of the newest migration."""
VERSION_TABLE = "erasure_schema_version"
_ADVISORY_KEY = 0x65787075


def _config(connection: Connection) -> "Config":
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", "expunge.models:migrations")
    config.attributes["connection"] = connection
    return config


def migrate(database: Database, revision: str = "head") -> None:
    """Create or upgrade the tables. Safe when several processes do it at once; if there is nothing to do, it waits for
    no lock."""
    if revision == "head" and current(database) == HEAD:
        return
    from alembic import command

    with database.engine.begin() as connection:
        if database.dialect == "postgresql":
            connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_ADVISORY_KEY})")
        command.upgrade(_config(connection), revision)


def downgrade(database: Database, revision: str) -> None:
    """Go back to an older version; refused while receipts exist that it would drop."""
    from alembic import command

    with database.engine.begin() as connection:
        command.downgrade(_config(connection), revision)


def current(database: Database) -> str | None:
    """The version of the tables in the database; None if there are none."""
    with database.read() as transaction:
        if not inspect(transaction.connection).has_table(VERSION_TABLE):
            return None
        row = transaction.first(f"SELECT version_num FROM {VERSION_TABLE}")
    return None if row is None else row.version_num


def require(database: Database) -> None:
    """Raises SchemaError, with what to do, unless the tables are those of this version. Creates no SQLite file: a
    mistyped path would leave an empty one, and hide the mistake."""
    missing = database.missing_file
    if missing is not None:
        raise SchemaError(f"the SQLite file {missing} does not exist: correct database_url, or run expunge migrate")
    found = current(database)
    if found is None:
        raise SchemaError("the database has no Expunge tables yet: run expunge migrate")
    if found != HEAD:
        raise SchemaError(f"the database's tables are version {found}, this is {HEAD}: run expunge migrate")
