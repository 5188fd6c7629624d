"""The drain and the sweep over an in-memory store, on SQLite and PostgreSQL."""

import pytest
from doubles.running import Bench

from expunge.tasks.outcomes import Outcome


@pytest.fixture
def bench(database):
    return Bench(database)


def test_a_case_is_driven_to_completion(bench):
    bench.store.put("b/1", "b/2")
    bench.open("b/1", "b/2", "b/never")
    report = bench.drain()
    assert (report.claimed, report.calls, report.settled) == (3, 1, 3)
    assert bench.entries() == []
    by_locator = {r.locator: r for r in bench.receipts()}
    assert {k: r.status for k, r in by_locator.items()} == {
        "b/1": "deleted",
        "b/2": "deleted",
        "b/never": "already_absent",
    }
    one = by_locator["b/1"]
    assert (one.case_id, one.subject, one.account, one.store, one.kind) == ("c1", "s", "mem", "memory", "object")
    assert (one.attempt, one.action, one.operation, one.http_status) == (1, "delete", "Delete", 200)
    assert one.request_id
    assert one.purge_due_at > one.at
    assert bench.case().completed_at is not None


def test_throttled_pauses_the_lane_and_uses_no_try(bench):
    bench.store.put("b/1")
    bench.store.script("b/1", *[{"outcome": Outcome.THROTTLED, "retry_after": 9.0}] * 20)
    bench.open("b/1")
    for _ in range(20):
        bench.drain()
        (lane,) = bench.lanes()
        assert lane.paused_by == "throttle"
        assert bench.drain().claimed == 0
        bench.later(10)
    entry = bench.entry()
    assert (entry.state, entry.tries, entry.attempt) == ("ready", 0, 20)
    bench.drain()
    assert bench.entries() == []
    assert [(r.status, r.error) for r in bench.receipts()] == [("failed", "Throttled")] * 20 + [("deleted", None)]
    assert bench.lanes()[0].paused_by is None


def test_a_throttle_is_capped_at_an_hour(bench):
    bench.store.put("b/1")
    bench.store.script("b/1", {"outcome": Outcome.THROTTLED, "retry_after": 1e9})
    bench.open("b/1")
    bench.drain()
    bench.later(3601)
    bench.drain()
    assert bench.entries() == []


def test_breaker_opens_probes_rotate_and_use_no_try(database):
    bench = Bench(database, batch=1)
    names = [f"b/{n}" for n in range(8)]
    bench.store.put(*names)
    for name in names:
        bench.store.always[name] = Outcome.UNAVAILABLE
    bench.open(*names)
    bench.drain()
    (lane,) = bench.lanes()
    assert (lane.paused_by, lane.failures) == ("breaker", 5)
    assert sum(e.tries for e in bench.entries()) == 5
    probed = set()
    for _ in range(8):
        bench.later(120)
        before = bench.store.deletes()
        assert bench.drain().calls == 1
        assert bench.store.deletes() == before + 1
        probed.add(bench.store.log[-1][1])
    assert len(probed) > 3
    assert sum(e.tries for e in bench.entries()) == 5
    bench.store.always.clear()
    bench.settle_all()
    assert bench.statuses().count("deleted") == 8
    assert bench.lanes()[0].paused_by is None


def test_two_entries_do_not_open_the_breaker(database):
    bench = Bench(database, batch=1)
    bench.store.put("b/1", "b/2")
    bench.store.always.update({"b/1": Outcome.NO_ANSWER, "b/2": Outcome.NO_ANSWER})
    bench.open("b/1", "b/2")
    for _ in range(5):
        bench.drain()
        bench.later(100)
    assert bench.lanes()[0].paused_by is None
    assert set(bench.statuses()) == {"unknown"}


def test_five_times_fifteen_tries_then_a_person(bench):
    bench.store.put("b/1")
    bench.store.always["b/1"] = Outcome.ERROR
    bench.open("b/1")
    delays = []
    for _ in range(15):
        bench.drain()
        entry = bench.entry()
        if entry.state == "ready":
            delays.append(entry.tries)
        bench.later(3700)
    assert bench.entry().state == "escalated"
    assert len(bench.receipts()) == 15
    assert [n.kind for n in bench.notices()] == ["entry.escalated"]
    # an erasure is owed until it is done: once more a day, noticed once
    for _ in range(3):
        bench.later(90_000)
        assert bench.sweep().revived == 1
        bench.drain()
        assert bench.entry().state == "escalated"
    assert len(bench.receipts()) == 18
    assert len(bench.notices()) == 1
    bench.store.always.clear()
    bench.later(90_000)
    bench.sweep()
    bench.drain()
    assert bench.case().completed_at is not None


