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
from expunge.tasks.outcomes import Outcome


@dataclass(slots=True)
class _Walk:
    children: dict[str, None] = field(default_factory=dict)
    unrepresentable: int = 0
    markers: Markers | None = None
    page: Page | None = None


def look_under(
    client: S3Client,
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
    walk = _Walk(markers=read_cursor(entry.cursor))
    for _ in range(pages):
        if not go_on():
            break
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
    if page is None:
        return None
    children = [("object", locator) for locator in walk.children]
    ended = walk.markers is None
    if children or not ended or entry.cursor is not None:
        return Parts(entry.id, children, write_cursor(walk.markers))
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
    return page.facts.answer(entry.id, outcome, action=Action.LOOK)


def _unconfirmed(page: Page, entry: Entry, error: str) -> Answer:
    return page.facts.answer(entry.id, Outcome.UNCONFIRMED, action=Action.LOOK, error=error)


def read_cursor(cursor: str | None) -> Markers | None:
    """The markers of a cursor; None to list from the start."""
    if cursor is None:
        return None
    key, version = json.loads(cursor)
    return key, version


def write_cursor(markers: Markers | None) -> str | None:
    """A cursor for Entry.cursor. It names a key, which the outbox holds anyway, and no content."""
    return None if markers is None else json.dumps(list(markers))
