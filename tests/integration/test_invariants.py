"""The twelve things that must always hold, by their numbers in docs/ARCHITECTURE.md; the sharper and concurrent tests
of each are beside it in this folder and in tests/chaos."""

import threading

import pytest
import sqlalchemy as sa
from doubles.running import Bench

from expunge.models.claim import claim
from expunge.models.errors import RecordImmutable, translate
from expunge.models.holds import place_hold, release_hold
from expunge.models.mark import mark
from expunge.tasks.outcomes import Outcome


@pytest.fixture
def bench(database):
    return Bench(database)


class Killed(BaseException):
    """Stands for SIGKILL: nothing of ours may catch it and tidy up as if the call had not begun."""


def _kill_at(bench, step):
    def on_step(name):
        if name == step:
            raise Killed

    bench.runtime.on_step = on_step
    with pytest.raises(Killed):
        bench.drain()
    bench.runtime.on_step = lambda name: None


def test_01_no_delete_call_without_a_receipt(bench):
    bench.store.put("b/1")
    bench.open("b/1")
    _kill_at(bench, "called")
    assert bench.store.deletes() == 1
    assert (bench.entry().state, bench.receipts()) == ("calling", [])
    bench.later(31)
    assert bench.sweep().interrupted == 1
    (receipt,) = bench.receipts()
    assert (receipt.status, receipt.error, receipt.attempt) == ("unknown", "Interrupted", 1)
    bench.drain()
    assert bench.statuses() == ["unknown", "already_absent"]


def test_01_a_leased_entry_goes_back_and_nothing_is_counted(bench):
    bench.store.put("b/1")
    bench.open("b/1")
    with bench.database.begin() as tx:
        assert claim(tx, "mem", token="00000000-0000-0000-0000-000000000001", limit=5, lease_seconds=30).entries
    bench.later(31)
    assert bench.sweep().returned == 1
    entry = bench.entry()
    assert (entry.state, entry.attempt, entry.tries, entry.lost_leases) == ("ready", 0, 0, 0)
    assert bench.receipts() == []


def test_01_a_late_workers_receipts_are_kept_and_its_entry_is_left_alone(bench):
    bench.store.put("b/1")
    bench.open("b/1")

    def stopped_past_its_lease(locators):
        bench.store.on_call = lambda locators: None
        bench.later(31)
        bench.sweep()
        bench.drain(runtime=bench.another())

    bench.store.on_call = stopped_past_its_lease
    bench.drain()
    statuses = sorted(bench.statuses())
    assert statuses == ["already_absent", "deleted", "unknown"]
    assert bench.store.deletes() == 2
    assert bench.entries() == []


def test_01_a_settle_that_cannot_reach_the_database_is_repeated(bench, monkeypatch):
    from expunge.tasks import settling

    bench.store.put("b/1")
    bench.open("b/1")
    real, failures = settling.write, []

    def unreachable(tx, runtime, settlement, **more):
        real(tx, runtime, settlement, **more)
        if len(failures) < 3:
            failures.append(1)
            raise sa.exc.OperationalError("INSERT", {}, Exception("gone"))

    monkeypatch.setattr(settling, "write", unreachable)
    bench.drain()
    assert len(failures) == 3
    assert bench.statuses() == ["deleted"]


@pytest.mark.parametrize(
    ("outcome", "status"),
    [
        (Outcome.UNCONFIRMED, "failed"),
        (Outcome.LEFT_OUT, "unknown"),
        (Outcome.NO_ANSWER, "unknown"),
        (Outcome.REFUSED_SCOPE, "failed"),
        (Outcome.WRONG_IDENTITY, "failed"),
        (Outcome.ERROR, "failed"),
    ],
)
def test_02_no_receipt_says_more_than_the_answer(bench, outcome, status):
    bench.store.put("b/1")
    bench.store.always["b/1"] = outcome
    bench.open("b/1")
    bench.drain()
    assert bench.statuses() == [status]
    assert bench.case().completed_at is None


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ("UPDATE erasure_record SET status = 'deleted'", RecordImmutable),
        ("UPDATE erasure_record SET why = 'x' WHERE attempt = 1", RecordImmutable),
        ("DELETE FROM erasure_record", RecordImmutable),
        (
            "INSERT INTO erasure_record (id, case_id, subject, account, kind, locator, attempt, action, status, at)"
            " SELECT id, 'x', 's', 'a', 'k', 'l', 1, 'look', 'deleted', at FROM erasure_record",
            (RecordImmutable, type(None)),  # PostgreSQL's own unique violation has no other name
        ),
    ],
)
def test_03_receipts_are_never_changed(bench, change, error):
    bench.store.put("b/1")
    bench.store.always["b/1"] = Outcome.ERROR
    bench.open("b/1")
    bench.drain()
    before = bench.receipts()
    with pytest.raises(sa.exc.DBAPIError) as raised, bench.database.begin() as tx:
        tx.run(change)
    assert isinstance(translate(raised.value), error)
    assert bench.receipts() == before


