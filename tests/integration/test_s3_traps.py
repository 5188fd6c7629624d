"""Public reports of deletions that did not happen, replayed on the strict stub."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from conformance.harness import entry, play
from servers.s3_stub import S3Stub

from expunge.models.entry import Entry
from expunge.models.states import Action
from expunge.tasks.erasers.s3 import S3Eraser
from expunge.tasks.outcomes import Outcome

MakeEraser = Callable[..., S3Eraser]
Objects = list[tuple[str, str]]


def objects(*keys: str, bucket: str = "b") -> Objects:
    return [("object", f"{bucket}/{key}") for key in keys]


def test_keys_that_xml_cannot_carry_do_not_poison_the_batch(stub: S3Stub, make_eraser: MakeEraser) -> None:
    """boto/boto3#2005, aws/aws-sdk#271: one control character makes S3 refuse the whole DeleteObjects call."""
    bucket = stub.bucket("b")
    keys = ["a", "b\x10c", "d", "e\ufffef", "g\rh", "g\nh", "i<j&k", "l\x1fm"]
    for key in [*keys, "g\nh2"]:
        bucket.put(key)
    played = play(make_eraser(stub, "b"), objects(*keys))
    assert {key: played.closing(f"b/{key}").outcome for key in keys} == dict.fromkeys(keys, Outcome.DELETED)
    assert list(bucket.objects) == ["g\nh2"]
    assert [call["keys"] for call in stub.calls("DeleteObject")] == [["b\x10c"], ["e\ufffef"], ["g\rh"], ["l\x1fm"]]
    assert len(stub.calls("DeleteObjects")) == 1
    single = played.closing("b/b\x10c")
    assert (single.operation, single.http_status) == ("DeleteObject", 204)
    assert single.detail
    assert single.detail["confirmed_by"] == "listing"


def test_a_carriage_return_is_not_a_newline(stub: S3Stub, make_eraser: MakeEraser) -> None:
    bucket = stub.bucket("b")
    for key in ("a\rb", "a\nb"):
        bucket.put(key)
    assert play(make_eraser(stub, "b"), objects("a\rb")).closing("b/a\rb").outcome is Outcome.DELETED
    assert list(bucket.objects) == ["a\nb"]
    assert play(make_eraser(stub, "b"), objects("a\rb")).closing("b/a\rb").outcome is Outcome.ABSENT


def test_content_md5_is_sent(stub: S3Stub, make_eraser: MakeEraser) -> None:
    """aws-sdk-java-v2#5805, s3fs-fuse#2639: servers that answer MissingContentMD5 to every batch."""
    stub.requires_md5 = True
    for number in range(5):
        stub.bucket("b").put(f"k{number}")
    played = play(make_eraser(stub, "b"), objects(*(f"k{number}" for number in range(5))))
    assert {played.closing(f"b/k{number}").outcome for number in range(5)} == {Outcome.DELETED}
    assert len(stub.calls("DeleteObjects")) == 1


def test_a_store_without_batches_gets_single_deletes(stub: S3Stub, make_eraser: MakeEraser) -> None:
    for key in "abc":
        stub.bucket("b").put(key)
    eraser = make_eraser(stub, "b")
    with stub.fault("DeleteObjects", "NotImplemented:501"):
        first = play(eraser, objects(*"abc"))
        assert {answer.outcome for key in "abc" for answer in first.answers[f"b/{key}"]} == {Outcome.REFUSED}
        second = play(eraser, [replace(each, refusals=1) for each in first.open.values()])
    assert {second.closing(f"b/{key}").operation for key in "abc"} == {"DeleteObject"}


def test_a_malformed_batch_is_sent_singly_the_next_time(stub: S3Stub, make_eraser: MakeEraser) -> None:
    for key in "abc":
        stub.bucket("b").put(key)
    eraser = make_eraser(stub, "b")
    with stub.fault("DeleteObjects", "MalformedXML:400"):
        first = play(eraser, objects(*"abc"))
        second = play(eraser, [replace(each, refusals=1) for each in first.open.values()])
    assert {answer.error for answers in first.answers.values() for answer in answers} == {"MalformedXML"}
    assert {second.closing(f"b/{key}").outcome for key in "abc"} == {Outcome.DELETED}


