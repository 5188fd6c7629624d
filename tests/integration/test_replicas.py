"""Replicas: what is owed at an account is owed at each of its replicas, as an entry of its own in the same case."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from servers.s3_stub import ACCESS_KEY, SECRET_KEY, S3Stub

from expunge.models import Target, open_case
from expunge.models.claim import claim
from expunge.models.database import Database
from expunge.models.holds import place_hold
from expunge.models.replicas import add_copies
from expunge.tasks.drain import drain
from expunge.tasks.erasers.s3_options import S3Options
from expunge.tasks.runtime import Policy, Runtime
from expunge.tasks.sweep import sweep

RENAMED = {"buckets": {"here": "there"}}
BACK = {"buckets": {"there": "here"}}


class Killed(BaseException):
    """The process is gone."""


@pytest.fixture
def runtime(database: Database, stub: S3Stub, monkeypatch: pytest.MonkeyPatch) -> Runtime:
    """`eu` names `us` as its replica, and `us` names `eu`."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)

    def options(bucket: str, other: str, renamed: dict[str, Any]) -> S3Options:
        replicas = [{"account": other, **renamed}]
        return S3Options.model_validate(
            {"endpoint_url": stub.url, "region": "us-east-1", "allow": [bucket], "replicas": replicas}
        )

    accounts = {"eu": options("here", "us", RENAMED), "us": options("there", "eu", BACK)}
    stub.bucket("here")
    stub.bucket("there", versioning="Enabled")
    return Runtime(database, Policy(lease_seconds=60, retry_base_seconds=1), accounts)


def rows(runtime: Runtime, table: str, order: str = "1") -> list[Any]:
    with runtime.database.read() as tx:
        return list(tx.rows(f"SELECT * FROM {table} ORDER BY {order}"))


def entries(runtime: Runtime) -> set[tuple[str, str, str]]:
    return {(row.account, row.kind, row.locator) for row in rows(runtime, "erasure_outbox") if row.parent_id is None}


def is_complete(runtime: Runtime) -> bool:
    (case,) = rows(runtime, "erasure_case")
    return case.completed_at is not None


def closing(runtime: Runtime) -> list[tuple[str, str, str]]:
    """Of whole objects: the receipts that settle something."""
    return sorted(
        (row.account, row.locator, row.status)
        for row in rows(runtime, "erasure_record")
        if row.version is None and row.status in ("deleted", "already_absent")
    )


def open_with(runtime: Runtime, *targets: Target) -> None:
    with runtime.database.begin() as tx:
        open_case(tx.connection, case_id="c", subject="s", targets=targets)


def drive(runtime: Runtime, lanes: tuple[str, ...] = ("eu", "us"), *, turns: int = 20) -> None:
    for _ in range(turns):
        for lane in lanes:
            drain(runtime, lane)
        sweep(runtime)
        if not rows(runtime, "erasure_outbox"):
            return
        runtime.database.skew += timedelta(seconds=90)
    raise AssertionError(f"still there: {entries(runtime)}")


def test_a_case_is_complete_when_every_copy_is_gone(runtime: Runtime, stub: S3Stub) -> None:
    rung: list[str] = []
    runtime.ring = rung.append
    for bucket in ("here", "there"):
        for key in ("one", "u/1/a", "u/1/b", "u/10/stays", "two"):
            stub.bucket(bucket).put(key)
            stub.bucket(bucket).put(key)
    open_with(runtime, Target("eu", "object", "here/one"), Target("eu", "prefix", "here/u/1/"))
    with runtime.database.begin() as tx:  # as a host in another language does
        tx.run(
            "INSERT INTO erasure_outbox (case_id, account, kind, locator) VALUES ('c', 'eu', 'object', 'here/absent')"
        )
    drain(runtime, "eu")
    runtime.database.skew += timedelta(seconds=90)
    drain(runtime, "eu")
    copies = {("us", "object", "there/one"), ("us", "prefix", "there/u/1/"), ("us", "object", "there/absent")}
    assert entries(runtime) == copies
    assert "us" in rung
    sweep(runtime)
    assert not is_complete(runtime)
    assert set(stub.bucket("there").objects) == {"one", "u/1/a", "u/1/b", "u/10/stays", "two"}

    drive(runtime, ("us", "eu"))
    assert is_complete(runtime)
    for bucket in ("here", "there"):
        assert set(stub.bucket(bucket).objects) == {"u/10/stays", "two"}
    expected = {"one": "deleted", "u/1/": "deleted", "u/1/a": "deleted", "u/1/b": "deleted", "absent": "already_absent"}
    assert closing(runtime) == sorted(
        (account, f"{bucket}/{key}", status)
        for account, bucket in (("eu", "here"), ("us", "there"))
        for key, status in expected.items()
    )


@pytest.mark.parametrize("step", ["claimed", "looked", "marked", "called", "settling", "settled"])
def test_whenever_the_process_dies_the_copy_is_owed_once(runtime: Runtime, stub: S3Stub, step: str) -> None:
    stub.bucket("here").put("k")
    stub.bucket("there").put("k")
    open_with(runtime, Target("eu", "object", "here/k"))

    def die(name: str) -> None:
        if name == step:
            raise Killed

    runtime.on_step = die
    with pytest.raises(Killed):
        drain(runtime, "eu")
    owed = entries(runtime)
    assert (("us", "object", "there/k") in owed) is (step != "claimed")
    assert ("eu", "object", "here/k") in owed or step == "settled"
    assert not is_complete(runtime)
    runtime.on_step = lambda name: None
    runtime.database.skew += timedelta(seconds=90)
    drive(runtime)
    assert is_complete(runtime)
    assert not stub.bucket("here").objects
    assert not stub.bucket("there").objects
    assert [(account, locator) for account, locator, _ in closing(runtime)] == [("eu", "here/k"), ("us", "there/k")]