def test_03_truncate_is_refused(postgres_url):
    from expunge.models.database import Database

    database = Database.open(postgres_url)
    for table in ("erasure_record", "erasure_decision"):
        with pytest.raises(sa.exc.DBAPIError) as raised, database.begin() as tx:
            tx.run(f"TRUNCATE {table}")
        assert isinstance(translate(raised.value), RecordImmutable)
    with pytest.raises(sa.exc.DBAPIError), database.begin() as tx:
        tx.run("SET LOCAL session_replication_role = replica")
        tx.run("TRUNCATE erasure_record")
    database.close()


@pytest.mark.parametrize("key", ["id", "rowid"])
def test_03_insert_or_replace_is_refused(sqlite_url, key):
    from expunge.models.database import Database

    bench = Bench(Database.open(sqlite_url))
    bench.open("b/1")
    bench.drain()
    before = bench.receipts()
    value = "id" if key == "id" else "'new'"
    rowid = "rowid" if key == "rowid" else "99"
    with pytest.raises(sa.exc.IntegrityError) as raised, bench.database.begin() as tx:
        tx.run(
            "INSERT OR REPLACE INTO erasure_record"
            " (rowid, id, case_id, subject, account, kind, locator, attempt, action, status, at)"
            f" SELECT {rowid}, {value}, 'x', 's', 'a', 'k', 'l', 1, 'look', 'deleted', at FROM erasure_record"
        )
    assert isinstance(translate(raised.value), RecordImmutable)
    assert bench.receipts() == before
    bench.database.close()


def test_03_a_receipt_comes_with_the_settle_or_not_at_all(bench):
    bench.store.put("b/1")
    bench.open("b/1")
    _kill_at(bench, "settling")
    assert (bench.receipts(), bench.entry().state) == ([], "calling")


def test_04_already_absent_is_success_and_a_case_can_always_be_driven_on(bench):
    bench.open("b/1")
    bench.store.script("b/1", *[Outcome.NO_ANSWER] * 3)
    bench.settle_all()
    assert bench.statuses() == ["unknown"] * 3 + ["already_absent"]
    assert bench.case().completed_at is not None


def test_05_a_case_is_complete_only_without_entries_and_with_evidence(bench):
    with bench.database.begin() as tx:
        tx.run("INSERT INTO erasure_case (id, subject) VALUES ('bare', 's')")
    bench.store.put("b/1", "b/2")
    bench.store.always["b/2"] = Outcome.ERROR
    bench.open("b/1", "b/2")
    bench.drain()
    bench.sweep()
    assert bench.case("bare").completed_at is None
    assert bench.case("c1").completed_at is None


