"""What is found out about stores: kept with an age, shared by the fleet, and never evidence."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from conformance.harness import play
from servers.s3_stub import S3Stub

from expunge.models.capabilities import learn_capability, list_capabilities
from expunge.models.database import Database
from expunge.tasks.capabilities import REREAD_SECONDS, SharedKnown, place_of
from expunge.tasks.erasers import s3_buckets
from expunge.tasks.erasers.s3 import S3Eraser
from expunge.tasks.erasers.s3_options import S3Options
from expunge.tasks.outcomes import Outcome
from expunge.tasks.runtime import Policy, Runtime
from expunge.worker import check

MakeEraser = Callable[..., S3Eraser]
ENDPOINT = "http://store"


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def known(database: Database, *, age: float = 86_400, clock: Clock | None = None, at: str = ENDPOINT) -> SharedKnown:
    return SharedKnown(database, "account", at, max_age_seconds=age, clock=clock or Clock())


def objects(*keys: str) -> list[tuple[str, str]]:
    return [("object", f"b/{key}") for key in keys]


@pytest.mark.parametrize("value", ["once", 500, True, {"a": [1]}])
def test_what_one_process_learns_all_know(database: Database, value: Any) -> None:
    known(database).learn("b", "name", value)
    known(database).learn("b", "name", value)
    assert known(database).recall("b", "name") == value
    assert known(database).recall("", "name") is None
    assert known(database, at="http://other").recall("b", "name") is None


def test_it_is_forgotten_when_it_is_old(database: Database) -> None:
    known(database, age=60).learn("b", "name", "x")
    later = Database(database.engine, skew=timedelta(seconds=61))
    assert known(database, age=60).recall("b", "name") == "x"
    assert known(later, age=60).recall("b", "name") is None


def test_what_another_process_learns_is_seen_after_a_while(database: Database) -> None:
    clock = Clock()
    mine = known(database, clock=clock)
    assert mine.recall("b", "name") is None
    known(database).learn("b", "name", "x")
    clock.now += REREAD_SECONDS + 1
    assert mine.recall("b", "name") == "x"
    mine.forget("b", "name")
    assert known(database).recall("b", "name") is None


def test_a_database_that_fails_only_makes_it_forgetful(tmp_path: Any) -> None:
    empty = Database.open(f"sqlite:///{tmp_path / 'no-tables.db'}")
    forgetful = known(empty)
    forgetful.learn("b", "name", "x")
    forgetful.forget("b", "name")
    assert forgetful.recall("b", "name") is None
    empty.close()


def test_the_endpoint_is_kept_without_credentials() -> None:
    options = S3Options(endpoint_url="http://user:secret@store:9000/?token=x", allow=("b",))
    assert place_of(options) == "http://store:9000"
    assert place_of(S3Options(region="eu-central-1", allow=("b",))) == "eu-central-1"


def test_a_runtime_hands_it_to_its_erasers(database: Database, stub: S3Stub, make_eraser: MakeEraser) -> None:
    make_eraser(stub, "b")  # sets the credentials
    stub.bucket("b", versioning="Suspended").put("k")
    options = S3Options(endpoint_url=stub.url, region="us-east-1", allow=("b",))
    for key in ("k", "l"):
        eraser = Runtime(database, Policy(), {"account": options}).eraser("account")
        play(eraser, objects(key))
        eraser.close()
    assert len(stub.calls("GetBucketVersioning")) == 1
    with database.read() as tx:
        found = list_capabilities(tx, "account", stub.url, max_age_seconds=60)
    assert [(each.scope, each.name, each.value) for each in found] == [
        ("b", "listing", "allowed"),
        ("b", "versioning", "once"),
    ]


def test_a_row_that_wrongly_says_never_makes_nothing_absent(
    database: Database, stub: S3Stub, make_eraser: MakeEraser
) -> None:
    """The row is old or wrong: versions were switched on since, and a delete has hidden the object."""
    bucket = stub.bucket("b", versioning="Enabled")
    bucket.put("k")
    bucket.delete("k", None)
    with database.begin() as tx:
        learn_capability(tx, "account", ENDPOINT, "b", "versioning", "never")
    eraser = make_eraser(stub, "b")
    eraser.use(known(database))
    assert play(eraser, objects("k")).closing("b/k").outcome is Outcome.DELETED
    assert not bucket.objects.get("k")


def test_a_row_that_wrongly_says_once_costs_no_more_than_a_listing(
    database: Database, stub: S3Stub, make_eraser: MakeEraser
) -> None:
    stub.bucket("b").put("k")
    shared = known(database)
    shared.learn("b", "versioning", "once")
    eraser = make_eraser(stub, "b")
    eraser.use(shared)
    assert play(eraser, objects("k", "absent")).closing("b/k").outcome is Outcome.DELETED


def test_never_is_believed_for_a_short_while(stub: S3Stub, make_eraser: MakeEraser) -> None:
    bucket, clock = stub.bucket("b"), Clock()
    eraser = make_eraser(stub, "b")
    eraser._buckets._clock = clock
    play(eraser, objects("x"))
    bucket.versioning = "Enabled"
    bucket.put("k")
    bucket.delete("k", None)
    clock.now += s3_buckets.NEVER_SECONDS
    assert play(eraser, objects("k")).closing("b/k").outcome is Outcome.DELETED
    assert not bucket.objects.get("k")


def test_a_delete_that_leaves_a_marker_ends_the_belief_in_never(stub: S3Stub, make_eraser: MakeEraser) -> None:
    bucket = stub.bucket("b")
    bucket.put("k")
    eraser = make_eraser(stub, "b")
    play(eraser, objects("x"))
    bucket.versioning = "Enabled"
    first = play(eraser, objects("k"))
    assert Outcome.DELETED not in first.outcomes("b/k")
    assert play(eraser, objects("k")).closing("b/k").outcome is Outcome.DELETED
    assert not bucket.objects.get("k")


@pytest.mark.parametrize("code", ["InvalidArgument", "MalformedXML"])
def test_a_server_that_refuses_many_keys_gets_fewer(stub: S3Stub, make_eraser: MakeEraser, code: str) -> None:
    """s5cmd#579: a thousand keys are too many for some."""
    bucket = stub.bucket("b")
    eraser = make_eraser(stub, "b")
    for size in (100, 60):
        keys = [f"{size}-{number:03d}" for number in range(size)]
        for key in keys:
            bucket.put(key)
        if size == 100:
            with stub.fault("DeleteObjects", f"{code}:400", times=1):
                first = play(eraser, objects(*keys))
            assert {answer.error for answers in first.answers.values() for answer in answers} == {code}
            continue
        played = play(eraser, objects(*keys))
        assert {played.closing(f"b/{key}").outcome for key in keys} == {Outcome.DELETED}
    assert [len(call["keys"]) for call in stub.calls("DeleteObjects")] == [100, 50, 10]


