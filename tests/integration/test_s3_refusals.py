"""Stores that refuse, fail, answer with pages or not at all: on the strict stub."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conformance.harness import entry, play
from conformance.s3_world import no_credentials
from servers.s3_stub import ACCESS_KEY, SECRET_KEY, S3Stub

from expunge.tasks.erasers.contract import Answer, NothingSent, NotSent
from expunge.tasks.erasers.s3 import S3Eraser
from expunge.tasks.erasers.s3_options import OUTSIDE_ALLOW
from expunge.tasks.outcomes import Outcome

MakeEraser = Callable[..., S3Eraser]
Objects = list[tuple[str, str]]
KEYS = {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY}


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


PROFILES = """
[profile half]
aws_access_key_id = aaaaaaaaaaaaaaaa
[profile process]
credential_process = /bin/false
[profile sso]
sso_start_url = https://127.0.0.1:9
sso_region = us-east-1
sso_account_id = 1
sso_role_name = x
[profile role]
role_arn = arn:aws:iam::123456789012:role/x
source_profile = source
[profile source]
aws_access_key_id = aaaaaaaaaaaaaaaa
aws_secret_access_key = b
[profile web]
role_arn = arn:aws:iam::123456789012:role/x
web_identity_token_file = /no/such/file
"""


@pytest.mark.parametrize(
    ("options", "environment", "reason"),
    [
        ({}, {}, "NoCredentialsError"),
        ({}, {"AWS_ACCESS_KEY_ID": "a"}, "PartialCredentialsError"),
        ({"profile": "half"}, {}, "PartialCredentialsError"),
        ({"profile": "none"}, {}, "ProfileNotFound"),
        ({}, {"AWS_PROFILE": "none"}, "ProfileNotFound"),
        ({"profile": "process"}, {}, "CredentialRetrievalError"),
        ({"profile": "sso"}, {}, "SSOTokenLoadError"),
        ({"profile": "web"}, {}, "FileNotFoundError"),
        ({"profile": "role"}, {"AWS_ENDPOINT_URL_STS": "http://127.0.0.1:9"}, "EndpointConnectionError"),
        ({}, {"AWS_CONTAINER_CREDENTIALS_FULL_URI": "http://127.0.0.1:9"}, "CredentialRetrievalError"),
        ({}, {"AWS_CONFIG_FILE": __file__}, "ConfigParseError"),
        ({}, {**KEYS, "AWS_SESSION_TOKEN": "to\nken"}, "IllegalHeaderError"),
        ({"region": "no region"}, KEYS, "InvalidRegionError"),
        ({"endpoint_url": "nonsense"}, KEYS, "InvalidEndpoint"),
        ({"endpoint_url": "http://a:99999999"}, KEYS, "EndpointResolutionError"),
    ],
)
@pytest.mark.parametrize("target", [("object", "b/k"), ("prefix", "b/p/")])
def test_an_account_that_cannot_sign_a_request_sends_none(
    stub: S3Stub,
    make_eraser: MakeEraser,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    target: tuple[str, str],
    options: dict[str, str],
    environment: dict[str, str],
    reason: str,
) -> None:
    eraser = make_eraser(stub, "b", **options)
    (tmp_path / "config").write_text(PROFILES)
    with no_credentials():
        monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        played = play(eraser, [target])
        check = eraser.check()
        monkeypatch.undo()
    not_sent = played.not_sent[target[1]]
    assert (not_sent.reason, not_sent.whole_account) == (reason, True)
    assert not played.answers
    assert not stub.calls()
    assert [line for line in check if line.ok is False]


def test_without_credentials_they_are_looked_for_once_a_look_and_anew_in_the_next(
    stub: S3Stub, make_eraser: MakeEraser, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client keeps that it found none, and a source that is away for a moment may take seconds to say so."""
    stub.bucket("b").put("k")
    eraser = make_eraser(stub, "b", "b2")
    made: list[object] = []
    make = eraser._client._make

    def count() -> Any:
        made.append(make())
        return made[-1]

    monkeypatch.setattr(eraser._client, "_make", count)
    targets = [*objects("k"), ("prefix", "b/p/"), ("prefix", "b/q/"), ("object", "b2/k")]
    with no_credentials():
        looked = eraser.look([entry(*target) for target in targets], time.monotonic() + 60)
    assert [each.reason for each in looked.not_sent] == ["NoCredentialsError"]
    assert len(made) == 1
    assert play(eraser, objects("k")).closing("b/k").outcome is Outcome.DELETED


@pytest.mark.parametrize("kind", ["object", "prefix"])
def test_a_bucket_that_cannot_be_named_is_the_entrys_fault(stub: S3Stub, make_eraser: MakeEraser, kind: str) -> None:
    stub.bucket("b").put("k")
    locator = "no bucket!/" + ("p/" if kind == "prefix" else "k")
    played = play(make_eraser(stub, "b", "no bucket!"), [(kind, locator), *objects("k")])
    not_sent = played.not_sent[locator]
    assert (not_sent.reason, not_sent.whole_account) == ("ParamValidationError", False)
    assert played.closing("b/k").outcome is Outcome.DELETED


@pytest.mark.parametrize("versioning", ["", "Enabled"])
@pytest.mark.parametrize("key", ["k", "k\x01"])
def test_credentials_that_go_after_the_deletion_leave_its_answer(
    stub: S3Stub, make_eraser: MakeEraser, versioning: str, key: str
) -> None:
    """What comes after the call (the look that confirms it, the locks of what was refused) may fail to be sent; the
    call was, and has its receipt."""
    bucket = stub.bucket("b", versioning=versioning)
    bucket.put(key)
    bucket.key_errors[key] = ["AccessDenied*"] if versioning else []
    eraser = make_eraser(stub, "b")
    (call,) = eraser.look([entry("object", f"b/{key}")], time.monotonic() + 60).calls
    real, sent = eraser._client.call, []

    def call_once(operation: str, *arguments: Any, **more: Any) -> Any:
        if sent:
            raise NothingSent("NoCredentialsError", whole_account=True)
        sent.append(operation)
        return real(operation, *arguments, **more)

    eraser._client.call = call_once  # type: ignore[method-assign]
    (answer,) = call.send(call.entry_ids)
    assert isinstance(answer, Answer)
    assert answer.request_id == stub.calls("DeleteObjects", "DeleteObject")[0]["request_id"]


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
    assert {each.reason for each in played.not_sent.values()} == {OUTSIDE_ALLOW}
    assert len(played.not_sent) == 3
    assert not played.answers
    assert not stub.calls()
    looked = eraser.look([entry("object", "b/u/1/x")], time.monotonic() + 60)
    (call,) = looked.calls
    eraser._deletes._options = eraser._deletes._options.model_copy(update={"allow": ("elsewhere",)})
    assert call.send(call.entry_ids) == [NotSent(call.entry_ids[0], OUTSIDE_ALLOW)]
    assert not stub.calls("DeleteObjects", "DeleteObject")
