"""What a person decides, and how it meets what workers do at the same time."""

import threading
from datetime import timedelta

import pytest
import sqlalchemy as sa
from rows import NOW, add_case, change_entries
from waiting import someone_waits, wait_for

from expunge.models.database import Database
from expunge.models.decisions import hurry_deferred, pause, resume, retry, waive
from expunge.models.errors import CaseNotFound, EntryInFlight, EntryNotFound, InvalidDecision
from expunge.models.holds import place_hold, release_hold
from expunge.models.lanes import deferral, ensure_lane, pause_lane, read_lanes, set_failures
from expunge.models.list_cases import database_clock, read_case
from expunge.models.list_outbox import EntryFilter, list_entries
from expunge.models.list_receipts import ReceiptFilter, list_receipts
from expunge.models.tables import ErasureDecision

LATER = NOW + timedelta(days=3650)
WORN = {"tries": 15, "refusals": 2, "lost_leases": 3, "escalations": 4, "rounds": 3, "attempt": 20}


def _entries(database, **wanted):
    return {row["id"]: row for page in list_entries(database, EntryFilter(**wanted)) for row in page}


def _receipts(database, **wanted):
    return [row for page in list_receipts(database, ReceiptFilter(**wanted)) for row in page]


def _decisions(database):
    with database.read() as tx:
        rows = tx.connection.execute(sa.select(*ErasureDecision.__table__.columns).order_by(ErasureDecision.id))
        return [(row.decision, row.actor, row.why, row.account, row.case_id, row.entry_id) for row in rows]


def _case(database, case):
    with database.read() as tx:
        return read_case(tx, case)


@pytest.fixture
def mixed(database):
    """A case with an entry in every state, by state; `later` is ready and waits for its next try."""
    names = ["ready", "later", "leased", "calling", "waiting", "held", "escalated"]
    ids = dict(zip(names, add_case(database, "1", [f"b/{name}" for name in names]), strict=True))
    change_entries(database, [ids["later"]], due_at=LATER, reason="SlowDown", tries=3)
    for state in ("leased", "calling", "waiting", "held"):
        change_entries(database, [ids[state]], state=state)
    change_entries(database, [ids["escalated"]], state="escalated", reason="AccessDenied", due_at=LATER, **WORN)
    return ids


@pytest.mark.parametrize("how", ["ids", "case", "account"])
def test_retry_gives_escalated_entries_all_their_tries_and_hurries_waiting_ones(database, mixed, how):
    before = _entries(database)
    about = {"ids": list(mixed.values()), "case": "1", "account": "artifacts"}
    with database.begin() as tx:
        now = database_clock(tx)
        done = retry(tx, **{how: about[how]}, by="dana", why="fixed")
    assert (done.retried, done.hurried) == (1, 1)
    assert done.left == {"leased": 1, "calling": 1, "waiting": 1, "held": 1}
    after = _entries(database)
    changed = {"escalated", "later"}
    assert all(after[i] == before[i] for name, i in mixed.items() if name not in changed)
    row = after[mixed["escalated"]]
    assert {row[name] for name in WORN if name != "attempt"} == {0}
    assert (row["state"], row["reason"], row["attempt"]) == ("ready", None, 20)
    assert after[mixed["later"]]["tries"] == 3
    assert all(now - timedelta(minutes=1) < after[mixed[name]]["due_at"] < LATER for name in changed)
    if how == "ids":
        assert sorted(_decisions(database)) == sorted(
            ("retry", "dana", "fixed", "artifacts", "1", mixed[name]) for name in changed
        )
    else:
        decided = ("artifacts", None) if how == "account" else (None, "1")
        assert _decisions(database) == [("retry", "dana", "fixed", *decided, None)]
    assert done.lanes == {"artifacts"}


def test_retry_of_something_unknown_changes_nothing(database, mixed):
    before = _entries(database)
    with pytest.raises(EntryNotFound, match="999"), database.begin() as tx:
        retry(tx, ids=[mixed["escalated"], 999], by="dana")
    with pytest.raises(CaseNotFound), database.begin() as tx:
        retry(tx, case="2", by="dana")
    assert _entries(database) == before
    assert _decisions(database) == []


