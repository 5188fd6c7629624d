"""The second look at real protocols: by another call than the delete, and never an absence by anybody else's word."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from servers.provider import account, entry, erase
from servers.s3_stub import ACCESS_KEY, SECRET_KEY, S3Stub

from expunge.models.entry import Entry
from expunge.models.states import Action
from expunge.tasks.erasers.contract import Answer
from expunge.tasks.erasers.s3 import S3Eraser
from expunge.tasks.erasers.s3_options import S3Options
from expunge.tasks.outcomes import Outcome
from expunge.worker.demo_provider import DemoProvider
from expunge.worker.demo_provider_faults import Fault, Reply

LATER = float("inf")
OBJECTS = [
    ("file", "file-1"),
    ("vector_store", "vs_1"),
    ("response", "resp_1"),
    ("conversation", "conv_1"),
]


@pytest.fixture
def provider() -> Iterator[DemoProvider]:
    with DemoProvider() as server:
        server.seed(files=["file-1"], vector_stores={"vs_1": []}, responses=["resp_1"], conversations={"conv_1": []})
        yield server


def look_at(provider: DemoProvider, kind: str, locator: str, **options: Any) -> Answer:
    with account(provider.base_url, **options) as eraser:
        (answer,) = eraser.verify([entry(kind, locator)], LATER)
    assert isinstance(answer, Answer)
    return answer


@pytest.mark.parametrize(("kind", "locator"), OBJECTS)
def test_a_read_finds_it_and_finds_it_gone(provider: DemoProvider, kind: str, locator: str) -> None:
    before = look_at(provider, kind, locator)
    assert (before.outcome, before.action, before.operation[:4]) == (Outcome.PRESENT, Action.VERIFY, "GET ")
    with account(provider.base_url) as eraser:
        assert erase(eraser, kind, locator).outcome is Outcome.DELETED
    assert look_at(provider, kind, locator).outcome is Outcome.ABSENT


@pytest.mark.parametrize(("kind", "locator"), OBJECTS)
def test_no_absence_from_another_project(provider: DemoProvider, kind: str, locator: str) -> None:
    answer = look_at(provider, kind, locator, project="proj_other")
    assert answer.outcome is Outcome.WRONG_IDENTITY or answer.outcome is Outcome.REFUSED_SCOPE


@pytest.fixture
def s3(stub: S3Stub, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Eraser]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
    options = S3Options(endpoint_url=stub.url, region="us-east-1", allow=("plain", "old", "none"))
    eraser = S3Eraser("artifacts", options, lease_seconds=60)
    yield eraser
    eraser.close()


def s3_look(eraser: S3Eraser, locator: str, kind: str = "object") -> Outcome:
    about = Entry(1, "c", None, "s", None, "artifacts", kind, locator, token="t")
    (answer,) = eraser.verify([about], LATER)
    assert isinstance(answer, Answer)
    assert answer.action is Action.VERIFY or kind == "prefix"
    return answer.outcome


@pytest.mark.parametrize("versioning", [None, "Enabled"])
def test_s3_lists_exactly_what_it_looks_for(s3: S3Eraser, stub: S3Stub, versioning: str | None) -> None:
    bucket = stub.bucket("old", versioning=versioning) if versioning else stub.bucket("old")
    bucket.put("u/1")
    bucket.put("u/10")
    assert s3_look(s3, "old/u/1") is Outcome.PRESENT
    assert s3_look(s3, "old/u/100") is Outcome.ABSENT
    assert s3_look(s3, "old/u/") is Outcome.ABSENT
    assert s3_look(s3, "old/u/", "prefix") is Outcome.PRESENT
    assert s3_look(s3, "old/v/", "prefix") is Outcome.ABSENT
    assert not [call for call in stub.calls() if call["operation"].startswith("Delete")]


@pytest.mark.parametrize("kind", ["error_500", "html_200"])
def test_s3_no_absence_from_a_sick_listing(s3: S3Eraser, stub: S3Stub, kind: str) -> None:
    stub.bucket("plain")
    with stub.fault("ListObjectsV2", kind), stub.fault("ListObjectVersions", kind):
        assert s3_look(s3, "plain/u/1") not in (Outcome.ABSENT, Outcome.PRESENT)
        assert s3_look(s3, "plain/u/", "prefix") not in (Outcome.ABSENT, Outcome.PRESENT)


def test_s3_no_absence_from_a_missing_bucket_or_a_refused_listing(s3: S3Eraser, stub: S3Stub) -> None:
    assert s3_look(s3, "none/u/1") is Outcome.REFUSED_SCOPE
    stub.bucket("plain").list_refused = True
    assert s3_look(s3, "plain/u/1") is Outcome.REFUSED
    assert s3_look(s3, "plain/u/", "prefix") is Outcome.REFUSED


@pytest.mark.parametrize(
    "fault",
    [
        Fault(Reply.PAGE, status=200),
        Fault(Reply.PAGE, status=404),
        Fault(Reply.EMPTY, status=404),
        Fault(Reply.JSON, status=200, body={"id": "file-other", "object": "file"}),
        Fault(Reply.ERROR, status=404, message="No such route"),
    ],
)
def test_a_page_is_neither_absent_nor_present(provider: DemoProvider, fault: Fault) -> None:
    with account(provider.base_url) as eraser:
        (first,) = eraser.verify([entry("file", "file-1")], LATER)
        provider.faults.add(replace(fault, method="GET", times=None))
        (second,) = eraser.verify([entry("file", "file-1")], LATER)
    assert (first.outcome, second.outcome) == (Outcome.PRESENT, Outcome.UNCONFIRMED)
