"""A fleet: Celery's own workers and beats, as they are deployed, over Valkey and PostgreSQL."""

import json
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from commands import run, start
from fleet import CELERY, Fleet, Process, url_of, write_settings
from kombu import Connection
from waiting import wait_for

from expunge.models import bell
from expunge.models.list_receipts import ReceiptFilter, list_receipts
from expunge.tasks.doorbell import Doorbell
from expunge.worker.demo_provider import DemoProvider
from expunge.worker.demo_provider_faults import Fault, Reply


@pytest.fixture
def provider() -> Iterator[DemoProvider]:
    with DemoProvider() as running:
        yield running


@pytest.fixture
def fleet(tmp_path, postgres_url, broker, provider) -> Iterator[Fleet]:
    with ExitStack() as stack:
        accounts = {"ai": {"store": "openai", "base_url": provider.base_url}}
        made = Fleet(tmp_path, postgres_url, broker, accounts, stack)
        yield made
        made.database.close()


def test_a_fleet_of_workers_and_beats_does_it_all_once(fleet, provider) -> None:
    provider.seed(files=[f"file-{number}" for number in range(60)])
    everybody = [fleet.worker("w1"), fleet.worker("w2"), fleet.beat(), fleet.beat()]
    fleet.open("c1", *(f"file-{number}" for number in range(60)))
    fleet.await_complete("c1")
    assert len(provider.log.lines("DELETE")) == 60
    receipts = [row for page in list_receipts(fleet.database, ReceiptFilter()) for row in page]
    assert [row["status"] for row in receipts] == ["deleted"] * 60
    # threads, not processes
    assert [_children(process) for process in everybody] == [""] * 4

    assert [process.stop() for process in everybody] == [0, 0, 0, 0]
    # beat keeps no schedule, nobody leaves a file
    assert list(fleet.cwd.iterdir()) == []
    logged = [line for process in everybody for line in process.lines]
    assert any('"call.settled"' in line for line in logged)
    for line in logged:
        json.loads(line)
        assert "file-" not in line
        assert "u-1" not in line


def _children(process: Process) -> str:
    pid = process.process.pid
    return Path(f"/proc/{pid}/task/{pid}/children").read_text()


def test_the_doorbell_is_quicker_than_the_sweep(fleet, provider) -> None:
    fleet.worker()
    doorbell = Doorbell(fleet.broker_url)
    bell.hang(doorbell)
    for number in range(5):
        fleet.open(f"c{number}", f"file-{number}")
    for number in range(5):
        # there is no beat: nothing but the doorbell says it
        fleet.await_complete(f"c{number}")
    doorbell.close()


HOST = """
import sys
import threading
import sqlalchemy
from expunge.models import Target, open_case

engine = sqlalchemy.create_engine(sys.argv[1])
with engine.begin() as connection:
    open_case(connection, case_id="c1", subject="s", targets=[Target("ai", "file", "file-1")])
print("committed", flush=True)
threading.Event().wait(60)
"""


def test_a_host_rings_by_itself(fleet) -> None:
    """Its process knows nothing but the settings; there is no beat."""
    fleet.worker()
    config = {"EXPUNGE_CONFIG": str(fleet.settings)}
    with start("python", "-c", HOST, str(fleet.database.engine.url), cwd=fleet.cwd, **config) as host:
        assert host.stdout.readline() == "committed\n"
        fleet.await_complete("c1")
        host.kill()
        assert host.communicate() == ("", "")


def test_the_command_line_rings_before_it_ends(fleet) -> None:
    fleet.worker()
    targets = fleet.folder / "targets.jsonl"
    targets.write_text('{"account": "ai", "kind": "file", "locator": "file-1"}\n')
    run("expunge", "--config", fleet.settings, "erase", "--case", "c1", "--subject", "s", targets, cwd=fleet.cwd)
    fleet.await_complete("c1")


def test_a_broker_that_loses_everything_and_every_connection(fleet, broker) -> None:
    fleet.worker()
    fleet.beat()
    fleet.open("c1", "file-1")
    fleet.await_complete("c1")
    client = broker.client()
    client.flushall()
    client.client_kill_filter(_type="normal", skipme=True)
    client.client_kill_filter(_type="pubsub")
    client.close()
    fleet.open("c2", "file-2")
    fleet.await_complete("c2")


def test_a_broker_that_is_restarted(fleet, broker) -> None:
    worker, beat = fleet.worker(), fleet.beat()
    fleet.open("c1", "file-1")
    fleet.await_complete("c1")
    broker.stop()
    fleet.open("c2", "file-2")
    broker.start()
    broker.wait_until_ready()
    fleet.await_complete("c2", seconds=60)
    assert (worker.process.poll(), beat.process.poll()) == (None, None)


