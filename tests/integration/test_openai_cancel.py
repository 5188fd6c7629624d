"""Uploads and batches, which OpenAI's API can only cancel: through the whole drain, on SQLite and on PostgreSQL."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict

import pytest
from doubles.running import Bench
from rows import receipt
from servers.provider import KEY_VARIABLE, account, entry, erase, look

from expunge.models import Target, open_case
from expunge.models.states import Action
from expunge.tasks.drain import drain
from expunge.tasks.erasers.contract import Parts
from expunge.tasks.erasers.openai import OpenAIOptions
from expunge.tasks.outcomes import Outcome
from expunge.worker.commands.two_dates import TwoDates
from expunge.worker.demo_provider import DEMO_KEY, DemoProvider
from expunge.worker.demo_provider_cancel import end_batch
from expunge.worker.demo_provider_faults import Fault, Reply

CANCEL = "/v1/*/cancel"
FILES = [f"file-batch_1-{name}" for name in ("input", "output", "errors")]
DELETED = ("delete", "deleted", None)
ENDED = ("look", "ended", None)


class World:
    """A bench whose account is the provider's."""

    def __init__(self, database, provider: DemoProvider, **options) -> None:
        self.bench = Bench(database, attempts_before_escalation=4)
        self.provider = provider
        self.bench.runtime.accounts["ai"] = OpenAIOptions(
            base_url=provider.base_url, api_key_env=KEY_VARIABLE, **options
        )

    def open(self, kind: str, locator: str) -> None:
        with self.bench.database.engine.begin() as connection:
            open_case(connection, subject="ada", case_id="c1", targets=[Target("ai", kind, locator)])

    def run(self, rounds: int = 12, seconds: float = 3600.0) -> None:
        for _ in range(rounds):
            drain(self.bench.runtime, "ai")
            if not [e for e in self.bench.entries() if not e.settled]:
                return
            self.bench.later(seconds)
            self.bench.sweep()

    def receipts(self, kind: str) -> list[tuple[str, str, str | None]]:
        return [(r.action, r.status, r.error) for r in self.bench.receipts() if r.kind == kind]

    def cancels(self) -> list[dict]:
        return [line for line in self.provider.log.lines("POST") if line["path"].endswith("/cancel")]

    def state(self) -> dict:
        return self.provider.state()["proj_demo"]

    @property
    def is_complete(self) -> bool:
        return self.bench.case("c1").completed_at is not None

    def close(self) -> None:
        for eraser in self.bench.runtime._erasers.values():
            eraser.close()


def detail_of(row) -> dict:
    """SQLite gives JSON as text."""
    return json.loads(row.detail) if isinstance(row.detail, str) else row.detail


@contextmanager
def world_of(database, monkeypatch, **options) -> Iterator[World]:
    monkeypatch.setenv(KEY_VARIABLE, DEMO_KEY)
    with DemoProvider() as provider:
        made = World(database, provider, **options)
        try:
            yield made
        finally:
            made.close()


@pytest.fixture
def world(database, monkeypatch) -> Iterator[World]:
    with world_of(database, monkeypatch) as made:
        yield made


@pytest.fixture
def provider() -> Iterator[DemoProvider]:
    with DemoProvider() as server:
        yield server


def test_a_running_batch_is_cancelled_and_its_files_are_found_when_it_has_ended(world):
    world.provider.seed(batches=["batch_1"], files=["file-9"])
    world.provider.modes(cancelling=2)
    world.open("batch", "batch_1")
    world.run()
    assert world.receipts("batch") == [
        ("delete", "accepted", None),
        *[("verify", "present", None)] * 3,
        ENDED,
    ]
    assert world.receipts("file") == [DELETED] * 3
    assert {r.locator for r in world.bench.receipts() if r.kind == "file"} == set(FILES)
    assert world.state()["files"] == ["file-9"]
    assert len(world.cancels()) == 1
    closing = world.bench.receipts()[-1]
    assert (detail_of(closing)["state"], detail_of(closing)["remains"]) == ("cancelled", "its record")
    assert closing.purge_due_at is None
    assert world.is_complete


