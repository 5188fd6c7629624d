"""What a hold does to the rest of a case, which ways in it stands in, and how the clock tells of a date: on SQLite and
PostgreSQL, over a store in memory."""

from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa
from doubles import talks
from doubles.running import Bench
from doubles.talks import ADA, TALKS

from expunge.models import open_case, track
from expunge.models.decisions import waive
from expunge.models.errors import Held
from expunge.models.extend import extend_case
from expunge.models.holds import place_hold, release_hold
from expunge.models.list_holds import expiring_objects, list_holds
from expunge.models.purge import case_id_of, purge
from expunge.models.purged import PurgeStatus

DAY = 86_400.0


@pytest.fixture
def bench(database):
    return Bench(database)


def hold(bench, **covers):
    with bench.database.begin() as tx:
        return place_hold(tx, **covers, by="counsel", why="matter 7")[0]


def release(bench, number):
    with bench.database.begin() as tx:
        assert release_hold(tx, number, by="counsel", why="over")
    bench.sweep()


def told(bench):
    return [(n.kind, n.dedupe.split("/")[1]) for n in bench.notices()]


def test_each_distance_is_told_once_and_again_after_an_extension(database):
    bench = Bench(database, due_soon_days=(14.0, 7.0, 1.0))
    bench.open("b/1", basis="ccpa")
    hold(bench, subject="s")  # a hold does not stop the clock

    def until(days_before, of):
        bench.later((of - days_before) * DAY + 60)
        bench.sweep()
        bench.sweep()

    until(14, of=45)
    assert len(told(bench)) == 1
    until(7, of=14)
    until(1, of=7)
    assert {kind for kind, _ in told(bench)} == {"case.due_soon"}
    first = told(bench)
    assert len(set(first)) == len(first) == 3
    with bench.database.begin() as tx:
        extend_case(tx, "c1", by="dana", why="forty requests")
    bench.sweep()
    assert told(bench) == first
    until(14, of=46)
    until(7, of=14)
    until(1, of=7)
    assert len(told(bench)) == len(set(told(bench))) == 6
    bench.later(DAY)
    bench.sweep()
    bench.sweep()
    assert [kind for kind, _ in told(bench)[6:]] == ["case.overdue"]


def test_of_distances_that_passed_at_once_the_nearest_is_told(database):
    bench = Bench(database, due_soon_days=(14.0, 7.0, 1.0))
    bench.open("b/1", basis="vcdpa")
    bench.later(39 * DAY)
    bench.sweep()
    assert told(bench) == [("case.due_soon", f"{7 * DAY:g}")]


@pytest.mark.parametrize("change", ["replace", "truncate", "delete", "update"])
def test_no_way_around_the_history_of_holds(bench, change):
    number = hold(bench, subject="s")
    dialect = bench.database.engine.dialect.name
    statement = {
        "replace": "INSERT OR REPLACE INTO erasure_hold (id, subject, placed_by, placed_why)"
        f" VALUES ({number}, 'nobody', 'x', 'y')",
        "truncate": "TRUNCATE erasure_hold",
        "delete": "DELETE FROM erasure_hold",
        "update": "UPDATE erasure_hold SET subject = 'nobody'",
    }[change]
    if dialect != {"replace": "sqlite", "truncate": "postgresql"}.get(change, dialect):
        statement = "DELETE FROM erasure_hold WHERE id > 0"  # the other has no such statement
    with pytest.raises(sa.exc.DBAPIError, match="append-only"), bench.database.begin() as tx:
        tx.run(statement)
    (page,) = list_holds(bench.database)
    assert [(row["id"], row["subject"]) for row in page] == [(number, "s")]


