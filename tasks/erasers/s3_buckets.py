"""What is known of a bucket for a while: its versioning, its lock, and what it made of batches.

None of it is evidence for a receipt; it only chooses the way. A plain delete whose answer shows a version corrects a
stale memory.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

from expunge.tasks.erasers.contract import NothingSent
from expunge.tasks.erasers.s3_client import CallFailed, S3Client
from expunge.tasks.outcomes import Outcome

Value = TypeVar("Value")

VERSIONING_SECONDS = 300.0
LOCK_SECONDS = 300.0
SINGLY_SECONDS = 3600.0

_REMEMBERED_KEYS = 20_000


class Versioning(StrEnum):
    """What GetBucketVersioning said (Amazon S3 API Reference)."""

    NEVER = "never"
    """Plain deletes remove the bytes."""
    ONCE = "once"
    """Enabled, suspended, or a word that we don't know: versions and markers may exist."""
    UNREADABLE = "unreadable"
    """Refused or not implemented: to be treated as if versions existed."""


@dataclass(frozen=True, slots=True)
class _Known(Generic[Value]):
    value: Value
    until: float


class Buckets:
    """The memory of one account. Thread-safe."""

    def __init__(self, client: S3Client, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._clock = clock
        self._lock = threading.Lock()
        self._versioning: dict[str, _Known[Versioning]] = {}
        self._locks: dict[str, _Known[bool]] = {}
        self._no_batches: dict[str, _Known[bool]] = {}
        self._malformed: OrderedDict[tuple[str, str], None] = OrderedDict()
        self._told_deleted: OrderedDict[tuple[str, str], set[str]] = OrderedDict()

    def versioning(self, bucket: str) -> Versioning:
        """Raises CallFailed or NothingSent when it could not be asked at all."""
        known = self._versioning.get(bucket)
        if known is None or known.until < self._clock():
            return self.learn_versioning(bucket, self._ask_versioning(bucket))
        return known.value

    def learn_versioning(self, bucket: str, value: Versioning) -> Versioning:
        self._versioning[bucket] = _Known(value, self._clock() + VERSIONING_SECONDS)
        return value

    def forget_versioning(self, bucket: str) -> None:
        """The bucket has versions though it said that it had none: the next look takes the way by versions."""
        self.learn_versioning(bucket, Versioning.ONCE)

    def _ask_versioning(self, bucket: str) -> Versioning:
        try:
            status = self._client.call("GetBucketVersioning", bucket).parsed.get("Status")
        except CallFailed as failure:
            if failure.outcome is Outcome.REFUSED:
                return Versioning.UNREADABLE
            raise
        return Versioning.ONCE if status else Versioning.NEVER

    def may_lock(self, bucket: str) -> bool:
        """Whether objects of the bucket may be locked. True when it cannot be told."""
        known = self._locks.get(bucket)
        if known is None or known.until < self._clock():
            known = _Known(self._ask_lock(bucket), self._clock() + LOCK_SECONDS)
            self._locks[bucket] = known
        return known.value

    def _ask_lock(self, bucket: str) -> bool:
        try:
            self._client.call("GetObjectLockConfiguration", bucket)
        except (CallFailed, NothingSent) as failure:
            return str(failure) != "ObjectLockConfigurationNotFoundError"
        return True

    def refuse_batches(self, bucket: str) -> None:
        """The bucket's server takes no DeleteObjects call."""
        self._no_batches[bucket] = _Known(True, self._clock() + SINGLY_SECONDS)

    def takes_batches(self, bucket: str) -> bool:
        known = self._no_batches.get(bucket)
        return known is None or known.until < self._clock()

    def remember_malformed(self, bucket: str, keys: list[str]) -> None:
        """One of these keys made the server refuse a whole batch: each goes by itself from now on."""
        with self._lock:
            for key in keys:
                self._malformed[bucket, key] = None
            while len(self._malformed) > _REMEMBERED_KEYS:
                self._malformed.popitem(last=False)

    def was_malformed(self, bucket: str, key: str) -> bool:
        return (bucket, key) in self._malformed

    def told_deleted(self, bucket: str, key: str, version: str) -> None:
        """The store confirmed that this version is deleted: the next listing must not show it any more."""
        with self._lock:
            self._told_deleted.setdefault((bucket, key), set()).add(version)
            while len(self._told_deleted) > _REMEMBERED_KEYS:
                self._told_deleted.popitem(last=False)

    def take_told_deleted(self, bucket: str, key: str) -> set[str]:
        """The versions of a key that were confirmed since it was last asked."""
        with self._lock:
            return self._told_deleted.pop((bucket, key), set())