@pytest.mark.parametrize("code", ["MissingContentMD5", "InvalidRequest"])
def test_a_checksum_that_an_endpoint_does_not_take_is_remembered_for_it(
    database: Database, stub: S3Stub, make_eraser: MakeEraser, code: str
) -> None:
    """aws-sdk-java-v2#5805, aws-sdk-js-v3#6920, s3fs-fuse#2639: every batch is refused, single deletes work."""
    keys = [f"k{number}" for number in range(5)]
    for key in keys:
        stub.bucket("b").put(key)
    with stub.fault("DeleteObjects", f"{code}:400"):
        first = make_eraser(stub, "b")
        first.use(known(database))
        play(first, objects(*keys))
        second = make_eraser(stub, "b")
        second.use(known(database))
        played = play(second, objects(*keys))
    assert {played.closing(f"b/{key}").outcome for key in keys} == {Outcome.DELETED}
    assert (len(stub.calls("DeleteObjects")), len(stub.calls("DeleteObject"))) == (1, 5)


@pytest.mark.parametrize("versioning", ["", "Enabled"])
def test_whether_listing_is_allowed_is_kept_and_tried_again(
    database: Database, stub: S3Stub, make_eraser: MakeEraser, versioning: str
) -> None:
    bucket = stub.bucket("b", versioning=versioning)
    eraser = make_eraser(stub, "b")
    shared = known(database)
    eraser.use(shared)
    for refused, word in ((True, "refused"), (False, "allowed"), (True, "refused")):
        bucket.list_refused, bucket.versions_refused = refused, "AccessDenied" if refused else ""
        bucket.put("k")
        play(eraser, objects("k"))
        assert shared.recall("b", "listing") == known(database).recall("b", "listing") == word


def test_the_check_shows_it_with_its_age(database: Database, stub: S3Stub, make_eraser: MakeEraser) -> None:
    make_eraser(stub, "b")
    stub.bucket("b")
    options = S3Options.model_validate(
        {
            "endpoint_url": stub.url,
            "region": "us-east-1",
            "allow": ["b"],
            "replicas": [{"account": "us", "buckets": {"b": "c"}}],
        }
    )
    known(database, at=stub.url).learn("", "keys_per_call", 500)
    runtime = Runtime(database, Policy(), {"account": options})
    lines = list(check._accounts(runtime))
    assert ("account account: replica us", "every target is owed there, too: c/") in [
        (line.name, line.text) for line in lines
    ]
    (line,) = [line for line in lines if "known of" in line.name]
    assert line.name == "account account: known of the endpoint"
    assert line.text.startswith("keys_per_call 500, found out at 20")
    runtime.eraser("account").close()