def test_refused_is_escalated_after_two(bench):
    bench.store.put("b/1", "b/2")
    bench.store.always["b/1"] = {"outcome": Outcome.REFUSED, "error": "AccessDenied"}
    bench.open("b/1", "b/2")
    bench.drain()
    bench.later(10)
    bench.drain()
    entry = bench.entry()
    assert (entry.state, entry.reason, entry.locator) == ("escalated", "AccessDenied", "b/1")
    assert [(r.status, r.error) for r in bench.receipts(locator="b/1")] == [("failed", "AccessDenied")] * 2


def test_the_same_refusal_of_a_bucket_pauses_that_bucket_only(bench):
    names = [f"gone/{n}" for n in range(50)]
    bench.store.put(*names, "b/1")
    for name in names:
        bench.store.always[name] = {"outcome": Outcome.REFUSED_SCOPE, "scope": "gone", "error": "NoSuchBucket"}
    bench.open(*names, "b/1")
    bench.drain()
    bench.later(60)
    bench.drain()
    assert bench.receipts(locator="b/1")[0].status == "deleted"
    lane = next(lane for lane in bench.lanes() if lane.scope == "gone")
    assert (lane.paused_by, lane.reason) == ("breaker", "refused: NoSuchBucket")
    calls = bench.store.deletes()
    bench.drain()
    assert bench.store.deletes() == calls
    assert not bench.entries(state="escalated")
    assert [n.kind for n in bench.notices()] == ["lane.paused"]
    bench.later(3700)
    bench.drain()
    probed = [call for call in bench.store.log[calls:] if call[0] == "delete"]
    assert [len(locators) for _, locators in probed] == [1]
    bench.store.always.clear()
    bench.settle_all()
    assert bench.case().completed_at is not None


def test_a_bucket_that_pauses_in_the_middle_of_a_claim_is_left_alone_at_once(database):
    bench = Bench(database, batch=1)
    names = [f"gone/{n}" for n in range(20)]
    bench.store.put("b/1", *names)
    for name in names:
        bench.store.always[name] = {"outcome": Outcome.REFUSED_SCOPE, "scope": "gone", "error": "NoSuchBucket"}
    bench.open(*names, "b/1")
    bench.drain()
    assert 3 <= sum(bench.store.deletes(name) for name in names) <= 4
    bench.drain()
    assert bench.receipts(locator="b/1")[0].status == "deleted"
    assert {e.state for e in bench.entries()} == {"ready"}


def test_wrong_identity_pauses_the_lane_at_once(bench):
    bench.store.put("b/1")
    bench.store.always["b/1"] = {"outcome": Outcome.WRONG_IDENTITY, "error": "WrongProject"}
    bench.open("b/1")
    bench.drain()
    (lane,) = bench.lanes()
    assert (lane.paused_by, bool(lane.refused), lane.reason) == ("breaker", True, "refused: WrongProject")
    assert bench.statuses() == ["failed"]


def test_left_out_and_exceptions_are_never_lost(bench):
    bench.store.put("b/1", "b/2", "b/3")
    bench.store.script("b/2", "left out")
    bench.open("b/1", "b/2", "b/3")
    bench.drain()
    assert {r.locator: r.status for r in bench.receipts()} == {"b/1": "deleted", "b/2": "unknown", "b/3": "deleted"}
    bench.store.script("b/2", ValueError("a body that must not be kept"), KeyError("x"))
    bench.settle_all()
    errors = [r.error for r in bench.receipts(locator="b/2")]
    assert errors == ["LeftOut", "ValueError", "KeyError", None]
    assert all("body" not in str(tuple(r)) for r in bench.receipts())


def test_retained_with_a_date_waits_for_it_and_without_asks_a_person(bench):
    from datetime import timedelta

    from expunge.tasks.erasers.contract import utc_now

    bench.store.put("b/1", "b/2")
    until = utc_now() + timedelta(days=3)
    bench.store.script("b/1", {"outcome": Outcome.RETAINED, "retain_until": until})
    bench.store.script("b/2", Outcome.RETAINED)
    bench.open("b/1", "b/2")
    bench.drain()
    states = {e.locator: e.state for e in bench.entries()}
    assert states == {"b/1": "ready", "b/2": "escalated"}
    assert set(bench.statuses()) == {"retained"}
    bench.later(2 * 86400)
    assert bench.drain().claimed == 0
    bench.later(2 * 86400)
    bench.settle_all()
    assert {n.kind for n in bench.notices()} == {"entry.retained", "entry.escalated"}