@pytest.mark.parametrize("name", ["ready", "later", "waiting", "held", "escalated"])
def test_waive_leaves_a_receipt_and_removes_the_entry(database, mixed, name):
    row = _entries(database)[mixed[name]]
    with database.begin() as tx:
        done = waive(tx, [mixed[name]], by="dana", why="TICKET-1")
    assert mixed[name] not in _entries(database)
    (found,) = _receipts(database)
    assert done.receipts == [found["id"]]
    expected = {
        "case_id": "1",
        "entry_id": mixed[name],
        "tenant": "t",
        "subject": "s",
        "account": "artifacts",
        "kind": "object",
        "locator": f"b/{name}",
        "attempt": row["attempt"],
        "status": "waived",
        "action": "decision",
        "actor": "dana",
        "why": "TICKET-1",
    }
    assert {key: found[key] for key in expected} == expected
    assert {found[key] for key in ("store", "http_status", "request_id", "called_at", "version", "error")} == {None}
    assert _decisions(database) == [("waive", "dana", "TICKET-1", "artifacts", "1", mixed[name])]
    assert done.completed == []


@pytest.mark.parametrize("name", ["leased", "calling"])
def test_nothing_is_waived_if_one_is_in_flight(database, mixed, name):
    before = _entries(database)
    with pytest.raises(EntryInFlight, match=str(mixed[name])), database.begin() as tx:
        waive(tx, [mixed["ready"], mixed[name]], by="dana", why="x")
    assert (_entries(database), _receipts(database), _decisions(database)) == (before, [], [])


def test_nothing_is_waived_if_one_is_unknown_or_nobody_says_why(database, mixed):
    before = _entries(database)
    with pytest.raises(EntryNotFound, match="998, 999"), database.begin() as tx:
        waive(tx, [998, mixed["ready"], 999], by="dana", why="x")
    for by, why in (("", "x"), ("dana", " ")):
        with pytest.raises(InvalidDecision, match="who decided"), database.begin() as tx:
            waive(tx, [mixed["ready"]], by=by, why=why)
    assert (_entries(database), _receipts(database), _decisions(database)) == (before, [], [])


DECIDE = {
    "retry": lambda tx, ids, **who: retry(tx, ids=ids, **who),
    "waive": lambda tx, ids, **who: waive(tx, ids, **who),
    "pause": lambda tx, ids, **who: pause(tx, "artifacts", **who),
    "resume": lambda tx, ids, **who: resume(tx, "artifacts", **who),
    "hold": lambda tx, ids, **who: place_hold(tx, **{"subject": "s", **who}),
    "release": lambda tx, ids, **who: release_hold(tx, 1, **who),
}


@pytest.mark.parametrize(
    ("name", "field"),
    [
        *((name, field) for name in DECIDE for field in ("by", "why")),
        *(("hold", field) for field in ("subject", "tenant", "conversation", "matter")),
    ],
)
def test_a_decision_is_signed_in_plain_text(database, mixed, name, field):
    before = _entries(database)
    for text in ("d\x1b[2K", "\0", "d\nx", "d\x7f", "d\x9b", "\u202ed", "d\u2066", "\ud800"):
        with pytest.raises(InvalidDecision, match=f"^{field}: holds U"), database.begin() as tx:
            DECIDE[name](tx, [mixed["escalated"]], **{"by": "dana", "why": "x", field: text})
    assert (_entries(database), _receipts(database), _decisions(database)) == (before, [], [])


def test_the_last_waiver_completes_the_case(database):
    one, two = add_case(database, "1", ["b/1", "b/2"])
    other = add_case(database, "2", ["b/1"])
    with database.begin() as tx:
        assert waive(tx, [one], by="d", why="x").completed == []
    with database.begin() as tx:
        assert waive(tx, [two, *other], by="d", why="x").completed == ["1", "2"]
    assert [_case(database, case)["state"] for case in ("1", "2")] == ["complete", "complete"]
    assert _case(database, "1")["completed_at"] is not None


