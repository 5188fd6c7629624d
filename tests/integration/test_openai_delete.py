"""Deletions through the real SDK: what is believed, what is not, and that every call is seen."""

import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from servers.provider import account, deletes, entry, erase, look

from expunge.models.states import Action
from expunge.tasks.erasers.contract import Answer
from expunge.tasks.outcomes import Outcome
from expunge.worker.demo_provider import DemoProvider
from expunge.worker.demo_provider_faults import Fault, Reply

OBJECTS = [
    ("file", "file-1", "DELETE /files"),
    ("vector_store", "vs_1", "DELETE /vector_stores"),
    ("response", "resp_1", "DELETE /responses"),
    ("conversation", "conv_1", "DELETE /conversations"),
    ("conversation_item", "conv_2/msg_1", "DELETE /conversations/items"),
    ("vector_store_file", "vs_2/file-11", "DELETE /vector_stores/files"),
    ("container", "cntr_1", "DELETE /containers"),
    ("container_file", "cntr_2/cfile_1", "DELETE /containers/files"),
    ("thread", "thread_1", "DELETE /threads"),
    ("assistant", "asst_1", "DELETE /assistants"),
    ("chat_completion", "chatcmpl-1", "DELETE /chat/completions"),
]
WITH_FLAG = [each for each in OBJECTS if each[0] != "conversation_item"]


@pytest.fixture
def provider() -> Iterator[DemoProvider]:
    with DemoProvider() as server:
        server.seed(
            files=["file-1", "file-11"],
            vector_stores={"vs_1": [], "vs_2": ["file-1", "file-11"]},
            responses=["resp_1"],
            conversations={"conv_1": [], "conv_2": ["msg_1", "msg_2"]},
            containers=["cntr_1", "cntr_2"],
            container_files=["cntr_2/cfile_1"],
            threads=["thread_1"],
            assistants=["asst_1"],
            chat_completions=["chatcmpl-1"],
        )
        yield server


def erase_one(provider: DemoProvider, kind: str, locator: str, **options: Any) -> Answer:
    with account(provider.base_url, **options) as eraser:
        return erase(eraser, kind, locator)


def is_there(provider: DemoProvider, kind: str, locator: str) -> bool:
    state = provider.state()["proj_demo"]
    if kind == "conversation_item":
        conversation, _, item = locator.partition("/")
        return item in state["conversations"].get(conversation, [])
    if kind == "vector_store_file":
        store, _, file = locator.partition("/")
        return file in state["vector_stores"].get(store, [])
    return locator in state.get(kind + "s", [])


@pytest.mark.parametrize(("kind", "locator", "operation"), OBJECTS)
def test_deleted_and_then_already_absent(provider: DemoProvider, kind: str, locator: str, operation: str) -> None:
    assert is_there(provider, kind, locator)
    first = erase_one(provider, kind, locator)
    assert (first.outcome, first.operation, first.http_status) == (Outcome.DELETED, operation, 200)
    assert first.action is Action.DELETE
    assert first.error is None
    assert first.endpoint == provider.base_url
    assert first.region is None
    assert first.detail is not None
    assert (first.detail["organization"], first.detail["project"]) == ("org-demo", "proj_demo")
    assert first.called_at <= first.at
    assert not is_there(provider, kind, locator)

    second = erase_one(provider, kind, locator)
    assert (second.outcome, second.http_status) == (Outcome.ABSENT, 404)

    assert deletes(provider)[0]["request_id"] == first.request_id
    assert second.request_id in {line["request_id"] for line in provider.log.lines()}


def test_a_containers_files_go_before_it(provider: DemoProvider) -> None:
    """In whichever order they were named: once it is gone no call reaches them."""
    wanted = [entry("container", "cntr_2"), entry("file", "file-1"), entry("container_file", "cntr_2/cfile_1")]
    with account(provider.base_url) as eraser:
        answers = [answer for call in look(eraser, *wanted).calls for answer in call.send(call.entry_ids)]
    assert {answer.outcome for answer in answers} == {Outcome.DELETED}
    assert [answer.entry_id for answer in answers][-1] == wanted[0].id