def test_versions_are_parts_and_the_closing_receipt_comes_last(bench):
    bench.store.versions["b/v"] = ["v1", "v2", "v3"]
    bench.open("b/v")
    bench.drain()
    receipts = bench.receipts()
    assert [(r.version, r.status, r.action) for r in receipts[-1:]] == [(None, "deleted", "look")]
    assert sorted((r.version, r.status) for r in receipts[:-1]) == [
        ("v1", "deleted"),
        ("v2", "deleted"),
        ("v3", "deleted"),
    ]
    assert bench.entries() == []


def test_a_version_that_stays_keeps_the_target_open(bench):
    bench.store.versions["b/v"] = ["v1", "v2"]
    bench.store.script("b/v?v2", Outcome.UNAVAILABLE)
    bench.open("b/v")
    bench.drain()
    assert bench.entry().state == "ready"
    assert not [r for r in bench.receipts() if r.version is None]
    bench.settle_all()
    assert bench.receipts()[-1].version is None


def test_a_prefix_is_unfolded_erased_and_listed_again(database):
    bench = Bench(database, page=10)
    names = [f"b/p/{n:03}" for n in range(57)]
    bench.store.put(*names, "b/q")
    bench.open("b/p/", kind="prefix")
    bench.settle_all()
    assert bench.store.objects == {"b/q"}
    closing = bench.receipts(kind="prefix")
    assert [(r.status, r.action) for r in closing] == [("deleted", "look")]
    assert len(bench.receipts(kind="object")) == 57
    assert bench.case().completed_at is not None


def test_an_empty_prefix_was_already_absent(bench):
    bench.open("b/p/", kind="prefix")
    bench.drain()
    assert bench.statuses() == ["already_absent"]


def test_a_prefix_that_fills_up_for_ever_is_escalated(bench):
    bench.store.put("b/p/1")
    bench.store.on_call = lambda locators: bench.store.put(f"b/p/new-{len(bench.store.log)}")
    bench.open("b/p/", kind="prefix")
    for _ in range(10):
        bench.drain()
        bench.sweep()
        bench.later(10)
    entry = bench.entry(kind="prefix")
    assert (entry.state, entry.rounds) == ("escalated", 3)
    assert entry.reason == "still filling up after 3 complete listings"


def test_a_prefix_adopts_an_object_listed_by_itself(bench):
    bench.store.put("b/p/1", "b/p/2")
    bench.open("b/p/1", case="c1")
    bench.open("b/p/", kind="prefix")
    bench.settle_all()
    assert bench.store.deletes("b/p/1") == 1
    assert bench.receipts(kind="prefix")[0].status == "deleted"


def test_two_prefixes_one_inside_the_other(bench):
    bench.store.put("b/p/1", "b/p/q/2")
    bench.open("b/p/", "b/p/q/", kind="prefix")
    bench.settle_all(step=5.0)
    assert [r.status for r in bench.receipts(kind="prefix")] == ["deleted", "deleted"]


def test_what_plain_sql_brought_and_cannot_be_tried_is_escalated(bench):
    bench.open("b/1")
    bench.store.put("b/1")
    with bench.database.begin() as tx:
        for account, kind, locator in [
            ("mem", "object", "no-slash"),
            ("mem", "nonsense", "x"),
            ("mem", "file", "file-1"),
            ("nobody", "object", "b/1"),
            ("mem", "object", "b/outside"),
        ]:
            tx.run(
                "INSERT INTO erasure_outbox (case_id, account, kind, locator) VALUES ('c1', :a, :k, :l)",
                a=account,
                k=kind,
                l=locator,
            )
    bench.runtime.eraser("mem").refused["b/outside"] = "locator: outside allow"
    bench.drain()
    bench.sweep()
    assert {(e.kind, e.state) for e in bench.entries()} == {
        ("object", "escalated"),
        ("nonsense", "escalated"),
        ("file", "escalated"),
    }
    assert bench.store.log == [("delete", ("b/1",))]
    assert len(bench.receipts()) == 1
    assert len(bench.notices(kind="entry.escalated")) == 5
    assert all(e.reason for e in bench.entries())


