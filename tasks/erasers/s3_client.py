"""One boto3 client of one account: made late, retries and redirects off, answers checked for being S3's own.

Retries inside an SDK hide calls from the receipts (botocore Config, `retries`), and botocore's redirector repeats a
refused call at another endpoint. Both are off: one `call` is one request.

boto3 is imported when the client is made: reading the settings needs every eraser, and a command that calls no store
should not wait for what would.
"""

import base64
import hashlib
import re
import threading
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from expunge.models.states import Action
from expunge.tasks.erasers.contract import Answer, NothingSent, utc_now
from expunge.tasks.erasers.s3_bodies import keep_objects, read_body, write_objects
from expunge.tasks.erasers.s3_errors import NotS3Answer, Verdict, classify, is_account_wide, why_not_sent
from expunge.tasks.erasers.s3_options import S3Options
from expunge.tasks.outcomes import Outcome

if TYPE_CHECKING:
    import boto3

_ROOT = re.compile(
    rb"(?:\xef\xbb\xbf)?\s*(?:<\?xml[^>]*\?>)?\s*<(?:[A-Za-z_][\w.-]*:)?([A-Za-z_][\w.-]*)[\s/>]",
)
_CODE = re.compile(rb"<Code>\s*[^<\s]")
_LINE_BREAK = re.compile(rb"[\r\n\0]")

_DOCUMENTS = {
    "DeleteObjects": {b"DeleteResult"},
    "ListObjectsV2": {b"ListBucketResult"},
    "ListObjectVersions": {b"ListVersionsResult"},
    "ListMultipartUploads": {b"ListMultipartUploadsResult"},
    "ListParts": {b"ListPartsResult"},
    "GetBucketVersioning": {b"VersioningConfiguration", b"GetBucketVersioningResponse"},
    "GetObjectRetention": {b"Retention"},
    "GetObjectLegalHold": {b"LegalHold"},
    "GetObjectLockConfiguration": {b"ObjectLockConfiguration"},
}
"""The root elements of each operation's answer (Amazon S3 API Reference, "Response Syntax")."""

_NOT_IMPLEMENTED = b"<Error><Code>NotImplemented</Code></Error>"
_BEFORE_PARSE = "before-parse.s3.*"
_CONNECT_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of one request and its answer: everything of a receipt but the verdict."""

    operation: str
    called_at: datetime
    at: datetime
    endpoint: str | None = None
    request_id: str | None = None
    http_status: int | None = None
    region: str | None = None
    id2: str | None = None

    def answer(
        self,
        entry_id: int,
        outcome: Outcome,
        *,
        action: Action = Action.DELETE,
        version: str | None = None,
        error: str | None = None,
        detail: dict[str, Any] | None = None,
        retry_after: float | None = None,
        retain_until: datetime | None = None,
        scope: str = "",
    ) -> Answer:
        """The answer about one entry that this request decided."""
        if outcome in (Outcome.DELETED, Outcome.ABSENT):
            error = None
        if self.id2:
            detail = {**(detail or {}), "id2": self.id2}
        return Answer(
            entry_id=entry_id,
            outcome=outcome,
            operation=self.operation,
            called_at=self.called_at,
            at=self.at,
            action=action,
            version=version,
            request_id=self.request_id,
            http_status=self.http_status,
            error=error,
            detail=detail,
            endpoint=self.endpoint,
            region=self.region,
            retry_after=retry_after,
            retain_until=retain_until,
            scope=scope,
        )


@dataclass(frozen=True, slots=True)
class Reply:
    """A successful answer, parsed by botocore."""

    facts: Facts
    parsed: dict[str, Any]


class CallFailed(Exception):
    """A request that brought no result. `verdict` says what it comes to; `bucket` is what it was about."""

    def __init__(self, facts: Facts, verdict: Verdict, bucket: str) -> None:
        super().__init__(verdict.error)
        self.facts = facts
        self.verdict = verdict
        self.bucket = bucket

    @property
    def outcome(self) -> Outcome:
        return self.verdict.outcome

    @property
    def error(self) -> str:
        return self.verdict.error

    def answer(self, entry_id: int, *, action: Action = Action.DELETE, version: str | None = None) -> Answer:
        """The answer about an entry that this request was about."""
        refused_scope = self.outcome is Outcome.REFUSED_SCOPE
        return self.facts.answer(
            entry_id,
            self.outcome,
            action=action,
            version=version,
            error=self.error,
            retry_after=self.verdict.retry_after,
            scope=self.bucket if refused_scope and not is_account_wide(self.verdict) else "",
        )

    def as_outcome(self, outcome: Outcome) -> "CallFailed":
        """The same failure, judged otherwise by someone who knows more of the circumstances."""
        return CallFailed(self.facts, replace(self.verdict, outcome=outcome), self.bucket)


class _Progress(threading.local):
    """How far the request of this thread has come, as botocore's events tell."""

    built = False
    """What it asks for can be asked; what is left is to sign it, and to send it."""
    sent = False
    """It was handed to the HTTP client, and may have reached the store."""