def test_messages_that_make_no_sense_harm_nobody(fleet) -> None:
    worker = fleet.worker()
    with Connection(fleet.broker_url) as connection:
        queue = connection.SimpleQueue("expunge")
        queue.put("{not json", content_type="application/json", content_encoding="utf-8")
        queue.put(b"\x80\x04", content_type="application/x-python-serialize", content_encoding="binary")
        queue.put({"x": 1})
        queue.close()
    doorbell = Doorbell(fleet.broker_url)
    for lane in ("nobody_knows_me", "not a lane", ""):
        doorbell.ring(lane)
    wait_for(lambda: worker.says("lane.unknown") and worker.says("doorbell.not_a_lane"), what="the warnings")
    fleet.open("c1", "file-1")
    doorbell.ring("ai")
    fleet.await_complete("c1")
    doorbell.close()


def test_asked_to_stop_a_worker_settles_its_call(fleet, provider) -> None:
    worker = fleet.worker()
    provider.faults.add(Fault(Reply.HANG, method="DELETE", times=1))
    doorbell = Doorbell(fleet.broker_url)
    fleet.open("c1", *(f"file-{number}" for number in range(30)))
    with fleet.database.begin() as tx:
        tx.run("UPDATE erasure_outbox SET due_at = {now+more} WHERE id > 10", more=3600.0)
    doorbell.ring("ai")
    wait_for(lambda: [line for line in provider.log.lines("DELETE") if line["fault"]], what="the call that hangs")
    worker.process.send_signal(signal.SIGTERM)
    wait_for(lambda: worker.process.poll() is None and _stops(worker), what="the signal")
    provider.faults.release()
    assert worker.process.wait(timeout=30) == 0
    with fleet.database.read() as tx:
        states = {row.state for row in tx.rows("SELECT DISTINCT state FROM erasure_outbox")}
    assert states == {"ready"}
    doorbell.close()


def _stops(worker: Process) -> bool:
    """Whether no signal is pending for the process any more."""
    status = Path(f"/proc/{worker.process.pid}/status").read_text()
    pending = next(line for line in status.splitlines() if line.startswith("ShdPnd"))
    return int(pending.split()[1], 16) == 0


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ("lease_seconds = 0", "lease_seconds: must be greater than 0"),
        ("", "broker_url is memory://"),
        ('broker_url = "redis://127.0.0.1:1"\nwebhook_url = "https://x"\nwebhook_secret_env = "NO"', "NO is not set"),
    ],
)
def test_wrong_settings_end_a_worker_with_one_line(tmp_path, settings, said) -> None:
    (tmp_path / "expunge.toml").write_text(settings)
    done = run(*CELERY, "worker", cwd=tmp_path, code=1)
    assert said in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_tables_that_are_missing_end_a_worker_with_one_line(tmp_path, empty_postgres_url, valkey_url) -> None:
    (tmp_path / "expunge.toml").write_text(f'database_url = "{empty_postgres_url}"\nbroker_url = "{valkey_url}"')
    done = run(*CELERY, "worker", cwd=tmp_path, code=1)
    *warnings, last = done.stderr.strip().splitlines()
    assert last == "expunge: the database has no Expunge tables yet: run expunge migrate"
    # Celery warns when it is run by root
    assert {json.loads(line)["logger"] for line in warnings} <= {"py.warnings"}


def test_a_database_that_is_away_does_not_end_a_worker(tmp_path, broker) -> None:
    away = "postgresql+psycopg://u:hunter2@127.0.0.1:1/d"
    write_settings(tmp_path / "expunge.toml", database=away, broker=broker, accounts={"ai": {"store": "openai"}})
    with start(*CELERY, "worker", cwd=tmp_path) as process:
        worker = Process(process)
        wait_for(lambda: worker.says(" ready."), what="the worker", seconds=60)
        doorbell = Doorbell(url_of(broker))
        doorbell.ring("ai")
        wait_for(lambda: worker.says("drain.failed"), what="the failure to be logged")
        assert process.poll() is None
        assert worker.stop() == 0
        assert not worker.says("hunter2")
        doorbell.close()


def test_ten_doubled_doorbells_are_one_call(fleet, provider) -> None:
    fleet.worker("w1")
    fleet.worker("w2")
    fleet.open("c1", "file-1")
    doorbell = Doorbell(fleet.broker_url)
    for _ in range(10):
        doorbell.ring("ai")
    fleet.await_complete("c1")
    doorbell.close(10)
    began = time.monotonic()
    with Connection(fleet.broker_url) as connection:
        wait_for(lambda: connection.default_channel.client.llen("expunge") == 0, what="an empty queue")
    assert time.monotonic() - began < 30
    assert len(provider.log.lines("DELETE")) == 1
