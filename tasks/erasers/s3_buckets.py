"""What is known of a bucket for a while: its versioning, its lock, and what it made of batches.

None of it is evidence for a receipt; it only chooses the way. A plain delete whose answer shows a version corrects a
stale memory.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from enum import StrEnum

from expunge.tasks.erasers.contract import Known, MemoryKnown, NothingSent
from expunge.tasks.erasers.s3_client import CallFailed, S3Client
from expunge.tasks.outcomes import Outcome

NEVER_SECONDS = 60.0
"""How long one process believes that a bucket never had versions. Somebody may switch them on at any moment, and then a
listing of the objects does not show what a delete has only hidden."""
LOCK_SECONDS = 300.0
"""How long one process believes that objects of a bucket cannot be locked."""

VERSIONING, LOCK, LISTING, BATCHES, KEYS_PER_CALL = "versioning", "object_lock", "listing", "batches", "keys_per_call"
CONDITIONAL = "conditional_deletes"
"""The names of what is known. Keys per call and batches are the endpoint's, the others a bucket's."""

HONOURED = "honoured"
"""Of CONDITIONAL: see s3_conditional.py."""

_REMEMBERED_KEYS = 20_000


class Versioning(StrEnum):
    """What GetBucketVersioning said (Amazon S3 API Reference)."""

    NEVER = "never"
    """Plain deletes remove the bytes."""
    ONCE = "once"
    """Enabled, suspended, or a word that we don't know: versions and markers may exist."""
    UNREADABLE = "unreadable"
    """Refused or not implemented: to be treated as if versions existed."""


class Buckets:
    """The memory of one account. Thread-safe.

    What makes the way longer, and so can do no harm if it is wrong, comes from what the fleet knows: that versions may
    exist, that objects may be locked, that a server takes no batches or only small ones. That a bucket never had
    versions makes the way shorter and its listings mean more: it is believed only for a short while, and only by the
    process that asked the store itself. Its row is for people to see.

    One thing makes receipts say more, and comes from a probe that an operator ordered: that conditional deletes are
    honoured. Their receipts name the condition that was sent, and an answer that does not fit ends the belief.
    """

    def __init__(self, client: S3Client, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._clock = clock
        self._known: Known = MemoryKnown()
        self._lock = threading.Lock()
        self._never: dict[str, float] = {}
        self._unlocked: dict[str, float] = {}
        self._malformed: OrderedDict[tuple[str, str], None] = OrderedDict()
        self._told_deleted: OrderedDict[tuple[str, str], set[str]] = OrderedDict()

    def use(self, known: Known) -> None:
        """Share what is found with whoever shares this."""
        self._known = known

    def versioning(self, bucket: str) -> Versioning:
        """Raises CallFailed or NothingSent when it could not be asked at all."""
        if self._never.get(bucket, 0.0) > self._clock():
            return Versioning.NEVER
        found = self._known.recall(bucket, VERSIONING)
        if found in (Versioning.ONCE, Versioning.UNREADABLE):
            return Versioning(found)
        asked_at = self._clock()
        return self._keep_versioning(bucket, self._ask_versioning(bucket), asked_at)

    def learn_versioning(self, bucket: str, value: Versioning) -> Versioning:
        return self._keep_versioning(bucket, value, self._clock())

    def _keep_versioning(self, bucket: str, value: Versioning, asked_at: float) -> Versioning:
        if value is Versioning.NEVER:
            self._never[bucket] = asked_at + NEVER_SECONDS
        else:
            self._never.pop(bucket, None)
        self._known.learn(bucket, VERSIONING, str(value))
        return value

    def forget_versioning(self, bucket: str) -> None:
        """The bucket has versions though it said that it had none: the next look takes the way by versions."""
        self.learn_versioning(bucket, Versioning.ONCE)

    def ask_versioning_again(self, bucket: str) -> None:
        """The store knows no versions though it was believed to: ask it before the next look."""
        self._known.forget(bucket, VERSIONING)

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
        if self._known.recall(bucket, LOCK) == "on":
            return True
        if self._unlocked.get(bucket, 0.0) > self._clock():
            return False
        asked_at = self._clock()
        try:
            self._client.call("GetObjectLockConfiguration", bucket)
        except (CallFailed, NothingSent) as failure:
            if str(failure) != "ObjectLockConfigurationNotFoundError":
                return True
            self._unlocked[bucket] = asked_at + LOCK_SECONDS
            self._known.learn(bucket, LOCK, "off")
            return False
        self._known.learn(bucket, LOCK, "on")
        return True

    def learn_listing(self, bucket: str, allowed: bool) -> None:
        """Whether these credentials may list what a look needs. For people to see: it is tried every time all the same,
        since receipts say more with it."""
        if self._known.recall(bucket, LISTING) != (word := "allowed" if allowed else "refused"):
            self._known.learn(bucket, LISTING, word)

    def learn_conditional(self, bucket: str, found: str) -> None:
        """What a probe of conditional deletes came to."""
        self._known.learn(bucket, CONDITIONAL, str(found))

    def conditional(self, bucket: str) -> str | None:
        """What is known of conditional deletes, or None."""
        found = self._known.recall(bucket, CONDITIONAL)
        return found if isinstance(found, str) else None

    def honours_conditions(self, bucket: str) -> bool:
        """Whether a delete may say `If-Match: *` there, to learn whether the object existed."""
        return self.conditional(bucket) == HONOURED

    def forget_conditional(self, bucket: str, error: str) -> None:
        """An answer did not fit what the probe found: without the condition until somebody probes again."""
        self._known.forget(bucket, CONDITIONAL)
        import structlog  # late: reading the settings needs every eraser

        structlog.get_logger().warning("capability.forgotten", scope=bucket, capability=CONDITIONAL, error=error)

    def refuse_batches(self, scope: str) -> None:
        """The bucket's server, or with an empty scope the endpoint, takes no DeleteObjects call."""
        self._known.learn(scope, BATCHES, "refused")

    def takes_batches(self, bucket: str) -> bool:
        return "refused" not in (self._known.recall(bucket, BATCHES), self._known.recall("", BATCHES))

    def keys_per_call(self, configured: int) -> int:
        """Keys of one DeleteObjects call: as the settings have it, or fewer if the endpoint refused so many."""
        found = self._known.recall("", KEYS_PER_CALL)
        return min(configured, found) if isinstance(found, int) and found >= 1 else configured

    def refuse_keys(self, number: int) -> None:
        """The endpoint refused a call of so many keys, or of their kind: half of them from now on."""
        self._known.learn("", KEYS_PER_CALL, max(1, number // 2))

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