def test_a_vector_store_leaves_its_files(provider: DemoProvider) -> None:
    for kind, locator in (
        ("vector_store_file", "vs_2/file-1"),
        ("vector_store_file", "vs_2/file-11"),
        ("vector_store", "vs_2"),
    ):
        assert erase_one(provider, kind, locator).outcome is Outcome.DELETED
    assert is_there(provider, "file", "file-1")


@pytest.mark.parametrize(("kind", "locator", "operation"), OBJECTS)
@pytest.mark.parametrize(
    ("fault", "outcome", "error", "status"),
    [
        (Fault(Reply.ERROR, status=503), Outcome.UNAVAILABLE, "HTTP503", 503),
        (Fault(Reply.ERROR, status=500), Outcome.UNAVAILABLE, "HTTP500", 500),
        (Fault(Reply.ERROR, status=500, acts=True), Outcome.UNAVAILABLE, "HTTP500", 500),
        (Fault(Reply.ERROR, status=503, headers={"retry-after": "7"}), Outcome.THROTTLED, None, 503),
        (Fault(Reply.ERROR, status=429, headers={"retry-after": "7"}), Outcome.THROTTLED, "rate_limit_exceeded", 429),
        (Fault(Reply.ERROR, status=429, code="insufficient_quota"), Outcome.REFUSED_SCOPE, "insufficient_quota", 429),
        (Fault(Reply.ERROR, status=401), Outcome.REFUSED_SCOPE, "invalid_api_key", 401),
        (Fault(Reply.ERROR, status=403), Outcome.REFUSED, "PermissionDenied", 403),
        (Fault(Reply.ERROR, status=409), Outcome.ERROR, "Conflict", 409),
        (Fault(Reply.ERROR, status=400), Outcome.REFUSED, "HTTP400", 400),
        (Fault(Reply.ERROR, status=404), Outcome.UNCONFIRMED, "NamesAnother", 404),
        (Fault(Reply.ERROR, status=404, message="Invalid URL (DELETE /v1/x)"), Outcome.REFUSED, "InvalidURL", 404),
        (Fault(Reply.PAGE), Outcome.UNCONFIRMED, "NotTheStore", 200),
        (Fault(Reply.PAGE, status=404), Outcome.UNCONFIRMED, "NotTheStore", 404),
        (Fault(Reply.JSON, status=404, body={"detail": "Not Found"}), Outcome.UNCONFIRMED, "NotTheStore", 404),
        (Fault(Reply.EMPTY, status=404), Outcome.UNCONFIRMED, "NotTheStore", 404),
        (Fault(Reply.JSON, body={}), Outcome.UNCONFIRMED, "NotConfirmed", 200),
        (Fault(Reply.JSON, body=[]), Outcome.UNCONFIRMED, "NotTheStore", 200),
        (Fault(Reply.JSON, status=202, body={"deleted": True}), Outcome.UNCONFIRMED, "NotConfirmed", 202),
        (Fault(Reply.DROP), Outcome.NO_ANSWER, "RemoteProtocolError", None),
        (Fault(Reply.DROP, acts=True), Outcome.NO_ANSWER, "RemoteProtocolError", None),
    ],
)
def test_nothing_else_is_success_and_one_call_is_one_call(
    provider: DemoProvider,
    kind: str,
    locator: str,
    operation: str,
    fault: Fault,
    outcome: Outcome,
    error: str | None,
    status: int | None,
) -> None:
    provider.faults.add(replace(fault, method="DELETE", times=None))
    answer = erase_one(provider, kind, locator)
    assert (answer.outcome, answer.error, answer.http_status) == (outcome, error, status)
    assert answer.operation == operation
    (line,) = deletes(provider)
    assert is_there(provider, kind, locator) is not line["acted"]
    assert answer.request_id == (line["request_id"] if status is not None and fault.reply is not Reply.PAGE else None)
    assert answer.retry_after == (7.0 if outcome is Outcome.THROTTLED else None)