def _family(database):
    """A prefix that waits for a conversation-like part, which waits for its own, and a neighbour."""
    root, middle, leaf, other = add_case(database, "1", ["b/p/", "b/p/q/", "b/p/q/r", "b/else"])
    change_entries(database, [root], state="waiting", had_parts=True, rounds=1)
    change_entries(database, [middle], state="waiting", had_parts=True, parent_id=root)
    change_entries(database, [leaf], parent_id=middle)
    return root, middle, leaf, other


def test_with_a_composite_target_go_all_its_parts(database):
    root, middle, leaf, other = _family(database)
    with database.begin() as tx:
        done = waive(tx, [root], by="d", why="x")
    assert len(done.receipts) == 3
    assert set(_entries(database)) == {other}
    assert {row["entry_id"] for row in _receipts(database)} == {root, middle, leaf}
    assert [decision[-1] for decision in _decisions(database)] == [root]


def test_the_parent_of_the_last_part_is_woken(database):
    root, middle, leaf, _ = _family(database)
    with database.begin() as tx:
        waive(tx, [leaf], by="d", why="x")
    rows = _entries(database)
    assert (rows[middle]["state"], rows[root]["state"]) == ("ready", "waiting")


def test_a_composite_target_is_in_flight_if_a_part_is(database):
    root, middle, leaf, _ = _family(database)
    change_entries(database, [leaf], state="calling")
    before = _entries(database)
    for entry in (root, middle):
        with pytest.raises(EntryInFlight, match=str(leaf)), database.begin() as tx:
            waive(tx, [entry], by="d", why="x")
    assert (_entries(database), _receipts(database)) == (before, [])


def test_a_thousand_and_more_are_waived_in_one_transaction(database):
    ids = add_case(database, "1", [f"b/{n}" for n in range(2500)])
    with database.begin() as tx:
        assert len(waive(tx, ids, by="d", why="x").receipts) == 2500
    assert _case(database, "1")["receipts"] == 2500
    assert _case(database, "1")["state"] == "complete"


