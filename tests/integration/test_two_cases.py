"""Two cases of one subject that name the same things: each has its own entries, each receipt is true of its own call,
and both complete."""

import pytest
from doubles.running import Bench
from sqlalchemy.exc import OperationalError

from expunge.models import Target, open_case
from expunge.models.evidence import known_gone
from expunge.tasks.drain import drain
from expunge.tasks.erasers.openai import OpenAIEraser, OpenAIOptions
from expunge.tasks.outcomes import Outcome
from expunge.worker.demo_provider import DemoProvider


def test_the_same_objects(database):
    bench = Bench(database)
    bench.store.put("b/1", "b/2")
    bench.open("b/1", "b/2", case="c1")
    bench.open("b/1", "b/2", case="c2")
    bench.settle_all()
    assert sorted(bench.statuses(locator="b/1")) == ["already_absent", "deleted"]
    assert bench.case("c1").completed_at is not None
    assert bench.case("c2").completed_at is not None


def test_a_part_whose_whole_the_other_case_has_closed(database):
    bench = Bench(database)
    bench.store.put("b/1")
    bench.open("b/1", case="c1")
    bench.drain()
    bench.store.script("b/1", Outcome.PARENT_ABSENT)
    bench.open("b/1", case="c2")
    bench.drain()
    (first,) = bench.receipts(case_id="c1")
    call, closing = sorted(bench.receipts(case_id="c2"), key=lambda receipt: receipt.action)
    assert (call.action, call.status, call.error) == ("delete", "failed", "ParentAbsent")
    assert (closing.action, closing.status, closing.request_id) == ("look", "already_absent", first.request_id)
    assert str(first.id) in str(closing.detail)
    assert bench.entries() == []


@pytest.mark.parametrize("looked_by", ["c1", "c2"])
def test_a_part_that_was_found_again_since_is_not_known_to_be_gone(database, looked_by):
    """Whichever case looked a second time: what an earlier receipt says is over."""
    bench = Bench(database, verify_after=100.0)
    bench.store.put("b/1")
    bench.open("b/1", case="c1")
    bench.open("b/1", case="c2")
    bench.drain()
    bench.store.put("b/1")
    with database.begin() as tx:
        tx.run("UPDATE erasure_outbox SET due_at = {now} WHERE case_id = :case", case=looked_by)
    bench.store.always["b/1"] = Outcome.PARENT_ABSENT
    bench.drain()
    bench.later(10)
    bench.drain()
    assert sorted(bench.statuses(case_id=looked_by))[1:] == ["failed", "failed", "present"]
    assert bench.entry(case_id=looked_by).state == "escalated"


def test_a_part_whose_whole_somebody_else_removed_is_for_a_person(database):
    bench = Bench(database)
    bench.store.put("b/1")
    bench.store.always["b/1"] = Outcome.PARENT_ABSENT
    bench.open("b/1")
    bench.drain()
    bench.later(10)
    bench.drain()
    assert bench.entry().state == "escalated"
    assert [(r.status, r.error) for r in bench.receipts()] == [("failed", "ParentAbsent")] * 2


def test_a_database_that_is_away_after_the_call_costs_no_receipt(database, monkeypatch):
    """What the other case's receipt says is asked for between the call and its settle."""
    bench = Bench(database)
    bench.store.put("b/1")
    bench.open("b/1", case="c1")
    bench.drain()
    bench.store.script("b/1", Outcome.PARENT_ABSENT)
    bench.open("b/1", case="c2")
    asked = []

    def away_at_first(tx, entries):
        asked.append(len(entries))
        if len(asked) == 1:
            raise OperationalError("SELECT", {}, Exception("the server closed the connection"))
        return known_gone(tx, entries)

    monkeypatch.setattr("expunge.tasks.batch.known_gone", away_at_first)
    bench.drain()
    assert sorted(bench.statuses(case_id="c2")) == ["already_absent", "failed"]
    assert bench.entries() == []


@pytest.mark.parametrize("first_case_runs", [1, 2, 3])
def test_one_conversation_in_two_cases(database, monkeypatch, first_case_runs):
    with DemoProvider() as provider:
        _share_a_conversation(database, monkeypatch, provider, first_case_runs)


def _share_a_conversation(database, monkeypatch, provider, first_case_runs):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-demo")
    provider.seed(conversations={"conv_shared": ["msg_1", "msg_2", "msg_3"]})
    bench = Bench(database)
    options = OpenAIOptions(store="openai", base_url=provider.base_url)
    bench.runtime.accounts = {"ai": options}
    for case in ("c1", "c2"):
        with database.begin() as tx:
            targets = [Target("ai", "conversation", "conv_shared")]
            open_case(tx.connection, case_id=case, subject="s", targets=targets)
    # both list the items; then one case runs on while the other's entries are due later
    bench.runtime._erasers["ai"] = OpenAIEraser("ai", options, lease_seconds=30.0)
    with database.begin() as tx:
        tx.run("UPDATE erasure_outbox SET due_at = {now+later} WHERE case_id = 'c2'", later=50.0 * first_case_runs)
    for _ in range(12):
        drain(bench.runtime, "ai")
        bench.sweep()
        bench.later(30)
    assert bench.entries() == []
    assert bench.case("c1").completed_at is not None
    assert bench.case("c2").completed_at is not None
    bench.runtime._erasers["ai"].close()
