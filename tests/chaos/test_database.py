"""A database that crashes and comes back while workers run."""

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from chaos.conftest import ROUNDS, SEED, World
from waiting import wait_for

from expunge.models import schema
from expunge.models.database import Database

pytestmark = pytest.mark.chaos


@pytest.fixture
def own_postgres() -> Iterator[Any]:
    """A server that nobody else uses, so that it may crash."""
    from servers.postgres import Postgres

    server = Postgres()
    yield server
    server.stop()


@pytest.mark.parametrize("turn", range(ROUNDS))
def test_restarted_while_workers_run(make_world: Callable[[str], World], own_postgres: Any, turn: int) -> None:
    """Workers outlive it; a settle that cannot reach it is repeated, so the receipts come late but come."""
    chance = random.Random(f"{SEED}/database/{turn}")
    url = own_postgres.url(own_postgres.create())
    database = Database.open(url)
    schema.migrate(database)
    database.close()
    world = make_world(url)
    world.open()
    workers = [world.start("--keys-per-call", "1") for _ in range(2)]
    crash_at = 0
    for _ in range(2):
        crash_at = world.trip.count + chance.randint(5, 40)
        wait_for(lambda wanted=crash_at: world.trip.count >= wanted, what=f"request {crash_at} (seed {SEED})")
        assert not world.is_complete()
        own_postgres.restart()
    world.await_complete()
    for worker in workers:
        world.end(worker)
    world.check()
