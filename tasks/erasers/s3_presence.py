"""Which of the wanted keys are there: as few listings as that takes.

Without versions, a listing begins just before the first wanted key and serves every wanted key on its page, so that
dense keys cost one listing a thousand; where keys are sparse, its page shrinks and each costs one small look. With
versions, what the wanted keys begin with in common is listed, as long as that serves them. What a page does not decide
(many keys in between, an order that proves nothing) gets a look by the exact key.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from expunge.tasks.erasers.s3_client import CallFailed, Facts, S3Client
from expunge.tasks.erasers.s3_keys import just_before
from expunge.tasks.erasers.s3_options import MAX_KEYS
from expunge.tasks.erasers.s3_pages import Markers, Page, Version

_GROWTH = 8
"""A page is this many times as long as what the one before it served …"""
_DENSE = 4
"""… but whole, where a whole page would serve so many: requests cost more than lines."""


class _Exact(Protocol):
    def exactly(self, key: str) -> Page: ...


class ListsObjects(_Exact, Protocol):
    """Where pages of objects come from; both methods may raise CallFailed."""

    def after(self, start: str | None, limit: int) -> Page: ...


class ListsVersions(_Exact, Protocol):
    """Where pages of versions come from; both methods may raise CallFailed."""

    def under(self, prefix: str, markers: Markers | None, limit: int) -> Page: ...


@dataclass(frozen=True, slots=True)
class Finding:
    """What the listings said about one wanted key. `present` is None when they proved neither."""

    key: str
    present: bool | None
    facts: Facts
    versions: tuple[Version, ...] = ()


def survey_objects(wanted: Iterable[str], pages: ListsObjects, go_on: Callable[[], bool]) -> Iterator[Finding]:
    """A Finding for every wanted key, in no promised order, until `go_on` says that the time is over.

    An exception of `pages` passes through after the findings so far.
    """
    left = dict.fromkeys(sorted(wanted))
    length = MAX_KEYS
    reached: str | None = None
    while len(left) > 1 and go_on():
        first = next(iter(left))
        page = pages.after(_start(first, reached), length)
        served = 0
        doubtful = [] if page.has(first) else [first]
        for finding in _served(page, left, doubtful):
            served += 1
            yield finding
        reached = _end(page)
        length = _next_length(length, served)
        yield from _looks([key for key in doubtful if key in left], left, pages, go_on)
    yield from _looks(list(left), left, pages, go_on)


def _next_length(length: int, served: int) -> int:
    if served * MAX_KEYS >= _DENSE * length:
        return MAX_KEYS
    return min(MAX_KEYS, max(2, served * _GROWTH))


def survey_versions(
    wanted: Iterable[str], pages: ListsVersions, go_on: Callable[[], bool], *, shared: bool = True
) -> Iterator[Finding]:
    """The same in a bucket that has or had versions. A key with more versions than a page holds comes with some. With
    `shared` false each key gets a look of its own."""
    left = dict.fromkeys(sorted(wanted))
    prefix = _shared_start(list(left))
    markers: Markers | None = None
    while shared and len(left) > 1 and go_on():
        page = pages.under(prefix, markers, MAX_KEYS)
        served = 0
        for finding in _served(page, left, []):
            served += 1
            yield finding
        markers = page.next_markers
        if not served or not page.truncated or markers is None:
            break
    yield from _looks(list(left), left, pages, go_on)


def _shared_start(keys: list[str]) -> str:
    """What all of these sorted keys begin with, without a "." at its end, which is a directory to some servers."""
    first, last = (keys[0], keys[-1]) if keys else ("", "")
    length = next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last)))
    return first[:length].rstrip(".")


def _start(first: str, reached: str | None) -> str | None:
    guess = just_before(first)
    if reached is not None and reached < first and (guess is None or guess < reached):
        return reached
    return guess


def _end(page: Page) -> str | None:
    ends = [run[-1] for run in page.runs if run]
    return max(ends) if page.truncated and ends else None


def _served(page: Page, left: dict[str, None], doubtful: list[str]) -> Iterator[Finding]:
    """What the page decides, taken out of `left`. Wanted keys whose place it passed without deciding them are put into
    `doubtful`."""
    for key in [key for key in page.found if key in left and page.has(key)]:
        del left[key]
        yield Finding(key, True, page.facts, tuple(page.found[key]))
    for key in list(left) if page.is_ordered else ():
        if key in page.found:
            continue
        if not page.is_reached(key):
            break
        if page.excludes(key):
            del left[key]
            yield Finding(key, False, page.facts)
        elif key not in doubtful:
            doubtful.append(key)


def _looks(keys: Iterable[str], left: dict[str, None], pages: _Exact, go_on: Callable[[], bool]) -> Iterator[Finding]:
    for key in keys:
        if not go_on():
            return
        page = pages.exactly(key)
        del left[key]
        if page.has(key):
            yield Finding(key, True, page.facts, tuple(page.found[key]))
        else:
            yield Finding(key, False if page.excludes(key) else None, page.facts)


_UNSEEN = frozenset({400, 403, 404, 405})
"""Of a HEAD: the object is not seen. Without ListBucket an absent key answers 403 (API Reference, HeadObject)."""


def is_seen(client: S3Client, bucket: str, key: str) -> bool:
    """Whether a HEAD finds the object: a veto against its absence, and no proof of it. Raises CallFailed or
    NothingSent."""
    try:
        client.call("HeadObject", bucket, Key=key)
    except CallFailed as failure:
        if failure.verdict.http_status in _UNSEEN:
            return False
        raise
    return True
