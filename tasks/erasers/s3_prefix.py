"""Prefixes: a listing under the prefix, whose keys become entries of their own.

The keys stay in the store until their entries are settled, and so the listing goes on after the last key that it gave;
only a listing from the start that finds nothing closes the prefix.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field

from expunge.models.entry import Entry
from expunge.models.states import Action
from expunge.models.targets import find_kind, locator_complaint, split_object
from expunge.tasks.erasers.contract import Answer, NothingSent, Parts
from expunge.tasks.erasers.s3_client import CallFailed, S3Client
from expunge.tasks.erasers.s3_options import MAX_KEYS, is_allowed
from expunge.tasks.erasers.s3_pages import Markers, ObjectPages, Page, VersionPages
from expunge.tasks.erasers.s3_uploads import UPLOADS_UNKNOWN, Uploads
from expunge.tasks.outcomes import Outcome


@dataclass(slots=True)
class _Walk:
    children: dict[str, None] = field(default_factory=dict)
    unrepresentable: int = 0
    markers: Markers | None = None
    page: Page | None = None
    in_uploads: bool = False
    """The open uploads are listed first, since their keys may have no object."""
    uploads_unknown: bool = False


def look_under(
    client: S3Client,
    uploads: Uploads,
    entry: Entry,
    *,
    versioned: bool,
    pages: int,
    allow: tuple[str, ...],
    go_on: Callable[[], bool],
) -> Answer | Parts | None:
    """List some pages of a prefix. None if there was no time for any. Raises CallFailed or NothingSent if not even one
    came."""
    bucket, prefix = split_object(entry.locator)
    walk = _Walk(markers=read_cursor(entry.cursor), in_uploads=is_in_uploads(entry.cursor))
    for _ in range(pages + walk.in_uploads):
        if not go_on():
            break
        if walk.in_uploads:
            refused = _walk_uploads(walk, uploads, bucket, prefix, entry, allow)
            if refused is not None:
                return refused
            continue
        try:
            page = _page(client, bucket, prefix, walk.markers, versioned=versioned)
        except (CallFailed, NothingSent):
            if walk.page is None:
                raise
            break
        walk.page = page
        if not all(key.startswith(prefix) and is_allowed(allow, f"{bucket}/{key}") for key in page.found):
            return _unconfirmed(page, entry, "ForeignKey")
        before = walk.markers
        _take(walk, bucket, page)
        walk.markers = _next(page, versioned=versioned)
        if walk.markers is None:
            break
        if walk.markers == before or (before is not None and not versioned and before[0] in page.found):
            walk.markers = None  # the server ignores where to go on: what is left shows up when it is listed anew
            if not walk.children:
                return _unconfirmed(page, entry, "ListingUndecided")
            break
    return _outcome(entry, walk)


def _walk_uploads(
    walk: _Walk, uploads: Uploads, bucket: str, prefix: str, entry: Entry, allow: tuple[str, ...]
) -> Answer | None:
    """One page of uploads. An Answer if the store lists what it was not asked for."""
    page = uploads.under(bucket, prefix, walk.markers)
    if page is None:
        walk.uploads_unknown = True
    else:
        if not all(key.startswith(prefix) and is_allowed(allow, f"{bucket}/{key}") for key in page.found):
            return _unconfirmed(page, entry, "ForeignKey")
        _take(walk, bucket, page)
        if page.truncated and page.next_markers not in (None, walk.markers):
            walk.markers = page.next_markers
            return None
        walk.uploads_unknown = page.truncated
    walk.in_uploads, walk.markers = False, None
    return None


def _page(client: S3Client, bucket: str, prefix: str, markers: Markers | None, *, versioned: bool) -> Page:
    if versioned:
        return VersionPages(client, bucket, limit=MAX_KEYS).under(prefix, markers, MAX_KEYS)
    return ObjectPages(client, bucket).under(prefix, markers[0] if markers else None, MAX_KEYS)


def _next(page: Page, *, versioned: bool) -> Markers | None:
    if not page.truncated:
        return None
    if versioned and page.next_markers is not None:
        return page.next_markers
    ends = [run[-1] for run in page.runs if run]
    return (max(ends), None) if ends else None


def _take(walk: _Walk, bucket: str, page: Page) -> None:
    kind = find_kind("object")
    assert kind is not None
    for key in page.found:
        locator = f"{bucket}/{key}"
        if locator_complaint(kind, locator) is None:
            walk.children[locator] = None
        else:
            walk.unrepresentable += 1


def _outcome(entry: Entry, walk: _Walk) -> Answer | Parts | None:
    page = walk.page
    children = [("object", locator) for locator in walk.children]
    if page is None:
        if walk.in_uploads and walk.markers is not None:
            return Parts(entry.id, children, write_cursor(walk.markers, in_uploads=True))
        if walk.in_uploads or not children:
            return None
    ended = page is not None and walk.markers is None
    if children or not ended or entry.cursor is not None:
        return Parts(entry.id, children, write_cursor(walk.markers if page is not None else ("", None)))
    assert page is not None
    if page.truncated:
        return _unconfirmed(page, entry, "ListingUndecided")
    if walk.unrepresentable:
        return page.facts.answer(
            entry.id,
            Outcome.REFUSED,
            action=Action.LOOK,
            error="UnrepresentableKey",
            detail={"keys": walk.unrepresentable},
        )
    outcome = Outcome.DELETED if entry.had_parts else Outcome.ABSENT
    detail = dict(UPLOADS_UNKNOWN) if walk.uploads_unknown else None
    return page.facts.answer(entry.id, outcome, action=Action.LOOK, detail=detail)


def _unconfirmed(page: Page, entry: Entry, error: str) -> Answer:
    return page.facts.answer(entry.id, Outcome.UNCONFIRMED, action=Action.LOOK, error=error)


def read_cursor(cursor: str | None) -> Markers | None:
    """The markers of a cursor; None to list from the start."""
    if cursor is None:
        return None
    key, version = json.loads(cursor)[:2]
    return (key, version) if key else None


def is_in_uploads(cursor: str | None) -> bool:
    """Whether the listing is, or begins, among the open uploads."""
    return cursor is None or len(json.loads(cursor)) > 2


def write_cursor(markers: Markers | None, *, in_uploads: bool = False) -> str | None:
    """A cursor for Entry.cursor. It names a key, which the outbox holds anyway, and no content. A key that is empty
    stands for the first object."""
    return None if markers is None else json.dumps([*markers, "uploads"] if in_uploads else list(markers))
