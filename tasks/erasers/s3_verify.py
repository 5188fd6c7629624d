"""The second look of S3: a listing of exactly that key, with its versions where the bucket may have some, or of the
prefix. A HEAD would not do: its 404 has no body, and a missing bucket and a proxy say the same."""

from collections.abc import Callable
from dataclasses import replace

from expunge.models.entry import Entry
from expunge.models.states import Action
from expunge.models.targets import split_object
from expunge.tasks.erasers.contract import Answer, NotSent, Parts, utc_now
from expunge.tasks.erasers.s3_buckets import Buckets, Versioning
from expunge.tasks.erasers.s3_client import CallFailed, S3Client
from expunge.tasks.erasers.s3_errors import UNSUPPORTED_CODES
from expunge.tasks.erasers.s3_keys import goes_singly, is_url_safe
from expunge.tasks.erasers.s3_pages import ObjectPages, VersionPages
from expunge.tasks.outcomes import Outcome

ListPrefix = Callable[[Entry, bool], Answer | Parts | None]
IsHeaded = Callable[[str, str], bool]


def verify(
    client: S3Client, buckets: Buckets, entry: Entry, *, list_prefix: ListPrefix, is_headed: IsHeaded
) -> Answer | NotSent | None:
    """Look at one entry; None if there was no time for it. Raises NothingSent."""
    bucket, key = split_object(entry.locator)
    if entry.kind != "prefix" and goes_singly(key) and not is_url_safe(key):
        return NotSent(entry.id, "UnrepresentableKey")

    def look(versioned: bool) -> Answer | None:
        if entry.kind == "prefix":
            return _look_under(entry, versioned, list_prefix)
        return _look_at_key(client, entry, bucket, key, versioned=versioned, is_headed=is_headed)

    try:
        versioning = buckets.versioning(bucket)
        try:
            return look(versioning is not Versioning.NEVER)
        except CallFailed as failure:
            if versioning is not Versioning.UNREADABLE or failure.error not in UNSUPPORTED_CODES:
                raise
            return look(False)
    except CallFailed as failure:
        return failure.answer(entry.id, action=Action.VERIFY)


def _look_at_key(
    client: S3Client, entry: Entry, bucket: str, key: str, *, versioned: bool, is_headed: IsHeaded
) -> Answer:
    pages = VersionPages(client, bucket, limit=1) if versioned else ObjectPages(client, bucket)
    page = pages.exactly(key)
    if page.has(key) or is_headed(bucket, key):
        return page.facts.answer(entry.id, Outcome.PRESENT, action=Action.VERIFY)
    if page.excludes(key):
        return page.facts.answer(entry.id, Outcome.ABSENT, action=Action.VERIFY)
    return page.facts.answer(entry.id, Outcome.UNCONFIRMED, action=Action.VERIFY, error="ListingUndecided")


def _look_under(entry: Entry, versioned: bool, list_prefix: ListPrefix) -> Answer | None:
    began = utc_now()
    came = list_prefix(replace(entry, cursor=None, had_parts=False), versioned)
    if isinstance(came, Parts):
        if not came.children:
            return None
        operation = "ListObjectVersions" if versioned else "ListObjectsV2"
        return Answer(entry.id, Outcome.PRESENT, operation, began, utc_now(), action=Action.VERIFY)
    return came
