"""Many processes and threads at once: nothing is called twice, nothing is missed, nobody waits for ever."""

import os
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from doubles.crowd import ENTRIES
from doubles.running import Bench
from waiting import someone_waits, wait_for

from expunge.models import Target, open_case
from expunge.models.claim import claim
from expunge.models.database import Database
from expunge.models.decisions import hurry_deferred, resume
from expunge.models.holds import place_hold
from expunge.models.lanes import clear_lane, deferral, ensure_lane, pause_lane, read_lanes, set_failures
from expunge.models.mark import Marked, mark
from expunge.models.settle import add_parts, remove
from expunge.tasks.batch import Batch
from expunge.tasks.erasers.contract import Answer, utc_now
from expunge.tasks.health import record
from expunge.tasks.outcomes import Outcome

PROCESSES = 10
CASES = 4
MANY = 99
"""Threads of the policy: these tests start more drains than one process would."""
SECONDS = 60.0
ROUNDS = 40
"""For each of three isolation levels."""
PLAIN_INSERT = "INSERT INTO erasure_outbox (case_id, account, kind, locator) VALUES (%s, 'mem', 'object', %s)"
TESTS = Path(__file__).parents[1]


def at_once(*works: Callable[[], Any]) -> list[Any]:
    """Run them in threads that start together; gives what they gave. Raises what one of them raised."""
    barrier = threading.Barrier(len(works))
    results: list[Any] = [None] * len(works)
    errors: list[BaseException] = []

    def run(number: int, work: Callable[[], Any]) -> None:
        try:
            barrier.wait(SECONDS)
            results[number] = work()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=each, daemon=True) for each in enumerate(works)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
        assert not thread.is_alive(), "it hangs"
    if errors:
        raise errors[0]
    return results


def called(bench: Bench) -> Counter[str]:
    """How often each locator was in a delete call."""
    return Counter(x for operation, locators in list(bench.store.log) if operation == "delete" for x in locators)


@pytest.fixture
def postgres_database(postgres_url):
    database = Database.open(postgres_url, pool_size=20)
    yield database
    database.close()


