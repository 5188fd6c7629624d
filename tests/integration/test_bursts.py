"""Answers that come while their lane is paused already: the calls were under way by then, and say nothing new."""

import itertools
import tempfile
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rows import NOW

from expunge.models import schema
from expunge.models.database import Database
from expunge.models.lanes import Lane, ensure_lane, pause_lane, read_lanes
from expunge.tasks.erasers.contract import Answer
from expunge.tasks.health import record
from expunge.tasks.outcomes import Outcome
from expunge.tasks.runtime import Policy

LANE = "mem"
POLICY = Policy(retry_base_seconds=20.0)
"""The first wait is longer than a slow machine takes between two answers."""
DRAINS = 16
ids = itertools.count(1)


def answered(database: Database, outcome: Outcome, retry_after: float | None = None, code: str | None = None) -> Lane:
    """The lane after the answer of one more call, about an entry of its own."""
    answer = Answer(next(ids), outcome, "Delete", NOW, NOW, error=code, retry_after=retry_after)
    with database.begin() as tx:
        record(tx, POLICY, LANE, [answer], known=read_lanes(tx, LANE))
        return read_lanes(tx, LANE)[""]


def seconds_left(database: Database, lane: Lane) -> float:
    assert lane.is_paused
    assert lane.paused_until is not None
    return (lane.paused_until - datetime.now(lane.paused_until.tzinfo) - database.skew).total_seconds()


def test_a_burst_is_one_throttling_however_many_drains_it_meets(database):
    for times in (1, 2):
        lanes = [answered(database, Outcome.THROTTLED) for _ in range(DRAINS)]
        assert {lane.failing["throttles"] for lane in lanes} == {times}
        assert len({lane.paused_until for lane in lanes}) == 1
        assert seconds_left(database, lanes[-1]) <= POLICY.retry_base_seconds * 2 ** (times - 1) * 1.25
        database.skew += timedelta(seconds=60)


def test_calls_that_were_under_way_when_the_breaker_opened_are_no_probes(database):
    lanes = [answered(database, Outcome.NO_ANSWER) for _ in range(DRAINS)]
    assert lanes[3].paused_by is None
    assert {(lane.paused_by, lane.failures) for lane in lanes[4:]} == {("breaker", 5)}
    assert seconds_left(database, lanes[-1]) <= POLICY.retry_base_seconds * 1.25
    database.skew += timedelta(seconds=60)
    assert answered(database, Outcome.NO_ANSWER).failures == 6  # a probe
    assert answered(database, Outcome.NO_ANSWER).failures == 6


@pytest.mark.parametrize("late", [Outcome.THROTTLED, Outcome.UNAVAILABLE, Outcome.NO_ANSWER, Outcome.UNCONFIRMED])
def test_what_the_store_asked_for_is_not_taken_back_by_who_answers_late(database, late):
    asked = answered(database, Outcome.THROTTLED, 600.0)
    for _ in range(DRAINS):
        lane = answered(database, late, 1.0 if late is Outcome.THROTTLED else None)
    assert lane.paused_until == asked.paused_until
    longer = answered(database, Outcome.THROTTLED, 900.0)
    assert seconds_left(database, longer) > 800


def test_a_refused_account_stays_refused_whoever_answers_late(database):
    for _ in range(3):
        refused = answered(database, Outcome.REFUSED_SCOPE, code="InvalidAccessKeyId")
    for late in (Outcome.THROTTLED, Outcome.NO_ANSWER, Outcome.UNAVAILABLE):
        for _ in range(DRAINS):
            lane = answered(database, late, 5.0 if late is Outcome.THROTTLED else None)
    assert (lane.paused_by, lane.refused, lane.reason) == ("breaker", True, refused.reason)
    assert lane.paused_until == refused.paused_until


def test_a_probe_that_is_throttled_is_an_answer_of_a_store_that_is_up(database):
    for _ in range(5):
        answered(database, Outcome.NO_ANSWER)
    database.skew += timedelta(seconds=60)
    assert answered(database, Outcome.THROTTLED).paused_by == "throttle"


@pytest.fixture(scope="module")
def template() -> Database:
    with tempfile.TemporaryDirectory() as folder:
        database = Database.open(f"sqlite:///{Path(folder)}/x.db")
        schema.migrate(database)
        yield database
        database.close()


LATE = [Outcome.THROTTLED, Outcome.UNAVAILABLE, Outcome.NO_ANSWER, Outcome.REFUSED_SCOPE, Outcome.WRONG_IDENTITY]


@given(
    by=st.sampled_from(["throttle", "breaker"]),
    refused=st.booleans(),
    late=st.lists(st.tuples(st.sampled_from(LATE), st.none() | st.floats(0, 7200)), min_size=1, max_size=8),
)
def test_no_answer_shortens_a_pause(template, by, refused, late):
    with template.begin() as tx:
        tx.run("DELETE FROM erasure_lane")
        ensure_lane(tx, LANE)
        pause_lane(tx, LANE, by=by, seconds=120.0, reason="r", refused=refused and by == "breaker")
        before = read_lanes(tx, LANE)[""]
    for outcome, retry_after in late:
        lane = answered(template, outcome, retry_after if outcome is Outcome.THROTTLED else None)
        assert lane.paused_until >= before.paused_until
        assert lane.refused >= before.refused
        assert not (before.paused_by == "breaker" and lane.paused_by != "breaker")
        before = lane