def test_errors_of_single_keys_come_within_a_success(stub: S3Stub, make_eraser: MakeEraser) -> None:
    """Opndrive#73, scality/zenko-ui: AccessDenied for some keys in a 200, and everything reported as gone."""
    bucket = stub.bucket("b")
    for key in "abc":
        bucket.put(key)
    bucket.key_errors["b"] = ["AccessDenied*"]
    played = play(make_eraser(stub, "b"), objects(*"abc"))
    assert played.closing("b/a").outcome is Outcome.DELETED
    assert played.closing("b/c").outcome is Outcome.DELETED
    (denied,) = played.answers["b/b"]
    assert (denied.outcome, denied.error, denied.http_status) == (Outcome.REFUSED, "AccessDenied", 200)


def test_a_quiet_answer_leaves_the_rest_unknown(stub: S3Stub, make_eraser: MakeEraser) -> None:
    bucket = stub.bucket("b")
    for key in "abc":
        bucket.put(key)
    bucket.key_errors["b"] = ["AccessDenied*"]
    with stub.fault("DeleteObjects", "quiet"):
        played = play(make_eraser(stub, "b"), objects(*"abc"))
    assert [played.outcomes(f"b/{key}") for key in "abc"] == [[Outcome.LEFT_OUT], [Outcome.REFUSED], [Outcome.LEFT_OUT]]
    again = play(make_eraser(stub, "b"), objects("a", "c"))
    assert {again.closing(f"b/{key}").outcome for key in "ac"} == {Outcome.ABSENT}


def test_a_key_in_neither_list_is_unknown(stub: S3Stub, make_eraser: MakeEraser) -> None:
    for key in "abc":
        stub.bucket("b").put(key)
    with stub.fault("DeleteObjects", "leave_out"):
        played = play(make_eraser(stub, "b"), objects(*"abc"))
    assert sorted(played.outcomes(f"b/{key}")[0] for key in "abc") == ["deleted", "deleted", "left_out"]


def test_a_passing_error_of_one_key_is_that_keys_alone(stub: S3Stub, make_eraser: MakeEraser) -> None:
    """boto/boto3#3052: InternalError of a few keys within a 200 is not retried by the SDK."""
    bucket = stub.bucket("b")
    keys = [f"k{number:03d}" for number in range(1000)]
    for key in keys:
        bucket.put(key)
    bucket.key_errors["k047"] = ["InternalError", "InternalError"]
    eraser = make_eraser(stub, "b")
    pending: list[tuple[str, str] | Entry] = list(objects(*keys))
    receipts: dict[str, list[Outcome]] = {}
    for _ in range(3):
        played = play(eraser, pending)
        pending = list(played.open.values())
        for locator, answers in played.answers.items():
            receipts.setdefault(locator, []).extend(answer.outcome for answer in answers)
    assert receipts.pop("b/k047") == [Outcome.UNAVAILABLE, Outcome.UNAVAILABLE, Outcome.DELETED]
    assert set(map(tuple, receipts.values())) == {(Outcome.DELETED,)}


def test_versions_found_late_are_not_hidden(stub: S3Stub, make_eraser: MakeEraser) -> None:
    """A bucket whose versioning was switched on after it was looked up: the plain delete only made a marker."""
    bucket = stub.bucket("b")
    bucket.put("first")
    eraser = make_eraser(stub, "b")
    play(eraser, objects("first"))
    bucket.versioning = "Enabled"
    bucket.put("k")
    bucket.put("k")
    played = play(eraser, objects("k"))
    (hidden,) = played.answers["b/k"]
    assert (hidden.outcome, hidden.error) == (Outcome.UNCONFIRMED, "DeleteMarker")
    again = play(eraser, [replace(each, had_parts=False) for each in played.open.values()])
    assert again.closing("b/k").outcome is Outcome.DELETED
    assert not bucket.objects
    assert len(again.answers["b/k"]) == 4  # two versions, the marker, and the closing look


