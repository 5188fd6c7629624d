"""Open multipart uploads: they hold bytes, outlive a delete of their key, and are aborted before anything of it closes.

Which uploads are open is listed for many keys at once, and the answer of a bucket with few of them is kept for a
moment. Each abort is a Call of its own; its receipt has `upload:` and the upload's id as its version.

Sources: Amazon S3 API Reference, ListMultipartUploads (sorted by key), AbortMultipartUpload ("To verify that all parts
have been removed … you should call the ListParts API operation") and ListParts.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from os.path import commonprefix

from expunge.models.entry import Entry
from expunge.models.targets import split_object
from expunge.tasks.erasers.contract import Answer, Call, NothingSent, NotSent
from expunge.tasks.erasers.s3_client import CallFailed, S3Client
from expunge.tasks.erasers.s3_errors import NO_SUCH_UPLOAD
from expunge.tasks.erasers.s3_keys import needs_encoding
from expunge.tasks.erasers.s3_options import MAX_KEYS, OUTSIDE_ALLOW, S3Options, is_allowed
from expunge.tasks.erasers.s3_pages import Markers, Page, UploadPages
from expunge.tasks.erasers.s3_presence import survey_versions
from expunge.tasks.outcomes import Outcome

UPLOAD = "upload:"
"""What the version of a receipt about an upload begins with."""
UPLOADS_UNKNOWN = {"uploads": "unknown"}
"""The detail of a closing receipt where the store would not say which uploads are open."""

KNOWN_SECONDS = 10.0
"""A bucket's open uploads are believed for so long."""
REFUSED_SECONDS = 300.0
"""A bucket that does not list its uploads is not asked again for so long."""

_MOST_ABORTS = 100
"""Of one key in one round; the rounds go on."""
_REMEMBERED = 20_000


@dataclass(slots=True)
class Surveyed:
    """What is known of the uploads of the wanted keys. A key in none of them has no open upload."""

    open: dict[str, list[str]] = field(default_factory=dict)
    """Upload ids by key."""
    unknown: set[str] = field(default_factory=set)
    """The store does not say."""
    undecided: set[str] = field(default_factory=set)
    """There was no time to ask."""
    still_listed: dict[str, Page] = field(default_factory=dict)
    """The store confirmed the abort of an upload, and lists it again."""


@dataclass(frozen=True, slots=True)
class _Listed:
    page: Page | None
    """All that the bucket has under the account's `allow`; None: the store refuses to say."""
    until: float