class IllegalHeaderError(ValueError):
    """A header, mostly of the credentials, has a line break in it."""


class S3Client:
    """Requests to one endpoint with one account's credentials. Thread-safe."""

    def __init__(self, options: S3Options, *, request_seconds: float) -> None:
        self._options = options
        self._request_seconds = request_seconds
        self._lock = threading.Lock()
        self._session: boto3.session.Session | None = None
        self._boto: Any = None
        self._progress = _Progress()

    def call(self, operation: str, bucket: str, **parameters: Any) -> Reply:
        """One request about one bucket. Raises CallFailed, or NothingSent if it could not be sent."""
        if self._options.expected_bucket_owner:
            parameters["ExpectedBucketOwner"] = self._options.expected_bucket_owner
        try:
            boto = self.boto()
        except Exception as error:
            raise NothingSent(why_not_sent(error), whole_account=True) from error
        from botocore import xform_name

        endpoint = boto.meta.endpoint_url
        self._progress.built = self._progress.sent = False
        called_at = utc_now()
        try:
            parsed = getattr(boto, xform_name(operation))(Bucket=bucket, **parameters)
        except Exception as error:
            if not self._progress.sent:
                raise self._nothing_sent(boto, error) from error
            verdict = classify(error, operation)
            facts = _facts(operation, endpoint, called_at, verdict.headers or {}, verdict.http_status)
            facts = replace(facts, request_id=verdict.request_id or facts.request_id)
            raise CallFailed(facts, verdict, bucket) from error
        metadata = parsed["ResponseMetadata"]
        facts = _facts(operation, endpoint, called_at, metadata["HTTPHeaders"], metadata["HTTPStatusCode"])
        return Reply(replace(facts, request_id=metadata.get("RequestId") or facts.request_id), parsed)

    def _nothing_sent(self, boto: Any, error: Exception) -> NothingSent:
        from botocore.exceptions import EndpointProviderError

        whole_account = self._progress.built or isinstance(error, EndpointProviderError)
        if whole_account:
            self._forget(boto)
        return NothingSent(why_not_sent(error), whole_account=whole_account)

    def boto(self) -> Any:
        """The boto3 client, made on first use. Raises botocore's exceptions about profile, region and credentials."""
        with self._lock:
            if self._boto is None:
                self._boto = self._make()
            return self._boto

    def access_key(self) -> str | None:
        """The access key id in use, or None without credentials. Raises botocore's exceptions about credentials."""
        boto = self.boto()
        credentials = self._session.get_credentials() if self._session is not None else None
        if credentials is None:
            self._forget(boto)
            return None
        return str(credentials.access_key)

    def _forget(self, boto: Any) -> None:
        """A client keeps that it found no credentials; the next one looks for them anew."""
        with self._lock:
            if self._boto is boto:
                self._boto = None

    def close(self) -> None:
        """Close the connections; a later call opens new ones."""
        with self._lock:
            if self._boto is not None:
                self._boto.close()
                self._boto = None

    def _make(self) -> Any:
        import boto3
        import botocore.session
        from botocore.config import Config
        from botocore.handlers import BUILTIN_HANDLERS

        options = self._options
        connect = min(_CONNECT_SECONDS, self._request_seconds / 3)
        core = botocore.session.Session(profile=options.profile)
        core.get_component("response_parser_factory").set_parser_defaults(timestamp_parser=_parse_time)
        session = boto3.session.Session(botocore_session=core, region_name=options.region)
        self._session = session
        client = session.client(
            "s3",
            endpoint_url=options.endpoint_url,
            config=Config(
                retries={"total_max_attempts": 1, "mode": "standard"},
                connect_timeout=connect,
                read_timeout=self._request_seconds - connect,
                max_pool_connections=max(10, options.concurrency),
                s3={"addressing_style": options.addressing_style},
            ),
        )
        events = client.meta.events
        for name, handler, *_ in BUILTIN_HANDLERS:
            if name == _BEFORE_PARSE:
                events.unregister(name, handler)  # botocore's own makes a 500 of a page within a 200
        events.register(_BEFORE_PARSE, _require_s3)
        events.register_last("before-parameter-build.s3", _no_redirects)
        events.register("provide-client-params.s3.DeleteObjects", keep_objects)
        events.register_first("before-call.s3.DeleteObjects", write_objects)
        events.register("before-call.s3.DeleteObjects", _add_content_md5)
        events.register_last("before-call.s3", self._note_built)
        events.register_last("before-send.s3", self._note_sent)
        return client

    def _note_built(self, **_: Any) -> None:
        self._progress.built = True

    def _note_sent(self, request: Any, **_: Any) -> None:
        for value in request.headers.values():
            if _LINE_BREAK.search(value if isinstance(value, bytes) else str(value).encode()):
                raise IllegalHeaderError
        self._progress.sent = True