def test_a_hold_names_what_the_provider_drops_by_itself(bench):
    soon, later = datetime(2031, 5, 1, tzinfo=UTC), datetime(2031, 6, 1, tzinfo=UTC)
    with bench.database.begin() as tx:
        for locator, conversation, date in (("b/1", "t1", later), ("b/2", "t2", soon), ("b/3", "t2", None)):
            track(
                tx.connection,
                account="mem",
                kind="object",
                locator=locator,
                subject="s",
                conversation=conversation,
                expires_at=date,
            )
    number = hold(bench, subject="s")
    for opened in (False, True):  # in the inventory, and then as a held entry
        if opened:
            with bench.database.begin() as tx:
                open_case(tx.connection, subject="s", conversation="t1", case_id="c1", inventory=True)
            assert bench.entry().state == "held"
        (page,) = list_holds(bench.database)
        assert [(row["expiring"], row["expires_first"]) for row in page] == [(2, soon)]
        with bench.database.read() as tx:
            assert [row["locator"] for row in expiring_objects(tx, number)] == ["b/2", "b/1"]


def test_a_prefix_waits_for_its_held_part_while_its_siblings_go(bench):
    keys = [f"b/p/{n}" for n in range(5)]
    bench.store.put(*keys)
    number = hold(bench, account="mem", locator_prefix="b/p/3")
    bench.open("b/p/", kind="prefix")
    for _ in range(3):
        bench.drain()
        bench.sweep()
        bench.later(DAY)
    assert bench.store.objects == {"b/p/3"}
    assert {e.locator: e.state for e in bench.entries()} == {"b/p/": "waiting", "b/p/3": "held"}
    assert bench.case().completed_at is None
    release(bench, number)
    bench.settle_all()
    assert not bench.store.objects
    assert bench.case().completed_at is not None


def test_what_is_held_may_be_waived_by_a_person_who_says_why(bench):
    bench.store.put("b/1")
    bench.open("b/1")
    hold(bench, subject="s")
    entry = bench.entry()
    with bench.database.begin() as tx:
        waive(tx, [entry.id], by="dpo", why="kept for the court")
    assert (bench.entries(), bench.store.objects, bench.store.log) == ([], {"b/1"}, [])
    (receipt,) = bench.receipts()
    assert (receipt.status, receipt.actor, receipt.why) == ("waived", "dpo", "kept for the court")
    with bench.database.read() as tx:
        rows = tx.rows("SELECT actor, why FROM erasure_decision WHERE decision = 'waive'")
    assert [tuple(row) for row in rows] == [("dpo", "kept for the court")]


@pytest.mark.parametrize("way", ["account", "case"])
def test_a_purge_is_refused_by_a_hold_on_an_account_or_its_case(database, way):
    talks.create(database)
    bench, case = Bench(database), case_id_of(TALKS.name, "t1")

    def everything():
        with database.read() as tx:
            return {name: list(map(tuple, tx.rows(f"SELECT * FROM {name}"))) for name in ("talk", "work", "word")}

    def purged():
        with database.engine.begin() as connection:
            return purge(connection, TALKS, "t1", principal=ADA).status

    if way == "case":
        with database.begin() as tx:
            tx.run(
                "INSERT INTO erasure_case (id, subject, tenant, scope, conversation)"
                " VALUES (:id, 'ada', 'acme', 'conversation', 't1')",
                id=case,
            )
        number = hold(bench, case_id=case)
    else:
        number = hold(bench, account="ai", locator_prefix="file-")
    before = everything()
    with pytest.raises(Held):
        purged()
    assert everything() == before
    assert bench.entries() == []
    release(bench, number)
    assert purged() == PurgeStatus.PURGED


def test_a_hold_on_a_call_in_flight_meets_its_retry_at_the_claim(bench):
    bench.store.put("b/1")
    bench.open("b/1")
    with bench.database.begin() as tx:
        tx.run("UPDATE erasure_outbox SET state = 'calling', attempt = 1, lease_token = :t, lease_until = {now}",
               t="0" * 32)  # fmt: skip
    hold(bench, subject="s")
    bench.later(timedelta(minutes=1).total_seconds())
    bench.sweep()
    assert (bench.entry().state, bench.statuses()) == ("ready", ["unknown"])
    bench.later(DAY)
    bench.drain()
    assert (bench.entry().state, bench.store.log) == ("held", [])
