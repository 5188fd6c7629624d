"""Public reports of people who run workers over a broker, one test at least for each: the symptom, the thread, and what
is right. The broker is Valkey, the database PostgreSQL, and the workers are processes.

`EXPUNGE_CASES_ROWS=50000` makes the long queue of P18 as long as reported.
"""

import ast
import json
import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from chaos.conftest import World, make_world
from fleet import Fleet, Process
from servers.s3_stub import ACCESS_KEY, SECRET_KEY, S3Stub
from waiting import wait_for

import expunge.models
import expunge.tasks
import expunge.worker
from expunge.models import Target, open_case
from expunge.models.database import Database
from expunge.tasks.doorbell import Doorbell
from expunge.worker.check import STALE_SECONDS, Line, check_all
from expunge.worker.demo_provider import DemoProvider
from expunge.worker.demo_provider_faults import Fault, Reply

__all__ = ["make_world"]  # a fixture

ROWS = int(os.environ.get("EXPUNGE_CASES_ROWS", "1000"))
QUEUE = "expunge"
ALONE = ("-n", "w@test", "--without-gossip", "--without-mingle")
KEYS = {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY}


@pytest.fixture
def provider() -> Iterator[DemoProvider]:
    with DemoProvider() as running:
        yield running


@pytest.fixture
def make_fleet(tmp_path: Path, postgres_url: str, broker: Any) -> Iterator[Callable[..., Fleet]]:
    """`make_fleet(accounts, **settings)`."""
    with ExitStack() as stack:

        def make(accounts: Any, **settings: Any) -> Fleet:
            made = Fleet(tmp_path, postgres_url, broker, accounts, stack, **settings)
            stack.callback(made.database.close)
            return made

        yield make


def receipts(fleet: Fleet) -> list[Any]:
    with fleet.database.read() as tx:
        return list(tx.rows("SELECT * FROM erasure_record ORDER BY attempt, at"))


def test_p15_one_message_ten_times(make_fleet: Callable[..., Fleet], provider: DemoProvider, broker: Any) -> None:
    """A task that is not acknowledged within the visibility timeout, or whose ETA lies beyond it, is delivered to one
    worker after the other, and each does it: celery/kombu#337, celery/celery#2599, #2481, #3270, #7009 (received again
    every hour), #9663. Here: the very same message ten times, while the first one's call is still under way."""
    fleet = make_fleet({"ai": {"store": "openai", "base_url": provider.base_url}}, threads=10)
    provider.seed(files=["file-1"])
    provider.faults.add(Fault(Reply.HANG, method="DELETE", acts=True))
    doorbell = Doorbell(fleet.broker_url)
    fleet.open("c1", "file-1")
    doorbell.ring("ai")
    client = broker.client()
    wait_for(lambda: client.llen(QUEUE) == 1, what="the message")
    (message,) = client.lrange(QUEUE, 0, -1)
    # what waits, waits in the database: the message says neither when nor which row
    headers = json.loads(message)["headers"]
    assert (headers["eta"], headers["retries"]) == (None, 0)
    assert "file-1" not in str(message)
    again = json.loads(message)
    again["properties"]["delivery_info"]["redelivered"] = again["headers"]["redelivered"] = True
    client.lpush(QUEUE, *[json.dumps(again)] * 9)

    worker = fleet.start("worker", *ALONE)
    wait_for(lambda: client.llen(QUEUE) == 0, what="ten deliveries")
    wait_for(lambda: provider.log.lines("DELETE"), what="the call")
    provider.faults.release()
    fleet.await_complete("c1")
    assert worker.stop() == 0
    assert len(provider.log.lines("DELETE")) == 1
    assert [(row.status, row.attempt) for row in receipts(fleet)] == [("deleted", 1)]
    doorbell.close()
    client.close()


