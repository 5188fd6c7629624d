"""Stores that refuse, fail, answer with pages or not at all: on the strict stub."""

import time
from collections.abc import Callable

import pytest
from conformance.harness import entry, play
from servers.s3_stub import S3Stub

from expunge.tasks.erasers.s3 import S3Eraser
from expunge.tasks.erasers.s3_deletes import OutsideAllow
from expunge.tasks.outcomes import Outcome

MakeEraser = Callable[..., S3Eraser]
Objects = list[tuple[str, str]]


def objects(*keys: str, bucket: str = "b") -> Objects:
    return [("object", f"{bucket}/{key}") for key in keys]


@pytest.mark.parametrize("kind", ["slow_down", "error_in_200"])
def test_slow_down_is_throttling(stub: S3Stub, make_eraser: MakeEraser, kind: str) -> None:
    """icechunk PR#2408, aws-sdk-rust#873 (SlowDown within a 200): back-pressure, and one call only."""
    stub.bucket("b").put("k")
    with stub.fault("DeleteObjects", kind):
        (answer,) = play(make_eraser(stub, "b"), objects("k")).answers["b/k"]
    assert (answer.outcome, answer.error) == (Outcome.THROTTLED, "SlowDown")
    assert answer.http_status == (503 if kind == "slow_down" else 200)
    assert len(stub.calls("DeleteObjects")) == 1


@pytest.mark.parametrize("fault", ["html_200", "xhtml_200", "html_404", "empty_body"])
@pytest.mark.parametrize("operation", ["ListObjectsV2", "GetBucketVersioning", "DeleteObjects", "ListObjectVersions"])
def test_a_page_is_nobodys_answer(stub: S3Stub, make_eraser: MakeEraser, operation: str, fault: str) -> None:
    bucket = stub.bucket("b", versioning="Enabled" if operation == "ListObjectVersions" else "")
    bucket.put("k")
    bucket.put("p/1")
    with stub.fault(operation, fault):
        played = play(make_eraser(stub, "b"), [*objects("k", "never"), ("prefix", "b/p/")])
    outcomes = {answer.outcome for answers in played.answers.values() for answer in answers}
    assert Outcome.DELETED not in outcomes
    assert Outcome.UNCONFIRMED in outcomes
    if operation != "DeleteObjects":
        assert outcomes == {Outcome.UNCONFIRMED}
    assert set(bucket.objects) == {"k", "p/1"}


def test_an_empty_result_confirms_nothing(stub: S3Stub, make_eraser: MakeEraser) -> None:
    stub.bucket("b").put("k")
    with stub.fault("DeleteObjects", "empty_result"):
        (answer,) = play(make_eraser(stub, "b"), objects("k")).answers["b/k"]
    assert answer.outcome is Outcome.UNCONFIRMED


@pytest.mark.parametrize("status", [301, 307])
def test_redirects_are_not_followed(stub: S3Stub, make_eraser: MakeEraser, status: int) -> None:
    stub.bucket("b", redirect=status).put("k")
    (answer,) = play(make_eraser(stub, "b"), objects("k")).answers["b/k"]
    assert (answer.outcome, answer.scope, answer.http_status) == (Outcome.REFUSED_SCOPE, "b", status)
    assert answer.region == "eu-west-1"
    assert [call["operation"] for call in stub.calls()] == ["GetBucketVersioning"]


def test_refused_credentials_are_the_accounts(
    stub: S3Stub, make_eraser: MakeEraser, monkeypatch: pytest.MonkeyPatch
) -> None:
    stub.bucket("b").put("k")
    eraser = make_eraser(stub, "b")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "anotheranother")
    (answer,) = play(eraser, objects("k")).answers["b/k"]
    assert (answer.outcome, answer.scope, answer.error) == (Outcome.REFUSED_SCOPE, "", "InvalidAccessKeyId")


