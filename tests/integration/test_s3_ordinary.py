"""What every S3 server must allow: objects and prefixes go, receipts tell deleted from absent, neighbours stay."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from conformance.harness import play
from servers.s3_targets import S3Server

from expunge.models.states import Action
from expunge.tasks.erasers.s3 import S3Eraser
from expunge.tasks.outcomes import Outcome

MakeEraser = Callable[..., S3Eraser]

ODD_KEYS = ["a b", "a+b", "a%20b", "a%2Bb", "a<b&c", "ü", "\U0001f600", "\uff5e", "d.x", "d-x", "d/x", "d/x/y."]


def test_present_is_deleted_and_absent_is_absent(server: S3Server, make_eraser: MakeEraser) -> None:
    bucket = server.new_bucket()
    server.put(bucket, "u/1", "u/10", "u/2")
    played = play(make_eraser(server, bucket), [("object", f"{bucket}/u/1"), ("object", f"{bucket}/u/3")])
    gone, never = played.closing(f"{bucket}/u/1"), played.closing(f"{bucket}/u/3")
    assert (gone.outcome, gone.action, gone.operation) == (Outcome.DELETED, Action.DELETE, "DeleteObjects")
    assert (never.outcome, never.action, never.operation) == (Outcome.ABSENT, Action.LOOK, "ListObjectsV2")
    assert gone.request_id
    assert never.request_id
    assert gone.request_id != never.request_id
    assert gone.endpoint == server.url
    assert server.keys(bucket) == ["u/10", "u/2"]


@pytest.mark.parametrize("versioning", ["Enabled", "Suspended"])
def test_every_version_and_marker_goes(server: S3Server, make_eraser: MakeEraser, versioning: str) -> None:
    bucket = server.new_bucket()
    server.put(bucket, "a", "ab")  # from before versioning: version "null"
    client = server.client()
    client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    server.put(bucket, "a", "a", "a/b")
    client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": versioning})
    if versioning == "Enabled":
        client.delete_object(Bucket=bucket, Key="a")
    locators = [f"{bucket}/a", f"{bucket}/never"]
    played = play(make_eraser(server, bucket), [("object", locator) for locator in locators])
    assert server.keys(bucket) == ["a/b", "ab"]
    closing = played.closing(locators[0])
    assert (closing.outcome, closing.action, closing.operation) == (Outcome.DELETED, Action.LOOK, "ListObjectVersions")
    assert played.closing(locators[1]).outcome is Outcome.ABSENT
    parts = played.answers[locators[0]][:-1]
    assert len({part.version for part in parts}) == len(parts) >= 3
    assert {part.outcome for part in parts} == {Outcome.DELETED}
    markers = [part for part in parts if part.detail and "marker" in part.detail]
    assert len(markers) == (1 if versioning == "Enabled" else 0)


@pytest.mark.parametrize("keeps", ["date", "legal hold"])
def test_what_the_server_keeps_is_retained(server: S3Server, make_eraser: MakeEraser, keeps: str) -> None:
    """The refusal says AccessDenied, as a missing permission would: the lock is read, as the server allows."""
    bucket, client = server.new_bucket(lock=True), server.client()
    until = datetime.now(UTC).replace(microsecond=0) + timedelta(days=2)
    client.put_object(
        Bucket=bucket,
        Key="kept",
        Body=b"x",
        **(
            {"ObjectLockMode": "GOVERNANCE", "ObjectLockRetainUntilDate": until}
            if keeps == "date"
            else {"ObjectLockLegalHoldStatus": "ON"}
        ),
    )
    server.put(bucket, "free")
    played = play(make_eraser(server, bucket), [("object", f"{bucket}/{key}") for key in ("kept", "free")])
    assert played.closing(f"{bucket}/free").outcome is Outcome.DELETED
    kept = played.answers[f"{bucket}/kept"][-1]
    assert (kept.outcome, kept.retain_until) == (Outcome.RETAINED, until if keeps == "date" else None)
    assert "kept" in server.keys(bucket)


def test_a_marker_that_stays_though_it_is_said_to_be_deleted(weed: S3Server, make_eraser: MakeEraser) -> None:
    """SeaweedFS 4.48 confirms the deletion of a suspended bucket's null marker and lists it for ever."""
    bucket = weed.new_bucket("Suspended")
    weed.put(bucket, "a", "b")
    weed.client().delete_object(Bucket=bucket, Key="a")
    played = play(make_eraser(weed, bucket), [("object", f"{bucket}/a"), ("object", f"{bucket}/b")])
    assert played.closing(f"{bucket}/b").outcome is Outcome.DELETED
    told, listed = played.answers[f"{bucket}/a"]
    assert (told.outcome, told.version) == (Outcome.DELETED, "null")
    assert (listed.outcome, listed.error, listed.version) == (Outcome.REFUSED, "StillListed", None)


