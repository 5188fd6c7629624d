"""SQLite that another process has locked: no worker ends of it, and a command says so."""

import json
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
import sqlalchemy as sa
from click.testing import CliRunner
from commands import start
from rows import add_case, change_entries
from waiting import wait_for

from expunge.models import Target, database, open_case, schema
from expunge.models.database import Database, describe_trouble, is_locked, is_unreachable
from expunge.models.list_cases import read_case
from expunge.models.list_receipts import ReceiptFilter, list_receipts
from expunge.worker import run as running
from expunge.worker.cli import main
from expunge.worker.demo_provider import DemoProvider
from expunge.worker.demo_provider_faults import Fault, Reply
from expunge.worker.settings import Settings
from expunge.worker.signals import StopSignals

BUSY_SECONDS = 0.1
PROGRAM = (
    f"from expunge.models import database; database.SQLITE_BUSY_SECONDS = {BUSY_SECONDS};"
    "from expunge.worker.start import main; main()"
)


@contextmanager
def lock(path: Path, *, against_readers: bool = False) -> Iterator[sqlite3.Connection]:
    """Another connection's lock, until it is closed."""
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        if against_readers:
            connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        connection.execute("BEGIN EXCLUSIVE")
        yield connection
    finally:
        connection.close()


@pytest.fixture
def provider() -> Iterator[DemoProvider]:
    with DemoProvider() as running:
        yield running


class Place:
    """A folder with settings for a database that may not have tables yet."""

    def __init__(self, folder: Path, provider: DemoProvider) -> None:
        self.folder, self.path = folder, folder / "expunge.db"
        (folder / "expunge.toml").write_text(
            "sweep_seconds = 0.2\nretry_base_seconds = 0.1\nretry_max_seconds = 3\n"
            f'[accounts.ai]\nstore = "openai"\nbase_url = "{provider.base_url}"\n'
        )

    def up(self, *arguments: str) -> AbstractContextManager:
        return start("python", "-c", PROGRAM, "up", *arguments, cwd=self.folder)

    @contextmanager
    def database(self) -> Iterator[Database]:
        opened = Database.open(f"sqlite:///{self.path}")
        yield opened
        opened.close()

    def open(self, *files: str) -> None:
        with self.database() as opened:
            schema.migrate(opened)
            with opened.begin() as tx:
                targets = [Target("ai", "file", file) for file in files]
                open_case(tx.connection, case_id="c1", subject="u-1", targets=targets, nothing_found=not files)

    def state(self) -> str:
        with self.database() as opened, opened.read() as tx:
            return str(read_case(tx, "c1")["state"])


@pytest.fixture
def place(tmp_path: Path, provider: DemoProvider) -> Place:
    return Place(tmp_path, provider)


def _await_line(process, event: str) -> list[str]:
    """Read the log until this event; gives what came before."""
    lines = []
    for line in process.stderr:
        lines.append(line)
        if json.loads(line)["event"] == event:
            return lines
    raise AssertionError(f"it ended without {event}: {lines}")


def _end(process) -> str:
    """Read on to the end; the exit code must be 0."""
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    return err


@pytest.mark.parametrize("arguments", [("--until-idle",), ("--until-idle", "--timeout", "300", "--json")])
def test_up_waits_for_the_lock_to_make_its_tables(place, arguments) -> None:
    with lock(place.path) as held, place.up(*arguments) as process:
        _await_line(process, "database.locked")
        _await_line(process, "database.locked")
        held.execute("ROLLBACK")
        _end(process)
    with place.database() as opened:
        schema.require(opened)


def test_up_waits_for_whoever_lets_nobody_read(place) -> None:
    place.open()
    with lock(place.path, against_readers=True) as held, place.up("--until-idle") as process:
        _await_line(process, "database.locked")
        held.close()
        _end(process)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_wait_cleanly(place, number) -> None:
    with lock(place.path), place.up() as process:
        _await_line(process, "database.locked")
        process.send_signal(number)
        _end(process)


def test_the_timeout_ends_the_wait_and_the_lock_is_named(place) -> None:
    with lock(place.path), place.up("--timeout", "1") as process:
        _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert err.splitlines()[-1].startswith("Error: the database is locked by another process")


def test_up_needs_no_lock_to_find_its_tables_and_drains_when_it_is_free(place, provider) -> None:
    """Beats, sweeps and looks fail meanwhile, again and again."""
    provider.seed(files=["file-1"])
    place.open("file-1", "file-2")
    with lock(place.path) as held, place.up("--until-idle") as process:
        _await_line(process, "sweep.failed")
        _await_line(process, "sweep.failed")
        assert provider.log.lines("DELETE") == []
        held.execute("ROLLBACK")
        _end(process)
    assert place.state() == "complete"


def test_a_lock_between_call_and_settle_costs_no_receipt(place, provider) -> None:
    provider.seed(files=["file-1"])
    provider.faults.add(Fault(Reply.HANG, method="DELETE", times=1, acts=True))
    place.open("file-1")
    with place.up("--until-idle") as process:
        wait_for(lambda: provider.log.lines("DELETE"), what="the call")
        with lock(place.path):
            provider.faults.release()
            _await_line(process, "settle.repeated")
        _end(process)
    assert place.state() == "complete"
    with place.database() as opened:
        receipts = [row for page in list_receipts(opened, ReceiptFilter()) for row in page]
    assert len(receipts) == len(provider.log.lines("DELETE"))


