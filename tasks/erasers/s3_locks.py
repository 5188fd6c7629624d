"""Whether a version that the store refused to delete is under its object lock.

The refusal has the same code as a missing permission (AccessDenied); only reading the retention and the legal hold of
that version tells which. Source: Amazon S3 User Guide, "Locking objects with Object Lock".
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from expunge.tasks.erasers.contract import NothingSent, utc_now
from expunge.tasks.erasers.s3_client import CallFailed, S3Client
from expunge.tasks.erasers.s3_keys import is_url_safe

SUSPECT_CODES = frozenset({"AccessDenied", "ObjectLocked"})


_NONE = "NoSuchObjectLockConfiguration"
"""The version has none of what was asked for."""


@dataclass(frozen=True, slots=True)
class Lock:
    """Why the store keeps a version, and until when; a legal hold has no date."""

    mode: str
    until: datetime | None


def find_lock(client: S3Client, bucket: str, key: str, version: str) -> Lock | None:
    """The lock on this version; None if there is none, or none could be read."""
    if not is_url_safe(key):
        return None
    hold = _read(client, "GetObjectLegalHold", bucket, key, version)
    if hold is not None and (hold.get("LegalHold") or {}).get("Status") == "ON":
        return _LEGAL_HOLD
    retention = _read(client, "GetObjectRetention", bucket, key, version)
    if retention is not None:
        retention = retention.get("Retention") or {}
        dated = _dated(retention.get("Mode"), retention.get("RetainUntilDate"))
        if dated is not None:
            return dated
    return _headed(client, bucket, key, version) if hold is None or retention is None else None


_LEGAL_HOLD = Lock("LEGAL_HOLD", None)


def _dated(mode: object, until: object) -> Lock | None:
    if mode not in ("GOVERNANCE", "COMPLIANCE") or not isinstance(until, datetime):
        return None
    until = until.replace(tzinfo=UTC) if until.tzinfo is None else until.astimezone(UTC)
    return Lock(str(mode), until) if until > utc_now() else None


def _headed(client: S3Client, bucket: str, key: str, version: str) -> Lock | None:
    """The lock as a HEAD's headers tell it: not every server answers the two reads (moto 5.2 has neither)."""
    head = _read(client, "HeadObject", bucket, key, version) or {}
    if head.get("ObjectLockLegalHoldStatus") == "ON":
        return _LEGAL_HOLD
    return _dated(head.get("ObjectLockMode"), head.get("ObjectLockRetainUntilDate"))


def _read(client: S3Client, operation: str, bucket: str, key: str, version: str) -> dict[str, Any] | None:
    """None: the server did not say."""
    try:
        return client.call(operation, bucket, Key=key, VersionId=version).parsed
    except CallFailed as failure:
        return {} if failure.error == _NONE else None
    except NothingSent:
        return None