def test_a_copy_that_was_settled_in_the_case_is_not_owed_again(runtime: Runtime, stub: S3Stub) -> None:
    stub.bucket("here").put("k")
    open_with(runtime, Target("eu", "object", "here/k"))
    with stub.fault("ListObjectsV2", "error_500"):
        drain(runtime, "eu")
    drain(runtime, "us")
    assert entries(runtime) == {("eu", "object", "here/k")}
    assert not is_complete(runtime)
    drive(runtime, ("eu",))
    assert closing(runtime) == [("eu", "here/k", "deleted"), ("us", "there/k", "already_absent")]


def test_a_target_that_the_account_may_not_erase_has_no_copies(runtime: Runtime) -> None:
    with runtime.database.begin() as tx:
        tx.run("INSERT INTO erasure_case (id, subject) VALUES ('c', 's')")
        for locator in ("elsewhere/k", "no-key", "here/" + "k" * 1090):
            tx.run(
                "INSERT INTO erasure_outbox (case_id, account, kind, locator) VALUES ('c', 'eu', 'object', :locator)",
                locator=locator,
            )
    drain(runtime, "eu")
    assert {(row.account, row.state) for row in rows(runtime, "erasure_outbox")} == {("eu", "escalated")}


def test_a_hold_covers_the_copy_from_the_start(runtime: Runtime, stub: S3Stub) -> None:
    stub.bucket("here").put("k")
    stub.bucket("there").put("k")
    open_with(runtime, Target("eu", "object", "here/k"), Target("eu", "object", "here/l"))
    with runtime.database.begin() as tx:
        place_hold(tx, account="us", locator_prefix="there/k", by="law", why="matter")
    drain(runtime, "eu")
    found = {row.locator: row.state for row in rows(runtime, "erasure_outbox")}
    assert found == {"there/k": "held", "there/l": "ready"}
    drain(runtime, "us")
    assert set(stub.bucket("there").objects) == {"k"}
    assert not stub.bucket("here").objects
    assert not is_complete(runtime)


def test_drains_of_both_lanes_at_the_same_time(runtime: Runtime, stub: S3Stub) -> None:
    """Each lane puts copies into the other's while that one settles, over many cases and one that they share."""
    for number in range(80):
        stub.bucket("here").put(f"k{number}")
        stub.bucket("there").put(f"k{number}")
    with runtime.database.begin() as tx:
        for case in range(8):
            of_case = range(case * 10, case * 10 + 10)
            targets = [
                Target("eu", "object", f"here/k{number}") if number % 2 else Target("us", "object", f"there/k{number}")
                for number in of_case
            ]
            open_case(tx.connection, case_id=f"c{case}", subject="s", targets=targets)
            open_case(tx.connection, case_id="all", subject="s", targets=targets)
    for _ in range(20):
        with ThreadPoolExecutor(4) as pool:
            for done in [pool.submit(drain, runtime, lane) for lane in ("eu", "us", "eu", "us")]:
                done.result()
        sweep(runtime)
        if not rows(runtime, "erasure_outbox"):
            break
        runtime.database.skew += timedelta(seconds=90)
    assert [case.id for case in rows(runtime, "erasure_case") if case.completed_at is None] == []
    assert not stub.bucket("here").objects
    assert not stub.bucket("there").objects
    settled = Counter(
        (row.case_id, row.account, row.locator)
        for row in rows(runtime, "erasure_record")
        if row.version is None and row.status in ("deleted", "already_absent")
    )
    assert len(settled) == 2 * 2 * 80
    assert set(settled.values()) == {1}


def test_twice_is_once_and_only_while_the_lease_is_ours(database: Database) -> None:
    with database.begin() as tx:
        targets = [Target("eu", "object", f"here/{number}\x01é'") for number in range(50)]
        open_case(tx.connection, case_id="c", subject="s", targets=targets)
        open_case(tx.connection, case_id="d", subject="t", targets=targets[:1])
    with database.begin() as tx:
        token = "11111111-1111-1111-1111-111111111111"
        claimed = claim(tx, "eu", token=token, limit=100, lease_seconds=60).entries
    copies = {entry.id: [Target("us", "object", entry.locator), Target("ap", "object", "b/all")] for entry in claimed}
    for expected in (frozenset({"us", "ap"}), frozenset()):
        with database.begin() as tx:
            assert add_copies(tx, claimed, copies, token=token) == expected
    with database.begin() as tx:
        tx.run("DELETE FROM erasure_outbox WHERE account <> 'eu'")
        assert add_copies(tx, claimed, copies, token="22222222-2222-2222-2222-222222222222") == frozenset()
        assert add_copies(tx, claimed[:2], copies, token=token) == {"us", "ap"}
        got = tx.rows("SELECT case_id, locator FROM erasure_outbox WHERE account = 'us'")
        assert {(row.case_id, row.locator) for row in got} == {(each.case_id, each.locator) for each in claimed[:2]}
