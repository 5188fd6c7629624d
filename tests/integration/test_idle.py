"""Whether anything can move by itself, and following receipts: what `expunge up` decides and prints by."""

import pytest
from rows import NOW, add_case, add_receipts, change_entries, receipt

from expunge.models.database import Database
from expunge.models.idle import can_move, standing
from expunge.models.lanes import ensure_lane, pause_lane
from expunge.worker.follow import ReceiptFollower

HOUR = 3600.0


def moves(database: Database, within: float = HOUR) -> bool:
    with database.read() as tx:
        return can_move(tx, within)


def test_nothing_moves_in_an_empty_outbox(database) -> None:
    assert not moves(database)


def test_ready_moves_if_it_is_due_in_time(database) -> None:
    ids = add_case(database, "c1", ["b/1"])
    assert moves(database)
    with database.begin() as tx:
        tx.run("UPDATE erasure_outbox SET due_at = {now+later}", later=100.0)
    assert moves(database)
    assert not moves(database, 50)
    change_entries(database, ids, due_at=NOW)
    assert moves(database, 50)


@pytest.mark.parametrize(("state", "can"), [("leased", True), ("calling", True), ("held", False), ("escalated", False)])
def test_states(database, state, can) -> None:
    change_entries(database, add_case(database, "c1", ["b/1"]), state=state, reason="x")
    assert moves(database) is can


def test_waiting_moves_with_its_parts_or_when_they_are_gone(database) -> None:
    parent, part = add_case(database, "c1", ["b/p/", "b/p/1"])
    change_entries(database, [parent], state="waiting")
    change_entries(database, [part], parent_id=parent, state="escalated", reason="x")
    assert not moves(database)
    change_entries(database, [part], state="ready")
    assert moves(database)
    with database.begin() as tx:
        tx.run("DELETE FROM erasure_outbox WHERE id = :id", id=part)
    assert moves(database)


@pytest.mark.parametrize(
    ("pause", "can"),
    [
        ({"by": "throttle", "seconds": 60.0, "reason": "SlowDown"}, True),
        ({"by": "throttle", "seconds": 2 * HOUR, "reason": "SlowDown"}, False),
        ({"by": "breaker", "seconds": 60.0, "reason": "ConnectError"}, True),
        ({"by": "breaker", "seconds": 60.0, "reason": "AccessDenied", "refused": True}, False),
        ({"by": "operator", "seconds": 60.0, "reason": "audit"}, False),
    ],
)
@pytest.mark.parametrize("scope", ["", "b"])
def test_a_paused_lane_or_bucket(database, pause, can, scope) -> None:
    add_case(database, "c1", ["b/1"])
    with database.begin() as tx:
        ensure_lane(tx, "artifacts", scope)
        pause_lane(tx, "artifacts", scope, **pause)
    assert moves(database) is can
    add_case(database, "c2", ["b2/1"])
    assert moves(database) is (can or scope == "b")


def test_standing_counts_by_state(database) -> None:
    ids = add_case(database, "c1", ["b/1", "b/2", "b/3"])
    change_entries(database, ids[:1], state="held")
    with database.read() as tx:
        found = standing(tx)
    assert (dict(found.entries), found.left, found.open_cases) == ({"ready": 2, "held": 1}, 3, 1)


def followed(follower: ReceiptFollower, *, last: bool = False) -> list[str]:
    return [row["locator"] for page in follower.look(last=last) for row in page]


def test_receipts_are_followed_each_once(database) -> None:
    add_receipts(database, [receipt("c1", "b/before")])
    follower = ReceiptFollower(database)
    assert followed(follower) == []
    add_receipts(database, [receipt("c1", f"b/{number}") for number in range(1500)])
    assert len(followed(follower)) == 1500
    add_receipts(database, [receipt("c1", "b/after")])
    assert followed(follower) == ["b/after"]
    assert followed(follower, last=True) == []


def test_a_receipt_that_commits_after_a_later_one_is_not_missed(postgres_url) -> None:
    database = Database.open(postgres_url)
    follower = ReceiptFollower(database)
    from expunge.models.settle import write_receipts

    with database.begin() as early:
        write_receipts(early, [receipt("c1", "b/early")])
        add_receipts(database, [receipt("c1", "b/late")])
        assert followed(follower) == ["b/late"]
    assert followed(follower, last=True) == ["b/early"]
    assert followed(follower, last=True) == []
    database.close()
