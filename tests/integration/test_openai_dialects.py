"""Azure OpenAI and OGX: how they are spoken to, and which of their answers prove something."""

from collections.abc import Iterator

import pytest
from pydantic import ValidationError
from servers.provider import KEY_VARIABLE, account, erase

from expunge.tasks.erasers.openai import OpenAIOptions
from expunge.tasks.outcomes import Outcome
from expunge.worker.demo_provider import DemoProvider
from expunge.worker.demo_provider_faults import Fault, Reply


@pytest.fixture
def provider() -> Iterator[DemoProvider]:
    with DemoProvider() as server:
        server.seed(
            files=["file-1", "assistant-2"],
            vector_stores={"vs_1": [], "vs_2": ["file-1"]},
            conversations={"conv_1": [], "conv_2": ["msg_1"]},
            responses=["resp_1"],
        )
        yield server


OBJECTS = [
    ("file", "file-1"),
    ("file", "assistant-2"),
    ("vector_store_file", "vs_2/file-1"),
    ("vector_store", "vs_1"),
    ("conversation", "conv_1"),
    ("conversation_item", "conv_2/msg_1"),
    ("response", "resp_1"),
]


def azure_url(provider: DemoProvider, path: str = "/openai/v1") -> str:
    provider.modes(dialect="azure")
    return provider.base_url.removesuffix("/v1") + path


@pytest.mark.parametrize(("kind", "locator"), OBJECTS)
@pytest.mark.parametrize(
    ("path", "version"), [("/openai/v1", None), ("/openai/v1", "preview"), ("/openai", "2024-10-21")]
)
def test_azure_deletes(provider: DemoProvider, kind: str, locator: str, path: str, version: str | None) -> None:
    with account(azure_url(provider, path), azure=True, api_version=version, asked=False) as eraser:
        first, second = erase(eraser, kind, locator), erase(eraser, kind, locator)
    assert (first.outcome, second.outcome) == (Outcome.DELETED, Outcome.ABSENT)
    assert first.request_id in {line["request_id"] for line in provider.log.lines("DELETE")}
    if kind == "file" and path == "/openai":
        assert (first.http_status, (first.detail or {}).get("confirmed_by")) == (204, "GET /files/{id}")


@pytest.mark.parametrize(
    ("path", "version"), [("/openai", "1999-01-01"), ("/openai", None), ("/wrong/v1", None), ("", None)]
)
@pytest.mark.parametrize("kind", ["file", "vector_store", "conversation", "response"])
def test_azures_resource_not_found_proves_nothing(
    provider: DemoProvider, path: str, version: str | None, kind: str
) -> None:
    locator = {"file": "file-9", "vector_store": "vs_9", "conversation": "conv_9", "response": "resp_9"}[kind]
    with account(azure_url(provider, path), azure=True, api_version=version, asked=False) as eraser:
        answer = erase(eraser, kind, locator)
    assert (answer.outcome, answer.error) == (Outcome.REFUSED, "ResourceNotFound")


def test_azures_wrong_deployment_proves_nothing(provider: DemoProvider) -> None:
    provider.faults.add(
        Fault(
            Reply.JSON,
            method="DELETE",
            status=404,
            body={"error": {"code": "DeploymentNotFound", "message": "The API deployment file-1 does not exist."}},
        )
    )
    with account(azure_url(provider), azure=True) as eraser:
        answer = erase(eraser, "file", "file-1")
    assert (answer.outcome, answer.error) == (Outcome.REFUSED, "DeploymentNotFound")


@pytest.mark.parametrize(("kind", "locator"), OBJECTS)
def test_ogx_deletes(provider: DemoProvider, kind: str, locator: str) -> None:
    provider.modes(dialect="ogx")
    with account(provider.base_url, compatible="ogx", asked=False) as eraser:
        first, second = erase(eraser, kind, locator), erase(eraser, kind, locator)
    assert (first.outcome, second.outcome) == (Outcome.DELETED, Outcome.ABSENT)
    assert (first.request_id, second.request_id) == (None, None)


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (404, {"detail": "Not Found"}),
        (404, {"detail": {"message": "File 'file-1' not found."}}),
        (400, {"detail": "Invalid value for 'file_id': file-1. Must be a UUID."}),
        (400, {"error": {"message": "Invalid value for 'file_id': file-1."}}),
        (400, {"error": {"message": "File 'file-11' not found."}}),
        (400, {"error": {"message": "Route /v1/files/file-1 not found."}}),
    ],
)
def test_what_ogx_says_of_routes_and_ids_proves_nothing(
    provider: DemoProvider, status: int, body: dict[str, object]
) -> None:
    provider.faults.add(Fault(Reply.JSON, method="DELETE", status=status, body=body))
    with account(provider.base_url, compatible="ogx") as eraser:
        answer = erase(eraser, "file", "file-1")
    assert answer.outcome in (Outcome.UNCONFIRMED, Outcome.REFUSED)


@pytest.mark.parametrize("status", [400, 404])
def test_a_dialect_is_never_guessed(provider: DemoProvider, status: int) -> None:
    body = (
        {"detail": "File 'file-1' not found."} if status == 404 else {"error": {"message": "File 'file-1' not found."}}
    )
    provider.faults.add(Fault(Reply.JSON, method="DELETE", status=status, body=body))
    with account(provider.base_url) as eraser:
        answer = erase(eraser, "file", "file-1")
    assert answer.outcome in (Outcome.UNCONFIRMED, Outcome.REFUSED)


@pytest.mark.parametrize(
    "options",
    [
        {"azure": True},
        {"api_version": "2024-10-21"},
        {"azure": True, "compatible": "ogx", "base_url": "http://127.0.0.1/v1"},
        {"azure": True, "project": "proj_1", "base_url": "http://127.0.0.1/v1"},
        {"compatible": "ogx", "organization": "org-1"},
        {"compatible": "vllm"},
        {"azure": True, "api_version": "a&b=c", "base_url": "http://127.0.0.1/v1"},
    ],
)
def test_settings_that_contradict_each_other(options: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        OpenAIOptions(api_key_env=KEY_VARIABLE, **options)  # type: ignore[arg-type]
