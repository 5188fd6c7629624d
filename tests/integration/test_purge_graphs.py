"""The purge of every shape of graph: exactly those rows go that a plain walk over the rows finds."""

import os

import pytest
import sqlalchemy as sa
from doubles.random_graph import ROOT, Host, Link, hosts
from hypothesis import HealthCheck, example, given, settings

from expunge.models import fence
from expunge.models.graph import Rule
from expunge.models.graph_live import read_graph
from expunge.models.purge import purge
from expunge.models.purged import Principal, PurgeStatus

ADA = Principal("ada", "acme")
ROUNDS = int(os.environ.get("CHAOS_ROUNDS", "1"))


@pytest.fixture
def anew(database):
    """Gives a function that makes the host's tables in a database without any, inside one transaction that is rolled
    back at the end."""

    def check(host: Host) -> None:
        with database.engine.connect() as connection, connection.begin() as transaction:
            host.create(connection)
            live = read_graph(connection, host.graph)
            fence.install(connection, live)
            purged = purge(connection, host.graph, "t0", principal=ADA)
            left, deleted, detached = host.after_purge()
            assert purged.status == PurgeStatus.PURGED, purged
            assert host.read(connection) == left
            assert purged.deleted == deleted
            assert purged.detached == detached
            queued = connection.execute(sa.text("SELECT locator FROM erasure_outbox")).scalars()
            assert set(queued) == host.locators_gone()
            transaction.rollback()

    return check


def _circle(on_delete: str | None) -> Host:
    """Two tables that refer to each other's rows, one to itself, and the root to one of them."""

    def link(column: str, to: str) -> Link:
        return Link(column, to, foreign_key=True, on_delete=on_delete, nullable=True)

    return Host(
        links={
            ROOT: [link("r0", "m0")],
            "m0": [link("r0", ROOT), link("r1", "m1")],
            "m1": [link("r0", "m0"), link("r1", "m1")],
        },
        rules=dict.fromkeys((ROOT, "m0", "m1"), Rule.DELETE),
        rows={
            ROOT: {n: {"id": f"t{n}", "locator": None, "r0": n or None} for n in range(3)},
            "m0": {n: {"id": n, "locator": f"bucket/{n}", "r0": f"t{min(n, 1)}", "r1": n} for n in range(3)},
            "m1": {n: {"id": n, "locator": None, "r0": n % 3, "r1": (n + 3) % 9} for n in range(9)},
        },
    )


@example(host=_circle(None))
@example(host=_circle("CASCADE"))
@example(host=_circle("RESTRICT"))
@settings(deadline=None, max_examples=25 * ROUNDS, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(host=hosts())
def test_exactly_the_rows_of_the_conversation_go(anew, host):
    anew(host)
