"""Delete calls: which keys go together, what is sent, and what the answers come to.

One Call is one delete request. A batch holds keys of one bucket, each key once, however many entries want it; what a
batch cannot carry goes by a single DeleteObject, whose empty 204 is confirmed by a look.
"""

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from expunge.models.entry import Entry
from expunge.tasks.erasers.contract import Answer, Call, NothingSent, NotSent
from expunge.tasks.erasers.s3_answers import MARKER, STILL_THERE, Judged, Pair, judge_batch
from expunge.tasks.erasers.s3_buckets import Buckets
from expunge.tasks.erasers.s3_client import CallFailed, Facts, S3Client
from expunge.tasks.erasers.s3_conditional import CONDITION, delete_if_there, is_about_the_condition, judged_failure
from expunge.tasks.erasers.s3_errors import UNSUPPORTED_CODES
from expunge.tasks.erasers.s3_keys import goes_singly, is_path_odd, is_url_safe
from expunge.tasks.erasers.s3_locks import SUSPECT_CODES, Lock, find_lock
from expunge.tasks.erasers.s3_options import OUTSIDE_ALLOW, S3Options, is_allowed
from expunge.tasks.erasers.s3_pages import ObjectPages, Page, Version, VersionPages
from expunge.tasks.erasers.s3_uploads import UPLOADS_UNKNOWN
from expunge.tasks.outcomes import Outcome

_WARY_BATCH = 25
"""Keys a call of entries that were refused before: what made the store refuse a batch must not hold up the rest."""

_NO_CHECKSUM_CODES = frozenset({"MissingContentMD5", "InvalidDigest", "BadDigest", "InvalidRequest"})
"""The endpoint wants another checksum of a batch than it gets; some servers call that an invalid request."""

_TOO_MANY_CODES = frozenset({"MalformedXML", "InvalidArgument"})
"""Of a whole batch: what is in it, or how much."""


@dataclass(slots=True)
class Wanted:
    """One key that is to be deleted, and the entries that want it."""

    key: str
    entries: list[Entry]
    versions: tuple[Version, ...] = ()
    """Exactly these are deleted; with none, the delete is a plain one."""
    existed: bool | None = True
    """None: no listing could say."""
    conditional: bool = False
    """The delete itself is to say whether it existed (s3_conditional.py)."""
    uploads_unknown: bool = False
    """The store does not say whether multipart uploads of the key are open."""

    @property
    def pairs(self) -> list[Pair]:
        return [(self.key, version.id) for version in self.versions] or [(self.key, None)]


@dataclass(slots=True)
class _Batch:
    wanted: list[Wanted] = field(default_factory=list)
    size: int = 0


