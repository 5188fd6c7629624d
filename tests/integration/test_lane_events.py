"""What is logged of a lane: that it stops, and that it goes on."""

import pytest
from doubles.running import Bench
from structlog.testing import capture_logs

from expunge.tasks.outcomes import Outcome

BUCKET = {"outcome": Outcome.REFUSED_SCOPE, "scope": "b", "error": "NoSuchBucket"}
ACCOUNT = {"outcome": Outcome.REFUSED_SCOPE, "error": "InvalidAccessKeyId"}
THROTTLED = {"outcome": Outcome.THROTTLED, "retry_after": 9.0}


@pytest.fixture
def bench(database) -> Bench:
    return Bench(database, batch=1)


def driven(bench: Bench, entries: int, answer: object, *, times: int, until: float = 4000.0) -> list[tuple[str, str]]:
    """Each entry gets this answer so many times, and good ones after; gives the events of lanes, in order."""
    names = [f"b/{number}" for number in range(entries)]
    bench.store.put(*names)
    for name in names:
        bench.store.script(name, *[answer] * times)
    bench.open(*names)
    with capture_logs() as logs:
        bench.settle_all(step=until)
    assert {(row.paused_by, row.failures) for row in bench.lanes()} <= {(None, 0)}
    return [(line["event"], line["scope"] or "") for line in logs if line["event"].startswith("lane.")]


@pytest.mark.parametrize("answer", [Outcome.UNAVAILABLE, Outcome.NO_ANSWER, Outcome.UNCONFIRMED, ACCOUNT, BUCKET])
def test_failures_that_paused_nothing_are_forgotten_in_silence(bench, answer) -> None:
    assert driven(bench, 2, answer, times=1) == []


@pytest.mark.parametrize(
    ("entries", "answer", "times", "events"),
    [
        (5, Outcome.UNAVAILABLE, 1, [("lane.broke", ""), ("lane.recovered", "")]),
        (3, ACCOUNT, 1, [("lane.paused", ""), ("lane.recovered", "")]),
        (3, BUCKET, 1, [("lane.paused", "b"), ("lane.recovered", "b")]),
        (1, {"outcome": Outcome.WRONG_IDENTITY}, 1, [("lane.paused", ""), ("lane.recovered", "")]),
        (1, THROTTLED, 1, [("lane.throttled", ""), ("lane.recovered", "")]),
    ],
)
def test_a_pause_that_is_lifted_is_told_once(bench, entries, answer, times, events) -> None:
    assert driven(bench, entries, answer, times=times) == events


def test_a_lane_that_nothing_could_be_sent_for_recovers(bench) -> None:
    bench.store.put("b/1", "b/2")
    bench.open("b/1", "b/2")
    bench.store.unusable = "MissingCredentials"
    with capture_logs() as logs:
        bench.drain()
        bench.store.unusable = None
        bench.later(4000)
        bench.settle_all()
    events = [line["event"] for line in logs if line["event"].startswith("lane.")]
    assert events == ["lane.paused", "lane.recovered"]
