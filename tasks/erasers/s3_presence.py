"""Which of the wanted keys are there: as few listings as that takes.

A listing begins just before the first wanted key and serves every wanted key on its page, so that dense keys cost one
listing a thousand; where keys are sparse, its page shrinks and each costs one small look. What a page does not decide
(many keys in between, an order that proves nothing) gets a look by the exact key.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from expunge.tasks.erasers.s3_client import Facts
from expunge.tasks.erasers.s3_keys import just_before
from expunge.tasks.erasers.s3_options import MAX_KEYS
from expunge.tasks.erasers.s3_pages import Page, Version

_GROWTH = 8
"""A page is this many times as long as what the one before it served."""


class Pages(Protocol):
    """Where pages come from; both may raise CallFailed."""

    def after(self, start: str | None, limit: int) -> Page: ...

    def exactly(self, key: str) -> Page: ...


@dataclass(frozen=True, slots=True)
class Finding:
    """What the listings said about one wanted key. `present` is None when they proved neither."""

    key: str
    present: bool | None
    facts: Facts
    versions: tuple[Version, ...] = ()


def survey(wanted: Iterable[str], pages: Pages, go_on: Callable[[], bool]) -> Iterator[Finding]:
    """A Finding for every wanted key, in no promised order, until `go_on` says that the time is over.

    An exception of `pages` passes through after the findings so far.
    """
    left = dict.fromkeys(sorted(wanted))
    length = MAX_KEYS
    reached: str | None = None
    while left and go_on():
        first = next(iter(left))
        if len(left) == 1:
            yield _look(first, pages)
            return
        page = pages.after(_start(first, reached), length)
        served = 0
        doubtful = [] if page.has(first) else [first]
        for finding in _served(page, left, doubtful):
            left.pop(finding.key, None)
            served += 1
            yield finding
        reached = _end(page)
        length = min(MAX_KEYS, max(2, served * _GROWTH))
        for key in doubtful:
            if key in left:
                if not go_on():
                    return
                left.pop(key)
                yield _look(key, pages)


def _start(first: str, reached: str | None) -> str | None:
    guess = just_before(first)
    if reached is not None and reached < first and (guess is None or guess < reached):
        return reached
    return guess


def _end(page: Page) -> str | None:
    ends = [run[-1] for run in page.runs if run]
    return max(ends) if page.truncated and ends else None


def _served(page: Page, left: dict[str, None], doubtful: list[str]) -> Iterator[Finding]:
    """What the page decides. Wanted keys whose place it passed without deciding them are put into `doubtful`."""
    for key in [key for key in page.found if key in left and page.has(key)]:
        yield Finding(key, True, page.facts, tuple(page.found[key]))
    for key in list(left) if page.is_ordered else ():
        if key in page.found:
            continue
        if not page.is_reached(key):
            break
        if page.excludes(key):
            yield Finding(key, False, page.facts)
        elif key not in doubtful:
            doubtful.append(key)


def _look(key: str, pages: Pages) -> Finding:
    page = pages.exactly(key)
    if page.has(key):
        return Finding(key, True, page.facts, tuple(page.found[key]))
    return Finding(key, False if page.excludes(key) else None, page.facts)
