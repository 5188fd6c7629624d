"""S3 and what calls itself S3: objects, in buckets with and without versions, and prefixes.

How an object goes: in a bucket that never had versions, a listing tells which of the wanted keys are there, and
DeleteObjects removes those; in any other, every version and delete marker of exactly that key is deleted by its id, and
the key is listed again until nothing is left. The parts of this eraser are in the modules s3_*.py beside it.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar

from expunge.models.entry import Entry
from expunge.models.states import Action
from expunge.models.targets import Kind, find_kind, split_object
from expunge.tasks.erasers.contract import (
    AccountOptions,
    Answer,
    Check,
    Known,
    Looked,
    NothingSent,
    NotSent,
    Parts,
    call_timeout,
)
from expunge.tasks.erasers.s3_buckets import Buckets, Versioning
from expunge.tasks.erasers.s3_check import check_account
from expunge.tasks.erasers.s3_client import CallFailed, S3Client
from expunge.tasks.erasers.s3_deletes import Deletes, Wanted
from expunge.tasks.erasers.s3_errors import UNSUPPORTED_CODES
from expunge.tasks.erasers.s3_keys import goes_singly, is_path_odd, is_url_safe
from expunge.tasks.erasers.s3_options import S3Options, why_refused
from expunge.tasks.erasers.s3_pages import ObjectPages, VersionPages
from expunge.tasks.erasers.s3_prefix import look_under
from expunge.tasks.erasers.s3_presence import Finding, is_seen, survey_objects, survey_versions
from expunge.tasks.erasers.s3_uploads import UPLOADS_UNKNOWN, Surveyed, Uploads
from expunge.tasks.erasers.s3_verify import verify
from expunge.tasks.outcomes import Outcome

_TOLD = 3
"""A look that fails for a reason that pauses the lane or the bucket is told to this many of the entries that it was
for, which is enough to see that it is not the entries' fault. The others go back uncounted."""

_PAUSING = frozenset(
    {Outcome.THROTTLED, Outcome.UNAVAILABLE, Outcome.NO_ANSWER, Outcome.UNCONFIRMED, Outcome.REFUSED_SCOPE}
)


def _kind(name: str) -> Kind:
    kind = find_kind(name)
    assert kind is not None
    return kind


