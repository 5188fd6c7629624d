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


@dataclass(frozen=True, slots=True)
class Lock:
    """Why the store keeps a version, and until when; a legal hold has no date."""

    mode: str
    until: datetime | None


def find_lock(client: S3Client, bucket: str, key: str, version: str) -> Lock | None:
    """The lock on this version; None if there is none, or none could be read."""
    if not is_url_safe(key):
        return None
    hold = _read(client, "GetObjectLegalHold", bucket, key, version).get("LegalHold") or {}
    if hold.get("Status") == "ON":
        return Lock("LEGAL_HOLD", None)
    retention = _read(client, "GetObjectRetention", bucket, key, version).get("Retention") or {}
    until = retention.get("RetainUntilDate")
    mode = retention.get("Mode")
    if mode not in ("GOVERNANCE", "COMPLIANCE") or not isinstance(until, datetime):
        return None
    until = until.replace(tzinfo=UTC) if until.tzinfo is None else until.astimezone(UTC)
    return Lock(mode, until) if until > utc_now() else None


def _read(client: S3Client, operation: str, bucket: str, key: str, version: str) -> dict[str, Any]:
    try:
        return client.call(operation, bucket, Key=key, VersionId=version).parsed
    except (CallFailed, NothingSent):
        return {}
