"""Second looks over an in-memory store, on SQLite and PostgreSQL: what is verified, what comes back, what is only
accepted, and that a look that is owed keeps nothing else waiting."""

import threading
from datetime import timedelta

import pytest
from doubles.running import Bench
from doubles.store import NO_KEY, NOT_SENT

from expunge.models import Target, decisions, open_case, track
from expunge.models.decisions import retry, waive
from expunge.models.errors import InvalidDecision
from expunge.models.holds import place_hold
from expunge.models.idle import can_move, standing
from expunge.models.list_cases import read_case
from expunge.models.list_receipts import ReceiptFilter, list_receipts
from expunge.tasks.outcomes import Outcome
from expunge.worker.commands.two_dates import TwoDates

AFTER = 1000.0


@pytest.fixture
def bench(database):
    return Bench(database, verify_after=AFTER, attempts_before_escalation=3)


def erased(bench, *locators, **more):
    """Erase them, so that only their second look is left."""
    bench.store.put(*locators)
    bench.open(*locators, **more)
    bench.drain()
    assert {(e.action, bool(e.settled), e.state) for e in bench.entries()} == {("verify", True, "ready")}
    assert bench.case().completed_at is not None


def look(bench, after=AFTER + 1):
    bench.later(after)
    bench.sweep()
    bench.drain()


def test_a_success_is_looked_at_again_and_keeps_no_case_open(bench):
    erased(bench, "b/1")
    bench.drain()
    assert [op for op, _ in bench.store.log] == ["delete"]
    look(bench)
    assert bench.entries() == []
    assert [(r.action, r.status) for r in bench.receipts()] == [("delete", "deleted"), ("verify", "absent")]
    assert [op for op, _ in bench.store.log] == ["delete", "verify"]
    assert bench.receipts()[1].purge_due_at is None


def test_what_is_there_again_is_erased_again_and_its_case_is_open(bench):
    erased(bench, "b/1")
    bench.store.put("b/1")
    bench.later(AFTER + 1)
    bench.store.script("b/1", Outcome.ERROR)
    bench.drain()
    entry = bench.entry()
    assert (entry.action, bool(entry.settled), entry.reappeared) == ("delete", False, 1)
    assert bench.case().completed_at is None
    assert [n.kind for n in bench.notices()] == ["entry.reappeared"]
    look(bench, 60)
    assert "b/1" not in bench.store.objects
    assert bench.case().completed_at is not None
    assert bench.statuses() == ["deleted", "present", "failed", "deleted"]
    look(bench)
    assert bench.statuses()[-1] == "absent"
    assert bench.entries() == []


def test_the_second_time_a_person_is_asked_and_a_retry_begins_anew(bench):
    erased(bench, "b/1")
    for _ in range(2):
        bench.store.put("b/1")
        look(bench)
    entry = bench.entry()
    assert (entry.state, entry.action, entry.reappeared, entry.reason) == ("escalated", "delete", 2, "Reappeared")
    assert sorted(n.kind for n in bench.notices()) == ["entry.escalated", *["entry.reappeared"] * 2]
    assert bench.case().completed_at is None
    with bench.database.begin() as tx:
        retry(tx, case="c1", by="ops")
    assert bench.entry().reappeared == 0
    bench.drain()
    look(bench)
    assert (bench.entries(), bench.statuses()[-2:]) == ([], ["deleted", "absent"])


def test_what_cannot_be_told_after_its_tries_is_unverifiable_and_goes(bench):
    erased(bench, "b/1")
    bench.store.always["verify b/1"] = Outcome.ERROR
    for _ in range(3):
        look(bench, 4000)
    assert bench.entries() == []
    assert bench.statuses() == ["deleted", *["unverifiable"] * 3]
    assert bench.case().completed_at is not None
    assert bench.notices() == []


@pytest.mark.parametrize("said", [Outcome.REFUSED, NOT_SENT, Outcome.PARENT_ABSENT])
def test_a_refused_look_ends_at_once(bench, said):
    erased(bench, "b/1")
    bench.store.script("verify b/1", said)
    look(bench)
    assert (bench.entries(), bench.statuses()) == ([], ["deleted", "unverifiable"])


@pytest.mark.parametrize("said", [Outcome.DELETED, Outcome.ACCEPTED, Outcome.WRONG_IDENTITY, Outcome.UNCONFIRMED])
def test_only_the_stores_own_word_is_an_absence(bench, said):
    erased(bench, "b/1")
    bench.store.script("verify b/1", said)
    look(bench)
    assert bench.statuses() == ["deleted", "unverifiable"]
    assert bench.entry().settled


