"""What a conversation or a vector store still holds. Its parts are deleted one by one, before it is.

OpenAI API reference, "Delete a conversation": "Items in the conversation will not be deleted." A vector store's file
entries are detached for another reason: a file that is deleted first may stay counted in the store (openai-dotnet#540).
Pages are listed oldest first, so that parts which are added meanwhile come last.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from expunge.models.entry import Entry
from expunge.models.states import Action
from expunge.models.targets import find_kind, locator_complaint
from expunge.tasks.erasers.contract import Answer, Parts
from expunge.tasks.erasers.openai_answers import to_answer
from expunge.tasks.erasers.openai_client import Client, Request
from expunge.tasks.erasers.openai_errors import Problem, problem, unconfirmed
from expunge.tasks.erasers.openai_identity import Expected
from expunge.tasks.erasers.openai_naming import names
from expunge.tasks.erasers.openai_reply import Reply
from expunge.tasks.outcomes import Outcome

if TYPE_CHECKING:
    import openai

PAGE_SIZE = 100
"""The most that the API gives at once."""

STILL_COUNTED = "StillCounted"
"""A vector store counts files that its listing does not show."""


@dataclass(frozen=True, slots=True)
class Whole:
    """How one kind of composite target is listed."""

    operation: str
    part_kind: str
    page: Callable[[str, "str | openai.Omit"], Request]
    """The request for the page after a part."""
    count: Callable[[str], Request] | None = None
    """The read that says how many parts are counted; None if there is no such thing."""
    count_name: str = ""


WHOLES: dict[str, Whole] = {
    "conversation": Whole(
        "GET /conversations/items",
        "conversation_item",
        lambda id, after: (
            lambda sdk: sdk.conversations.items.with_raw_response.list(id, limit=PAGE_SIZE, order="asc", after=after)
        ),
    ),
    "vector_store": Whole(
        "GET /vector_stores/files",
        "vector_store_file",
        lambda id, after: (
            lambda sdk: sdk.vector_stores.files.with_raw_response.list(id, limit=PAGE_SIZE, order="asc", after=after)
        ),
        lambda id: lambda sdk: sdk.vector_stores.with_raw_response.retrieve(id),
        "GET /vector_stores/{id}",
    ),
}


@dataclass(slots=True)
class Empty:
    """A listing from the start found nothing: the whole can be deleted."""


@dataclass(slots=True)
class _Page:
    locators: list[str]
    after: str | None


@dataclass(slots=True)
class _Listing:
    """A listing under way: where it goes on, and what it found."""

    after: str | None
    children: dict[str, None] = field(default_factory=dict)
    restarted: bool = False


def list_parts(
    client: Client, expected: Expected, entry: Entry, *, pages: int, until: float
) -> Parts | Empty | Answer | None:
    """List some pages of a composite target's parts, from `entry.cursor` on. None if there was no time to begin."""
    import openai

    whole = WHOLES[entry.kind]
    listing = _Listing(entry.cursor)
    for number in range(pages):
        if time.monotonic() >= until:
            return _parts(entry, listing) if number else None
        after = openai.omit if listing.after is None else listing.after
        reply = client.send(whole.page(entry.locator, after))
        found = problem(reply, expected, entry.locator)
        if found is not None and _cursor_is_gone(reply, found, listing):
            # the part that the next page was to follow has been deleted meanwhile, by another drain: what is left
            # of the whole stands at its start
            listing.after, listing.restarted = None, True
            continue
        page = _read(reply, entry, listing.after) if found is None else found
        if isinstance(page, Problem):
            if listing.children:
                return _parts(entry, listing)  # what was found is kept; the next claim meets the problem again
            return _answer(client, entry, reply, page, whole.operation)
        listing.children.update(dict.fromkeys(page.locators))
        listing.after = page.after
        if page.after is None:
            if not listing.children and entry.cursor is None:
                return _uncounted(client, expected, entry, whole, until)
            break
    return _parts(entry, listing)


def _uncounted(client: Client, expected: Expected, entry: Entry, whole: Whole, until: float) -> Empty | Answer | None:
    """Whether the whole itself agrees that nothing is left in it. While it counts parts that its listing does not
    show, it is listed again later; a count that never goes is for a person to look into."""
    if whole.count is None:
        return Empty()
    if time.monotonic() >= until:
        return None
    reply = client.send(whole.count(entry.locator))
    found = problem(reply, expected, entry.locator)
    if found is None:
        found = _read_count(reply, entry.locator)
    return Empty() if found is None else _answer(client, entry, reply, found, whole.count_name)


def _read_count(reply: Reply, id: str) -> Problem | None:
    body = reply.json()
    if reply.status != 200 or body is None:
        return unconfirmed("NotTheStore")
    if body.get("id") != id:
        return unconfirmed("OtherId" if "id" in body else "MalformedObject")
    counts = body.get("file_counts")
    total = counts.get("total") if isinstance(counts, dict) else None
    if not isinstance(total, int) or isinstance(total, bool) or total < 0:
        return unconfirmed("MalformedObject")
    return None if total == 0 else Problem(Outcome.ERROR, STILL_COUNTED)


def _answer(client: Client, entry: Entry, reply: Reply, found: Problem, operation: str) -> Answer:
    return to_answer(entry, reply, found, operation=operation, endpoint=client.base_url, action=Action.LOOK)


def _parts(entry: Entry, listing: _Listing) -> Parts:
    kind = WHOLES[entry.kind].part_kind
    return Parts(entry.id, [(kind, locator) for locator in listing.children], listing.after)


def _cursor_is_gone(reply: Reply, found: Problem, listing: _Listing) -> bool:
    """Whether the API says that it does not know the part after which the page was to start."""
    if listing.after is None or listing.restarted or reply.status not in (400, 404):
        return False
    if found.outcome not in (Outcome.ABSENT, Outcome.UNCONFIRMED, Outcome.REFUSED):
        return False
    error = reply.error()
    return error is not None and names(str(error["message"]), listing.after)


def _read(reply: Reply, entry: Entry, after: str | None) -> _Page | Problem:
    """A page of the listing, believed only if it has the whole documented shape: an empty page closes a case."""
    body = reply.json()
    if reply.status != 200 or body is None:
        return unconfirmed("NotTheStore")
    data, more = body.get("data"), body.get("has_more")
    if body.get("object") != "list" or not isinstance(data, list) or not isinstance(more, bool):
        return unconfirmed("MalformedListing")
    ids = [part.get("id") if isinstance(part, dict) else None for part in data]
    locators = [f"{entry.locator}/{id}" for id in ids if isinstance(id, str)]
    kind = find_kind(WHOLES[entry.kind].part_kind)
    assert kind is not None
    if len(locators) < len(ids) or any(locator_complaint(kind, locator) for locator in locators):
        return unconfirmed("MalformedListing")
    if not more:
        return _Page(locators, None)
    last = body.get("last_id") or (ids[-1] if ids else None)
    if not isinstance(last, str) or last == after or locator_complaint(kind, f"{entry.locator}/{last}"):
        return unconfirmed("EndlessListing")
    return _Page(locators, last)