def test_06_every_step_may_run_twice(bench):
    bench.store.put("b/1", "b/2")
    bench.open("b/1", "b/2")
    runtimes = [bench.another() for _ in range(4)]
    for _ in range(3):
        bench.sweep()
    threads = [threading.Thread(target=bench.drain, kwargs={"runtime": runtime}) for runtime in runtimes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    bench.sweep()
    assert sorted(bench.statuses()) == ["deleted", "deleted"]
    assert bench.store.deletes("b/1") == bench.store.deletes("b/2") == 1


def test_07_no_transaction_is_open_while_a_store_is_called(bench):
    bench.store.put("b/1")
    bench.open("b/1")
    seen = []

    def look_around(locators):
        seen.append(bench.database.in_transaction)
        seen.append(bench.database.engine.pool.checkedout() > 0)

    bench.store.on_call = look_around
    bench.drain()
    assert seen == [False, False]


def test_08_one_sick_entry_never_stops_its_neighbours(bench):
    names = [f"b/{n}" for n in range(30)]
    bench.store.put(*names)
    bench.store.always["b/7"] = Outcome.ERROR
    bench.open(*names)
    bench.drain()
    assert bench.entry().locator == "b/7"


def test_09_an_entry_that_commits_late_is_found(bench):
    """A row may commit after one with a higher id was erased: it is selected by its state."""
    bench.store.put("b/1", "b/2")
    bench.open("b/2")
    bench.drain()
    with bench.database.begin() as tx:
        tx.run(
            "INSERT INTO erasure_outbox (id, case_id, account, kind, locator) VALUES (-5, 'c1', 'mem', 'object', 'b/1')"
        )
    bench.sweep()
    bench.drain()
    assert bench.case().completed_at is not None
    assert len(bench.receipts()) == 2


def test_10_a_hold_before_the_mark_forbids_the_call(bench):
    bench.store.put("b/1")
    bench.open("b/1")

    def hold_it(step):
        if step == "looked":
            bench.runtime.on_step = lambda name: None
            with bench.database.begin() as tx:
                place_hold(tx, subject="s", by="counsel", why="matter 7")

    bench.runtime.on_step = hold_it
    bench.drain()
    assert bench.store.deletes() == 0
    assert bench.entry().state == "held"
    bench.sweep()
    assert bench.entry().state == "held"
    with bench.database.begin() as tx:
        assert release_hold(tx, 1, by="counsel", why="closed")
    assert bench.sweep().released == 1
    bench.drain()
    assert bench.statuses() == ["deleted"]


def test_10_a_hold_after_the_mark_names_the_call_in_flight(bench):
    bench.store.put("b/1", "b/2")
    bench.open("b/1")
    named = []

    def hold_it(locators):
        with bench.database.begin() as tx:
            named.append(place_hold(tx, subject="s", by="counsel", why="matter 7")[1])

    bench.store.on_call = hold_it
    entry_id = bench.entry().id
    bench.drain()
    assert named == [[entry_id]]
    assert bench.statuses() == ["deleted"]
    bench.store.on_call = lambda locators: None
    bench.open("b/2")
    bench.drain()
    assert bench.entry().state == "held"


def test_10_what_is_opened_under_a_hold_is_held_by_the_mark(bench):
    with bench.database.begin() as tx:
        place_hold(tx, subject="s", tenant="other", by="c", why="w")
    bench.store.put("b/1")
    bench.open("b/1")
    bench.drain()
    assert bench.statuses() == ["deleted"]  # the hold is another tenant's


def test_11_one_call_one_receipt(bench):
    """No call is repeated behind our back; the stores' SDKs are held to it in the conformance suite."""
    bench.store.put("b/1")
    bench.store.script("b/1", Outcome.UNAVAILABLE, Outcome.THROTTLED, Outcome.NO_ANSWER)
    bench.open("b/1")
    bench.settle_all()
    assert bench.store.deletes() == len(bench.receipts()) == 4


def test_12_no_content_is_stored_logged_or_sent(bench, capsys):
    bench.store.put("b/secret-path")
    bench.store.script(
        "b/secret-path", RuntimeError("<html>secret content</html>"), {"outcome": Outcome.ERROR, "error": "<p>"}
    )
    bench.open("b/secret-path")
    bench.settle_all()
    out = capsys.readouterr()
    assert "secret content" not in str([tuple(r) for r in bench.receipts()])
    assert [r.error for r in bench.receipts()] == ["RuntimeError", "UnrecognizedCode", None]
    assert "secret" not in out.out + out.err
    assert set(bench.rung) <= {"mem"}


def test_mark_is_refused_when_the_lease_is_over(bench):
    bench.open("b/1")
    token = "00000000-0000-0000-0000-000000000001"
    with bench.database.begin() as tx:
        (entry,) = claim(tx, "mem", token=token, limit=5, lease_seconds=30).entries
    bench.later(31)
    with bench.database.begin() as tx:
        assert mark(tx, "mem", [entry.id], token=token, lease_seconds=30).attempts == {}
