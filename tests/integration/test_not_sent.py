"""What cannot be sent: no request, so no receipt. An entry's own reason asks a person, an account's pauses its lane."""

import json
import sqlite3
from typing import Any

import pytest
import sqlalchemy as sa
from commands import run
from doubles.running import Bench
from doubles.store import NO_KEY, NOT_SENT

from expunge.models.decisions import resume
from expunge.models.holds import place_hold
from expunge.models.idle import can_move
from expunge.tasks.erasers.contract import Call, Looked, NotSent
from expunge.tasks.outcomes import Outcome

HOUR = 3600.0
KEYLESS = NO_KEY


@pytest.fixture
def bench(database) -> Bench:
    return Bench(database, batch=2)


def states(bench: Bench) -> dict[str, tuple[Any, ...]]:
    return {row.locator: (row.state, row.attempt, row.tries, row.refusals, row.reason) for row in bench.entries()}


def lane(bench: Bench, account: str = "mem") -> tuple[Any, ...]:
    (row,) = bench.lanes(account=account)
    return row.paused_by, bool(row.refused), row.reason


PAUSED = ("breaker", True, f"nothing can be sent: {KEYLESS}")


def lose_the_key_at(bench: Bench, step: str, times: int = 1) -> None:
    """The account is without its key from the named step on."""
    left = [times]

    def on_step(name: str) -> None:
        left[0] -= name == step
        if not left[0]:
            bench.store.unusable = KEYLESS

    bench.runtime.on_step = on_step


def test_an_account_that_cannot_send_pauses_its_lane_and_leaves_no_receipt(bench) -> None:
    names = [f"b/{n}" for n in range(5)]
    bench.store.put(*names)
    bench.store.unusable = KEYLESS
    bench.open(*names)
    report = bench.drain()
    assert (report.claims, report.calls, report.settled) == (1, 0, 0)
    assert bench.receipts() == []
    assert states(bench) == dict.fromkeys(names, ("ready", 0, 0, 0, KEYLESS))
    assert lane(bench) == PAUSED
    (notice,) = bench.notices()
    assert (notice.kind, notice.account) == ("lane.paused", "mem")
    assert KEYLESS in str(notice.body)
    assert bench.rung == []


def test_it_is_probed_each_hour_told_once_and_goes_on(bench) -> None:
    names = [f"b/{n}" for n in range(4)]
    bench.store.put(*names)
    bench.store.unusable = KEYLESS
    bench.open(*names)
    bench.drain()
    for _ in range(3):
        bench.later(HOUR - 60)
        assert bench.sweep().rung == 0
        assert bench.drain().claimed == 0
        bench.later(61)
        assert bench.sweep().rung > 0
        assert bench.drain().claimed == 1
        assert lane(bench) == PAUSED
    assert bench.receipts() == []
    assert [row.kind for row in bench.notices()] == ["lane.paused"]
    assert {row.state for row in bench.entries()} == {"ready"}
    bench.store.unusable = None
    bench.settle_all()
    assert bench.statuses() == ["deleted"] * 4
    assert lane(bench) == (None, False, None)


def test_a_person_resumes_it_at_once(bench) -> None:
    bench.store.put("b/1")
    bench.store.unusable = KEYLESS
    bench.open("b/1")
    bench.drain()
    bench.store.unusable = None
    with bench.database.begin() as tx:
        resume(tx, "mem", by="dana", why="the key is set")
    bench.drain()
    assert bench.statuses() == ["deleted"]
    assert bench.entries() == []


def test_other_lanes_go_on(database) -> None:
    bench = Bench(database, accounts=("mem", "keyless"))
    bench.store.put("b/1")
    bench.stores["keyless"].unusable = KEYLESS
    bench.open("b/1")
    bench.open("b/1", account="keyless")
    bench.drain("keyless")
    bench.drain("mem")
    assert [row.account for row in bench.receipts()] == ["mem"]
    assert [row.account for row in bench.lanes()] == ["keyless"]


def test_nothing_moves_by_itself_then(bench) -> None:
    """`up --until-idle` does not wait for it, nor spin."""
    bench.store.unusable = KEYLESS
    bench.open("b/1")
    bench.drain()
    with bench.database.read() as tx:
        assert not can_move(tx, 10 * HOUR)


