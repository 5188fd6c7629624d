"""What an S3 call that brought no result comes to: an exception or an error code becomes an Outcome. Of one that was
never sent, the reason.

Sources: Amazon S3 API Reference, "Error responses" and "List of error codes"; botocore's exception classes. Codes of
compatible servers are marked with the server's name.
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from expunge.tasks.outcomes import Outcome

_ERROR = re.compile(r"[A-Za-z0-9_.:-]{1,64}")

ACCOUNT_CODES = frozenset(
    {
        "InvalidAccessKeyId",
        "SignatureDoesNotMatch",
        "ExpiredToken",
        "InvalidToken",
        "TokenRefreshRequired",
        "RequestTimeTooSkewed",
        "RequestExpired",
        "AccountProblem",
        "InvalidSecurity",
        "NotSignedUp",
        "UnauthorizedAccess",
        "Unauthorized",
        "XAmzContentSHA256Mismatch",
    }
)
"""The whole account is refused, whatever is asked."""

BUCKET_CODES = frozenset(
    {
        "NoSuchBucket",
        "InvalidBucketName",
        "PermanentRedirect",
        "TemporaryRedirect",
        "Redirect",
        "AuthorizationHeaderMalformed",
        "IllegalLocationConstraintException",
        "AllAccessDisabled",
    }
)
"""The bucket is not there, or not here."""

THROTTLE_CODES = frozenset(
    {
        "SlowDown",
        "SlowDownRead",  # MinIO
        "SlowDownWrite",  # MinIO
        "Throttling",
        "ThrottlingException",
        "ThrottledException",
        "RequestThrottled",
        "RequestThrottledException",
        "RequestLimitExceeded",
        "BandwidthLimitExceeded",
        "TooManyRequests",
        "TooManyRequestsException",
        "PriorRequestNotComplete",
    }
)

UNAVAILABLE_CODES = frozenset(
    {"InternalError", "ServiceUnavailable", "Busy", "RequestTimeout", "OperationAborted", "ServerNotInitialized"}
)
"""The store failed, with whatever status: to be tried again."""

ABSENT_CODES = frozenset({"NoSuchKey", "NoSuchVersion"})

NO_SUCH_UPLOAD = "NoSuchUpload"

UNSUPPORTED_CODES = frozenset({"NotImplemented", "MethodNotAllowed"})
"""The store knows no such operation."""

_REDIRECTS = frozenset({301, 307, 308})


class NotS3Answer(Exception):
    """Something answered that is not S3: the body is not the XML document that the operation's answer or error is."""

    def __init__(self, status: int, headers: dict[str, str]) -> None:
        super().__init__(status)
        self.status = status
        self.headers = headers


@dataclass(frozen=True, slots=True)
class Verdict:
    """What an error comes to, and what is known of the answer."""

    outcome: Outcome
    error: str
    http_status: int | None = None
    retry_after: float | None = None
    request_id: str | None = None
    headers: dict[str, str] | None = None


def error_name(code: object) -> str:
    """A code as receipts may carry it: a word, never a message."""
    return code if isinstance(code, str) and _ERROR.fullmatch(code) else "Unrecognised"


MFA_DELETE = "MfaDelete"
"""AccessDenied in a bucket with MFA delete: nobody but its owner, with the device in hand, may delete versions there
(Amazon S3 User Guide, "Configuring MFA delete"). LIMITS.md says what to do."""


def refused_code(code: str, message: object) -> str:
    """The code, or MFA_DELETE where the message of an AccessDenied says that the device is missing."""
    return MFA_DELETE if code == "AccessDenied" and "mfa " in f"{message} ".lower() else code


def by_code(code: str, status: int | None = None) -> Outcome:
    """The outcome of an error in S3's own shape, of a whole call or of one key."""
    if code in ABSENT_CODES:
        return Outcome.ABSENT
    if code in THROTTLE_CODES or status == 429:
        return Outcome.THROTTLED
    if code in ACCOUNT_CODES or status == 401:
        return Outcome.REFUSED_SCOPE
    if code in BUCKET_CODES or status in _REDIRECTS:
        return Outcome.REFUSED_SCOPE
    if code in UNSUPPORTED_CODES:
        return Outcome.REFUSED
    if code in UNAVAILABLE_CODES or (status is not None and status >= 500):
        return Outcome.UNAVAILABLE
    return Outcome.REFUSED


