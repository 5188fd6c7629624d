"""What one run of the command line shares: settings, database and doorbell, each made when it is first asked for."""

from functools import cached_property

import click

from expunge.models import schema
from expunge.models.database import Database
from expunge.worker.bell import hang_for
from expunge.worker.settings import Settings
from expunge.worker.sources import load_settings


class Invocation:
    """Get it with `@pass_invocation`."""

    def __init__(self) -> None:
        self.config: str | None = None
        """`--config`, wherever on the line it stood."""

    @cached_property
    def settings(self) -> Settings:
        """Raises ConfigurationError."""
        return load_settings(self.config)

    @cached_property
    def database(self) -> Database:
        """The database with the tables of this version, and the doorbell hung for what this command puts into it.

        Raises ConfigurationError, SchemaError, or the driver's error when it cannot be reached.
        """
        database = self.any_database
        schema.require(database)
        hang_for(self.settings)
        return database

    @cached_property
    def any_database(self) -> Database:
        """The database whatever tables it has: for `migrate`, `check` and `up`."""
        database = self.settings.database()
        context = click.get_current_context(silent=True)
        if context is not None:
            context.find_root().call_on_close(database.close)
        return database


pass_invocation = click.make_pass_decorator(Invocation, ensure=True)