class Deletes:
    """Makes the Calls of one account."""

    def __init__(self, client: S3Client, buckets: Buckets, options: S3Options, *, lock_seconds: float) -> None:
        self._client = client
        self._buckets = buckets
        self._options = options
        self._lock_seconds = lock_seconds

    def calls(self, bucket: str, wanted: Iterable[Wanted]) -> Iterator[Call]:
        """The Calls that delete these keys, or these versions of them: a thousand versions of a key at the most, since
        the rounds go on."""
        batches: dict[int, _Batch] = {}
        for each in wanted:
            each.versions = each.versions[: self._most()]
            if self._goes_conditionally(each):
                yield self._call(bucket, [each], self._send_conditional, "DeleteObject")
                continue
            if self._goes_singly(bucket, each.key):
                each.versions = each.versions[:1]
                yield self._call(bucket, [each], self._send_single, "DeleteObject")
                continue
            limit = self._limit(each)
            batch = batches.setdefault(limit, _Batch())
            if batch.wanted and batch.size + len(each.pairs) > limit:
                yield self._call(bucket, batch.wanted, self._send_batch, "DeleteObjects")
                batch = batches[limit] = _Batch()
            batch.wanted.append(each)
            batch.size += len(each.pairs)
        for batch in batches.values():
            if batch.wanted:
                yield self._call(bucket, batch.wanted, self._send_batch, "DeleteObjects")

    def _goes_conditionally(self, wanted: Wanted) -> bool:
        """Not what was refused before: without the condition it may go through. Nor a key that is another in a URL, of
        which a not-found would prove nothing."""
        refused = any(entry.refusals for entry in wanted.entries)
        return wanted.conditional and not wanted.versions and not refused and not is_path_odd(wanted.key)

    def _goes_singly(self, bucket: str, key: str) -> bool:
        if goes_singly(key):
            return True
        alone = not self._buckets.takes_batches(bucket) or self._buckets.was_malformed(bucket, key)
        return alone and is_url_safe(key)

    def _limit(self, wanted: Wanted) -> int:
        wary = any(entry.refusals for entry in wanted.entries)
        return min(_WARY_BATCH, self._most()) if wary else self._most()

    def _most(self) -> int:
        return self._buckets.keys_per_call(self._options.keys_per_call)

    def _call(
        self,
        bucket: str,
        wanted: list[Wanted],
        send: Callable[[str, dict[Pair, tuple[Wanted, list[int]]]], list[Answer]],
        operation: str,
    ) -> Call:
        def run(ids: Collection[int]) -> Sequence[Answer | NotSent]:
            marked = set(ids)
            asked: dict[Pair, tuple[Wanted, list[int]]] = {}
            outside: list[NotSent] = []
            for each in wanted:
                about = [entry.id for entry in each.entries if entry.id in marked]
                if not is_allowed(self._options.allow, f"{bucket}/{each.key}"):  # the look saw to it: the last lock
                    outside += [NotSent(entry_id, OUTSIDE_ALLOW) for entry_id in about]
                elif about:
                    asked.update(dict.fromkeys(each.pairs, (each, about)))
            if not asked:
                return outside
            try:
                return [*send(bucket, asked), *outside]
            except NothingSent as nothing:
                return [*(nothing.about(entry_id) for entry_id in _entry_ids(asked)), *outside]

        return Call(tuple(entry.id for each in wanted for entry in each.entries), run, operation)

    def _send_batch(self, bucket: str, asked: dict[Pair, tuple[Wanted, list[int]]]) -> list[Answer]:
        objects = [{"Key": key} if version is None else {"Key": key, "VersionId": version} for key, version in asked]
        try:
            reply = self._client.call("DeleteObjects", bucket, Delete={"Objects": objects, "Quiet": False})
        except CallFailed as failure:
            self._learn(bucket, failure, [key for key, _ in asked])
            return _failed(self.owner_aware(failure), asked)
        judged = judge_batch(reply.parsed, asked.keys())
        return self._answers(bucket, reply.facts, asked, judged)

    def _learn(self, bucket: str, failure: CallFailed, keys: list[str]) -> None:
        if failure.error in _TOO_MANY_CODES:
            # these go singly, so that their next try is no second refusal; the others go in smaller calls
            self._buckets.remember_malformed(bucket, keys)
            if len(keys) > _WARY_BATCH:
                self._buckets.refuse_keys(len(keys))
        elif failure.error in _NO_CHECKSUM_CODES:
            self._buckets.refuse_batches("")
        elif failure.error in UNSUPPORTED_CODES:
            self._buckets.refuse_batches(bucket)

    def owner_aware(self, failure: CallFailed) -> CallFailed:
        """With an expected owner, a 403 of the whole call is about the bucket: it may be another account's."""
        refused = failure.outcome is Outcome.REFUSED and failure.verdict.http_status == 403
        if refused and self._options.expected_bucket_owner:
            return failure.as_outcome(Outcome.REFUSED_SCOPE)
        return failure

    def _send_single(self, bucket: str, asked: dict[Pair, tuple[Wanted, list[int]]]) -> list[Answer]:
        ((key, version),) = asked
        more = {} if version is None else {"VersionId": version}
        try:
            reply = self._client.call("DeleteObject", bucket, Key=key, **more)
        except CallFailed as failure:
            failure = self.owner_aware(failure)
            if failure.outcome is Outcome.ABSENT:
                asked[key, version][0].existed = False
            elif version is None or failure.error not in SUSPECT_CODES:
                return _failed(failure, asked)
            judged = Judged(failure.outcome, failure.error)
            return self._answers(bucket, failure.facts, asked, {(key, version): judged})
        judged, detail = self._confirm(bucket, key, version, reply.facts, reply.parsed)
        return self._answers(bucket, reply.facts, asked, {(key, version): judged}, detail=detail)

    def _send_conditional(self, bucket: str, asked: dict[Pair, tuple[Wanted, list[int]]]) -> list[Answer]:
        if not self._buckets.honours_conditions(bucket):  # no more: an answer since the look did not fit
            return self._send_single(bucket, asked)
        (((key, version), (wanted, _)),) = asked.items()
        try:
            told = delete_if_there(self._client, bucket, key)
        except CallFailed as failure:
            if is_about_the_condition(failure):
                self._buckets.forget_conditional(bucket, failure.error)
            answers = _failed(judged_failure(failure), asked)
            for answer in answers:
                answer.detail = {**(answer.detail or {}), **CONDITION}
            return answers
        if told.judged.error == STILL_THERE:
            self._buckets.forget_conditional(bucket, STILL_THERE)
        wanted.existed = told.existed
        return self._answers(bucket, told.facts, asked, {(key, version): told.judged}, detail=told.detail)

    def _confirm(
        self, bucket: str, key: str, version: str | None, facts: Facts, parsed: dict[str, Any]
    ) -> tuple[Judged, dict[str, Any]]:
        """A DeleteObject's 204 is the documented success and says nothing about the object: look afterwards."""
        if facts.http_status != 204:
            return Judged(Outcome.UNCONFIRMED, "Unconfirmed"), {}
        named = parsed.get("VersionId")
        if version is None and (named or parsed.get("DeleteMarker")):
            return Judged(Outcome.UNCONFIRMED, MARKER), {}
        if version is not None and named == version:
            return Judged(Outcome.DELETED), {"confirmed_by": "x-amz-version-id"}
        try:
            gone = self._is_gone(bucket, key, version)
        except CallFailed as failure:
            if failure.outcome is Outcome.REFUSED:
                return Judged(Outcome.DELETED), {"confirmed_by": "status 204"}
            return Judged(Outcome.NO_ANSWER, failure.error), {"answered": 204}
        except NothingSent as nothing:  # the look, that is: the deletion was sent
            return Judged(Outcome.NO_ANSWER, nothing.reason), {"answered": 204}
        if gone is None:
            return Judged(Outcome.NO_ANSWER, "ListingUndecided"), {"answered": 204}
        if not gone:
            return Judged(Outcome.UNCONFIRMED, STILL_THERE), {"answered": 204}
        return Judged(Outcome.DELETED), {"confirmed_by": "listing"}

    def _is_gone(self, bucket: str, key: str, version: str | None) -> bool | None:
        page: Page
        if version is None:
            page = ObjectPages(self._client, bucket).exactly(key)
            return False if page.has(key) else (page.excludes(key) or None)
        page = VersionPages(self._client, bucket, limit=self._options.keys_per_call).exactly(key)
        if not page.has(key):
            return page.excludes(key) or None
        if version in {each.id for each in page.found[key]}:
            return False
        return None if page.truncated else True

    def _answers(
        self,
        bucket: str,
        facts: Facts,
        asked: dict[Pair, tuple[Wanted, list[int]]],
        judged: dict[Pair, Judged],
        *,
        detail: dict[str, Any] | None = None,
    ) -> list[Answer]:
        locks = self._locks(bucket, judged)
        answers = []
        for pair, (wanted, ids) in asked.items():
            verdict, lock = judged[pair], locks.get(pair)
            if verdict.error == MARKER:
                self._buckets.forget_versioning(bucket)
            if pair[1] is not None and verdict.outcome is Outcome.DELETED:
                self._buckets.told_deleted(bucket, pair[0], pair[1])
            about = dict(detail or {})
            if wanted.existed is None:
                about["existed"] = "unknown"
            if wanted.uploads_unknown and pair[1] is None:
                about |= UPLOADS_UNKNOWN
            if lock is not None:
                about["lock"] = lock.mode
            if any(version.is_marker and version.id == pair[1] for version in wanted.versions):
                about["marker"] = True
            outcome = verdict.outcome if lock is None else Outcome.RETAINED
            answers += [
                facts.answer(
                    entry_id,
                    outcome,
                    version=pair[1],
                    error=verdict.error,
                    detail=dict(about) or None,
                    retain_until=None if lock is None else lock.until,
                    scope=bucket if outcome is Outcome.REFUSED_SCOPE else "",
                )
                for entry_id in ids
            ]
        return answers

    def _locks(self, bucket: str, judged: dict[Pair, Judged]) -> dict[Pair, Lock]:
        """The locks on the versions that were refused; what there is no time to ask about stays refused."""
        deadline = time.monotonic() + self._lock_seconds
        found: dict[Pair, Lock] = {}
        for (key, version), verdict in judged.items():
            if version is None or verdict.error not in SUSPECT_CODES:
                continue
            if time.monotonic() > deadline or not self._buckets.may_lock(bucket):
                break
            lock = find_lock(self._client, bucket, key, version)
            if lock is not None:
                found[key, version] = lock
        return found


def _failed(failure: CallFailed, asked: dict[Pair, tuple[Wanted, list[int]]]) -> list[Answer]:
    """The call as a whole failed: that is so of everything it named, version by version."""
    return [failure.answer(entry_id, version=version) for (_, version), (_, ids) in asked.items() for entry_id in ids]


def _entry_ids(asked: dict[Pair, tuple[Wanted, list[int]]]) -> Iterable[int]:
    return dict.fromkeys(entry_id for _, about in asked.values() for entry_id in about)