class Uploads:
    """The uploads of one account's buckets. Thread-safe."""

    def __init__(self, client: S3Client, options: S3Options, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._options = options
        self._clock = clock
        self._lock = threading.Lock()
        self._listed: dict[str, _Listed] = {}
        self._told: OrderedDict[tuple[str, str], set[str]] = OrderedDict()

    def survey(self, bucket: str, keys: Iterable[str], go_on: Callable[[], bool]) -> Surveyed:
        """Raises CallFailed, unless the store refuses to list uploads or knows none, or NothingSent."""
        surveyed = Surveyed()
        wanted = dict.fromkeys(keys)
        if not go_on():
            surveyed.undecided.update(wanted)
            return surveyed
        try:
            listed = self._known(bucket)
            if listed is None:
                surveyed.unknown.update(wanted)
                return surveyed
            exact = [key for key in wanted if not self._is_told_by(listed, bucket, key)]
            for key in wanted.keys() - set(exact):
                if key in listed.found:
                    surveyed.open[key] = [upload.id for upload in listed.found[key]]
            self._look_closer(bucket, exact, surveyed, go_on, shared=not listed.by_key)
        except CallFailed as failure:
            if failure.outcome is not Outcome.REFUSED:
                raise
            self._listed[bucket] = _Listed(None, self._clock() + REFUSED_SECONDS)
            surveyed.open.clear()
            surveyed.unknown.update(wanted)
        return surveyed

    def _known(self, bucket: str) -> Page | None:
        """The bucket's uploads, or as many as a page holds; None if the store does not say."""
        known = self._listed.get(bucket)
        if known is not None and known.until > self._clock():
            return known.page
        began = self._clock()
        under = [prefix for name, prefix in map(split_object, self._options.allow) if name == bucket]
        prefix = commonprefix(under)  # noqa: RUF071 - keys are no paths
        page = UploadPages(self._client, bucket).under(prefix, None, MAX_KEYS)
        self._listed[bucket] = _Listed(page, began + KNOWN_SECONDS)
        return page

    def _is_told_by(self, listed: Page, bucket: str, key: str) -> bool:
        """Whether a page of the whole bucket says all about this key. Its order does not matter: it is complete."""
        if listed.truncated or listed.by_key or (bucket, key) in self._told:
            return False
        if listed.ambiguous_plus and ("+" in key or " " in key):
            return False
        return listed.encoded or not listed.found or not needs_encoding(key)

    def _look_closer(
        self, bucket: str, keys: list[str], surveyed: Surveyed, go_on: Callable[[], bool], *, shared: bool
    ) -> None:
        left = dict.fromkeys(keys)
        pages = UploadPages(self._client, bucket)
        for finding in survey_versions(keys, pages, go_on, shared=shared):
            del left[finding.key]
            ids = [upload.id for upload in finding.versions]
            with self._lock:
                told = self._told.pop((bucket, finding.key), set())
            if told & set(ids):
                surveyed.still_listed[finding.key] = Page(finding.facts, {}, (), truncated=True, encoded=True)
            elif ids:
                surveyed.open[finding.key] = ids
            elif finding.present is None:
                surveyed.unknown.add(finding.key)
        surveyed.undecided.update(left)

    def under(self, bucket: str, prefix: str, markers: Markers | None) -> Page | None:
        """A page of the uploads of keys that begin with `prefix`; None if the store does not say. Raises CallFailed or
        NothingSent."""
        known = self._listed.get(bucket)
        if known is not None and known.page is None and known.until > self._clock():
            return None
        try:
            page = UploadPages(self._client, bucket).under(prefix, markers, MAX_KEYS)
        except CallFailed as failure:
            if failure.outcome is not Outcome.REFUSED:
                raise
            self._listed[bucket] = _Listed(None, self._clock() + REFUSED_SECONDS)
            return None
        return None if page.by_key else page

    def calls(self, bucket: str, key: str, entries: Sequence[Entry], ids: Sequence[str]) -> Iterator[Call]:
        """A Call for each upload."""
        for upload in ids[:_MOST_ABORTS]:
            yield Call(
                tuple(entry.id for entry in entries), self._send(bucket, key, entries, upload), "AbortMultipartUpload"
            )

    def _send(
        self, bucket: str, key: str, entries: Sequence[Entry], upload: str
    ) -> Callable[[Collection[int]], Sequence[Answer | NotSent]]:
        def run(ids: Collection[int]) -> Sequence[Answer | NotSent]:
            marked = set(ids)
            about = [entry.id for entry in entries if entry.id in marked]
            if not is_allowed(self._options.allow, f"{bucket}/{key}"):  # the look saw to it: the last lock
                return [NotSent(entry_id, OUTSIDE_ALLOW) for entry_id in about]
            try:
                return self._abort(bucket, key, upload, about)
            except NothingSent as nothing:
                return [nothing.about(entry_id) for entry_id in about]

        return run

    def _abort(self, bucket: str, key: str, upload: str, about: list[int]) -> list[Answer]:
        self._listed.pop(bucket, None)
        version = f"{UPLOAD}{upload}"
        try:
            reply = self._client.call("AbortMultipartUpload", bucket, Key=key, UploadId=upload)
        except CallFailed as failure:
            refused = failure.outcome is Outcome.REFUSED and failure.verdict.http_status == 403
            if refused and self._options.expected_bucket_owner:
                failure = failure.as_outcome(Outcome.REFUSED_SCOPE)
            if failure.outcome is Outcome.ABSENT:
                self._note_told(bucket, key, upload)
            return [failure.answer(entry_id, version=version) for entry_id in about]
        if reply.facts.http_status == 204:
            outcome, error, detail = self._confirm(bucket, key, upload)
        else:
            outcome, error, detail = Outcome.UNCONFIRMED, "Unconfirmed", {}
        if outcome is Outcome.DELETED:
            self._note_told(bucket, key, upload)
        return [
            reply.facts.answer(entry_id, outcome, version=version, error=error or None, detail=dict(detail))
            for entry_id in about
        ]

    def _confirm(self, bucket: str, key: str, upload: str) -> tuple[Outcome, str, dict[str, object]]:
        """A 204 says nothing of the parts: a part that was on its way may have come after the abort."""
        try:
            parts = self._client.call("ListParts", bucket, Key=key, UploadId=upload, MaxParts=1).parsed.get("Parts")
        except CallFailed as failure:
            if failure.error in (NO_SUCH_UPLOAD, "NoSuchKey"):  # the latter by Ceph RGW 16
                return Outcome.DELETED, "", {"confirmed_by": "ListParts"}
            if failure.outcome is Outcome.REFUSED:
                return Outcome.DELETED, "", {"confirmed_by": "status 204"}
            return Outcome.NO_ANSWER, failure.error, {"answered": 204}
        except NothingSent as nothing:  # the look, that is: the abort was sent
            return Outcome.NO_ANSWER, nothing.reason, {"answered": 204}
        if parts:
            return Outcome.UNCONFIRMED, "StillThere", {"answered": 204}
        return Outcome.DELETED, "", {"confirmed_by": "ListParts"}

    def _note_told(self, bucket: str, key: str, upload: str) -> None:
        """The next look at this key is a listing of its own, which must not show the upload any more."""
        with self._lock:
            self._told.setdefault((bucket, key), set()).add(upload)
            while len(self._told) > _REMEMBERED:
                self._told.popitem(last=False)
