"""What a worker tells Prometheus, and what `expunge check` says of sweeps and lanes where nothing is erased."""

import json
import socket
import subprocess
import sys
import time
import urllib.request
from dataclasses import asdict
from datetime import timedelta

import pytest
import sqlalchemy as sa
from click.testing import CliRunner
from commands import start
from doubles.running import Bench
from rows import NOW, add_case, add_receipts, change_entries, receipt
from waiting import wait_for

from expunge.models.database import Database
from expunge.models.errors import ConfigurationError
from expunge.models.gauges import last_sweep, read_gauges, stuck_lanes, within
from expunge.models.lanes import ensure_lane, pause_lane
from expunge.models.states import ReceiptStatus
from expunge.models.tables import ErasureRecord
from expunge.tasks.erasers.contract import utc_now
from expunge.tasks.outcomes import Outcome
from expunge.worker.cli import main
from expunge.worker.metrics import LANE_UNKNOWN, Metrics, MetricsServer, serving_metrics
from expunge.worker.settings import Settings


class Clock:
    """Of the cache."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def scraped(metrics: Metrics) -> dict[tuple[str, ...], float]:
    """Every sample by its name and the values of its labels."""
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in metrics.registry.collect()
        for sample in family.samples
    }


@pytest.fixture
def bench(database):
    return Bench(database, accounts=("mem", "other"))


def test_how_the_database_stands(bench):
    bench.open("b/1", "b/2")
    bench.open("b/3", case="c2", account="other")
    bench.open("b/4", case="c3", account="nobody")
    change_entries(bench.database, [e.id for e in bench.entries(locator="b/2")], state="held")
    change_entries(bench.database, [e.id for e in bench.entries(account="other")], state="escalated", reason="X")
    with bench.database.begin() as tx:
        ensure_lane(tx, "mem")
        ensure_lane(tx, "other", "bucket")
        pause_lane(tx, "mem", by="operator", seconds=60, reason="r")
        pause_lane(tx, "other", "bucket", by="breaker", seconds=60, reason="r")
        tx.run("UPDATE erasure_case SET due_at = {now+ago} WHERE id = 'c2'", ago=-60.0)
    bench.later(100)
    found = scraped(Metrics(bench.database, bench.stores))
    assert found["expunge_database_up",] == 1
    assert found["expunge_entries", "mem", "ready"] == found["expunge_entries", "mem", "held"] == 1
    assert found["expunge_entries", "mem", "leased"] == 0
    assert found["expunge_entries", "other", "escalated"] == 1
    assert found["expunge_entries", LANE_UNKNOWN, "ready"] == 1
    assert 100 <= found["expunge_oldest_due_seconds", "mem"] < 160
    assert found["expunge_oldest_due_seconds", "other"] == 0
    assert found["expunge_lane_last_success_seconds", "mem"] == 3600
    assert ("expunge_lane_last_success_seconds", "other") not in found
    assert found["expunge_lane_paused", "mem", "operator"] == 1
    assert found["expunge_lane_paused", "mem", "breaker"] == found["expunge_lane_paused", "other", "breaker"] == 0
    assert found["expunge_buckets_paused", "other", "breaker"] == 1
    assert found["expunge_sweep_age_seconds",] == float("inf")
    states = [found["expunge_cases", state] for state in ("open", "overdue", "held")]
    assert states == [3, 1, 1]


def test_what_a_process_settles_is_counted_once_a_receipt_and_once_a_call(bench):
    metrics = Metrics(bench.database, bench.stores)
    bench.runtime.on_settled = metrics.settled
    bench.store.put("b/1", "b/2")
    bench.store.script("b/3", {"outcome": Outcome.REFUSED})
    bench.open("b/1", "b/2", "b/3", "b/4")
    bench.drain()
    found = scraped(metrics)
    assert found["expunge_receipts_total", "mem", "deleted"] == 2
    assert found["expunge_receipts_total", "mem", "already_absent"] == 1
    assert found["expunge_receipts_total", "mem", "failed"] == 1
    assert found["expunge_call_seconds_count", "mem", "Delete"] >= 1
    assert found["expunge_oldest_due_seconds", "mem"] == 0
    at = {"called_at": NOW - timedelta(seconds=3), "at": NOW}
    metrics.settled("other", [receipt("c", f"b/{n}", **at) for n in range(9)])
    metrics.settled("other", [receipt("c", "b", called_at=NOW + timedelta(seconds=9), at=NOW)])  # a clock set back
    found = scraped(metrics)
    assert found["expunge_receipts_total", "other", "deleted"] == 10
    assert found["expunge_call_seconds_count", "other", "DeleteObjects"] == 2
    assert found["expunge_call_seconds_sum", "other", "DeleteObjects"] == 3


def test_receipts_of_the_sweep_are_counted(bench):
    metrics = Metrics(bench.database, bench.stores)
    bench.runtime.on_settled = metrics.settled
    bench.open("b/1")
    change_entries(bench.database, [bench.entry().id], state="calling")
    bench.sweep()
    assert scraped(metrics)["expunge_receipts_total", "mem", "unknown"] == 1


def test_a_counter_that_fails_stops_nothing(bench):
    bench.runtime.on_settled = lambda account, receipts: 1 / 0
    bench.store.put("b/1")
    bench.open("b/1")
    bench.drain()
    assert bench.statuses() == ["deleted"]


def test_the_last_success_of_a_lane_with_due_entries(bench):
    add_receipts(bench.database, [receipt("c0", "b/0", account="mem", status="already_absent")])
    bench.later(200)
    bench.open("b/1")
    assert 200 <= scraped(Metrics(bench.database, bench.stores))["expunge_lane_last_success_seconds", "mem"] < 260


def test_a_lane_between_two_tries_is_told_all_the_same(bench):
    """With back-off an entry is due for moments only: a scrape would never see a lane where all is refused."""
    bench.store.put("b/1")
    bench.store.always["b/1"] = Outcome.UNAVAILABLE
    bench.open("b/1")
    add_receipts(bench.database, [receipt("c0", "b/0", account="other")])
    for _ in range(3):
        bench.drain()
        found = scraped(Metrics(bench.database, bench.stores))
        assert found["expunge_oldest_due_seconds", "mem"] == 0
        assert found["expunge_lane_last_success_seconds", "mem"] == 3600
        assert ("expunge_lane_last_success_seconds", "other") not in found
        bench.later(3700)


def test_what_waits_for_a_second_look_only_is_nothing_to_erase(bench):
    bench.open("b/1")
    change_entries(bench.database, [bench.entry().id], action="verify", settled=True)
    assert ("expunge_lane_last_success_seconds", "mem") not in scraped(Metrics(bench.database, bench.stores))


def test_every_count_begins_at_nothing(bench):
    """Prometheus sees no increase in a series that is there from its first receipt on: the first `present` of a worker
    would alarm nobody."""
    metrics = Metrics(bench.database, bench.stores)
    before = scraped(metrics)
    for status in ReceiptStatus:
        for lane in bench.stores:
            assert before.get(("expunge_receipts_total", lane, status)) == (None if status == "waived" else 0)
    metrics.settled("mem", [receipt("c", "b/1", status="present", action="verify", called_at=NOW)])
    assert scraped(metrics)["expunge_receipts_total", "mem", "present"] == 1


def test_no_label_is_a_subject_a_locator_or_a_word_of_a_stranger(bench):
    metrics = Metrics(bench.database, bench.stores)
    bench.open("b/secret")
    change_entries(bench.database, [bench.entry().id], account="someone@example.com")
    metrics.settled("someone@example.com", [receipt("c", "b/secret", called_at=NOW, operation="GET /b/secret?x=1")])
    metrics.settled("mem", [receipt("c", "b", called_at=NOW, operation=f"op{n}") for n in range(200)])
    text = str(scraped(metrics))
    assert "secret" not in text
    assert "example.com" not in text
    operations = {key[2] for key in scraped(metrics) if key[0] == "expunge_call_seconds_count"}
    assert len(operations) == 101


def test_the_database_is_read_once_for_many_scrapes(bench):
    clock = Clock()
    metrics = Metrics(bench.database, bench.stores, clock)
    assert scraped(metrics)["expunge_entries", "mem", "ready"] == 0
    bench.open("b/1")
    clock.now = 4.9
    assert scraped(metrics)["expunge_entries", "mem", "ready"] == 0
    clock.now = 5.1
    assert scraped(metrics)["expunge_entries", "mem", "ready"] == 1


def test_a_database_that_is_away_fails_no_scrape():
    metrics = Metrics(Database.open("postgresql+psycopg://u@127.0.0.1:1/d"), ["mem"])
    metrics.settled("mem", [receipt("c", "b/1")])
    found = scraped(metrics)
    assert found["expunge_database_up",] == 0
    assert found["expunge_receipts_total", "mem", "deleted"] == 1
    assert not any(name[0] == "expunge_entries" for name in found)


def test_missing_tables_fail_no_scrape(tmp_path):
    database = Database.open(f"sqlite:///{tmp_path}/x.db")
    assert scraped(Metrics(database, ["mem"]))["expunge_database_up",] == 0
    database.close()


def test_a_statement_that_takes_too_long_is_ended(database):
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
    began = time.monotonic()
    with pytest.raises(sa.exc.OperationalError), database.read() as tx, within(tx, 0.2):
        tx.rows(endless)
    assert time.monotonic() - began < 10
    with database.read() as tx:  # the limit was that transaction's
        assert tx.rows("SELECT 1 AS one")[0].one == 1
        read_gauges(tx, ["mem"])


def test_a_sweep_writes_when_it_ran(bench):
    with bench.database.read() as tx:
        assert last_sweep(tx).ended_at is None
    bench.sweep()
    bench.later(77)
    bench.open("b/1")
    with bench.database.read() as tx:
        swept = last_sweep(tx)
    assert swept.age_seconds is not None
    assert 77 <= swept.age_seconds < 120
    assert 77 <= scraped(Metrics(bench.database, bench.stores))["expunge_sweep_age_seconds",] < 120
    bench.sweep()
    with bench.database.read() as tx:
        assert (last_sweep(tx).age_seconds or 0) < 60


def test_a_sweep_that_fails_on_its_way_did_not_run(bench, monkeypatch):
    monkeypatch.setattr("expunge.tasks.sweep.send_notices", lambda runtime: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        bench.sweep()
    with bench.database.read() as tx:
        assert tx.rows("SELECT started_at FROM erasure_sweep")
        assert last_sweep(tx).ended_at is None


def stuck(bench: Bench) -> list[tuple[str, int]]:
    with bench.database.read() as tx:
        return [(lane.account, lane.calls) for lane in stuck_lanes(tx, 300)]


def test_p23_a_lane_where_nothing_is_ever_erased_is_seen(bench):
    """A job reports success with delete_count 0, for months (GitLab #362841; mozilla/bigquery-etl#1431: always 0 rows
    deleted): a lane whose calls come to nothing is told, one that works, waits or was paused on purpose is not."""
    bench.store.put("b/1")
    bench.store.always["b/1"] = Outcome.UNAVAILABLE
    bench.open("b/1")
    bench.open("b/1", case="c2", account="other")
    bench.drain()
    assert stuck(bench) == []  # not yet old
    bench.later(301)
    assert stuck(bench) == [("mem", 1)]  # `other` was not called: that is the outbox line's
    add_receipts(bench.database, [receipt("c9", "b/9", account="mem", called_at=NOW)])
    assert stuck(bench) == []
    bench.later(3700)
    assert stuck(bench) == []  # nobody calls any more
    bench.later(-3700)
    bench.open("b/1", case="c3", account="late")
    with bench.database.begin() as tx:
        tx.run("UPDATE erasure_outbox SET created_at = {now+ago} WHERE case_id = 'c3'", ago=-9000.0)
        for ago, status in ((-4000.0, "deleted"), (-3000.0, "failed")):
            written = asdict(receipt("c3", "b/1", account="late", status=status, called_at=NOW))
            written |= {"recorded_at": utc_now() + timedelta(seconds=ago), "error": "X" if status == "failed" else None}
            tx.connection.execute(sa.insert(ErasureRecord), written)
    assert stuck(bench) == [("late", 1)]  # its success is long ago
    with bench.database.begin() as tx:
        ensure_lane(tx, "late")
        pause_lane(tx, "late", by="operator", seconds=0, reason="moved")
    assert stuck(bench) == []


def test_p23_the_check_names_lane_sweep_and_oldest_entry(database, database_url, tmp_path, monkeypatch):
    """Nothing sweeps and nothing is erased, and nobody is told (GitLab #600628: a cron that was missing)."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "expunge.toml").write_text(f'database_url = "{database_url}"\n')

    def lines() -> dict[str, tuple[bool | None, str]]:
        said = CliRunner().invoke(main, ["check", "--json"]).stdout.splitlines()
        return {line["name"]: (line["ok"], line["text"]) for line in map(json.loads, said)}

    assert lines()["sweep"][0] is None  # never, and nothing to sweep for
    oldest, _ = add_case(database, "c", ["b/1", "b/2"])
    with database.begin() as tx:
        tx.run("UPDATE erasure_outbox SET created_at = {now+ago}, due_at = {now+ago}", ago=-900.0)
        tx.run("UPDATE erasure_outbox SET due_at = {now+ago} WHERE id = :id", ago=-901.0, id=oldest)
    add_receipts(database, [receipt("c", "b/1", status="failed", error="AccessDenied", called_at=NOW)])
    said = lines()
    assert said["sweep"] == (False, "has never run: is there a worker, and a beat?")
    assert f"the oldest is entry {oldest}" in said["outbox"][1]
    assert said["lane artifacts"][0] is False
    assert "nothing is ever erased: 1 answer within an hour" in said["lane artifacts"][1]
    with database.begin() as tx:
        tx.run("INSERT INTO erasure_sweep (name, started_at, ended_at) VALUES ('sweep', {now}, {now})")
    assert lines()["sweep"][0] is True
    with database.begin() as tx:
        tx.run("UPDATE erasure_sweep SET ended_at = {now+ago}", ago=-61.0)
    ok, text = lines()["sweep"]
    assert ok is False
    assert text.endswith("is there a worker, and a beat?")


def settings_for(url: str, port: int) -> Settings:
    return Settings(database_url=url, metrics_port=port)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


def fetched(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text: str = answer.read().decode()
    return text


def test_served_until_closed(sqlite_url):
    port = free_port()
    with serving_metrics(settings_for(sqlite_url, port)) as served:
        served.settled("nobody", [receipt("c", "b/1")])
        text = fetched(port)
        assert "expunge_database_up 1.0" in text
        assert 'expunge_receipts_total{lane="(not in the settings)",status="deleted"} 1.0' in text
    with pytest.raises(OSError):
        fetched(port)


def test_without_a_port_nothing_listens(sqlite_url):
    with serving_metrics(Settings(database_url=sqlite_url)) as served:
        assert served.metrics is None
        served.settled("mem", [receipt("c", "b/1")])


def test_up_refuses_a_port_that_is_taken(sqlite_url, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EXPUNGE_DATABASE_URL", sqlite_url)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigurationError, match=f"port {port}"):
            MetricsServer(settings_for(sqlite_url, port))
        result = CliRunner().invoke(main, ["up", "--metrics-port", str(port), "--until-idle"])
    assert result.exit_code == 1
    assert f"metrics_port: cannot listen on 127.0.0.1, port {port}" in result.stderr


def test_a_celery_worker_goes_on_without_the_port_that_it_cannot_have(tmp_path, sqlite_url, valkey_url):
    """In a process of its own, since the app is made at import."""
    code = (
        "import expunge.worker.app as a\n"
        "a._begin()\n"
        "print(len(a.served), a.runtime.get().on_settled == (a.served[0].settled if a.served else None))\n"
        "a._end()\n"
    )
    with socket.create_server(("127.0.0.1", 0)) as taken:
        told = {}
        for name, port in (("taken", taken.getsockname()[1]), ("free", free_port())):
            environment = {
                "PATH": "/usr/bin:/bin",
                "EXPUNGE_DATABASE_URL": sqlite_url,
                "EXPUNGE_BROKER_URL": valkey_url,
                "EXPUNGE_METRICS_PORT": str(port),
            }
            told[name] = subprocess.run(
                [sys.executable, "-c", code], env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=60
            )
    assert told["free"].stdout == "1 True\n", told["free"].stderr
    assert told["taken"].stdout == "0 False\n", told["taken"].stderr
    assert '"event": "metrics.not_served"' in told["taken"].stderr
    assert "metrics_port: cannot listen" in told["taken"].stderr


def test_up_serves_them_while_it_works(sqlite_url, tmp_path):
    port = free_port()

    def served() -> str:
        try:
            return fetched(port)
        except OSError:
            return ""  # not yet

    # a process of its own: Celery's tasks have their names once in a process
    with start("expunge", "up", "--metrics-port", str(port), cwd=tmp_path, EXPUNGE_DATABASE_URL=sqlite_url) as process:
        wait_for(lambda: "expunge_database_up 1.0" in served(), what="the metrics of up")
        process.terminate()
        assert process.wait(timeout=30) == 0
    assert served() == ""