@pytest.mark.parametrize(("kind", "locator", "operation"), WITH_FLAG)
@pytest.mark.parametrize(
    ("body", "error"),
    [
        ({"id": "LOCATOR", "deleted": False}, "NotDeleted"),
        ({"id": "LOCATOR", "deleted": "true"}, "NotDeleted"),
        ({"id": "LOCATOR", "deleted": 1}, "NotDeleted"),
        ({"id": "LOCATOR"}, "NotDeleted"),
        ({"id": "LOCATOR1", "deleted": True}, "OtherId"),
        ({"id": None, "deleted": True}, "OtherId"),
        ({"deleted": True}, "NotConfirmed"),
    ],
)
def test_the_body_must_confirm_this_very_object(
    provider: DemoProvider, kind: str, locator: str, operation: str, body: dict[str, Any], error: str
) -> None:
    told = {
        name: value.replace("LOCATOR", locator.rpartition("/")[2]) if isinstance(value, str) else value
        for name, value in body.items()
    }
    provider.faults.add(Fault(Reply.JSON, method="DELETE", body=told))
    answer = erase_one(provider, kind, locator)
    assert (answer.outcome, answer.error) == (Outcome.UNCONFIRMED, error)
    assert is_there(provider, kind, locator)


@pytest.mark.parametrize("status", [200, 204])
@pytest.mark.parametrize(
    ("kind", "locator"), [("file", "file-1"), ("vector_store", "vs_1"), ("conversation", "conv_1")]
)
def test_an_empty_answer_where_a_body_is_documented_confirms_nothing(
    provider: DemoProvider, kind: str, locator: str, status: int
) -> None:
    provider.faults.add(Fault(Reply.EMPTY, method="DELETE", status=status, acts=True))
    answer = erase_one(provider, kind, locator)
    assert answer.outcome is Outcome.UNCONFIRMED
    assert erase_one(provider, kind, locator).outcome is Outcome.ABSENT


@pytest.mark.parametrize("status", [200, 204])
def test_a_response_that_is_deleted_without_a_body_is_looked_for(provider: DemoProvider, status: int) -> None:
    provider.faults.add(Fault(Reply.EMPTY, method="DELETE", status=status, acts=True))
    answer = erase_one(provider, "response", "resp_1")
    delete, get = provider.log.lines()
    assert (answer.outcome, answer.http_status, answer.request_id) == (Outcome.DELETED, status, delete["request_id"])
    assert answer.detail is not None
    assert answer.detail["confirmed_by"] == "GET /responses/{id}"
    assert answer.detail["confirm_request_id"] == get["request_id"]
    assert (get["method"], get["status"]) == ("GET", 404)


CONFIRMED_BY_LOOK = [
    ("response", "resp_1", Reply.EMPTY),
    ("conversation_item", "conv_2/msg_1", Reply.TRUE),
    ("container", "cntr_1", Reply.EMPTY),
    ("container_file", "cntr_2/cfile_1", Reply.EMPTY),
]


@pytest.mark.parametrize(("kind", "locator", "success"), CONFIRMED_BY_LOOK)
@pytest.mark.parametrize(
    ("fault", "outcome", "error"),
    [
        (Fault(Reply.JSON, body={"id": "still"}), Outcome.UNCONFIRMED, "StillThere"),
        (Fault(Reply.EMPTY), Outcome.UNCONFIRMED, "StillThere"),
        (Fault(Reply.PAGE, status=404), Outcome.UNCONFIRMED, "NotTheStore"),
        (Fault(Reply.ERROR, status=404), Outcome.UNCONFIRMED, "NamesAnother"),
        (Fault(Reply.ERROR, status=403), Outcome.UNCONFIRMED, "PermissionDenied"),
        (Fault(Reply.ERROR, status=500), Outcome.UNAVAILABLE, "HTTP500"),
        (Fault(Reply.ERROR, status=429), Outcome.THROTTLED, "rate_limit_exceeded"),
        (Fault(Reply.DROP), Outcome.NO_ANSWER, "RemoteProtocolError"),
        (Fault(Reply.TRUE, headers={"openai-project": "proj_x"}), Outcome.WRONG_IDENTITY, "WrongProject"),
    ],
)
def test_a_look_that_does_not_find_it_gone_confirms_nothing(
    provider: DemoProvider, kind: str, locator: str, success: Reply, fault: Fault, outcome: Outcome, error: str
) -> None:
    provider.faults.add(Fault(success, method="DELETE", acts=True))
    provider.faults.add(replace(fault, method="GET", times=None))
    answer = erase_one(provider, kind, locator, project="proj_demo" if outcome is Outcome.WRONG_IDENTITY else None)
    assert (answer.outcome, answer.error) == (outcome, error)
    assert answer.request_id == deletes(provider)[0]["request_id"]
    assert answer.detail is not None
    assert "confirmed_by" not in answer.detail