def test_the_case_is_open_while_a_batch_is_cancelling(world):
    world.provider.seed(batches=["batch_1"])
    world.provider.modes(cancelling=-1)
    world.open("batch", "batch_1")
    world.run(rounds=3)
    assert (world.bench.entry().action, world.is_complete) == ("verify", False)
    world.run(rounds=4)
    assert world.bench.entry().state == "escalated"
    assert not [each for each in world.receipts("batch") if each[1] in ("ended", "deleted")]


@pytest.mark.parametrize("status", ["completed", "failed", "expired", "cancelled"])
def test_a_batch_that_has_ended_is_not_cancelled_and_its_files_go(world, status):
    world.provider.seed(batches={"batch_1": {"status": status, "error_file_id": "file-e"}})
    world.open("batch", "batch_1")
    world.run()
    assert world.cancels() == []
    assert (world.receipts("batch"), world.receipts("file")) == ([ENDED], [DELETED] * 2)
    assert (world.state()["files"], world.state()["batches"]) == ([], {"batch_1": status})
    assert world.is_complete


def test_a_batch_that_ends_between_look_and_cancel_is_order_and_not_a_refusal(world):
    """Cancelling a completed batch is refused with 409 (the tests of BerriAI/litellm)."""
    world.provider.seed(batches=["batch_1"])
    world.provider.faults.add(
        Fault(Reply.ERROR, path=CANCEL, status=409, message="Cannot cancel a batch with status 'completed'.")
    )
    world.open("batch", "batch_1")
    world.run(rounds=1)
    end_batch(world.provider.project(), "batch_1", "completed")
    world.run()
    assert world.receipts("batch") == [("delete", "failed", "Conflict"), ENDED]
    assert (world.receipts("file"), world.state()["files"]) == ([DELETED] * 3, [])


@pytest.mark.parametrize(
    ("fault", "first"),
    [
        (Fault(Reply.DROP, acts=True), ("delete", "unknown", "RemoteProtocolError")),
        (Fault(Reply.DROP), ("delete", "unknown", "RemoteProtocolError")),
        (Fault(Reply.ERROR, status=500, acts=True), ("delete", "failed", "HTTP500")),
        (Fault(Reply.ERROR, status=429), ("delete", "failed", "Throttled")),
        (Fault(Reply.TRUE, body={"id": "batch_2"}), ("delete", "failed", "Unconfirmed")),
        (Fault(Reply.TRUE, body={"object": "upload"}), ("delete", "failed", "Unconfirmed")),
        (Fault(Reply.TRUE, body={"status": "in_progress"}), ("delete", "failed", "Unconfirmed")),
        (Fault(Reply.TRUE, body={"status": "deleted"}), ("delete", "failed", "Unconfirmed")),
        (Fault(Reply.EMPTY, status=204, acts=True), ("delete", "failed", "Unconfirmed")),
        (Fault(Reply.PAGE), ("delete", "failed", "Unconfirmed")),
    ],
)
def test_whatever_answers_the_cancellation_the_files_are_not_lost(world, fault, first):
    world.provider.seed(batches=["batch_1"])
    fault.path, fault.times = CANCEL, 1
    world.provider.faults.add(fault)
    world.open("batch", "batch_1")
    world.run()
    told = world.receipts("batch")
    assert (told[0], told[-1]) == (first, ENDED)
    assert (sorted(world.receipts("file")), world.state()["files"]) == ([DELETED] * 3, [])
    assert len(world.cancels()) == len([each for each in told if each[0] == "delete"]), "every call has its receipt"


@pytest.mark.parametrize("step", ["marked", "called", "settled"])
def test_a_worker_that_dies_around_the_cancellation_loses_no_file(world, step):
    class Killed(BaseException):
        pass

    def die(at: str) -> None:
        if at == step:
            raise Killed

    world.provider.seed(batches=["batch_1"])
    world.open("batch", "batch_1")
    world.bench.runtime.on_step = die
    with pytest.raises(Killed):
        drain(world.bench.runtime, "ai")
    world.bench.runtime.on_step = lambda at: None
    world.bench.later(600)
    world.bench.sweep()
    world.run()
    assert (world.receipts("file"), world.state()["files"]) == ([DELETED] * 3, [])
    assert world.receipts("batch")[-1] == ENDED
    assert len(world.cancels()) <= len([each for each in world.receipts("batch") if each[0] == "delete"])


