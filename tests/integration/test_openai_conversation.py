"""A conversation's items first, all pages, then the conversation."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from servers.provider import account, deletes, entry, erase, look

from expunge.models.states import Action
from expunge.tasks.erasers.contract import Parts
from expunge.tasks.erasers.openai import OpenAIEraser
from expunge.tasks.outcomes import Outcome
from expunge.worker.demo_provider import DemoProvider
from expunge.worker.demo_provider_faults import Fault, Reply

ITEMS = [f"msg_{number}" for number in range(250)]


@pytest.fixture
def provider() -> Iterator[DemoProvider]:
    with DemoProvider() as server:
        server.seed(conversations={"conv_1": ITEMS, "conv_2": []})
        yield server


def parts_of(eraser: OpenAIEraser, cursor: str | None = None) -> Parts:
    looked = look(eraser, entry("conversation", "conv_1", cursor=cursor))
    assert not looked.answers
    assert not looked.calls
    (parts,) = looked.parts
    return parts


def children(ids: list[str]) -> list[tuple[str, str]]:
    return [("conversation_item", f"conv_1/{id}") for id in ids]


def test_every_page_is_listed(provider: DemoProvider) -> None:
    with account(provider.base_url) as eraser:
        parts = parts_of(eraser)
    assert (parts.children, parts.cursor) == (children(ITEMS), None)
    assert len(provider.log.lines("GET")) == 3


def test_some_pages_a_claim_and_the_next_goes_on(provider: DemoProvider) -> None:
    with account(provider.base_url, list_pages=2) as eraser:
        first = parts_of(eraser)
        second = parts_of(eraser, first.cursor)
    assert (first.children, first.cursor) == (children(ITEMS[:200]), "msg_199")
    assert (second.children, second.cursor) == (children(ITEMS[200:]), None)


def test_a_listing_that_goes_on_and_finds_nothing_more_closes_nothing(provider: DemoProvider) -> None:
    with account(provider.base_url) as eraser:
        parts = parts_of(eraser, ITEMS[-1])
    assert (parts.children, parts.cursor) == ([], None)
    assert not deletes(provider)


def test_a_listing_whose_place_is_gone_begins_again(provider: DemoProvider) -> None:
    """Another drain erased the item after which this listing was to go on."""
    for item in ITEMS[:200]:
        provider.project().items["conv_1"].pop(item)
    with account(provider.base_url) as eraser:
        parts = parts_of(eraser, "msg_199")
    assert (parts.children, parts.cursor) == (children(ITEMS[200:]), None)


def test_a_listing_that_begins_again_and_is_empty_closes_nothing_yet(provider: DemoProvider) -> None:
    provider.project().items["conv_1"].clear()
    with account(provider.base_url) as eraser:
        parts = parts_of(eraser, "msg_199")
    assert (parts.children, parts.cursor) == ([], None)


def test_all_of_it_is_erased_and_nothing_left_behind(provider: DemoProvider) -> None:
    with account(provider.base_url) as eraser:
        for kind, locator in parts_of(eraser).children:
            assert erase(eraser, kind, locator).outcome is Outcome.DELETED
        closing = erase(eraser, "conversation", "conv_1")
    assert (closing.outcome, closing.operation) == (Outcome.DELETED, "DELETE /conversations")
    state = provider.state()["proj_demo"]
    assert state["conversations"] == {"conv_2": []}
    assert state["left_behind_items"] == {}


def test_a_conversation_that_is_not_there(provider: DemoProvider) -> None:
    with account(provider.base_url) as eraser:
        answer = erase(eraser, "conversation", "conv_9")
    (line,) = provider.log.lines()
    assert (answer.outcome, answer.action, answer.operation) == (
        Outcome.ABSENT,
        Action.LOOK,
        "GET /conversations/items",
    )
    assert (answer.request_id, answer.http_status) == (line["request_id"], 404)


def test_a_conversation_of_another_project_is_not_absent(provider: DemoProvider) -> None:
    with account(provider.base_url, key="sk-other-project", project="proj_demo") as eraser:
        provider.faults.add(Fault(Reply.ERROR, status=404, message="Conversation with id 'conv_1' not found."))
        answer = erase(eraser, "conversation", "conv_1")
    assert (answer.outcome, answer.error) == (Outcome.WRONG_IDENTITY, "WrongProject")


def page(**changes: object) -> dict[str, object]:
    return {"object": "list", "data": [], "has_more": False, "first_id": None, "last_id": None, **changes}


@pytest.mark.parametrize(
    ("fault", "outcome", "error"),
    [
        (Fault(Reply.PAGE), Outcome.UNCONFIRMED, "NotTheStore"),
        (Fault(Reply.PAGE, status=404), Outcome.UNCONFIRMED, "NotTheStore"),
        (Fault(Reply.EMPTY), Outcome.UNCONFIRMED, "NotTheStore"),
        (Fault(Reply.EMPTY, status=204), Outcome.UNCONFIRMED, "NotTheStore"),
        (Fault(Reply.JSON, body={}), Outcome.UNCONFIRMED, "MalformedListing"),
        (Fault(Reply.JSON, body=[]), Outcome.UNCONFIRMED, "NotTheStore"),
        (Fault(Reply.JSON, body={"data": [], "has_more": False}), Outcome.UNCONFIRMED, "MalformedListing"),
        (Fault(Reply.JSON, body={"object": "list", "data": []}), Outcome.UNCONFIRMED, "MalformedListing"),
        (Fault(Reply.JSON, body=page(data=None)), Outcome.UNCONFIRMED, "MalformedListing"),
        (Fault(Reply.JSON, body=page(data=[{}])), Outcome.UNCONFIRMED, "MalformedListing"),
        (Fault(Reply.JSON, body=page(data=["msg_1"])), Outcome.UNCONFIRMED, "MalformedListing"),
        (Fault(Reply.JSON, body=page(data=[{"id": "../x"}])), Outcome.UNCONFIRMED, "MalformedListing"),
        (Fault(Reply.JSON, body=page(has_more=True)), Outcome.UNCONFIRMED, "EndlessListing"),
        (Fault(Reply.JSON, body=page(has_more=True, last_id="?")), Outcome.UNCONFIRMED, "EndlessListing"),
        (Fault(Reply.ERROR, status=503), Outcome.UNAVAILABLE, "HTTP503"),
        (Fault(Reply.ERROR, status=429), Outcome.THROTTLED, "rate_limit_exceeded"),
        (Fault(Reply.ERROR, status=401), Outcome.REFUSED_SCOPE, "invalid_api_key"),
        (Fault(Reply.DROP), Outcome.NO_ANSWER, "RemoteProtocolError"),
    ],
)
def test_a_listing_that_cannot_be_believed_closes_nothing(
    provider: DemoProvider, fault: Fault, outcome: Outcome, error: str
) -> None:
    provider.faults.add(replace(fault, times=None))
    with account(provider.base_url) as eraser:
        answer = erase(eraser, "conversation", "conv_2")
    assert (answer.outcome, answer.error, answer.action) == (outcome, error, Action.LOOK)
    assert not deletes(provider)


def test_what_was_listed_before_a_failure_is_kept(provider: DemoProvider) -> None:
    provider.faults.add(Fault(Reply.ERROR, status=503, skip=1))
    with account(provider.base_url) as eraser:
        parts = parts_of(eraser)
    assert (parts.children, parts.cursor) == (children(ITEMS[:100]), "msg_99")


def test_a_listing_that_repeats_itself_ends(provider: DemoProvider) -> None:
    provider.faults.add(
        Fault(Reply.JSON, times=None, body=page(data=[{"id": "msg_0"}], has_more=True, last_id="msg_0"))
    )
    with account(provider.base_url) as eraser:
        parts = parts_of(eraser)
    assert (parts.children, parts.cursor) == (children(["msg_0"]), "msg_0")
    assert len(provider.log.lines()) == 2


def test_no_request_is_begun_after_the_time_is_up(provider: DemoProvider) -> None:
    with account(provider.base_url) as eraser:
        looked = look(eraser, entry("conversation", "conv_1"), entry("file", "file-1"), seconds=-1)
    assert (looked.answers, looked.parts) == ([], [])
    assert [call.operation for call in looked.calls] == ["DELETE /files"]
    assert provider.log.lines() == []