@pytest.mark.parametrize("versioning", ["Enabled", "Suspended"])
def test_a_server_that_does_not_tell_of_markers_is_not_believed(
    stub: S3Stub, make_eraser: MakeEraser, versioning: str
) -> None:
    bucket = stub.bucket("b", versioning=versioning, tells_markers=False)
    for key in ("k", "kk"):
        bucket.put(key)
        bucket.put(key)
    assert play(make_eraser(stub, "b"), objects("k")).closing("b/k").outcome is Outcome.DELETED
    assert list(bucket.objects) == ["kk"]


@pytest.mark.parametrize("code", ["AccessDenied", "NotImplemented"])
def test_versioning_that_cannot_be_read_is_taken_for_on(stub: S3Stub, make_eraser: MakeEraser, code: str) -> None:
    bucket = stub.bucket("b", versioning="Enabled", versioning_refused=code)
    bucket.put("k")
    assert play(make_eraser(stub, "b"), objects("k")).closing("b/k").outcome is Outcome.DELETED
    assert not bucket.objects


def test_a_store_that_knows_no_versions_at_all(stub: S3Stub, make_eraser: MakeEraser) -> None:
    bucket = stub.bucket("b", versioning_refused="NotImplemented", versions_refused="NotImplemented")
    bucket.put("k")
    bucket.put("p/x")
    eraser = make_eraser(stub, "b")
    assert play(eraser, objects("k")).closing("b/k").operation == "DeleteObjects"
    assert play(eraser, [("prefix", "b/p/")]).closing("b/p/").outcome is Outcome.DELETED
    assert not bucket.objects


def test_versions_that_cannot_be_listed_are_refused_and_nothing_is_hidden(
    stub: S3Stub, make_eraser: MakeEraser
) -> None:
    bucket = stub.bucket("b", versioning="Enabled", list_refused=True)
    bucket.put("k")
    (answer,) = play(make_eraser(stub, "b"), objects("k")).answers["b/k"]
    assert (answer.outcome, answer.error, answer.action) == (Outcome.REFUSED, "AccessDenied", Action.LOOK)
    assert not stub.calls("DeleteObjects", "DeleteObject")


def test_thousands_of_versions_of_one_key(stub: S3Stub, make_eraser: MakeEraser) -> None:
    bucket = stub.bucket("b", versioning="Enabled")
    for _ in range(2500):
        bucket.put("k")
    bucket.put("kk")
    played = play(make_eraser(stub, "b"), objects("k", "kk"))
    assert not bucket.objects
    assert len({answer.version for answer in played.answers["b/k"]}) == 2501
    assert max(len(call["keys"]) for call in stub.calls("DeleteObjects")) <= 1000
    assert played.closing("b/k").outcome is Outcome.DELETED


def test_an_absent_key_piles_up_no_markers(stub: S3Stub, make_eraser: MakeEraser) -> None:
    """aws-sdk-go-v2#2607: S3 answers success for a key that never was, and adds a marker for it."""
    bucket = stub.bucket("b", versioning="Enabled")
    eraser = make_eraser(stub, "b")
    for _ in range(3):
        closing = play(eraser, objects("never")).closing("b/never")
        assert (closing.outcome, closing.action) == (Outcome.ABSENT, Action.LOOK)
    assert not bucket.objects
    assert not stub.calls("DeleteObjects", "DeleteObject")


def test_no_more_than_a_thousand_and_each_key_once(stub: S3Stub, make_eraser: MakeEraser) -> None:
    """boto3#3297: more than 1,000 keys surface as MalformedXML."""
    bucket = stub.bucket("b")
    keys = [f"k{number}" for number in range(2498)]
    for key in keys:
        bucket.put(key)
    entries = [entry(kind, locator) for kind, locator in objects(*keys, "k1", "k2", "k3")]
    played = play(make_eraser(stub, "b"), entries)
    sent = [call["keys"] for call in stub.calls("DeleteObjects")]
    assert [len(each) for each in sent] == [1000, 1000, 498]
    assert len({key for each in sent for key in each}) == 2498
    assert not played.open
    assert len(played.answers["b/k1"]) == 2
    assert len({answer.request_id for answer in played.answers["b/k1"]}) == 1


