"""What a conversation still holds. Its items are deleted one by one, before it is.

OpenAI API reference, "Delete a conversation": "Items in the conversation will not be deleted." Pages are listed oldest
first, so that items which are added meanwhile come last.
"""

import time
from dataclasses import dataclass, field

import openai

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

LIST_ITEMS = "GET /conversations/items"
ITEM_KIND = "conversation_item"
PAGE_SIZE = 100
"""The most that the API gives at once."""


@dataclass(slots=True)
class Empty:
    """A listing from the start found nothing: the conversation can be deleted."""


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


def list_items(
    client: Client, expected: Expected, entry: Entry, *, pages: int, until: float
) -> Parts | Empty | Answer | None:
    """List some pages of a conversation's items, from `entry.cursor` on. None if there was no time to begin."""
    listing = _Listing(entry.cursor)
    for number in range(pages):
        if time.monotonic() >= until:
            return _parts(entry, listing) if number else None
        reply = client.send(_request(entry.locator, listing.after))
        found = problem(reply, expected, entry.locator)
        if found is not None and _cursor_is_gone(reply, found, listing):
            # the item that the next page was to follow has been deleted meanwhile, by another drain: what is left
            # of the conversation stands at its start
            listing.after, listing.restarted = None, True
            continue
        page = _read(reply, entry.locator, listing.after) if found is None else found
        if isinstance(page, Problem):
            if listing.children:
                return _parts(entry, listing)  # what was found is kept; the next claim meets the problem again
            return to_answer(entry, reply, page, operation=LIST_ITEMS, endpoint=client.base_url, action=Action.LOOK)
        listing.children.update(dict.fromkeys(page.locators))
        listing.after = page.after
        if page.after is None:
            if not listing.children and entry.cursor is None:
                return Empty()
            break
    return _parts(entry, listing)


def _request(conversation: str, after: str | None) -> Request:
    start = openai.omit if after is None else after
    return lambda sdk: sdk.conversations.items.with_raw_response.list(
        conversation, limit=PAGE_SIZE, order="asc", after=start
    )


def _parts(entry: Entry, listing: _Listing) -> Parts:
    return Parts(entry.id, [(ITEM_KIND, locator) for locator in listing.children], listing.after)


def _cursor_is_gone(reply: Reply, found: Problem, listing: _Listing) -> bool:
    """Whether the API says that it does not know the item after which the page was to start."""
    if listing.after is None or listing.restarted or reply.status not in (400, 404):
        return False
    if found.outcome not in (Outcome.ABSENT, Outcome.UNCONFIRMED, Outcome.REFUSED):
        return False
    error = reply.error()
    return error is not None and names(str(error["message"]), listing.after)


def _read(reply: Reply, conversation: str, after: str | None) -> _Page | Problem:
    """A page of the listing, believed only if it has the whole documented shape: an empty page closes a case."""
    body = reply.json()
    if reply.status != 200 or body is None:
        return unconfirmed("NotTheStore")
    data, more = body.get("data"), body.get("has_more")
    if body.get("object") != "list" or not isinstance(data, list) or not isinstance(more, bool):
        return unconfirmed("MalformedListing")
    ids = [item.get("id") if isinstance(item, dict) else None for item in data]
    locators = [f"{conversation}/{id}" for id in ids if isinstance(id, str)]
    kind = find_kind(ITEM_KIND)
    assert kind is not None
    if len(locators) < len(ids) or any(locator_complaint(kind, locator) for locator in locators):
        return unconfirmed("MalformedListing")
    if not more:
        return _Page(locators, None)
    last = body.get("last_id") or (ids[-1] if ids else None)
    if not isinstance(last, str) or last == after or locator_complaint(kind, f"{conversation}/{last}"):
        return unconfirmed("EndlessListing")
    return _Page(locators, last)