def test_a_key_that_the_server_keeps_under_another_name_is_not_absent(weed: S3Server, make_eraser: MakeEraser) -> None:
    """SeaweedFS 4.48 keeps versions of `e//f` as `e/f` and lists nothing for `e//f`."""
    bucket = weed.new_bucket("Enabled")
    weed.put(bucket, "e//f")
    (answer,) = play(make_eraser(weed, bucket), [("object", f"{bucket}/e//f")]).answers[f"{bucket}/e//f"]
    assert (answer.outcome, answer.error) == (Outcome.REFUSED, "ListingUndecided")


@pytest.mark.parametrize("versioning", ["", "Enabled"])
def test_odd_keys_are_told_apart(server: S3Server, make_eraser: MakeEraser, versioning: str) -> None:
    bucket = server.new_bucket(versioning)
    server.put(bucket, *ODD_KEYS)
    wanted, others = ODD_KEYS[::2], ODD_KEYS[1::2]
    played = play(make_eraser(server, bucket), [("object", f"{bucket}/{key}") for key in wanted])
    assert {key: played.closing(f"{bucket}/{key}").outcome for key in wanted} == dict.fromkeys(wanted, Outcome.DELETED)
    assert server.keys(bucket) == sorted(others)
    played = play(make_eraser(server, bucket), [("object", f"{bucket}/{key}") for key in ODD_KEYS])
    outcomes = {key: played.closing(f"{bucket}/{key}").outcome for key in ODD_KEYS}
    assert outcomes == dict.fromkeys(wanted, Outcome.ABSENT) | dict.fromkeys(others, Outcome.DELETED)
    assert server.keys(bucket) == []


@pytest.mark.parametrize("versioning", ["", "Enabled"])
def test_a_prefix_takes_what_is_under_it_and_nothing_beside_it(
    server: S3Server, make_eraser: MakeEraser, versioning: str
) -> None:
    bucket = server.new_bucket(versioning)
    inside = [f"u/1/{number}" for number in range(25)] + ["u/1/sub/a b"]
    server.put(bucket, *inside, "u/10/x", "u/1.txt")
    if versioning:
        server.client().delete_object(Bucket=bucket, Key="u/1/never-but-a-marker")
    played = play(make_eraser(server, bucket), [("prefix", f"{bucket}/u/1/")])
    assert server.keys(bucket) == ["u/1.txt", "u/10/x"]
    assert not played.open
    assert {played.closing(f"{bucket}/{key}").outcome for key in inside} == {Outcome.DELETED}
    closing = played.closing(f"{bucket}/u/1/")
    assert (closing.outcome, closing.action) == (Outcome.DELETED, Action.LOOK)


def test_an_empty_prefix_is_absent(server: S3Server, make_eraser: MakeEraser) -> None:
    bucket = server.new_bucket()
    server.put(bucket, "u/10/x")
    played = play(make_eraser(server, bucket), [("prefix", f"{bucket}/u/1/")])
    assert played.closing(f"{bucket}/u/1/").outcome is Outcome.ABSENT


def test_a_missing_bucket_is_no_absence(server: S3Server, make_eraser: MakeEraser) -> None:
    played = play(
        make_eraser(server, "no-such-bucket"), [("object", "no-such-bucket/k"), ("prefix", "no-such-bucket/p/")]
    )
    for locator in ("no-such-bucket/k", "no-such-bucket/p/"):
        (answer,) = played.answers[locator]
        assert (answer.outcome, answer.error) == (Outcome.REFUSED_SCOPE, "NoSuchBucket")
        assert answer.scope == "no-such-bucket"


def test_check_tells_what_there_is(server: S3Server, make_eraser: MakeEraser) -> None:
    bucket = server.new_bucket("Enabled")
    lines = {line.name: line for line in make_eraser(server, f"{bucket}/u/", "no-such-bucket").check()}
    assert lines["credentials"].ok
    assert server.access_key not in lines["credentials"].text
    assert lines[f"bucket {bucket}"].ok
    assert "every version" in lines[f"versioning of {bucket}"].text
    assert lines["bucket no-such-bucket"].ok is False


PROBED = {
    "stub": "honoured: ",
    "moto": "honoured: ",  # of absent keys; those that are there are refused, see test_s3_conditional.py
    "seaweed": "refused: ",  # 412 for an absent key
    "rgw": "ignored: ",  # 204
}


def test_a_probe_of_conditional_deletes(server: S3Server, make_eraser: MakeEraser) -> None:
    bucket, versioned = server.new_bucket(), server.new_bucket("Enabled")
    server.put(bucket, "u/1")
    lines = {line.name: line for line in make_eraser(server, f"{bucket}/u/", versioned).probe()}
    assert lines[f"conditional deletes of {bucket}"].text.startswith(PROBED[server.name])
    assert lines[f"conditional deletes of {versioned}"].text.startswith("not probed: ")
    assert server.keys(bucket) == ["u/1"]
    assert server.keys(versioned) == []