def is_account_wide(verdict: Verdict) -> bool:
    """Whether a REFUSED_SCOPE is about the account; else it is about the bucket."""
    if verdict.error in BUCKET_CODES or verdict.http_status in _REDIRECTS:
        return False
    return verdict.error in ACCOUNT_CODES or verdict.http_status == 401


def why_not_sent(error: Exception) -> str:
    """The reason, as a code, when boto3 raised before it sent a request."""
    from botocore import exceptions  # late: see s3_client.py

    if isinstance(error, exceptions.ClientError):  # a request for credentials (AssumeRole …) was refused
        return error_name(f"{error.operation_name}:{error.response.get('Error', {}).get('Code')}")
    if str(error).startswith("Invalid endpoint"):  # a bare ValueError
        return "InvalidEndpoint"
    return error_name(type(error).__name__)


def classify(error: Exception, operation: str) -> Verdict:
    """What an exception of a boto3 call comes to whose request may have been sent. One that is not known is
    Outcome.ERROR with its class name."""
    from botocore import exceptions  # late: see s3_client.py
    from botocore.parsers import ResponseParserError

    name = error_name(type(error).__name__)
    if isinstance(error, exceptions.ClientError):
        return _client_error(error.response, operation)
    if isinstance(error, NotS3Answer):
        return _not_s3(error)
    if isinstance(error, ResponseParserError):
        return Verdict(Outcome.UNCONFIRMED, name)
    if isinstance(error, exceptions.HTTPClientError | exceptions.ConnectionError | OSError):
        return Verdict(Outcome.NO_ANSWER, name)
    return Verdict(Outcome.ERROR, name)


def _client_error(response: Any, operation: str) -> Verdict:
    metadata = response.get("ResponseMetadata", {})
    headers = metadata.get("HTTPHeaders", {})
    status = response.get("OwnStatus", metadata.get("HTTPStatusCode"))
    code = refused_code(str(response.get("Error", {}).get("Code", "")), response.get("Error", {}).get("Message"))
    wait = retry_after(headers.get("retry-after"))
    outcome = by_code(code, status)
    if code == NO_SUCH_UPLOAD and operation == "AbortMultipartUpload":
        return Verdict(Outcome.ABSENT, code, status, wait, metadata.get("RequestId") or None, headers)
    if outcome is Outcome.UNAVAILABLE and status == 503 and wait is not None:
        outcome = Outcome.THROTTLED
    if outcome is Outcome.ABSENT and operation != "DeleteObject":
        outcome = Outcome.UNCONFIRMED  # of a whole batch or listing it says nothing about any object
    return Verdict(outcome, error_name(code), status, wait, metadata.get("RequestId") or None, headers)


def _not_s3(error: NotS3Answer) -> Verdict:
    wait = retry_after(error.headers.get("retry-after"))
    status = error.status
    word = f"Http{status}"
    if status == 429 or (status == 503 and wait is not None):
        return Verdict(Outcome.THROTTLED, word, status, wait, headers=error.headers)
    if status >= 500:
        return Verdict(Outcome.UNAVAILABLE, word, status, headers=error.headers)
    if status in _REDIRECTS:
        return Verdict(Outcome.REFUSED_SCOPE, word, status, headers=error.headers)
    return Verdict(Outcome.UNCONFIRMED, "NotS3Answer", status, headers=error.headers)


def retry_after(value: str | None) -> float | None:
    """Seconds of a Retry-After header, which is a number or a date (RFC 9110, section 10.2.3)."""
    if value is None:
        return None
    value = value.strip()
    if value.isascii() and value.isdigit():
        return float(value[:9])
    try:
        moment = parsedate_to_datetime(value)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0.0, (moment - datetime.now(UTC)).total_seconds())