def test_missing_credentials_are_the_accounts(
    stub: S3Stub, make_eraser: MakeEraser, monkeypatch: pytest.MonkeyPatch
) -> None:
    eraser = make_eraser(stub, "b", profile="no-such-profile")
    (answer,) = play(eraser, objects("k")).answers["b/k"]
    assert (answer.outcome, answer.scope, answer.error) == (Outcome.REFUSED_SCOPE, "", "ProfileNotFound")
    assert not stub.calls()
    assert eraser.check()[0].ok is False


def test_another_accounts_bucket_is_refused_as_a_whole(stub: S3Stub, make_eraser: MakeEraser) -> None:
    stub.bucket("b").put("k")
    eraser = make_eraser(stub, "b", expected_bucket_owner="999999999999")
    (answer,) = play(eraser, objects("k")).answers["b/k"]
    assert (answer.outcome, answer.scope, answer.error) == (Outcome.REFUSED_SCOPE, "b", "AccessDenied")
    right = make_eraser(stub, "b", expected_bucket_owner="111122223333")
    assert play(right, objects("k")).closing("b/k").outcome is Outcome.DELETED


def test_a_hanging_store_gives_no_answer_within_the_timeout(stub: S3Stub, make_eraser: MakeEraser) -> None:
    stub.bucket("b").put("k")
    eraser = make_eraser(stub, "b", timeout_seconds=0.6)
    with stub.fault("DeleteObjects", "hang"):
        began = time.monotonic()
        (answer,) = play(eraser, objects("k")).answers["b/k"]
        assert time.monotonic() - began < 5
        stub.release()
    assert (answer.outcome, answer.error) == (Outcome.NO_ANSWER, "ReadTimeoutError")
    assert eraser.timeout == 1.2


def test_a_store_that_is_not_there_gives_no_answer(make_eraser: MakeEraser, stub: S3Stub) -> None:
    eraser = make_eraser(stub, "b", endpoint_url="http://127.0.0.1:9")
    (answer,) = play(eraser, objects("k")).answers["b/k"]
    assert (answer.outcome, answer.error) == (Outcome.NO_ANSWER, "EndpointConnectionError")
    assert eraser.check()[1].ok is False


def test_a_lost_answer_is_unknown_and_then_absent(stub: S3Stub, make_eraser: MakeEraser) -> None:
    stub.bucket("b").put("k")
    eraser = make_eraser(stub, "b")
    with stub.fault("DeleteObjects", "drop_after"):
        first = play(eraser, objects("k"))
    assert first.outcomes("b/k") == [Outcome.NO_ANSWER]
    assert play(eraser, first.open.values()).closing("b/k").outcome is Outcome.ABSENT


def test_a_failed_look_is_told_to_a_few(stub: S3Stub, make_eraser: MakeEraser) -> None:
    entries = [entry(kind, locator) for kind, locator in objects(*(f"k{number}" for number in range(50)))]
    stub.bucket("b")
    with stub.fault("ListObjectsV2", "error_500"):
        looked = make_eraser(stub, "b").look(entries, time.monotonic() + 60)
    assert [answer.outcome for answer in looked.answers] == [Outcome.UNAVAILABLE] * 3
    assert not looked.calls


def test_nothing_outside_allow_is_ever_asked_for(stub: S3Stub, make_eraser: MakeEraser) -> None:
    bucket = stub.bucket("b")
    for key in ("u/1/x", "u/10/x"):
        bucket.put(key)
    eraser = make_eraser(stub, "b/u/1/")
    played = play(eraser, [*objects("u/10/x"), ("prefix", "b/u/"), *objects("k", bucket="other")])
    assert {answer.error for answers in played.answers.values() for answer in answers} == {"OutsideAllow"}
    assert not stub.calls()
    looked = eraser.look([entry("object", "b/u/1/x")], time.monotonic() + 60)
    (call,) = looked.calls
    eraser._deletes._options = eraser._deletes._options.model_copy(update={"allow": ("elsewhere",)})
    with pytest.raises(OutsideAllow):
        call.send(call.entry_ids)
    assert not stub.calls("DeleteObjects", "DeleteObject")