def test_an_item_whose_conversation_is_gone_is_not_called_absent(provider: DemoProvider) -> None:
    """OpenAI API reference, Delete a conversation: items in the conversation will not be deleted."""
    assert erase_one(provider, "conversation", "conv_1").outcome is Outcome.DELETED
    with account(provider.base_url) as eraser:
        provider.project().conversations.pop("conv_2")
        answer = erase(eraser, "conversation_item", "conv_2/msg_1")
    assert (answer.outcome, answer.error) == (Outcome.PARENT_ABSENT, "ParentAbsent")
    assert provider.state()["proj_demo"]["left_behind_items"] == {"conv_2": ["msg_1", "msg_2"]}


def test_a_missing_request_id_is_none_and_nothing_else_changes(provider: DemoProvider) -> None:
    provider.faults.add(Fault(Reply.TRUE, headers={"x-request-id": None}))
    answer = erase_one(provider, "file", "file-1")
    assert (answer.outcome, answer.request_id) == (Outcome.DELETED, None)


def test_redirects_are_not_followed(provider: DemoProvider) -> None:
    there = provider.base_url + "/files/file-11"
    provider.faults.add(Fault(Reply.EMPTY, status=307, headers={"location": there}))
    answer = erase_one(provider, "file", "file-1")
    assert (answer.outcome, answer.error, answer.scope) == (Outcome.REFUSED_SCOPE, "Redirect", "")
    assert len(provider.log.lines()) == 1


@pytest.mark.parametrize("acts", [True, False])
def test_a_hanging_store_is_given_up_in_time(provider: DemoProvider, acts: bool) -> None:
    provider.faults.add(Fault(Reply.HANG, acts=acts))
    answer = erase_one(provider, "file", "file-1", timeout_seconds=0.2)
    assert (answer.outcome, answer.error, answer.http_status) == (Outcome.NO_ANSWER, "ReadTimeout", None)
    provider.faults.release()
    assert is_there(provider, "file", "file-1") is not acts


def test_the_confirming_look_gets_what_the_delete_left_of_the_time(provider: DemoProvider) -> None:
    provider.faults.add(Fault(Reply.HANG, method="GET"))
    with account(provider.base_url, timeout_seconds=0.3) as eraser:
        answer = erase(eraser, "conversation_item", "conv_2/msg_1")
        assert (answer.at - answer.called_at).total_seconds() < 2 * eraser.timeout
    assert (answer.outcome, answer.error) == (Outcome.NO_ANSWER, "ReadTimeout")


def test_send_is_about_no_entry_that_was_not_marked(provider: DemoProvider) -> None:
    with account(provider.base_url) as eraser:
        (call,) = look(eraser, entry("file", "file-1")).calls
        assert call.send(()) == []
    assert provider.log.lines() == []


def test_several_threads_share_an_eraser(provider: DemoProvider) -> None:
    names = [f"file-{number}" for number in range(100, 140)]
    provider.seed(files=names)
    answers: list[Answer] = []
    with account(provider.base_url) as eraser:
        threads = [
            threading.Thread(target=lambda part=part: answers.extend(erase(eraser, "file", name) for name in part))
            for part in (names[:20], names[20:])
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert {answer.outcome for answer in answers} == {Outcome.DELETED}
    assert {answer.request_id for answer in answers} == {line["request_id"] for line in deletes(provider)}
