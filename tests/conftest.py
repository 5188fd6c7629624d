"""Real servers for the tests, started on first use and stopped at the end.

A server that cannot be started skips its tests on a laptop; in CI it fails them.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from expunge.models import bell, schema
from expunge.models.database import Database


def _start(name: str, make: Callable[[], Any]) -> Any:
    try:
        return make()
    except Exception as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"no {name} here: {error}")


@pytest.fixture(scope="session")
def postgres() -> Iterator[Any]:
    from servers.postgres import Postgres

    server = _start("PostgreSQL", Postgres)
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="session")
def postgres_template(postgres: Any) -> str:
    name: str = postgres.create()
    database = Database.open(postgres.url(name))
    schema.migrate(database)
    database.close()
    return name


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("template") / "template.db"
    database = Database.open(f"sqlite:///{path}")
    schema.migrate(database)
    with database.engine.connect() as connection:
        connection.exec_driver_sql("COMMIT")
        connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.exec_driver_sql("BEGIN")
    database.close()
    return path


@pytest.fixture
def postgres_url(postgres: Any, postgres_template: str) -> Iterator[str]:
    """A fresh, migrated PostgreSQL database."""
    name = postgres.create(postgres_template)
    yield postgres.url(name)
    postgres.drop(name)


@pytest.fixture
def empty_postgres_url(postgres: Any) -> Iterator[str]:
    """A fresh PostgreSQL database without tables."""
    name = postgres.create()
    yield postgres.url(name)
    postgres.drop(name)


@pytest.fixture
def sqlite_url(tmp_path: Path, sqlite_template: Path) -> str:
    """A fresh, migrated SQLite file."""
    path = tmp_path / "expunge.db"
    shutil.copy(sqlite_template, path)
    return f"sqlite:///{path}"


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest) -> str:
    """A fresh, migrated database of each kind."""
    url: str = request.getfixturevalue("sqlite_url" if request.param == "sqlite" else "postgres_url")
    return url


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    """A fresh, migrated database of each kind, opened as Expunge opens it."""
    opened = Database.open(database_url)
    yield opened
    opened.close()


@pytest.fixture(scope="session")
def valkey() -> Iterator[Any]:
    from servers.valkey import start

    server = _start("Valkey", start)
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture
def valkey_url(valkey: Any) -> str:
    """An emptied Valkey."""
    from fleet import url_of

    valkey.client().flushall()
    return url_of(valkey)


@pytest.fixture
def broker() -> Iterator[Any]:
    """A Valkey of this test's own, which it may restart."""
    from servers.ports import free_port
    from servers.valkey import start

    server = _start("Valkey", lambda: start(port=free_port()))
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture(autouse=True)
def _no_bell() -> Iterator[None]:
    """A bell that one test hangs does not ring in the next."""
    yield
    bell.take_down()