def test_an_eraser_without_a_second_look(bench):
    erased(bench, "b/1")
    bench.runtime.eraser("mem").verify = None
    look(bench)
    assert (bench.entries(), bench.receipts()[1].error) == ([], "NoSecondLook")


def test_a_delete_that_finds_something_present_confirms_nothing(bench):
    bench.store.put("b/1")
    bench.store.script("b/1", Outcome.PRESENT)
    bench.open("b/1")
    bench.drain()
    assert [(r.status, r.error) for r in bench.receipts()] == [("failed", "Unconfirmed")]


def test_a_lane_that_nothing_can_be_sent_for_waits_with_its_looks(bench):
    erased(bench, "b/1")
    bench.store.unusable = NO_KEY
    look(bench)
    assert (bench.statuses(), bench.entry().state, bench.lanes()[0].paused_by) == (["deleted"], "ready", "breaker")


def test_a_throttled_look_uses_no_try(bench):
    erased(bench, "b/1")
    bench.store.script("verify b/1", *[Outcome.THROTTLED] * 5)
    for _ in range(5):
        look(bench, 4000)
    assert bench.entry().tries == 0
    look(bench, 4000)
    assert bench.statuses()[-1] == "absent"


def test_an_accepted_order_keeps_its_case_open_until_a_look_finds_it_gone(bench):
    bench.store.put("b/1")
    bench.store.script("b/1", Outcome.ACCEPTED)
    bench.open("b/1")
    bench.drain()
    assert (bench.statuses(), bench.case().completed_at) == (["accepted"], None)
    entry = bench.entry()
    assert (entry.action, bool(entry.settled)) == ("verify", False)
    look(bench, 60)
    assert bench.case().completed_at is None
    bench.store.objects.clear()
    look(bench, 60)
    assert bench.statuses() == ["accepted", "present", "absent"]
    assert bench.case().completed_at is not None
    assert (bench.entries(), bench.receipts()[-1].purge_due_at is not None) == ([], True)


def test_an_accepted_order_that_is_never_done_needs_a_person(bench):
    bench.store.put("b/1")
    bench.store.always["b/1"] = Outcome.ACCEPTED
    bench.open("b/1")
    for _ in range(6):
        bench.drain()
        bench.later(4000)
    entry = bench.entry()
    assert (entry.state, entry.reason, bench.case().completed_at) == ("escalated", "StillPresent", None)
    assert [n.kind for n in bench.notices()] == ["entry.escalated"]


def test_a_hold_stops_no_look_but_what_came_back_is_held(bench):
    erased(bench, "b/1")
    with bench.database.begin() as tx:
        place_hold(tx, subject="s", by="counsel", why="matter 7")
    bench.store.put("b/1")
    look(bench)
    look(bench, 1)
    assert bench.statuses() == ["deleted", "present"]
    assert bench.entry().state == "held"
    assert "b/1" in bench.store.objects


def test_a_look_that_lost_its_lease_goes_back_uncounted(bench):
    erased(bench, "b/1")
    bench.later(AFTER + 1)
    with bench.database.begin() as tx:
        tx.run("UPDATE erasure_outbox SET state = 'leased', lease_token = :t, lease_until = {now}", t="0" * 32)
    bench.later(1)
    assert bench.sweep().returned == 1
    assert (bench.entry().attempt, bench.entry().lost_leases, bench.statuses()) == (1, 0, ["deleted"])


def test_parts_of_a_prefix_need_no_look_of_their_own(bench):
    bench.store.put("b/u/1", "b/u/2")
    bench.open("b/u/", kind="prefix")
    for _ in range(4):
        bench.drain()
        bench.sweep()
        bench.later(5)
    assert [(e.kind, e.action) for e in bench.entries()] == [("prefix", "verify")]
    assert bench.case().completed_at is not None


def test_opening_again_is_as_for_what_is_settled(bench):
    erased(bench, "b/1")
    with bench.database.begin() as tx:
        opened = open_case(tx.connection, case_id="c1", subject="s", targets=[Target("mem", "object", "b/1")])
    assert (opened.added, opened.known) == (0, 1)
    assert bench.case().completed_at is not None


def test_what_is_tracked_again_is_erased_again(bench):
    erased(bench, "b/1", scope="subject")
    with bench.database.begin() as tx:
        track(tx.connection, account="mem", kind="object", locator="b/1", subject="s")
    with bench.database.begin() as tx:
        opened = open_case(tx.connection, case_id="c1", subject="s", inventory=True)
    assert opened.added == 1
    assert (bench.entry().action, bench.case().completed_at) == ("delete", None)