class S3Eraser:
    """One account at one S3 endpoint (contract.Eraser)."""

    store: ClassVar[str] = "s3"
    kinds: ClassVar[tuple[Kind, ...]] = (_kind("object"), _kind("prefix"))
    options: ClassVar[type[AccountOptions]] = S3Options

    def __init__(self, account: str, options: S3Options, *, lease_seconds: float) -> None:
        # a call with what is looked up after it is two requests, and must end well within half the lease
        request_seconds = min(call_timeout(options, lease_seconds), lease_seconds / 5)
        self.account = account
        self.batch = options.keys_per_call
        self.timeout = 2 * request_seconds
        self._options = options
        self._client = S3Client(options, request_seconds=request_seconds)
        self._buckets = Buckets(self._client)
        self._uploads = Uploads(self._client, options)
        self._deletes = Deletes(self._client, self._buckets, options, lock_seconds=request_seconds / 2)

    def use(self, known: Known) -> None:
        """Keep what is found out about endpoint and buckets where others find it too (contract.Uses)."""
        self._buckets.use(known)

    def refuse(self, kind: str, locator: str) -> str | None:
        return why_refused(self._options, kind, locator)

    def look(self, entries: Sequence[Entry], until: float) -> Looked:
        looked = Looked()
        objects: dict[str, dict[str, list[Entry]]] = {}
        prefixes = []
        for entry in entries:
            refused = self.refuse(entry.kind, entry.locator)
            if refused is not None:
                looked.not_sent.append(NotSent(entry.id, refused))
            elif entry.kind == "prefix":
                prefixes.append(entry)
            else:
                bucket, key = split_object(entry.locator)
                objects.setdefault(bucket, {}).setdefault(key, []).append(entry)

        def go_on() -> bool:
            return time.monotonic() < until

        for bucket, wanted in objects.items():
            try:
                self._look_at_bucket(bucket, wanted, looked, go_on)
            except NothingSent as nothing:
                _tell_not_sent(nothing, (entry for entries in wanted.values() for entry in entries), looked)
                if nothing.whole_account:
                    return looked  # looking for credentials may take long: not again for each of them
        for entry in prefixes:
            try:
                self._look_at_prefix(entry, looked, go_on)
            except NothingSent as nothing:
                _tell_not_sent(nothing, [entry], looked)
                if nothing.whole_account:
                    return looked
        return looked

    def verify(self, entries: Sequence[Entry], until: float) -> Sequence[Answer | NotSent]:
        """List exactly what each entry names."""
        found: list[Answer | NotSent] = []
        for entry in entries:
            if time.monotonic() >= until:
                break
            try:
                came = verify(
                    self._client,
                    self._buckets,
                    entry,
                    list_prefix=lambda entry, versioned: self._list_prefix(
                        entry, lambda: time.monotonic() < until, versioned=versioned
                    ),
                    is_headed=self._is_headed,
                )
            except NothingSent as nothing:
                found.append(nothing.about(entry.id))
                if nothing.whole_account:
                    break
                continue
            if came is not None:
                found.append(came)
        return found

    def check(self) -> list[Check]:
        return list(check_account(self._client, self._options, self._buckets))

    def probe(self) -> list[Check]:
        """The check, and one conditional delete of a random absent key in each bucket that never had versions
        (contract.Probes)."""
        return list(check_account(self._client, self._options, self._buckets, probe_as=self.account))

    def close(self) -> None:
        self._client.close()

    def _look_at_bucket(
        self, bucket: str, wanted: dict[str, list[Entry]], looked: Looked, go_on: Callable[[], bool]
    ) -> None:
        if not go_on():
            return
        wanted = dict(wanted)
        for key in [key for key in wanted if goes_singly(key) and not is_url_safe(key)]:
            looked.not_sent += [NotSent(entry.id, "UnrepresentableKey") for entry in wanted.pop(key)]
        if not wanted:
            return
        try:
            versioning = self._buckets.versioning(bucket)
        except CallFailed as failure:
            _tell(failure, wanted.values(), looked)
            return
        # uploads first: one that is completed in the meantime is an object when those are looked for
        uploads = self._look_for_uploads(bucket, wanted, looked, go_on)
        if versioning is not Versioning.NEVER:
            if self._look_for_versions(bucket, wanted, versioning, looked, go_on, uploads):
                return
            self._buckets.learn_versioning(bucket, Versioning.NEVER)
        self._look_for_objects(bucket, wanted, looked, go_on, uploads)

    def _look_for_uploads(
        self, bucket: str, wanted: dict[str, list[Entry]], looked: Looked, go_on: Callable[[], bool]
    ) -> Surveyed:
        """Abort the uploads of the wanted keys. What has some is taken out of `wanted`, and looked at again."""
        try:
            uploads = self._uploads.survey(bucket, wanted, go_on)
        except CallFailed as failure:
            _tell(self._deletes.owner_aware(failure), wanted.values(), looked)
            wanted.clear()
            return Surveyed()
        for key, ids in uploads.open.items():
            entries = wanted.pop(key)
            if is_url_safe(key):
                looked.calls += self._uploads.calls(bucket, key, entries, ids)
            else:
                looked.not_sent += [NotSent(entry.id, "UnrepresentableUpload") for entry in entries]
        for key, page in uploads.still_listed.items():
            looked.answers += [
                page.facts.answer(entry.id, Outcome.REFUSED, action=Action.LOOK, error="StillListed")
                for entry in wanted.pop(key)
            ]
        for key in uploads.undecided:
            del wanted[key]
        return uploads

    def _look_for_objects(
        self,
        bucket: str,
        wanted: dict[str, list[Entry]],
        looked: Looked,
        go_on: Callable[[], bool],
        uploads: Surveyed,
    ) -> None:
        """The way in a bucket that never had versions."""
        left = dict(wanted)
        found = []
        try:
            for finding in survey_objects(wanted, ObjectPages(self._client, bucket), go_on):
                self._buckets.learn_listing(bucket, allowed=True)
                absent = finding.present is False and not self._is_headed(bucket, finding.key)
                entries = left.pop(finding.key)
                if absent:
                    unknown = finding.key in uploads.unknown
                    looked.answers += [_closing(finding, entry, uploads_unknown=unknown) for entry in entries]
                else:
                    found.append(Wanted(finding.key, entries, existed=finding.present or None))
        except CallFailed as failure:
            if failure.outcome is Outcome.REFUSED:
                self._buckets.learn_listing(bucket, allowed=False)
                # without the right to list, deleting is still owed; the receipts say what is not known
                tells = self._buckets.honours_conditions(bucket)
                found += [Wanted(key, entries, existed=None, conditional=tells) for key, entries in left.items()]
            else:
                _tell(failure, left.values(), looked)
        for each in found:
            each.uploads_unknown = each.key in uploads.unknown
        looked.calls += self._deletes.calls(bucket, found)

    def _look_for_versions(
        self,
        bucket: str,
        wanted: dict[str, list[Entry]],
        versioning: Versioning,
        looked: Looked,
        go_on: Callable[[], bool],
        uploads: Surveyed,
    ) -> bool:
        """The way in any other bucket. False if the store turns out to know no versions at all."""
        left = dict(wanted)
        found = []
        pages = VersionPages(self._client, bucket, limit=self._options.keys_per_call)
        try:
            for finding in survey_versions(wanted, pages, go_on):
                self._buckets.learn_listing(bucket, allowed=True)
                absent = finding.present is False and not self._is_headed(bucket, finding.key)
                entries = left.pop(finding.key)
                told_deleted = self._buckets.take_told_deleted(bucket, finding.key)
                if absent:
                    unknown = finding.key in uploads.unknown
                    looked.answers += [_closing(finding, entry, uploads_unknown=unknown) for entry in entries]
                elif not finding.present:
                    looked.answers += [_refused(finding, entry, "ListingUndecided") for entry in entries]
                elif any(version.id in told_deleted for version in finding.versions):
                    looked.answers += [_refused(finding, entry, "StillListed") for entry in entries]
                else:
                    found.append(Wanted(finding.key, entries, finding.versions))
        except CallFailed as failure:
            if failure.error in UNSUPPORTED_CODES:
                if versioning is Versioning.UNREADABLE:
                    return False
                self._buckets.ask_versioning_again(bucket)
            elif failure.outcome is Outcome.REFUSED:
                self._buckets.learn_listing(bucket, allowed=False)
            _tell(self._deletes.owner_aware(failure), left.values(), looked)
        looked.calls += self._deletes.calls(bucket, found)
        return True

    def _is_headed(self, bucket: str, key: str) -> bool:
        """Whether a key that no listing shows is there all the same, under another name. Raises CallFailed or
        NothingSent."""
        return is_path_odd(key) and is_url_safe(key) and is_seen(self._client, bucket, key)

    def _look_at_prefix(self, entry: Entry, looked: Looked, go_on: Callable[[], bool]) -> None:
        if not go_on():
            return
        bucket, _ = split_object(entry.locator)
        try:
            versioning = self._buckets.versioning(bucket)
            try:
                came = self._list_prefix(entry, go_on, versioned=versioning is not Versioning.NEVER)
            except CallFailed as failure:
                if versioning is not Versioning.UNREADABLE or failure.error not in UNSUPPORTED_CODES:
                    if failure.error in UNSUPPORTED_CODES:
                        self._buckets.ask_versioning_again(bucket)
                    raise
                self._buckets.learn_versioning(bucket, Versioning.NEVER)
                came = self._list_prefix(entry, go_on, versioned=False)
        except CallFailed as failure:
            came = self._deletes.owner_aware(failure).answer(entry.id, action=Action.LOOK)
        if isinstance(came, Answer):
            looked.answers.append(came)
        elif came is not None:
            looked.parts.append(came)

    def _list_prefix(self, entry: Entry, go_on: Callable[[], bool], *, versioned: bool) -> Answer | Parts | None:
        return look_under(
            self._client,
            self._uploads,
            entry,
            versioned=versioned,
            pages=self._options.pages_per_claim,
            allow=self._options.allow,
            go_on=go_on,
        )


