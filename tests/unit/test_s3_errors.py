"""Which error is which."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from botocore import exceptions
from botocore.parsers import ResponseParserError

from expunge.tasks.erasers.s3_errors import (
    NotS3Answer,
    Verdict,
    classify,
    error_name,
    is_account_wide,
    retry_after,
    why_not_sent,
)
from expunge.tasks.outcomes import Outcome


def client_error(code: str, status: int, *, operation: str = "DeleteObjects", **headers: str) -> Verdict:
    response = {
        "Error": {"Code": code, "Message": "the secret key is x"},
        "ResponseMetadata": {
            "HTTPStatusCode": status,
            "HTTPHeaders": {name.replace("_", "-"): value for name, value in headers.items()},
            "RequestId": "R1",
        },
    }
    return classify(exceptions.ClientError(response, operation), operation)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("code", "status", "outcome"),
    [
        ("NoSuchBucket", 404, Outcome.REFUSED_SCOPE),
        ("PermanentRedirect", 301, Outcome.REFUSED_SCOPE),
        ("TemporaryRedirect", 307, Outcome.REFUSED_SCOPE),
        ("AuthorizationHeaderMalformed", 400, Outcome.REFUSED_SCOPE),
        ("InvalidAccessKeyId", 403, Outcome.REFUSED_SCOPE),
        ("SignatureDoesNotMatch", 403, Outcome.REFUSED_SCOPE),
        ("ExpiredToken", 400, Outcome.REFUSED_SCOPE),
        ("RequestTimeTooSkewed", 403, Outcome.REFUSED_SCOPE),
        ("Whatever", 401, Outcome.REFUSED_SCOPE),
        ("AccessDenied", 403, Outcome.REFUSED),
        ("MalformedXML", 400, Outcome.REFUSED),
        ("NotImplemented", 501, Outcome.REFUSED),
        ("SlowDown", 503, Outcome.THROTTLED),
        ("SlowDown", 500, Outcome.THROTTLED),
        ("Anything", 429, Outcome.THROTTLED),
        ("InternalError", 500, Outcome.UNAVAILABLE),
        ("InternalError", 200, Outcome.UNAVAILABLE),
        ("ServiceUnavailable", 503, Outcome.UNAVAILABLE),
        ("Anything", 502, Outcome.UNAVAILABLE),
        ("NoSuchKey", 404, Outcome.UNCONFIRMED),
    ],
)
def test_codes(code: str, status: int, outcome: Outcome) -> None:
    verdict = client_error(code, status)
    assert (verdict.outcome, verdict.error, verdict.request_id) == (outcome, code, "R1")


def test_only_a_single_delete_can_find_its_key_absent() -> None:
    assert client_error("NoSuchKey", 404, operation="DeleteObject").outcome is Outcome.ABSENT


def test_the_accounts_refusals_and_the_buckets() -> None:
    assert is_account_wide(client_error("InvalidAccessKeyId", 403))
    assert is_account_wide(client_error("Whatever", 401))
    assert not is_account_wide(client_error("NoSuchBucket", 404))
    assert not is_account_wide(client_error("PermanentRedirect", 301))
    assert not is_account_wide(classify(NotS3Answer(301, {}), "DeleteObjects"))


def test_503_with_retry_after_is_throttling() -> None:
    verdict = client_error("ServiceUnavailable", 503, retry_after="12")
    assert (verdict.outcome, verdict.retry_after) == (Outcome.THROTTLED, 12.0)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (exceptions.NoCredentialsError(), "NoCredentialsError"),
        (exceptions.ProfileNotFound(profile="p"), "ProfileNotFound"),
        (exceptions.ParamValidationError(report="r"), "ParamValidationError"),
        (exceptions.ClientError({"Error": {"Code": "AccessDenied"}}, "AssumeRole"), "AssumeRole:AccessDenied"),
        (exceptions.ClientError({"Error": {"Code": "no code"}}, "AssumeRole"), "Unrecognised"),
        (ValueError("Invalid endpoint: http://secret"), "InvalidEndpoint"),
        (ValueError("secret"), "ValueError"),
    ],
)
def test_why_nothing_was_sent(error: Exception, reason: str) -> None:
    assert why_not_sent(error) == reason


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (exceptions.ReadTimeoutError(endpoint_url="e"), Outcome.NO_ANSWER),
        (exceptions.ConnectTimeoutError(endpoint_url="e"), Outcome.NO_ANSWER),
        (exceptions.EndpointConnectionError(endpoint_url="e"), Outcome.NO_ANSWER),
        (exceptions.ConnectionClosedError(endpoint_url="e"), Outcome.NO_ANSWER),
        (exceptions.SSLError(endpoint_url="e", error="x"), Outcome.NO_ANSWER),
        (ResponseParserError("<html>secret"), Outcome.UNCONFIRMED),
        (ZeroDivisionError(), Outcome.ERROR),
    ],
)
def test_exceptions(error: Exception, outcome: Outcome) -> None:
    verdict = classify(error, "DeleteObjects")
    assert verdict.outcome is outcome
    assert verdict.error == type(error).__name__


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        (200, Outcome.UNCONFIRMED),
        (302, Outcome.UNCONFIRMED),
        (401, Outcome.UNCONFIRMED),
        (403, Outcome.UNCONFIRMED),
        (404, Outcome.UNCONFIRMED),
        (429, Outcome.THROTTLED),
        (500, Outcome.UNAVAILABLE),
        (503, Outcome.UNAVAILABLE),
    ],
)
def test_pages(status: int, outcome: Outcome) -> None:
    assert classify(NotS3Answer(status, {}), "DeleteObjects").outcome is outcome


def test_messages_never_become_errors() -> None:
    assert error_name("The specified key does not exist") == "Unrecognised"
    assert error_name(None) == "Unrecognised"
    assert error_name("x" * 65) == "Unrecognised"
    assert error_name("NoSuchKey") == "NoSuchKey"


def test_retry_after() -> None:
    assert retry_after(None) is None
    assert retry_after("120") == 120.0
    assert retry_after("soon") is None
    assert retry_after("-5") is None
    in_a_minute = retry_after(format_datetime(datetime.now(UTC) + timedelta(seconds=60)))
    assert in_a_minute is not None
    assert 55 < in_a_minute <= 60
    assert retry_after("Wed, 21 Oct 2015 07:28:00 GMT") == 0.0