def test_two_people_waive_the_last_two_entries_at_once(database):
    """Each sees the other's entry or not: the case is never complete with an entry left, and never two receipts."""
    for n in range(10):
        ids = add_case(database, f"{n}", ["b/1", "b/2"])
        both = threading.Barrier(2)
        refused = []

        def decide(wanted, both=both, refused=refused):
            both.wait()
            try:
                with database.begin() as tx:
                    waive(tx, wanted, by="d", why="x")
            except (EntryInFlight, EntryNotFound) as error:
                refused.append(error)

        threads = [threading.Thread(target=decide, args=(wanted,)) for wanted in (ids[:1], ids)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        left = _entries(database, case=f"{n}")
        receipts = [row["entry_id"] for row in _receipts(database, case=f"{n}")]
        assert sorted([*left, *receipts]) == sorted(ids)
        assert _case(database, f"{n}")["state"] == ("open" if left else "complete")
        assert len(refused) <= 1


def test_what_a_worker_has_locked_is_in_flight_and_not_waited_for(postgres_url):
    database = Database.open(postgres_url)
    one, two = add_case(database, "1", ["b/1", "b/2"])
    with database.begin() as worker:
        worker.rows("SELECT 1 FROM erasure_outbox WHERE id = :id FOR UPDATE", id=one)
        with pytest.raises(EntryInFlight, match=str(one)), database.begin() as tx:
            waive(tx, [one, two], by="d", why="x")
        with database.begin() as tx:
            assert len(waive(tx, [two], by="d", why="x").receipts) == 1
    database.close()


def test_a_target_added_while_the_last_entry_is_waived_keeps_the_case_open(postgres_url):
    database = Database.open(postgres_url)
    ids = add_case(database, "1", ["b/1"])
    done = []

    def decide():
        with database.begin() as tx:
            done.append(waive(tx, ids, by="d", why="x"))

    with database.begin() as host:
        host.run(
            "INSERT INTO erasure_outbox (case_id, account, kind, locator) VALUES ('1', 'artifacts', 'object', 'b/2')"
        )
        person = threading.Thread(target=decide)
        person.start()
        wait_for(lambda: someone_waits(database), what="a person who waits for the host")
    person.join()
    assert done[0].completed == []
    assert _case(database, "1")["state"] == "open"
    database.close()


def _lane(database, scope=""):
    with database.read() as tx:
        return read_lanes(tx, "artifacts").get(scope)


def test_pause_stands_until_somebody_resumes(database):
    with database.begin() as tx:
        pause(tx, "artifacts", by="dana", why="maintenance")
    first = _lane(database)
    assert (first.paused_by, first.paused_until, first.reason) == ("operator", None, "maintenance")
    assert first.is_paused
    with database.begin() as tx:
        assert not pause_lane(tx, "artifacts", by="throttle", seconds=5, reason="SlowDown")
        pause(tx, "artifacts", by="eve")
    assert _lane(database).paused_since == first.paused_since
    with database.begin() as tx:
        done = resume(tx, "artifacts", by="dana", why="over")
    assert [lane.paused_by for lane in done.lifted] == ["operator"]
    assert not _lane(database).is_paused
    assert [decision[:4] for decision in _decisions(database)] == [
        ("pause", "dana", "maintenance", "artifacts"),
        ("pause", "eve", None, "artifacts"),
        ("resume", "dana", "over", "artifacts"),
    ]


def test_an_operators_pause_takes_over_from_a_breaker(database):
    with database.begin() as tx:
        ensure_lane(tx, "artifacts")
        pause_lane(tx, "artifacts", by="breaker", seconds=60, reason="InvalidAccessKeyId", refused=True)
        pause(tx, "artifacts", by="dana")
    lane = _lane(database)
    assert (lane.paused_by, lane.paused_until, lane.refused) == ("operator", None, False)


def test_resume_lifts_every_pause_of_the_lane_and_its_buckets(database):
    put_off, others, tried = add_case(database, "1", ["sick/1", "well/1", "sick/2"])
    change_entries(database, [put_off], due_at=LATER, reason=deferral("sick"))
    change_entries(database, [tried], due_at=LATER, reason="SlowDown")
    with database.begin() as tx:
        for scope, by in (("", "throttle"), ("sick", "breaker")):
            ensure_lane(tx, "artifacts", scope)
            pause_lane(tx, "artifacts", scope, by=by, seconds=3600, reason="x", refused=True)
            set_failures(tx, "artifacts", scope, 5, {"entries": [1]})
        ensure_lane(tx, "other")
        pause_lane(tx, "other", by="throttle", seconds=3600, reason="x")
    with database.begin() as tx:
        done = resume(tx, "artifacts", by="dana")
    assert [(lane.scope, lane.paused_by) for lane in done.lifted] == [("", "throttle"), ("sick", "breaker")]
    assert done.due == 1
    for scope in ("", "sick"):
        lane = _lane(database, scope)
        assert (lane.paused_by, lane.paused_since, lane.failures, lane.failing, lane.refused) == (
            None,
            None,
            0,
            {},
            False,
        )
    rows = _entries(database)
    assert rows[put_off]["due_at"] < LATER
    assert rows[put_off]["reason"] is None
    assert rows[tried]["due_at"] == LATER
    with database.read() as tx:
        assert read_lanes(tx, "other")[""].is_paused
    change_entries(database, [others], due_at=LATER, reason=deferral("sick"))
    with database.begin() as tx:
        assert hurry_deferred(tx, "artifacts") == 1


def test_resuming_a_lane_that_runs_does_nothing_but_say_so(database):
    with database.begin() as tx:
        done = resume(tx, "artifacts", by="dana")
    assert (done.lifted, done.due) == ([], 0)
    assert _lane(database) is None
