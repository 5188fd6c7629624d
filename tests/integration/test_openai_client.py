"""Who answered, what is sent, and how long it may take."""

import logging
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from servers.provider import account, deletes, entry, erase, look

from expunge.tasks.outcomes import Outcome
from expunge.worker.demo_provider import DemoProvider
from expunge.worker.demo_provider_faults import Fault, Reply


@pytest.fixture
def provider() -> Iterator[DemoProvider]:
    with DemoProvider() as server:
        server.seed(files=["file-1"])
        yield server


@pytest.mark.parametrize(
    ("headers", "error"),
    [
        ({"openai-organization": None}, "MissingIdentity"),
        ({"openai-project": None}, "MissingIdentity"),
        ({"openai-organization": "org-demo2"}, "WrongOrganization"),
        ({"openai-project": "proj_other"}, "WrongProject"),
    ],
)
@pytest.mark.parametrize("locator", ["file-1", "file-none"])
def test_an_answer_of_somebody_else_proves_nothing(
    provider: DemoProvider, locator: str, headers: dict[str, str | None], error: str
) -> None:
    provider.faults.add(Fault(Reply.TRUE, headers=headers))
    with account(provider.base_url, organization="org-demo", project="proj_demo") as eraser:
        answer = erase(eraser, "file", locator)
    assert (answer.outcome, answer.error) == (Outcome.WRONG_IDENTITY, error)
    assert answer.request_id == deletes(provider)[0]["request_id"]


@pytest.mark.parametrize("status", [200, 404])
def test_a_page_is_not_taken_for_another_organization(provider: DemoProvider, status: int) -> None:
    provider.faults.add(Fault(Reply.PAGE, status=status))
    with account(provider.base_url, organization="org-demo") as eraser:
        answer = erase(eraser, "file", "file-1")
    assert (answer.outcome, answer.error) == (Outcome.UNCONFIRMED, "NotTheStore")


def test_the_receipt_says_whom_the_answer_named(provider: DemoProvider) -> None:
    provider.faults.add(Fault(Reply.TRUE, headers={"openai-project": "proj_other"}))
    with account(provider.base_url, project="proj_demo") as eraser:
        answer = erase(eraser, "file", "file-1")
    assert answer.detail == {"organization": "org-demo", "project": "proj_other"}


def test_nothing_is_compared_that_the_settings_do_not_name(provider: DemoProvider) -> None:
    provider.faults.add(Fault(Reply.TRUE, headers={"openai-organization": None, "openai-project": None}))
    with account(provider.base_url) as eraser:
        answer = erase(eraser, "file", "file-1")
    assert (answer.outcome, answer.detail) == (Outcome.DELETED, None)


def test_a_key_of_another_project_is_told_so(provider: DemoProvider) -> None:
    with account(provider.base_url, key="sk-other-project", project="proj_demo") as eraser:
        answer = erase(eraser, "file", "file-1")
        lines = {line.name: line for line in eraser.check()}
    assert (answer.outcome, answer.error) == (Outcome.WRONG_IDENTITY, "WrongProject")
    assert lines["identity"].ok is False
    assert "proj_other" in lines["identity"].text
    assert "proj_demo" in lines["identity"].text


def test_only_the_settings_decide_who_asks(provider: DemoProvider) -> None:
    """The SDK takes organization, project, address and headers from the environment by itself."""
    environment = {
        "OPENAI_ORG_ID": "org-environment",
        "OPENAI_PROJECT_ID": "proj_environment",
        "OPENAI_BASE_URL": "http://127.0.0.1:9/v1",
        "OPENAI_CUSTOM_HEADERS": "Authorization: Bearer sk-environment\nOpenAI-Project: proj_environment",
        "OPENAI_API_KEY": "sk-environment",
    }
    with account(provider.base_url, organization="org-demo", project="proj_demo", environment=environment) as eraser:
        assert erase(eraser, "file", "file-1").outcome is Outcome.DELETED


def test_check_names_who_we_are(provider: DemoProvider) -> None:
    with account(provider.base_url, organization="org-demo", project="proj_demo") as eraser:
        lines = eraser.check()
    assert [(line.name, line.ok) for line in lines] == [("credentials", True), ("answer", True), ("identity", True)]
    assert "org-demo" in lines[-1].text
    assert "proj_demo" in lines[-1].text
    assert {line["method"] for line in provider.log.lines()} == {"GET"}


@pytest.mark.parametrize(
    ("fault", "ok"),
    [
        (Fault(Reply.ERROR, status=401), False),
        (Fault(Reply.ERROR, status=403), None),
        (Fault(Reply.ERROR, status=429), None),
        (Fault(Reply.ERROR, status=500), False),
        (Fault(Reply.PAGE), False),
        (Fault(Reply.PAGE, status=404), False),
        (Fault(Reply.EMPTY, status=307), False),
        (Fault(Reply.JSON, body={"object": "model"}), False),
        (Fault(Reply.DROP), False),
    ],
)
def test_check_says_what_is_wrong_and_never_raises(provider: DemoProvider, fault: Fault, ok: bool | None) -> None:
    provider.faults.add(replace(fault))
    with account(provider.base_url) as eraser:
        lines = {line.name: line for line in eraser.check()}
    assert lines["answer"].ok is ok
    assert "sk-demo" not in lines["answer"].text


def test_no_id_is_logged_at_info_level(provider: DemoProvider, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO), account(provider.base_url) as eraser:
        erase(eraser, "file", "file-1")
    assert "file-1" not in caplog.text


def test_a_closed_eraser_can_be_used_again(provider: DemoProvider) -> None:
    with account(provider.base_url) as eraser:
        assert erase(eraser, "file", "file-1").outcome is Outcome.DELETED
        eraser.close()
        assert erase(eraser, "file", "file-1").outcome is Outcome.ABSENT


@contextmanager
def dripping_server() -> Iterator[str]:
    """Answers a byte at a time, always before a read times out, and never comes to an end."""
    stopped = threading.Event()
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(65536)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n")
            try:
                while not stopped.wait(0.02):
                    connection.sendall(b" ")
            except OSError:
                return

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
    finally:
        stopped.set()
        thread.join()
        listener.close()


def test_an_answer_in_drops_ends_at_the_deadline() -> None:
    with dripping_server() as url, account(url, timeout_seconds=0.3) as eraser:
        (call,) = look(eraser, entry("file", "file-1")).calls
        (answer,) = call.send(call.entry_ids)
    assert (answer.outcome, answer.error) == (Outcome.NO_ANSWER, "ReadTimeout")
    assert (answer.at - answer.called_at).total_seconds() < 2