def test_a_lock_in_mid_run_ends_nothing(place, provider) -> None:
    files = [f"file-{number}" for number in range(60)]
    provider.seed(files=files)
    place.open(*files)
    with place.up("--until-idle") as process:
        for calls in (1, 20, 40):
            wait_for(lambda calls=calls: len(provider.log.lines("DELETE")) >= calls, what=f"call {calls}")
            with lock(place.path):
                wait_for(lambda: "failed" in (line := process.stderr.readline()) or "repeated" in line, what="trouble")
        _end(process)
    assert place.state() == "complete"
    with place.database() as opened:
        receipts = [row["locator"] for page in list_receipts(opened, ReceiptFilter()) for row in page]
    assert sorted(receipts) == sorted(files)


class _Parked:
    """A worker that does nothing."""

    alive = True

    def __init__(self, settings: Settings, on_settled: object = None) -> None:
        self.runtime = SimpleNamespace(database=Database.open(settings.database_url))

    def __enter__(self) -> "_Parked":
        return self

    def __exit__(self, *_: object) -> None:
        self.runtime.database.close()

    def stopping(self) -> None: ...

    def stop(self) -> None: ...


class _Looks:
    """Looks of which the first few last ones meet a lock."""

    def __init__(self, failing: int) -> None:
        self.failing, self.last = failing, 0

    def __call__(self, _: Database, last: bool) -> None:
        self.last += last
        if last and self.last <= self.failing:
            raise locked()


@pytest.mark.parametrize("failing", [0, 1, 3])
def test_the_last_look_of_an_idle_run_waits_for_the_database(sqlite_url, monkeypatch, failing) -> None:
    """What is left, and the last receipts, are still to be told."""
    monkeypatch.setattr(running, "Embedded", _Parked)
    monkeypatch.setattr(running, "_is_idle", lambda settings, embedded: True)
    looks = _Looks(failing)
    with StopSignals() as signals:
        ran = running.run(Settings(database_url=sqlite_url), signals, until_idle=True, on_look=looks)
    assert (ran.ending, looks.last) == (running.Ending.IDLE, failing + 1)


@pytest.mark.parametrize("asked", [False, True], ids=["time is up", "asked to stop"])
def test_the_last_look_does_not_wait_for_ever(sqlite_url, monkeypatch, asked) -> None:
    monkeypatch.setattr(running, "Embedded", _Parked)
    looks = _Looks(1000)
    with StopSignals() as signals, pytest.raises(sa.exc.OperationalError):
        if asked:
            signal.raise_signal(signal.SIGTERM)
        running.run(Settings(database_url=sqlite_url), signals, timeout=60 if asked else 0.0, on_look=looks)
    assert looks.last == 1


def locked() -> sa.exc.OperationalError:
    """As a real one is raised."""
    error = sqlite3.OperationalError("database is locked")
    error.sqlite_errorcode = sqlite3.SQLITE_BUSY
    return sa.exc.OperationalError("BEGIN IMMEDIATE", {}, error)


WRITE = [
    ("erase", "--subject", "u-2", "--nothing-found"),
    ("retry", "1"),
    ("waive", "1", "--by", "d", "--why", "w"),
    ("pause", "ai"),
    ("resume", "ai"),
]
READ = [("cases",), ("cases", "c1", "--json"), ("receipts", "--csv"), ("outbox",), ("check",), ("migrate",)]


@pytest.fixture
def command(place, monkeypatch):
    """Runs one command beside the lock."""
    monkeypatch.setattr(database, "SQLITE_BUSY_SECONDS", BUSY_SECONDS)
    monkeypatch.chdir(place.folder)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-demo")
    with place.database() as opened:
        schema.migrate(opened)
        change_entries(
            opened, add_case(opened, "c1", ["file-1"], account="ai", kind="file"), state="escalated", reason="x"
        )

    def run_it(*arguments: str, against_readers: bool = False):
        with lock(place.path, against_readers=against_readers):
            return CliRunner().invoke(main, arguments)

    return run_it


@pytest.mark.parametrize("arguments", WRITE, ids=" ".join)
def test_a_command_that_writes_says_that_it_is_locked(command, arguments) -> None:
    result = command(*arguments)
    assert result.stderr.splitlines() == [
        "Error: the database is locked by another process: try again when that is done, or end it"
    ]
    assert (result.exit_code, result.stdout) == (1, "")


@pytest.mark.parametrize("arguments", READ, ids=" ".join)
def test_a_command_that_reads_reads(command, arguments) -> None:
    result = command(*arguments)
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize("arguments", READ, ids=" ".join)
def test_a_command_that_may_not_even_read_says_so(command, arguments) -> None:
    result = command(*arguments, against_readers=True)
    assert result.exit_code == 1
    assert "locked by another process" in " ".join(result.output.split())


def test_a_real_lock_is_known_as_one(place, monkeypatch) -> None:
    monkeypatch.setattr(database, "SQLITE_BUSY_SECONDS", BUSY_SECONDS)
    place.open()
    caught = pytest.raises(sa.exc.OperationalError)
    with place.database() as opened, lock(place.path), caught as error, opened.begin():
        pass
    assert is_locked(error.value)
    assert is_unreachable(error.value)
    assert is_locked(locked())


@pytest.mark.parametrize("url", ["sqlite:////no/such/folder/x.db", "postgresql+psycopg://u:hunter2@127.0.0.1:1/d"])
def test_other_trouble_is_no_lock(url) -> None:
    opened = Database.open(url)
    with pytest.raises(sa.exc.OperationalError) as caught, opened.begin():
        pass
    assert not is_locked(caught.value)
    assert describe_trouble(caught.value).startswith("cannot be used: ")
    assert "hunter2" not in describe_trouble(caught.value)
    opened.close()