def _said_later(tree: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """Every ETA or countdown that a call or a dict of options names."""
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg is not None:
            yield node.arg, node.value
        elif isinstance(node, ast.Dict):
            yield from (
                (key.value, value)
                for key, value in zip(node.keys, node.values, strict=True)
                if isinstance(key, ast.Constant) and isinstance(key.value, str)
            )


MOST_COUNTDOWN = 5
NEVER = {"acks_late", "task_acks_late", "task_reject_on_worker_lost", "visibility_timeout", "autoretry_for"}
"""What makes a broker keep the state of our work."""


def _late(source: str) -> list[str]:
    found = []
    for name, value in _said_later(ast.parse(source)):
        seconds = value.value if isinstance(value, ast.Constant) else None
        soon = isinstance(seconds, int | float) and seconds <= MOST_COUNTDOWN
        if name in NEVER or (name in ("countdown", "eta") and not (soon and name == "countdown")):
            found.append(f"{name}={ast.unparse(value)}")
    return sorted(found)


def test_p15_nothing_of_ours_waits_in_a_broker() -> None:
    """The root of celery/kombu#337 and celery/celery#2599 is a wait of hours in a message: there is none in our code,
    nor any late acknowledgement; when to try again is a column."""
    assert _late("task.apply_async(countdown=3600)\nx = {'eta': now, 'a': 1}\nt.retry(countdown=wait)") == [
        "countdown=3600",
        "countdown=wait",
        "eta=now",
    ]
    assert _late("task.apply_async(countdown=2)") == []
    files = [
        file
        for package in (expunge.models, expunge.tasks, expunge.worker)
        for path in package.__path__
        for file in Path(path).rglob("*.py")
    ]
    sources = {file: file.read_text(encoding="utf-8") for file in files}
    assert any("send_task(" in source for source in sources.values()), "the lint sees the code that sends"
    assert {str(file): late for file, source in sources.items() if (late := _late(source))} == {}


@pytest.fixture
def world(make_world: Callable[[str], World], postgres_url: str) -> World:
    made = make_world(postgres_url)
    for name in ("plain", "old"):
        made.s3.bucket(name)
    return made


def open_one(world: World, account: str, kind: str, *locators: str, case: str = "c1") -> None:
    world.wanted |= set(locators)
    database = Database.open(world.url)
    with database.begin() as tx:
        open_case(tx.connection, case_id=case, subject="s", targets=[Target(account, kind, each) for each in locators])
    database.close()


def deletions(world: World) -> list[dict[str, Any]]:
    """The receipts of delete calls in their order; on a slow machine a look before them may have had no answer."""
    return sorted((row for row in world.receipts() if row["action"] == "delete"), key=lambda row: row["attempt"])


@pytest.mark.parametrize(
    ("step", "calls", "statuses"),
    [("marked", 1, ["unknown", "deleted"]), ("called", 2, ["unknown", "already_absent"])],
)
def test_p16_killed_around_its_call(world: World, step: str, calls: int, statuses: list[str]) -> None:
    """A worker that is killed (OOM) loses its task, or the task runs again as if nothing had been: celery/celery#1628,
    #3541, PR#3053. Here: killed before the call, and between the store's answer and the receipt. There is one more call
    at the most, and the lost attempt is told as what it is: unknown."""
    world.provider.seed(files=["file-1"])
    open_one(world, "ai", "file", "file-1")
    doomed = world.start("--threads", "1", "--lease", "2", "--kill", f"{step}:1")
    world.await_end(doomed, -signal.SIGKILL)
    (lost,) = world.left()
    assert lost["state"] == "calling"
    assert deletions(world) == []
    world.finish("--threads", "1", "--lease", "2", workers=1)
    world.check()
    told = deletions(world)
    assert [row["status"] for row in told] == statuses
    assert (told[0]["error"], told[0]["attempt"]) == ("Interrupted", lost["attempt"])
    assert told[1]["attempt"] > lost["attempt"]
    assert len(world.provider.log.lines("DELETE")) == calls


def test_p16_a_row_that_kills_every_worker_is_parked(world: World) -> None:
    """One task that ends its worker each time is delivered for ever, and nothing else is done: OasisLMF PR#975 (an
    endless loop of OOM kills), celery/celery#1628. Here: each worker dies in the call that names one key. After three
    deaths it is for a person, and all others are gone."""
    bucket = world.s3.bucket("plain")
    names = [f"k{number}" for number in range(11)]
    for name in [*names, "poison"]:
        bucket.put(name)
    workers = [world.start("--threads", "1", "--lease", "1.2")]

    def kill_who_asks_for_it() -> None:
        if "poison" in world.s3.log[-1]["keys"] and world.s3.log[-1]["operation"].startswith("DeleteObject"):
            bucket.put("poison")  # it never gets as far as to delete it
            workers[-1].kill()

    world.s3.trip = kill_who_asks_for_it  # type: ignore[assignment]
    open_one(world, "objects", "object", *(f"plain/{name}" for name in [*names, "poison"]))

    def is_parked() -> bool:
        if workers[-1].exitcode is not None:
            workers.append(world.start("--threads", "1", "--lease", "1.2"))
        left = world.left()
        return [(row["locator"], row["state"]) for row in left] == [("plain/poison", "escalated")]

    wait_for(is_parked, what="the row to be parked")
    deaths = len(workers) - 1
    # a slow machine may have seen the call time out before the worker died: that is another receipt
    assert 3 <= deaths <= 5
    assert [worker.exitcode for worker in workers] == [-signal.SIGKILL] * deaths + [None]
    world.end(workers[-1])
    told = [row for row in world.receipts() if row["locator"] == "plain/poison"]
    assert {row["status"] for row in told} == {"unknown"}
    assert Counter(row["error"] for row in told)["Interrupted"] == deaths
    assert not world.is_complete()
    assert {f"plain/{name}" for name in names} <= {
        row["locator"] for row in world.receipts() if row["status"] in ("deleted", "already_absent")
    }


def outbox_line(fleet: Fleet) -> Line:
    return next(line for line in check_all(str(fleet.settings)) if line.name == "outbox")


def test_p17_a_broker_that_lost_everything(
    make_fleet: Callable[..., Fleet], provider: DemoProvider, broker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After Redis was away a worker runs and takes nothing more, and answers every ping; what Redis lost is never done:
    celery/celery#8030, #8091, #8384, #4453, #10096, #10205; ethyca/fides#1517. Here: a worker that lives and hears
    nothing, and FLUSHALL. The age of the oldest due row tells it; after a restart everything is erased."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-demo")
    fleet = make_fleet({"ai": {"store": "openai", "base_url": provider.base_url, "project": "proj_demo"}})
    files = [f"file-{number}" for number in range(100)]
    provider.seed(files=files)
    deaf = fleet.start("worker", *ALONE, ready=" ready.")
    deaf.process.send_signal(signal.SIGSTOP)
    fleet.open("c1", *files)
    doorbell = Doorbell(fleet.broker_url)
    doorbell.ring("ai")
    doorbell.close(10)
    client = broker.client()
    client.flushall()
    assert client.dbsize() == 0
    assert outbox_line(fleet).ok, "it has not been due for long"
    with fleet.database.begin() as tx:
        tx.run("UPDATE erasure_outbox SET due_at = {now+ago}", ago=-STALE_SECONDS - 1)
    assert deaf.process.poll() is None
    told = outbox_line(fleet)
    assert told.ok is False
    assert told.text.startswith("100 entries due, the oldest for 301 s; 0 drains running")

    deaf.process.kill()
    fleet.beat()
    fleet.start("worker", *ALONE)
    fleet.await_complete("c1")
    assert Counter(row.status for row in receipts(fleet)) == {"deleted": 100}
    assert len(provider.log.lines("DELETE")) == 100
    assert outbox_line(fleet) == Line("outbox", True, "nothing is due")
    client.close()


def rss(process: Process) -> int:
    """Bytes of memory in use."""
    pages = int(Path(f"/proc/{process.process.pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


class CountingS3(S3Stub):
    """Counts the deletes that are under way at once."""

    under_way = most = 0

    def answer(self, request: Any) -> Any:
        if request.operation != "DeleteObjects":
            return super().answer(request)
        with self._mutex:
            self.under_way += 1
            self.most = max(self.most, self.under_way)
        try:
            return super().answer(request)
        finally:
            with self._mutex:
                self.under_way -= 1


@pytest.fixture
def counting() -> Iterator[CountingS3]:
    stub = CountingS3()
    thread = threading.Thread(target=stub.serve, daemon=True)
    thread.start()
    yield stub
    stub.close()
    thread.join()


@pytest.mark.timeout(180 + ROWS / 20)
def test_p18_a_long_queue_of_rows_that_fail(
    make_fleet: Callable[..., Fleet], counting: CountingS3, broker: Any
) -> None:
    """Every retry with an ETA is fetched and kept by the worker until it is due, whatever the prefetch limit, until the
    worker is out of memory: celery/celery#9849, #3640, #2541. Here: rows that always fail, each again and again. Those
    that wait cost the worker nothing, and no more are in its hands than it is told."""
    keys_per_call, concurrency, rounds = 100, 2, 3
    account = {
        "store": "s3",
        "endpoint_url": counting.url,
        "region": "us-east-1",
        "allow": ["b"],
        "keys_per_call": keys_per_call,
        "concurrency": concurrency,
    }
    fleet = make_fleet(
        {"objects": account}, refusals_before_escalation=1000, attempts_before_escalation=1000, retry_base_seconds=0.01
    )
    bucket = counting.bucket("b")
    keys = [f"k{number}" for number in range(ROWS)]
    for key in keys:
        bucket.put(key)
        bucket.key_errors[key] = ["AccessDenied*"]
    fleet.start("beat", **KEYS)
    worker = fleet.start("worker", *ALONE, **KEYS)
    fleet.open("c1", *(f"b/{key}" for key in keys), account="objects", kind="object")
    client = broker.client()
    held, queued = [], []

    def tried(times: int) -> bool:
        with fleet.database.read() as tx:
            (hands,) = tx.first("SELECT count(*) FROM erasure_outbox WHERE state IN ('leased', 'calling')") or (0,)
            (calls,) = tx.first("SELECT count(*) FROM erasure_record") or (0,)
        held.append(hands)
        queued.append(client.llen(QUEUE) + client.hlen("unacked"))
        return bool(calls >= times * ROWS)

    wait_for(lambda: tried(1), seconds=30 + ROWS / 100, what="the first round", pause=0.1)
    before = rss(worker)
    wait_for(lambda: tried(rounds), seconds=60 + ROWS / 50, what="the other rounds", pause=0.1)
    assert rss(worker) - before < 24 * 1024 * 1024
    assert 0 < max(held) <= concurrency * keys_per_call
    assert 0 < counting.most <= concurrency
    assert max(queued) <= 64, "doorbells, and not one for each row"
    assert {row.status for row in receipts(fleet)} == {"failed"}
    assert sorted(bucket.objects) == sorted(keys)
    client.close()


def test_p19_three_sweepers_over_a_thousand_rows(world: World) -> None:
    """Two schedulers at once, by a lock that was lost or never taken, run everything twice: sibson/redbeat#208, #238,
    #127, celery/celery#2856. Here no scheduler needs to be the only one: three processes sweep and drain at once."""
    bucket = world.s3.bucket("plain")
    names = [f"k{number}" for number in range(1000)]
    for name in names:
        bucket.put(name)
    sweepers = [world.start("--threads", "2", "--keys-per-call", "25", "--lease", "30") for _ in range(3)]
    open_one(world, "objects", "object", *(f"plain/{name}" for name in names))
    world.await_complete()
    for sweeper in sweepers:
        world.end(sweeper)
    called = Counter(key for call in world.s3.calls("DeleteObjects", "DeleteObject") for key in call["keys"])
    assert called == Counter(names)
    assert Counter(row["status"] for row in world.receipts()) == {"deleted": 1000}
    assert len({call["request_id"] for call in world.s3.calls("DeleteObjects")}) >= 1000 / 25
    world.check()
