"""The stores that the purge's suite runs on."""

from collections.abc import Iterator

import pytest
from conformance.purge_world import World


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    opened: World
    if request.param == "memory":
        from conformance.purge_memory import MemoryWorld

        opened = MemoryWorld()
    else:
        from conformance.purge_sql import SqlWorld

        opened = SqlWorld(request.getfixturevalue("sqlite_url" if request.param == "sqlite" else "postgres_url"))
    try:
        yield opened
    finally:
        opened.close()