def test_a_look_is_nothing_that_is_left(bench):
    erased(bench, "b/1")
    with bench.database.read() as tx:
        assert (standing(tx).left, read_case(tx, "c1")["entries"]) == (0, {})
        assert not can_move(tx, AFTER - 10)
        assert can_move(tx, AFTER + 10)


def test_a_look_cannot_be_waived_and_no_retry_of_a_case_hurries_it(bench):
    erased(bench, "b/1")
    entry = bench.entry()
    with pytest.raises(InvalidDecision, match="second look"), bench.database.begin() as tx:
        waive(tx, [entry.id], by="dpo", why="law")
    with bench.database.begin() as tx:
        assert retry(tx, case="c1", by="ops").hurried == 0
        assert retry(tx, ids=[entry.id], by="ops").hurried == 1
    bench.drain()
    assert bench.statuses() == ["deleted", "absent"]


def test_what_a_settle_erases_while_it_is_being_waived_is_not_waived(database, monkeypatch):
    """The settle commits between the waiver's first look at the entry and its lock; SQLite lets one write at a time."""
    bench = Bench(database, verify_after=AFTER)
    bench.open("b/1")
    refuse = decisions._refuse_erased

    def settle_meanwhile(ids):
        refuse(ids)
        if not bench.receipts():
            worker = threading.Thread(target=bench.drain)
            worker.start()
            worker.join()

    if database.dialect == "postgresql":
        monkeypatch.setattr(decisions, "_refuse_erased", settle_meanwhile)
    else:
        bench.drain()
    with pytest.raises(InvalidDecision, match="second look"), database.begin() as tx:
        waive(tx, [bench.entry().id], by="dpo", why="law")
    assert (bench.statuses(), bench.entry().settled) == (["already_absent"], True)


def test_what_is_erased_is_nobodys_part_and_is_not_waived_with_the_whole(bench):
    """A listing takes an entry of the same claim as its part, whose own call then closes it as a target."""
    bench.store.put("b/u/1", "b/u/2")
    with bench.database.begin() as tx:
        targets = [Target("mem", "prefix", "b/u/"), Target("mem", "object", "b/u/1")]
        open_case(tx.connection, case_id="c1", subject="s", targets=targets)
    bench.store.always["b/u/2"] = Outcome.ERROR
    bench.drain()
    look_owed = bench.entry(locator="b/u/1")
    assert (look_owed.action, bool(look_owed.settled), look_owed.parent_id) == ("verify", True, None)
    bench.later(5)
    with bench.database.begin() as tx:
        waive(tx, [bench.entry(kind="prefix").id], by="dpo", why="law")
    assert [entry.id for entry in bench.entries()] == [look_owed.id]
    assert sorted(bench.statuses(locator="b/u/1")) == ["deleted"]
    look(bench)
    assert sorted(bench.statuses(locator="b/u/1")) == ["absent", "deleted"]


def test_looks_of_an_account_that_the_settings_forgot_end(bench):
    erased(bench, "b/1")
    bench.later(AFTER + 1)
    del bench.runtime.accounts["mem"]
    bench.sweep()
    assert (bench.entries(), bench.notices()) == ([], [])
    assert [(r.status, r.error) for r in bench.receipts()][1:] == [("unverifiable", "UnknownAccount")]


def test_a_kinds_own_window_comes_with_its_source(database):
    from expunge.tasks.erasers.contract import PurgeWindow

    page = "https://example.com/purge"
    bench = Bench(database, purge_windows={"object": PurgeWindow(days=7, source=page)})
    bench.store.put("b/1")
    bench.open("b/1")
    bench.drain()
    (receipt,) = bench.receipts()
    assert str(receipt.detail).count(page) == 1
    assert bench.case().completed_at is not None


def test_two_dates_are_told_of_what_is_gone_and_nothing_of_a_look(bench):
    erased(bench, "b/1")
    bench.open("b/never", case="c1")
    bench.drain()
    look(bench)
    dates = TwoDates()
    pages = list(dates.reading(list_receipts(bench.database, ReceiptFilter(case="c1"))))
    today = pages[0][0]["at"].date()
    purged = (pages[0][0]["at"] + timedelta(days=30)).date()
    assert dates.lines() == [
        f"mem object: removed on {today}; found absent on {today}; purged by the provider by {purged}."
    ]


def test_a_hold_names_what_the_store_has_accepted_and_no_look_at_what_is_gone(bench):
    erased(bench, "b/gone")
    bench.store.put("b/1")
    bench.store.script("b/1", Outcome.ACCEPTED)
    bench.open("b/1")
    bench.drain()
    with bench.database.begin() as tx:
        _, flying = place_hold(tx, subject="s", by="counsel", why="matter 7")
    assert list(flying) == [bench.entry(locator="b/1").id]