def test_a_key_that_goes_between_mark_and_call_leaves_no_receipt(bench) -> None:
    names = [f"b/{n}" for n in range(6)]
    bench.store.put(*names)
    bench.open(*names)
    lose_the_key_at(bench, "marked")
    report = bench.drain()
    assert (report.calls, bench.store.log) == (0, [])
    assert bench.receipts() == []
    assert states(bench) == {
        name: ("ready", 1 if name in names[:2] else 0, 0, 0, KEYLESS) for name in names
    }  # the marks are committed, and were counted; the tries were not
    assert lane(bench) == PAUSED


def test_a_key_that_goes_between_two_calls_leaves_the_first_ones_receipts(bench) -> None:
    names = [f"b/{n}" for n in range(6)]
    bench.store.put(*names)
    bench.open(*names)
    lose_the_key_at(bench, "settling")
    report = bench.drain()
    assert report.calls == 1
    assert sorted(row.locator for row in bench.receipts()) == names[:2]
    assert {name: row[0] for name, row in states(bench).items()} == dict.fromkeys(names[2:], "ready")
    assert lane(bench) == PAUSED
    bench.store.unusable, bench.runtime.on_step = None, lambda name: None
    bench.settle_all()
    assert bench.statuses() == ["deleted"] * 6
    assert all(bench.store.deletes(name) == 1 for name in names)


def test_a_worker_that_dies_before_it_says_so_is_interrupted(bench) -> None:
    class Killed(BaseException):
        pass

    bench.store.put("b/1")
    bench.open("b/1")

    def on_step(name: str) -> None:
        if name == "marked":
            bench.store.unusable = KEYLESS
        if name == "called":
            raise Killed

    bench.runtime.on_step = on_step
    with pytest.raises(Killed):
        bench.drain()
    assert bench.receipts() == []
    bench.later(31)
    bench.sweep()
    assert [(row.status, row.error) for row in bench.receipts()] == [("unknown", "Interrupted")]


def test_an_entry_that_cannot_be_sent_asks_a_person_and_its_neighbours_go_on(bench) -> None:
    names = [f"b/{n}" for n in range(5)]
    bench.store.put(*names)
    bench.store.script("b/1", NOT_SENT)
    bench.store.script("b/4", NOT_SENT)
    bench.open(*names)
    report = bench.drain()
    assert report.calls == 2  # b/4 was alone in its own
    assert sorted((row.locator, row.status) for row in bench.receipts()) == [
        ("b/0", "deleted"),
        ("b/2", "deleted"),
        ("b/3", "deleted"),
    ]
    assert states(bench) == dict.fromkeys(("b/1", "b/4"), ("escalated", 1, 0, 0, NOT_SENT))
    assert [row.kind for row in bench.notices()] == ["entry.escalated"] * 2
    assert all(NOT_SENT in str(row.body) for row in bench.notices())
    assert bench.lanes() == []
    assert all(row.lease_token is None for row in bench.entries())


def test_with_answers_beside_it_the_whole_account_still_pauses(bench) -> None:
    """One call of which a part was sent: the answered ones have their receipts, the rest goes back."""
    bench.store.put("b/0", "b/1", "b/2", "b/3")
    bench.open("b/0", "b/1", "b/2", "b/3")
    bench.store.script("b/1", NO_KEY)
    bench.drain()
    assert bench.statuses() == ["deleted"]
    assert {name: row[0] for name, row in states(bench).items()} == dict.fromkeys(("b/1", "b/2", "b/3"), "ready")
    assert lane(bench) == PAUSED


def test_what_was_answered_has_its_receipt_even_if_something_else_was_not_sent(bench, monkeypatch) -> None:
    bench.store.put("b/0")
    bench.open("b/0")
    eraser = bench.runtime.eraser("mem")

    def look(entries: Any, until: float) -> Looked:
        (call,) = type(eraser).look(eraser, entries, until).calls
        return Looked(calls=[Call(call.entry_ids, lambda ids: [*call.send(ids), NotSent(*ids, "x")], "Delete")])

    monkeypatch.setattr(eraser, "look", look)
    bench.drain()
    assert bench.statuses() == ["deleted"]
    assert bench.entries() == []