def _parse_time(value: Any) -> datetime:
    """ISO 8601 by the standard library; anything else by botocore, whose parser takes most of a listing's time."""
    try:
        return datetime.fromisoformat(value)
    except (TypeError, ValueError):
        from botocore.utils import parse_timestamp

        parsed: datetime = parse_timestamp(value)
        return parsed


def _facts(
    operation: str, endpoint: str | None, called_at: datetime, headers: dict[str, str], status: int | None
) -> Facts:
    return Facts(
        operation=operation,
        called_at=called_at,
        at=utc_now(),
        endpoint=endpoint,
        request_id=headers.get("x-amz-request-id"),
        http_status=status,
        region=headers.get("x-amz-bucket-region"),
        id2=headers.get("x-amz-id-2"),
    )


def _require_s3(
    operation_model: Any, response_dict: dict[str, Any], customized_response_dict: dict[str, Any], **_: Any
) -> None:
    """Raises NotS3Answer unless the body is the document that S3 answers this operation with.

    botocore parses any XML leniently: a page without <Contents> would look like an empty listing.
    """
    if operation_model.name == "HeadObject":
        return  # has no body; what it says is used as a veto only
    status, body = response_dict["status_code"], response_dict["body"]
    root = _ROOT.match(body[:1024]) if isinstance(body, bytes) else None
    name = root.group(1) if root else None
    if name == b"Error" and _CODE.search(body):
        customized_response_dict["OwnStatus"] = status
        if status < 300:  # botocore raises by the status alone
            response_dict["status_code"] = 500
        return
    if operation_model.name == "ListMultipartUploads" and name == b"ListBucketResult":
        # a server that does not know `?uploads` lists the bucket
        response_dict["status_code"], response_dict["body"] = 501, _NOT_IMPLEMENTED
        return
    expected = _DOCUMENTS.get(operation_model.name)
    if status >= 300 or (expected is not None and name not in expected):
        headers = {key.lower(): value for key, value in response_dict["headers"].items()}
        raise NotS3Answer(status, headers)
    read = read_body(operation_model.name, body)
    if read is not None:
        customized_response_dict.update(read)
        response_dict["body"] = b"<" + (name or b"") + b"/>"  # nothing is left for botocore to parse


def _no_redirects(context: dict[str, Any], **_: Any) -> None:
    """botocore's S3RegionRedirectorv2 leaves a request alone that it takes for redirected already."""
    context.setdefault("s3_redirect", {})["redirected"] = True


def _add_content_md5(params: dict[str, Any], **_: Any) -> None:
    """Older servers refuse DeleteObjects without Content-MD5 (MissingContentMD5); botocore sends CRC32 only."""
    body = params.get("body")
    if isinstance(body, str):
        body = body.encode()
    if isinstance(body, bytes | bytearray):
        digest = hashlib.md5(body, usedforsecurity=False).digest()
        params["headers"].setdefault("Content-MD5", base64.b64encode(digest).decode())