def test_without_the_right_to_list_it_is_deleted_and_said_to_be_unknown(stub: S3Stub, make_eraser: MakeEraser) -> None:
    bucket = stub.bucket("b", list_refused=True)
    for key in ("k", "x\x01"):
        bucket.put(key)
    played = play(make_eraser(stub, "b"), objects("k", "never", "x\x01"))
    for locator in ("b/k", "b/never", "b/x\x01"):
        closing = played.closing(locator)
        assert (closing.outcome, closing.action) == (Outcome.DELETED, Action.DELETE)
        assert closing.detail
        assert closing.detail["existed"] == "unknown"
    assert (played.closing("b/x\x01").detail or {})["confirmed_by"] == "status 204"
    assert not bucket.objects


def test_a_locked_version_is_retained(stub: S3Stub, make_eraser: MakeEraser) -> None:
    bucket = stub.bucket("b", versioning="Enabled", lock=True)
    until = datetime.now(UTC).replace(microsecond=0) + timedelta(days=30)
    bucket.put("dated").retain_until = until
    bucket.put("held").legal_hold = True
    bucket.put("over").retain_until = datetime.now(UTC) - timedelta(days=1)
    bucket.put("denied")
    bucket.key_errors["denied"] = ["AccessDenied*"]
    played = play(make_eraser(stub, "b"), objects("dated", "held", "over", "denied"))
    (dated,), (held,), (denied,) = (played.answers[f"b/{key}"] for key in ("dated", "held", "denied"))
    assert (dated.outcome, dated.retain_until, dated.error) == (Outcome.RETAINED, until, "AccessDenied")
    assert (held.outcome, held.retain_until) == (Outcome.RETAINED, None)
    assert dated.version
    assert denied.outcome is Outcome.REFUSED
    assert played.closing("b/over").outcome is Outcome.DELETED
    assert {(each.detail or {}).get("lock") for each in (dated, held)} == {"COMPLIANCE", "LEGAL_HOLD"}


@pytest.mark.parametrize("fault", ["error_500", "AccessDenied:403", "html_200"])
def test_a_lock_that_only_a_head_tells(stub: S3Stub, make_eraser: MakeEraser, fault: str) -> None:
    """GetObjectRetention and GetObjectLegalHold have permissions of their own, and some servers have neither."""
    bucket = stub.bucket("b", versioning="Enabled", lock=True)
    until = datetime(2999, 1, 1, tzinfo=UTC)
    bucket.put("dated").retain_until = until
    bucket.put("held").legal_hold = True
    bucket.put("denied")
    bucket.key_errors["denied"] = ["AccessDenied*"]
    with stub.fault("GetObjectRetention", fault, times=9), stub.fault("GetObjectLegalHold", fault, times=9):
        played = play(make_eraser(stub, "b"), objects("dated", "held", "denied"))
    dated, held, denied = (played.answers[f"b/{key}"][-1] for key in ("dated", "held", "denied"))
    assert (dated.outcome, dated.retain_until) == (Outcome.RETAINED, until)
    assert (held.outcome, held.retain_until) == (Outcome.RETAINED, None)
    assert denied.outcome is Outcome.REFUSED


def test_a_refusal_in_a_bucket_without_locks_asks_about_the_bucket_once(stub: S3Stub, make_eraser: MakeEraser) -> None:
    bucket = stub.bucket("b", versioning="Enabled")
    for key in "abc":
        bucket.put(key)
        bucket.key_errors[key] = ["AccessDenied*"]
    played = play(make_eraser(stub, "b"), objects(*"abc"))
    assert {played.outcomes(f"b/{key}")[0] for key in "abc"} == {Outcome.REFUSED}
    assert len(stub.calls("GetObjectLockConfiguration")) == 1
    assert not stub.calls("GetObjectRetention", "GetObjectLegalHold")


def test_a_key_that_only_a_url_could_carry_but_would_change(stub: S3Stub, make_eraser: MakeEraser) -> None:
    played = play(make_eraser(stub, "b"), objects("a/../b\x01"))
    not_sent = played.not_sent["b/a/../b\x01"]
    assert (not_sent.reason, not_sent.whole_account) == ("UnrepresentableKey", False)
    assert not played.answers
    assert not stub.calls()