def _closing(finding: Finding, entry: Entry, *, uploads_unknown: bool) -> Answer:
    """Nothing is left of it: deleted if this target had parts that were, else it was not there."""
    outcome = Outcome.DELETED if entry.had_parts else Outcome.ABSENT
    detail = dict(UPLOADS_UNKNOWN) if uploads_unknown else None
    return finding.facts.answer(entry.id, outcome, action=Action.LOOK, detail=detail)


def _refused(finding: Finding, entry: Entry, error: str) -> Answer:
    """The store does not list this key so that it can be told apart, or lists what it said it had deleted: calling
    again would go on for ever, so a person is asked soon."""
    return finding.facts.answer(entry.id, Outcome.REFUSED, action=Action.LOOK, error=error)


def _tell_not_sent(nothing: NothingSent, entries: Iterable[Entry], looked: Looked) -> None:
    told = {answer.entry_id for answer in looked.answers} | {each.entry_id for each in looked.not_sent}
    looked.not_sent += [nothing.about(entry.id) for entry in entries if entry.id not in told]


def _tell(failure: CallFailed, groups: Iterable[Iterable[Entry]], looked: Looked) -> None:
    entries = [entry for group in groups for entry in group]
    told = entries[:_TOLD] if failure.outcome in _PAUSING else entries
    looked.answers += [failure.answer(entry.id, action=Action.LOOK) for entry in told]


ERASER = S3Eraser