def test_a_file_that_is_there_after_its_deletion_keeps_the_batch_open(world):
    world.provider.seed(batches={"batch_1": {"status": "completed"}})
    world.provider.modes(lingers=-1)
    world.open("batch", "batch_1")
    world.run(rounds=8)
    assert world.bench.entries()[0].state == "escalated"
    assert (world.receipts("batch"), world.is_complete) == ([], False)


def test_a_batch_that_vanishes_after_it_was_told_to_end_is_for_a_person(world):
    """Nothing removes a batch: its files are somewhere, and nobody says where."""
    world.provider.seed(batches=["batch_1"])
    world.provider.modes(cancelling=-1)
    world.open("batch", "batch_1")
    world.run(rounds=1)
    world.provider.project().batches.clear()
    world.run(rounds=2)
    assert world.receipts("batch")[1:] == [("verify", "unverifiable", "FilesUnknown")] * 2
    assert (world.bench.entry().state, world.is_complete) == ("escalated", False)


@pytest.mark.parametrize("kind", ["batch", "upload"])
def test_what_never_existed_is_absent_and_another_account_s_word_is_not(world, provider, kind):
    world.open(kind, f"{kind}_9")
    world.run()
    assert [status for _, status, _ in world.receipts(kind)] == ["already_absent"]
    with account(provider.base_url, key="sk-other-project", project="proj_demo") as eraser:
        assert erase(eraser, kind, f"{kind}_9").outcome is Outcome.WRONG_IDENTITY


def test_an_ended_target_gets_no_second_look_and_its_files_do(database, monkeypatch):
    with world_of(database, monkeypatch, verify_after=60.0) as world:
        world.provider.seed(batches={"batch_1": {"status": "completed"}}, uploads=["upload_1"])
        world.open("batch", "batch_1")
        world.open("upload", "upload_1")
        world.run()
        assert world.is_complete
        assert not [e for e in world.bench.entries() if e.kind != "file"]
        world.run(rounds=2)
        assert world.receipts("batch") == [ENDED]
        assert world.receipts("upload") == [("delete", "ended", None)]


def test_an_upload_is_cancelled_and_may_be_again(world):
    world.provider.seed(uploads=["upload_1"])
    world.provider.faults.add(Fault(Reply.DROP, path=CANCEL, acts=True))
    world.open("upload", "upload_1")
    world.run()
    assert world.receipts("upload") == [("delete", "unknown", "RemoteProtocolError"), ("delete", "ended", None)]
    assert detail_of(world.bench.receipts()[-1])["state"] == "cancelled"
    assert world.bench.receipts()[-1].operation == "POST /uploads/cancel"
    assert (world.state()["uploads"], world.is_complete) == ({"upload_1": "cancelled"}, True)


def test_a_completed_upload_is_an_honest_refusal_that_says_what_to_do(world):
    world.provider.seed(uploads={"upload_1": {"status": "completed"}})
    world.open("upload", "upload_1")
    world.run(rounds=2)
    assert world.receipts("upload") == [("delete", "failed", "NotCancelled")] * 2
    assert (world.bench.entry().state, world.bench.entry().reason) == ("escalated", "NotCancelled")
    detail = detail_of(world.bench.receipts()[0])
    assert detail["state"] == "completed"
    assert "erase that file" in detail["hint"]


