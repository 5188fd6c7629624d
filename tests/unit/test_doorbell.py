"""The doorbell: the caller never waits, and what is sent is a lane and nothing else."""

import json
import threading
import time
from queue import Empty

import pytest
from kombu import Connection

from expunge.tasks import doorbell as module
from expunge.tasks.doorbell import DRAIN_TASK, QUEUE, Doorbell

MEMORY = "memory://localhost/"


@pytest.fixture
def queue():
    with Connection(MEMORY) as connection:
        simple = connection.SimpleQueue(QUEUE)
        simple.clear()
        yield simple
        simple.clear()
        simple.close()


@pytest.fixture
def doorbell():
    made = Doorbell(MEMORY)
    yield made
    made.close()


def drained(queue, doorbell) -> list:
    doorbell.close(timeout=10)
    messages = []
    while True:
        try:
            message = queue.get(block=False)
        except Empty:
            return messages
        message.ack()
        messages.append(message)


def lanes(messages) -> list[str]:
    return [json.loads(message.body)[0][0] for message in messages]


def test_a_message_names_the_lane_and_expires(queue, doorbell) -> None:
    doorbell.ring("artifacts")
    (message,) = drained(queue, doorbell)
    assert json.loads(message.body)[0] == ["artifacts"]
    assert json.loads(message.body)[1] == {}
    assert message.headers["task"] == DRAIN_TASK
    assert message.headers["expires"]
    assert message.headers["eta"] is None
    assert message.content_type == "application/json"


def test_ten_thousand_rings_of_a_host_are_a_few_messages(queue, doorbell) -> None:
    began = time.monotonic()
    for _ in range(10_000):
        doorbell({"artifacts", "openai_eu"})
    took = time.monotonic() - began
    heard = lanes(drained(queue, doorbell))
    assert set(heard) == {"artifacts", "openai_eu"}
    assert len(heard) <= 2 * (took / module.GAP_SECONDS + 3)
    assert took < 5


def test_every_ring_of_a_runtime_may_start_a_drain(queue, doorbell) -> None:
    for _ in range(4):
        doorbell.ring("artifacts")
    assert lanes(drained(queue, doorbell)) == ["artifacts"] * 4


def test_rings_of_one_lane_are_bounded(queue, doorbell, monkeypatch) -> None:
    monkeypatch.setattr(module, "MOST_RINGS", 5)
    monkeypatch.setattr(module, "MOST_LANES", 3)
    sending = threading.Event()
    monkeypatch.setattr(doorbell, "_publish", lambda lane: sending.wait(10))
    doorbell.ring("first")
    while doorbell._waiting:
        assert doorbell._thread is not None
    for _ in range(100):
        doorbell.ring("artifacts")
    for number in range(100):
        doorbell.ring(f"lane{number}")
    assert doorbell._waiting == {"artifacts": 5, "lane0": 1, "lane1": 1}
    sending.set()


def test_a_closed_doorbell_is_silent(queue, doorbell) -> None:
    doorbell.close()
    doorbell.ring("artifacts")
    assert drained(queue, doorbell) == []


def test_a_broker_that_is_away_costs_the_caller_nothing(monkeypatch, caplog) -> None:
    made = Doorbell("redis://127.0.0.1:1/0")
    attempts = []
    failed = threading.Event()
    publish = made._publish

    def counted(lane: str) -> None:
        attempts.append(lane)
        try:
            publish(lane)
        finally:
            failed.set()

    monkeypatch.setattr(made, "_publish", counted)
    began = time.monotonic()
    made.ring("artifacts")
    assert failed.wait(10)
    for _ in range(1000):
        made.ring("artifacts")
    assert time.monotonic() - began < 5
    made.close(timeout=5)
    # no storm: it is silent for a while after a failure
    assert attempts == ["artifacts"]
    assert [record for record in caplog.records if record.levelname not in ("DEBUG", "INFO")] == []


def test_a_broken_connection_is_made_anew_once(queue, doorbell, monkeypatch) -> None:
    doorbell.ring("first")
    while doorbell._used_at == 0.0:
        pass
    publish, broken = doorbell._publish, []

    def breaks_once(lane: str) -> None:
        if not broken:
            broken.append(lane)
            raise ConnectionError("broker restarted")
        publish(lane)

    monkeypatch.setattr(doorbell, "_publish", breaks_once)
    doorbell.ring("second")
    assert lanes(drained(queue, doorbell)) == ["first", "second"]