def test_a_lost_lease_while_calling_halves_then_singles_then_escalates(database):
    bench = Bench(database, batch=8)
    names = [f"b/{n}" for n in range(8)]
    bench.store.put(*names)
    bench.open(*names)
    sizes = []

    class Died(BaseException):
        pass

    def die(locators):
        sizes.append(len(locators))
        if "b/3" in locators:
            raise Died

    bench.store.on_call = die
    for _ in range(60):
        try:
            bench.drain()
        except Died:
            with bench.database.begin() as tx:  # a killed worker gives nothing back
                tx.run("UPDATE erasure_outbox SET state = state")
        bench.later(40)
        bench.sweep()
        if [e.state for e in bench.entries()] == ["escalated"]:
            break
    assert sizes[0] == 8
    assert 4 in sizes
    assert bench.entry().locator == "b/3"
    assert bench.store.deletes("b/3") == 0
    unknown = bench.receipts(locator="b/3", status="unknown")
    assert len(unknown) == 3
    assert {r.error for r in unknown} == {"Interrupted"}


def test_one_sick_store_does_not_stop_other_lanes(database):
    bench = Bench(database, accounts=("mem", "sick"))
    bench.store.put("b/1")
    bench.stores["sick"].always["b/1"] = Outcome.UNAVAILABLE
    bench.open("b/1", account="sick")
    bench.open("b/1")
    bench.drain("sick")
    bench.drain("mem")
    assert bench.receipts(account="mem")[0].status == "deleted"


def test_at_most_concurrency_drains_in_the_fleet(database):
    bench = Bench(database, concurrency=2, batch=1, timeout=15.0, threads=8)  # one entry a claim
    names = [f"b/{n}" for n in range(6)]
    bench.store.put(*names)
    bench.open(*names)
    depth = []
    reports = []

    def nested(locators):
        if len(depth) < 3:
            depth.append(locators)
            reports.append(bench.drain(runtime=bench.another()))

    bench.store.on_call = nested
    bench.drain()
    assert [r.ran for r in reports].count(False) >= 1
    assert len(depth) == 3
    assert bench.store.deletes() == 6


def test_an_operators_pause_is_lifted_by_nobody_else(bench):
    bench.store.put("b/1")
    bench.open("b/1")
    with bench.database.begin() as tx:
        tx.run("INSERT INTO erasure_lane (account, paused_by, paused_since) VALUES ('mem', 'operator', {now})")
    for _ in range(3):
        assert bench.drain().claimed == 0
        bench.sweep()
        bench.later(100_000)
    assert bench.lanes()[0].paused_by == "operator"
    assert bench.store.log == []


def test_stopping_gives_back_at_once_what_was_not_called(database):
    bench = Bench(database, batch=1)
    names = [f"b/{n}" for n in range(5)]
    bench.store.put(*names)
    bench.open(*names)
    bench.store.on_call = lambda locators: bench.runtime.stopping.set()
    bench.drain()
    assert bench.store.deletes() == 1
    left = bench.entries()
    assert [e.state for e in left] == ["ready"] * 4
    assert all(e.lease_token is None and e.tries == 0 for e in left)


def test_nothing_found_is_complete_without_a_receipt_and_reopens(bench):
    with bench.database.begin() as tx:
        tx.run("INSERT INTO erasure_case (id, subject, nothing_found) VALUES ('n', 's', true)")
        tx.run("INSERT INTO erasure_case (id, subject) VALUES ('empty', 's')")
    bench.sweep()
    assert bench.case("n").completed_at is not None
    assert bench.case("empty").completed_at is None
    with bench.database.begin() as tx:
        tx.run("INSERT INTO erasure_outbox (case_id, account, kind, locator) VALUES ('n', 'mem', 'object', 'b/1')")
    reopened = bench.case("n")
    assert (reopened.completed_at, bool(reopened.nothing_found)) == (None, False)


def test_a_notice_is_owed_when_the_statutory_date_comes_near(bench):
    with bench.database.begin() as tx:
        tx.run("INSERT INTO erasure_case (id, subject, basis) VALUES ('g', 's', 'gdpr')")
        tx.run("INSERT INTO erasure_outbox (case_id, account, kind, locator) VALUES ('g', 'mem', 'object', 'b/1')")
    bench.sweep()
    assert bench.case("g").due_at is not None
    assert bench.notices() == []
    bench.later(86400 * 25)
    bench.sweep()
    bench.sweep()
    assert [n.kind for n in bench.notices()] == ["case.due_soon"]


def test_a_breaker_open_for_an_hour_is_told_once(database):
    bench = Bench(database, batch=1)
    names = [f"b/{n}" for n in range(5)]
    bench.store.put(*names)
    bench.store.always.update(dict.fromkeys(names, Outcome.NO_ANSWER))
    bench.open(*names)
    for _ in range(60):
        bench.drain()
        bench.sweep()
        bench.later(80)
    assert [n.kind for n in bench.notices()] == ["lane.down"]
    assert not bench.entries(state="escalated")