@pytest.mark.parametrize(
    ("status", "body", "outcome", "error"),
    [
        (200, {"status": "cancelled"}, Outcome.ENDED, None),
        (200, {"status": "expired"}, Outcome.ENDED, None),
        (200, {"status": "completed", "file": {"id": "file-1"}}, Outcome.REFUSED, "UploadCompleted"),
        (200, {"status": "pending"}, Outcome.UNCONFIRMED, "NotCancelled"),
        (200, {"status": None}, Outcome.UNCONFIRMED, "NotCancelled"),
        (200, {"status": "cancelled", "id": "upload_11"}, Outcome.UNCONFIRMED, "OtherId"),
        (200, {"status": "cancelled", "object": "batch"}, Outcome.UNCONFIRMED, "MalformedObject"),
        (202, {"status": "cancelled"}, Outcome.UNCONFIRMED, "NotConfirmed"),
        (400, {"error": {"message": "Upload 'upload_1' has status 'expired'."}}, Outcome.REFUSED, "NotCancelled"),
        (409, {"error": {"message": "Upload 'upload_1' cannot be cancelled."}}, Outcome.REFUSED, "NotCancelled"),
        (400, {"error": {"message": "Bad id.", "code": "invalid_id"}}, Outcome.REFUSED, "invalid_id"),
        (404, {"error": {"message": "Invalid URL (POST /v1/uploads/upload_1/cancel)"}}, Outcome.REFUSED, "InvalidURL"),
    ],
)
def test_of_an_upload_only_what_the_answer_says(provider, status, body, outcome, error):
    told = body if "error" in body else {"id": "upload_1", "object": "upload", **body}
    provider.faults.add(Fault(Reply.JSON, path=CANCEL, status=status, body=told))
    with account(provider.base_url) as eraser:
        answer = erase(eraser, "upload", "upload_1")
    assert (answer.outcome, answer.error, answer.action) == (outcome, error, Action.DELETE)


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ({"id": "batch_2"}, "OtherId"),
        ({"object": None}, "MalformedObject"),
        ({"status": "deleted"}, "UnknownStatus"),
        ({"status": ["completed"]}, "UnknownStatus"),
        ({"input_file_id": None}, "MalformedObject"),
        ({"output_file_id": "../files"}, "MalformedObject"),
        ({"error_file_id": {"id": "file-1"}}, "MalformedObject"),
    ],
)
def test_a_batch_that_cannot_be_believed_closes_nothing_and_hides_no_file(provider, body, error):
    provider.seed(batches={"batch_1": {"status": "completed"}})
    provider.faults.add(Fault(Reply.TRUE, method="GET", path="/v1/batches/*", body=body))
    with account(provider.base_url) as eraser:
        answer = erase(eraser, "batch", "batch_1")
    assert (answer.outcome, answer.error, answer.action) == (Outcome.UNCONFIRMED, error, Action.LOOK)


@pytest.mark.parametrize(
    ("fault", "outcome"),
    [
        (Fault(Reply.ERROR, status=500), Outcome.UNAVAILABLE),
        (Fault(Reply.ERROR, status=404), Outcome.UNCONFIRMED),
        (Fault(Reply.PAGE, status=404), Outcome.UNCONFIRMED),
        (Fault(Reply.PAGE), Outcome.UNCONFIRMED),
        (Fault(Reply.JSON, body={"id": "file-other"}), Outcome.UNCONFIRMED),
        (Fault(Reply.DROP), Outcome.NO_ANSWER),
    ],
)
def test_a_batch_ends_only_when_each_file_is_seen_to_be_gone(provider, fault, outcome):
    provider.seed(batches={"batch_1": {"status": "completed"}})
    provider.project().files.clear()
    fault.method, fault.path, fault.times = "GET", "/v1/files/*", 1
    provider.faults.add(fault)
    with account(provider.base_url) as eraser:
        (answer,) = look(eraser, entry("batch", "batch_1", had_parts=True)).answers
        assert (answer.outcome, answer.action) == (outcome, Action.LOOK)
        provider.seed(files=["file-batch_1-input"])
        (parts,) = look(eraser, entry("batch", "batch_1", had_parts=True)).parts
        assert parts == Parts(parts.entry_id, [("file", "file-batch_1-input")])
        assert look(eraser, entry("batch", "batch_1"), seconds=-1).answers == []


def test_two_dates_claim_no_purge_of_what_has_ended():
    dates = TwoDates()
    ended = receipt("c", "batch_1", kind="batch", account="ai", status="ended")
    list(dates.reading([[asdict(ended)]]))
    (line,) = dates.lines()
    assert line.startswith("ai batch: ended on ")
    assert line.endswith("its record stays at the provider.")
