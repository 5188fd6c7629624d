"""The stores that the purge's suite runs on."""

import shutil
from collections.abc import Iterator

import pytest
from conformance.purge_memory import MemoryWorld
from conformance.purge_sql import SqlWorld
from conformance.purge_world import World


@pytest.fixture(scope="module", params=["memory", "sqlite", "postgresql"])
def committed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A store for all tests of a module: what one commits, the next finds."""
    if request.param == "memory":
        yield MemoryWorld()
    elif request.param == "sqlite":
        path = tmp_path_factory.mktemp("purge") / "expunge.db"
        shutil.copy(request.getfixturevalue("sqlite_template"), path)
        world = SqlWorld(f"sqlite:///{path}")
        yield world
        world.close()
    else:
        postgres = request.getfixturevalue("postgres")
        name = postgres.create(request.getfixturevalue("postgres_template"))
        world = SqlWorld(postgres.url(name))
        yield world
        world.close()
        postgres.drop(name)


@pytest.fixture
def world(committed: World) -> Iterator[World]:
    """As if it were new, and nothing of the test is left: tombstones cannot be removed, only never committed."""
    if isinstance(committed, SqlWorld):
        with committed.rolled_back():
            yield committed
    else:
        yield MemoryWorld()
