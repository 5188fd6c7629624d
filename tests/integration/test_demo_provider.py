"""The demo provider: like the API where it matters, and true to its own log."""

import json
import os
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import openai
import pytest

from expunge.worker.demo_provider import DEMO_KEY, DemoProvider
from expunge.worker.demo_provider_faults import Fault, Reply, parse_fault


@pytest.fixture
def provider() -> Iterator[DemoProvider]:
    with DemoProvider() as server:
        yield server


@contextmanager
def sdk_of(base_url: str, key: str = DEMO_KEY) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(api_key=key, base_url=base_url, max_retries=0) as client:
        yield client


@pytest.fixture
def sdk(provider: DemoProvider) -> Iterator[openai.OpenAI]:
    with sdk_of(provider.base_url) as client:
        yield client


def test_files_and_vector_stores(provider: DemoProvider, sdk: openai.OpenAI) -> None:
    file = sdk.files.create(file=("letter.txt", b"Dear all"), purpose="user_data")
    assert (file.filename, file.bytes, file.purpose) == ("letter.txt", 8, "user_data")
    store = sdk.vector_stores.create(name="letters", file_ids=[file.id])
    other = sdk.vector_stores.create(name="empty")
    sdk.vector_stores.files.create(other.id, file_id=file.id)
    assert sdk.vector_stores.retrieve(store.id).file_counts.total == 1
    assert sdk.vector_stores.files.delete(file.id, vector_store_id=other.id).deleted
    assert [one.id for one in sdk.files.list()] == [file.id]
    assert sdk.files.delete(file.id).deleted
    assert sdk.vector_stores.retrieve(store.id).file_counts.total == 0
    assert sdk.vector_stores.delete(store.id).deleted
    assert provider.state()["proj_demo"]["vector_stores"] == {other.id: []}


def test_a_conversations_items_are_paged_and_outlive_it(provider: DemoProvider, sdk: openai.OpenAI) -> None:
    conversation = sdk.conversations.create(items=[{"type": "message", "role": "user", "content": "hi"}])
    more = [{"type": "message", "role": "user", "content": str(n)} for n in range(6)]
    sdk.conversations.items.create(conversation.id, items=more)  # type: ignore[arg-type]
    items = [item.id for item in sdk.conversations.items.list(conversation.id, limit=3, order="asc")]
    assert len(items) == 7
    newest = sdk.conversations.items.list(conversation.id, limit=2)
    assert [item.id for item in newest.data] == items[:-3:-1]
    assert newest.has_more
    assert sdk.conversations.items.delete(items[0], conversation_id=conversation.id).id == conversation.id
    assert sdk.conversations.delete(conversation.id).deleted
    with pytest.raises(openai.NotFoundError, match=f"Conversation with id '{conversation.id}' not found"):
        sdk.conversations.items.list(conversation.id)
    assert provider.state()["proj_demo"]["left_behind_items"] == {conversation.id: items[1:]}


def test_responses_are_stored_unless_told_otherwise(provider: DemoProvider, sdk: openai.OpenAI) -> None:
    kept = sdk.responses.create(model="demo-model", input="hello")
    sdk.responses.create(model="demo-model", input="hello", store=False)
    assert provider.state()["proj_demo"]["responses"] == [kept.id]
    assert sdk.responses.retrieve(kept.id).id == kept.id
    sdk.responses.delete(kept.id)
    with pytest.raises(openai.NotFoundError):
        sdk.responses.retrieve(kept.id)


def test_who_asks_decides_what_is_there(provider: DemoProvider, sdk: openai.OpenAI) -> None:
    file = sdk.files.create(file=b"x", purpose="user_data")
    with sdk_of(provider.base_url, "sk-other-project") as other, pytest.raises(openai.NotFoundError) as caught:
        other.files.delete(file.id)
    assert caught.value.response.headers["openai-project"] == "proj_other"
    with sdk_of(provider.base_url, "sk-wrong") as nobody, pytest.raises(openai.AuthenticationError) as refused:
        nobody.models.list()
    assert refused.value.code == "invalid_api_key"
    foreign = sdk.with_options(project="proj_other")
    with pytest.raises(openai.AuthenticationError) as mismatch:
        foreign.models.list()
    assert mismatch.value.code == "mismatched_project"