def test_ten_processes_on_one_sqlite_file(sqlite_url, tmp_path):
    log = tmp_path / "calls"
    log.touch()
    path = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
    crowd = subprocess.run(
        [sys.executable, "-m", "doubles.crowd", sqlite_url, str(PROCESSES), str(log), str(CASES)],
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert "database is locked" not in crowd.stdout
    assert crowd.returncode == 0, crowd.stdout[-3000:]

    bench = Bench(Database.open(sqlite_url))
    calls = log.read_text().split()
    assert len(calls) == len(set(calls)) == PROCESSES * CASES * ENTRIES
    receipts = bench.receipts()
    assert sorted(receipt.locator for receipt in receipts) == sorted(calls)
    assert {(receipt.attempt, receipt.status) for receipt in receipts} == {(1, "deleted")}
    with bench.database.read() as tx:
        assert tx.rows("SELECT id FROM erasure_case WHERE completed_at IS NULL") == []
    bench.database.close()


def test_sweeps_and_drains_over_a_thousand_due_entries(postgres_database):
    """400 of them wait behind leases that ended, and 100 were being called by workers that died."""
    bench = Bench(postgres_database, threads=MANY, concurrency=4)
    names = [f"b/{number}" for number in range(1000)]
    bench.store.put(*names)
    bench.open(*names)
    with postgres_database.begin() as tx:
        for state, first, last in (("leased", 0, 400), ("calling", 400, 500)):
            tx.run(
                "UPDATE erasure_outbox SET state = :state, lease_until = {now+ago}, attempt = :attempt,"
                " lease_token = gen_random_uuid() WHERE locator {in text names}",
                state=state,
                ago=-1.0,
                attempt=int(state == "calling"),
                names=names[first:last],
            )

    def until_empty(step: Callable[[], Any]) -> None:
        wait_for(lambda: (step(), not bench.entries())[1], what="an empty outbox")

    drains = [lambda: until_empty(lambda: bench.drain(runtime=bench.another()))] * 4
    sweeps = [lambda: until_empty(bench.sweep)] * 3
    at_once(*drains, *sweeps)
    assert called(bench) == Counter(names)
    assert Counter(bench.statuses()) == {"deleted": 1000, "unknown": 100}
    assert {receipt.error for receipt in bench.receipts(status="unknown")} == {"Interrupted"}
    assert bench.case().completed_at is not None


def test_the_same_doorbell_ten_times_at_once(database):
    bench = Bench(database, threads=MANY)
    bench.store.put("b/1")
    bench.open("b/1")
    at_once(*[lambda: bench.drain(runtime=bench.another())] * 10)
    assert called(bench) == {"b/1": 1}
    assert bench.statuses() == ["deleted"]
    assert bench.case().completed_at is not None


def test_never_more_drains_than_places(database):
    bench = Bench(database, threads=MANY, concurrency=2, batch=1, timeout=15.0)  # one entry a claim
    names = [f"b/{number}" for number in range(30)]
    bench.store.put(*names)
    bench.open(*names)
    met, let_go = threading.Event(), threading.Event()
    both = threading.Barrier(2, action=met.set)
    working: set[int] = set()
    most = []

    def two_are_inside(locators):
        if not met.is_set():
            both.wait(SECONDS)  # proves that two do work at once …
        assert let_go.wait(SECONDS)

    def on_step(name):
        if name == "looked":
            working.add(threading.get_ident())
            most.append(len(working))
        elif name == "settled":
            working.discard(threading.get_ident())

    def drain_once() -> bool:
        runtime = bench.another()
        runtime.on_step = on_step
        ran = bench.drain(runtime=runtime).ran
        if not ran:
            refused.release()
        return ran

    bench.store.on_call = two_are_inside
    refused = threading.Semaphore(0)

    def others_are_sent_away() -> None:
        for _ in range(4):
            assert refused.acquire(timeout=SECONDS)  # … while four find no place
        let_go.set()

    ran = at_once(*[drain_once] * 6, others_are_sent_away)
    assert ran.count(True) == 2
    bench.open("b/31", *(f"b/more-{number}" for number in range(20)))
    at_once(*[lambda: wait_for(lambda: (drain_once(), not bench.entries())[1])] * 6)
    assert max(most) == 2
    assert max(called(bench).values()) == 1


@pytest.mark.parametrize("isolation", ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"])
def test_a_case_is_never_complete_with_an_entry_left(postgres_url, postgres_database, isolation):
    """Two drains remove the last two entries of a case while its host adds one more."""
    bench = Bench(postgres_database, threads=MANY, batch=1, timeout=15.0)  # one entry a claim
    host = sa.create_engine(postgres_url, isolation_level=isolation)
    refused = added = 0
    for number in range(ROUNDS):
        case, late = f"c{number}", f"b/{number}/late"
        names = [f"b/{number}/1", f"b/{number}/2"]
        bench.store.put(*names, late)
        bench.open(*names, case=case)
        # the host's snapshot may be older than any of it; it goes on when a drain has come to this step
        step = ("looked", "marked", "called", "settling", "settled")[number % 5]
        reached = threading.Event()

        def drain(reached: threading.Event = reached, step: str = step) -> None:
            runtime = bench.another()
            runtime.on_step = lambda name: reached.set() if name == step else None
            bench.drain(runtime=runtime)

        def add(reached: threading.Event = reached, case: str = case, late: str = late, number: int = number) -> bool:
            try:
                with host.begin() as connection:
                    connection.exec_driver_sql("SELECT count(*) FROM erasure_case")
                    assert reached.wait(SECONDS)
                    if number % 2:
                        open_case(connection, case_id=case, subject="s", targets=[Target("mem", "object", late)])
                    else:
                        statement = (
                            "INSERT INTO erasure_outbox (case_id, account, kind, locator) VALUES (%s, %s, %s, %s)"
                        )
                        connection.exec_driver_sql(statement, (case, "mem", "object", late))
            except sa.exc.DBAPIError as error:
                if error.orig.sqlstate != "40001":  # could not serialize
                    raise
                return False
            return True

        *_, came_through = at_once(drain, drain, add)
        added, refused = added + came_through, refused + (not came_through)
        complete = bench.case(case).completed_at is not None
        left = [entry.locator for entry in bench.entries(case_id=case)]
        assert not (complete and left)
        gone = {receipt.locator for receipt in bench.receipts(case_id=case)}
        assert (late in gone or late in left) == came_through
        bench.drain()
        bench.sweep()
        assert bench.entries() == []
        assert bench.case(case).completed_at is not None
    assert max(called(bench).values()) == 1
    assert added
    assert not refused or isolation != "READ COMMITTED"
    host.dispose()


def test_an_insert_in_flight_is_waited_for(postgres_url, postgres_database):
    """The settle of the last entry cannot see what the host has inserted and not committed: it waits, and sees."""
    bench = Bench(postgres_database)
    bench.store.put("b/1", "b/2")
    bench.open("b/1")
    with psycopg.connect(_plain(postgres_url)) as host, psycopg.connect(_plain(postgres_url), autocommit=True) as eye:
        host.execute(
            "INSERT INTO erasure_outbox (case_id, account, kind, locator) VALUES ('c1', 'mem', 'object', 'b/2')"
        )

        def commit_when_waited_for() -> None:
            waiting = "SELECT 1 FROM pg_stat_activity WHERE application_name = 'expunge' AND wait_event_type = 'Lock'"
            wait_for(lambda: eye.execute(waiting).fetchone(), what="a settle that waits")
            host.commit()

        at_once(bench.drain, commit_when_waited_for)
    assert bench.case().completed_at is None or bench.entries() == []
    bench.settle_all()
    assert sorted(receipt.locator for receipt in bench.receipts()) == ["b/1", "b/2"]
    assert bench.case().completed_at is not None


def test_no_connection_is_in_a_transaction_while_the_store_is_asked(postgres_url, postgres_database, monkeypatch):
    bench = Bench(postgres_database, batch=2)
    names = [f"b/{number}" for number in range(5)]
    bench.store.put(*names, "b/p/1", "b/p/2")
    bench.store.versions["b/v"] = ["v1", "v2"]
    seen = []
    with psycopg.connect(_plain(postgres_url), autocommit=True) as eye:

        def look_around(*_: Any) -> None:
            seen.append(
                eye.execute(
                    "SELECT state FROM pg_stat_activity WHERE application_name = 'expunge'"
                    " AND datname = current_database() AND xact_start IS NOT NULL"
                ).fetchall()
            )

        eraser = bench.runtime.eraser("mem")
        look = eraser.look
        monkeypatch.setattr(eraser, "look", lambda entries, until: (look_around(), look(entries, until))[1])
        bench.store.on_call = look_around
        bench.open(*names, "b/v")
        bench.open("b/p/", kind="prefix")
        bench.settle_all()
    assert len(seen) > 7
    assert not any(seen)


def test_an_idle_transaction_elsewhere_stops_nobody(postgres_url, postgres_database):
    bench = Bench(postgres_database)
    bench.store.put("b/1", "b/2")
    bench.open("b/1", "b/2")
    with psycopg.connect(_plain(postgres_url)) as idle:
        idle.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        assert idle.execute("SELECT count(*) FROM erasure_outbox").fetchone() == (2,)
        idle.execute("SELECT count(*) FROM erasure_record, erasure_case, erasure_lane")
        at_once(bench.drain)
        at_once(bench.sweep)
        assert bench.statuses() == ["deleted", "deleted"]
        assert bench.case().completed_at is not None
        assert idle.execute("SELECT count(*) FROM erasure_outbox").fetchone() == (2,)


def test_a_bucket_that_recovers_while_a_person_resumes_it(postgres_database):
    """Both make the entries that were put off due, and both change the lane: neither waits for the other's entries."""
    bench = Bench(postgres_database)
    bench.open("b/1", "b/2")
    with postgres_database.begin() as tx:
        ensure_lane(tx, "mem", "b")
        assert pause_lane(tx, "mem", "b", by="breaker", seconds=9.0, reason="refused: NoSuchBucket", refused=True)
        tx.run("UPDATE erasure_outbox SET reason = :reason, due_at = {now+hour}", reason=deferral("b"), hour=3600.0)
    with postgres_database.begin() as person:
        assert hurry_deferred(person, "mem") == 2
        with postgres_database.begin() as settle:
            settle.run("SET LOCAL lock_timeout = '5s'")
            assert clear_lane(settle, "mem", "b")
        resume(person, "mem", by="ops")
    assert {entry.reason for entry in bench.entries()} == {None}
    assert bench.drain().claimed == 2


def test_a_hold_waits_for_nobody_and_a_mark_waits_for_the_hold(postgres_database):
    """A settle and the next mark of its transaction take entries in the order of the calls, whatever their ids: a hold
    that waited for one, with another in its hands, could deadlock with them."""
    bench = Bench(postgres_database)
    bench.open("b/1", "b/2", "b/3")
    bench.open("b/4", case="c2")
    with postgres_database.begin() as tx:
        claimed = claim(tx, "mem", token=str(uuid.uuid4()), limit=9, lease_seconds=SECONDS)
    first, second, third, other = (entry.id for entry in claimed.entries)
    token = claimed.entries[0].token
    results = []

    with postgres_database.begin() as worker:

        def mark_again() -> None:
            results.append(mark(worker, "mem", [third, other, first], token=token, lease_seconds=SECONDS))

        assert mark(worker, "mem", [second], token=token, lease_seconds=SECONDS).attempts == {second: 1}
        thread = threading.Thread(target=mark_again, daemon=True)
        with postgres_database.begin() as person:
            person.run("SET LOCAL lock_timeout = '5s'")
            _, flying = place_hold(person, subject="s", by="counsel", why="matter 7")
            assert flying == [second]
            thread.start()
            wait_for(lambda: someone_waits(postgres_database), what="a mark that waits for the hold")
        thread.join(SECONDS)
    assert results == [Marked({}, [])]
    states = {entry.id: entry.state for entry in bench.entries()}
    assert states == {first: "held", second: "calling", third: "held", other: "held"}


def test_what_is_claimed_while_a_hold_is_placed_is_named_and_not_called(postgres_database):
    """The hold cannot see what a claim in flight makes of an entry: it may be marked before the hold is committed."""
    bench = Bench(postgres_database)
    bench.store.put("b/1", "b/2")
    bench.open("b/1", "b/2")
    with postgres_database.begin() as worker:
        claimed = claim(worker, "mem", token=str(uuid.uuid4()), limit=1, lease_seconds=SECONDS)
        with postgres_database.begin() as person:
            person.run("SET LOCAL lock_timeout = '5s'")
            _, flying = place_hold(person, subject="s", by="counsel", why="matter 7")
    (entry,) = claimed.entries
    assert flying == [entry.id]
    assert [row.state for row in bench.entries()] == ["leased", "held"]
    Batch(bench.runtime, bench.runtime.eraser("mem"), claimed, claimed_at=time.monotonic()).run()
    assert called(bench) == {}
    assert [row.state for row in bench.entries()] == ["held", "held"]


def test_a_listing_takes_no_entry_that_another_worker_may_wait_for(postgres_database):
    """A settle removes one object and marks the next, while a prefix that both are under is listed: the listing waits
    for the first to be gone, and must not have the second in its hands meanwhile."""
    bench = Bench(postgres_database)
    token = str(uuid.uuid4())
    bench.open("b/p/1", "b/p/2")
    with postgres_database.begin() as tx:
        first, second = (e.id for e in claim(tx, "mem", token=token, limit=9, lease_seconds=SECONDS).entries)
        assert mark(tx, "mem", [second], token=token, lease_seconds=SECONDS).attempts
    bench.open("b/p/", kind="prefix")
    with postgres_database.begin() as tx:
        (prefix,) = claim(tx, "mem", token=str(uuid.uuid4()), limit=9, lease_seconds=SECONDS).entries
    bench.open("b/p/3")
    children = [("object", f"b/p/{number}") for number in (1, 2, 3, 4)]
    own = []

    def list_it() -> None:
        with postgres_database.begin() as tx:
            own.append(
                add_parts(tx, prefix.id, "c1", "mem", children, token=prefix.token, cursor=None, delay_seconds=SECONDS)
            )

    thread = threading.Thread(target=list_it, daemon=True)
    with postgres_database.begin() as worker:
        worker.run("SET LOCAL lock_timeout = '5s'")
        assert remove(worker, [second], token=token) == 1
        thread.start()
        wait_for(lambda: someone_waits(postgres_database), what="a listing that waits for the object to be gone")
        assert mark(worker, "mem", [first], token=token, lease_seconds=SECONDS).attempts == {first: 1}
    thread.join(SECONDS)
    # the one that was gone meanwhile is looked at again; the one that is being called is left to who calls it
    assert own == [3]
    parents = {entry.locator: entry.parent_id for entry in bench.entries(kind="object")}
    assert parents == {"b/p/1": None, "b/p/2": prefix.id, "b/p/3": prefix.id, "b/p/4": prefix.id}


def test_a_listing_takes_what_its_own_worker_has_claimed(database):
    """A claim that has the prefix and an object under it erases it once."""
    bench = Bench(database)
    bench.store.put("b/p/1")
    bench.open("b/p/1")
    bench.open("b/p/", kind="prefix")
    bench.settle_all()
    assert called(bench) == {"b/p/1": 1}
    assert [(row.locator, row.status) for row in bench.receipts()] == [("b/p/1", "deleted"), ("b/p/", "deleted")]


def test_a_lanes_rows_are_locked_in_one_order(postgres_database):
    """One call is refused by a bucket and does well elsewhere: it writes the bucket's row and the lane's own."""
    bench = Bench(postgres_database)
    with postgres_database.begin() as tx:
        for scope in ("", "b"):
            ensure_lane(tx, "mem", scope)
            set_failures(tx, "mem", scope, 1, None)
        known = read_lanes(tx, "mem")
    now = utc_now()
    answers = [
        Answer(1, Outcome.REFUSED_SCOPE, "DeleteObjects", now, now, error="NoSuchBucket", scope="b"),
        Answer(2, Outcome.DELETED, "DeleteObjects", now, now),
    ]

    def settle() -> None:
        with postgres_database.begin() as tx:
            record(tx, bench.policy, "mem", answers, known=known)

    thread = threading.Thread(target=settle, daemon=True)
    with postgres_database.begin() as other:
        other.run("SET LOCAL lock_timeout = '5s'")
        ensure_lane(other, "mem")
        thread.start()
        wait_for(lambda: someone_waits(postgres_database), what="a settle that waits for the lane")
        ensure_lane(other, "mem", "b")
    thread.join(SECONDS)
    assert {(lane.scope, lane.failures) for lane in bench.lanes()} == {("", 0), ("b", 2)}


def _plain(url: str) -> str:
    """As psycopg itself takes it."""
    return url.replace("postgresql+psycopg:", "postgresql:")