def test_an_operators_pause_stands(bench) -> None:
    bench.store.put("b/1")
    bench.open("b/1")

    def on_step(name: str) -> None:
        if name == "looked":
            with bench.database.begin() as tx:
                tx.run("INSERT INTO erasure_lane (account, paused_by, paused_since) VALUES ('mem', 'operator', {now})")

    bench.store.unusable = KEYLESS
    bench.runtime.on_step = on_step
    bench.drain()
    assert lane(bench)[0] == "operator"
    assert bench.notices() == []
    assert states(bench) == {"b/1": ("ready", 0, 0, 0, KEYLESS)}


def test_a_hold_in_between_is_kept(bench) -> None:
    bench.store.put("b/1")
    bench.open("b/1")

    def on_step(name: str) -> None:
        if name == "looked":
            bench.runtime.on_step = lambda name: None
            with bench.database.begin() as tx:
                place_hold(tx, subject="s", by="counsel", why="matter 7")

    bench.store.unusable = KEYLESS
    bench.runtime.on_step = on_step
    bench.drain()
    assert states(bench)["b/1"][0] == "held"


def test_a_database_that_is_away_is_waited_for(bench, monkeypatch) -> None:
    from expunge.tasks import batch

    bench.store.put("b/1")
    bench.open("b/1")
    lose_the_key_at(bench, "marked")
    real, failures = batch.pause_unsendable, []

    def unreachable(*arguments: Any) -> Any:
        if len(failures) < 2:
            failures.append(1)
            raise sa.exc.OperationalError("UPDATE", {}, Exception("gone"))
        return real(*arguments)

    monkeypatch.setattr(batch, "pause_unsendable", unreachable)
    bench.drain()
    assert len(failures) == 2
    assert states(bench)["b/1"][0] == "ready"
    assert lane(bench) == PAUSED


def test_a_pause_for_refusals_is_not_told_again(bench) -> None:
    """The lane was paused already, and somebody knows; only the reason is another."""
    bench.store.put("b/1")
    bench.store.always["b/1"] = {"outcome": Outcome.WRONG_IDENTITY, "error": "WrongProject"}
    bench.open("b/1")
    bench.drain()
    bench.later(HOUR + 1)
    bench.store.unusable = KEYLESS
    bench.drain()
    assert lane(bench) == PAUSED
    assert len(bench.notices()) == 1
    assert bench.statuses() == ["failed"]


S3 = 'store = "s3"\nendpoint_url = "http://127.0.0.1:9"\nregion = "us-east-1"\nallow = ["b"]\nprofile = "none"\n'
OPENAI = 'store = "openai"\nbase_url = "http://127.0.0.1:9/v1"\napi_key_env = "EXPUNGE_TEST_NO_SUCH_KEY"\n'


@pytest.mark.parametrize(
    ("settings", "kind", "locator", "reason"),
    [(S3, "object", "b/k", "ProfileNotFound"), (OPENAI, "file", "file-1", KEYLESS)],
)
def test_up_until_idle_ends_with_3_and_people_see_why(tmp_path, settings, kind, locator, reason) -> None:
    (tmp_path / "expunge.toml").write_text(
        'database_url = "sqlite:///expunge.db"\nsweep_seconds = 0.2\nretry_base_seconds = 0.1\nretry_max_seconds = 30\n'
        f"[accounts.acc]\n{settings}"
    )
    target = json.dumps({"account": "acc", "kind": kind, "locator": locator})
    run("expunge", "migrate", cwd=tmp_path)
    (tmp_path / "targets").write_text(target)
    run("expunge", "erase", "--subject", "s", "--case", "c", "targets", cwd=tmp_path)
    done = run("expunge", "up", "--until-idle", cwd=tmp_path, code=3)
    assert done.stderr.count('"lane.paused"') == 1
    (row,) = map(json.loads, run("expunge", "outbox", "--json", cwd=tmp_path).stdout.splitlines())
    assert (row["state"], row["reason"], row["tries"], row["attempt"]) == ("ready", reason, 0, 0)
    assert (row["paused_by"], row["paused_reason"]) == ("breaker", f"nothing can be sent: {reason}")
    assert "stands still since" in run("expunge", "outbox", cwd=tmp_path).stdout
    checked = run("expunge", "check", cwd=tmp_path, code=1).stdout
    assert f"nothing can be sent: {reason}" in checked
    with sqlite3.connect(tmp_path / "expunge.db") as connection:
        assert connection.execute("SELECT count(*) FROM erasure_record").fetchone() == (0,)