def test_errors_have_the_apis_shape_and_headers(provider: DemoProvider, sdk: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        sdk.files.delete("file-none")
    assert caught.value.body == {
        "message": "No such File object: file-none",
        "type": "invalid_request_error",
        "param": "id",
        "code": None,
    }
    headers = caught.value.response.headers
    assert (headers["openai-organization"], headers["openai-project"]) == ("org-demo", "proj_demo")
    assert headers["openai-version"]
    assert headers["openai-processing-ms"]
    (line,) = provider.log.lines()
    assert (line["request_id"], line["status"], line["acted"]) == (headers["x-request-id"], 404, False)
    with pytest.raises(openai.NotFoundError, match=r"Invalid URL \(DELETE /v1/foo\)"):
        sdk.delete("/foo", cast_to=object)


def test_a_fault_is_for_some_requests_and_some_times(provider: DemoProvider, sdk: openai.OpenAI) -> None:
    provider.faults.add(Fault(Reply.ERROR, method="GET", path="/v1/files*", status=503, times=2, skip=1))
    sdk.files.list()
    sdk.models.list()
    for _ in range(2):
        with pytest.raises(openai.InternalServerError):
            sdk.files.list()
    sdk.files.list()


def test_a_lost_answer_is_in_the_log_as_done(provider: DemoProvider, sdk: openai.OpenAI) -> None:
    provider.seed(files=["file-1", "file-2"])
    provider.faults.add(Fault(Reply.DROP, acts=True))
    with pytest.raises(openai.APIConnectionError):
        sdk.files.delete("file-1")
    provider.faults.add(Fault(Reply.DROP))
    with pytest.raises(openai.APIConnectionError):
        sdk.files.delete("file-2")
    assert [(line["acted"], line["status"]) for line in provider.log.lines()] == [(True, None), (False, None)]
    assert provider.state()["proj_demo"]["files"] == ["file-2"]


def test_a_hanging_request_goes_on_when_released(provider: DemoProvider, sdk: openai.OpenAI) -> None:
    provider.seed(files=["file-1"])
    provider.faults.add(Fault(Reply.HANG, acts=True))
    answered: list[bool] = []
    with sdk_of(provider.base_url) as slow:
        thread = threading.Thread(target=lambda: answered.append(slow.files.delete("file-1").deleted))
        thread.start()
        assert provider.log.wait_for(lambda lines: len(lines) == 1)
        assert provider.state()["proj_demo"]["files"] == []
        assert not answered
        provider.faults.release()
        thread.join()
    assert answered == [True]


def test_an_unknown_field_of_a_fault_is_an_error() -> None:
    assert parse_fault({"reply": "drop", "times": None}) == Fault(Reply.DROP, times=None)
    with pytest.raises(ValueError, match="unknown: sometimes"):
        parse_fault({"reply": "drop", "sometimes": 1})


def control(url: str, method: str, path: str, body: Any = None) -> Any:
    address = url.removesuffix("/v1") + "/__control__/" + path
    request = urllib.request.Request(address, json.dumps(body).encode(), method=method)
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


def test_a_process_of_its_own_is_scripted_over_http(tmp_path: Path) -> None:
    log = tmp_path / "access.jsonl"
    command = [sys.executable, "-m", "expunge.worker.demo_provider", "--log", str(log)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ}) as process:
        try:
            assert process.stdout is not None
            url = json.loads(process.stdout.readline())["url"]
            control(url, "POST", "seed", {"project": "proj_x", "files": ["file-1"], "conversations": {"conv_1": ["m"]}})
            control(url, "POST", "keys", {"sk-x": {"organization": "org-x", "project": "proj_x"}})
            control(url, "POST", "faults", [{"reply": "error", "status": 503}, {"reply": "page", "times": None}])
            with sdk_of(url, "sk-x") as sdk:
                with pytest.raises(openai.InternalServerError) as caught:
                    sdk.files.delete("file-1")
                control(url, "DELETE", "faults")
                assert sdk.files.with_raw_response.delete("file-1").request_id
            written = [json.loads(line) for line in log.read_text().splitlines()]
            assert written == control(url, "GET", "log")["log"]
            assert [line["status"] for line in written] == [503, 200]
            assert written[0]["request_id"] == caught.value.request_id
            state = control(url, "GET", "state")["proj_x"]
            assert (state["files"], state["conversations"]) == ([], {"conv_1": ["m"]})
            assert control(url, "POST", "release") == {"ok": True}
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=10) == 0
