"""expunge up: worker and beat in one process."""

import json
import signal
import subprocess
from pathlib import Path

import pytest
from commands import run, start
from waiting import wait_for

from expunge.models import Target, open_case
from expunge.models.database import Database
from expunge.models.keyset import RowDict
from expunge.models.lanes import ensure_lane
from expunge.models.list_cases import read_case
from expunge.models.list_outbox import EntryFilter, list_entries
from expunge.models.list_receipts import RECEIPT_COLUMNS, ReceiptFilter, list_receipts
from expunge.worker.demo_provider import DemoProvider
from expunge.worker.demo_provider_faults import Fault, Reply


@pytest.fixture
def provider():
    with DemoProvider() as running:
        yield running


class Place:
    """A folder with settings, and a look into its database."""

    def __init__(self, folder, url: str, provider: DemoProvider, settings: str = "") -> None:
        self.folder = folder
        self.database = Database.open(url)
        (folder / "expunge.toml").write_text(
            f'database_url = "{url}"\nsweep_seconds = 0.3\nretry_base_seconds = 0.2\nretry_max_seconds = 3\n'
            f"{settings}\n"
            f'[accounts.ai]\nstore = "openai"\nbase_url = "{provider.base_url}"\n'
        )

    def open(self, *files: str, case: str = "c1") -> None:
        with self.database.begin() as tx:
            targets = [Target("ai", "file", file) for file in files]
            open_case(tx.connection, case_id=case, subject="u-1", targets=targets)

    def entries(self) -> list[RowDict]:
        return [row for page in list_entries(self.database, EntryFilter()) for row in page]

    def receipts(self) -> list[RowDict]:
        return [row for page in list_receipts(self.database, ReceiptFilter()) for row in page]

    def case(self, case: str = "c1") -> RowDict:
        with self.database.read() as tx:
            return read_case(tx, case)

    def up(self, *arguments: str, code: int = 0, **more: str) -> "subprocess.CompletedProcess[str]":
        done: subprocess.CompletedProcess[str] = run("expunge", "up", *arguments, cwd=self.folder, code=code, **more)
        return done


@pytest.fixture
def place(tmp_path, database_url, provider):
    made = Place(tmp_path, database_url, provider)
    yield made
    made.database.close()


@pytest.fixture
def lite(tmp_path, sqlite_url, provider):
    made = Place(tmp_path, sqlite_url, provider)
    yield made
    made.database.close()


def test_a_case_is_driven_to_completion_and_each_receipt_is_printed_once(place, provider) -> None:
    files = [f"file-{number}" for number in range(20)]
    provider.seed(files=files[:15])
    provider.faults.add(Fault(Reply.ERROR, method="DELETE", path="/v1/files/file-3", status=503, times=2))
    place.open(*files)
    done = place.up("--until-idle", "--json")
    printed = [json.loads(line) for line in done.stdout.splitlines()]
    assert sorted(row["id"] for row in printed) == sorted(row["id"] for row in place.receipts())
    assert list(printed[0]) == list(RECEIPT_COLUMNS)
    assert sorted(row["status"] for row in printed) == ["already_absent"] * 5 + ["deleted"] * 15 + ["failed"] * 2
    assert place.case()["state"] == "complete"
    # nothing of the subject or the locators is in the log, which is JSON too
    for line in done.stderr.splitlines():
        json.loads(line)
    assert "file-" not in done.stderr
    assert "u-1" not in done.stderr


def test_receipts_from_before_are_not_printed(lite, provider) -> None:
    lite.open("file-1")
    lite.up("--until-idle")
    lite.open("file-2", case="c2")
    printed = [json.loads(line) for line in lite.up("--until-idle", "--json").stdout.splitlines()]
    assert [row["locator"] for row in printed] == ["file-2"]


def test_with_nothing_to_do_it_ends_at_once(tmp_path) -> None:
    """Without any settings: the tables are made in a SQLite file."""
    done = run("expunge", "up", "--until-idle", cwd=tmp_path)
    assert "Nothing was due" in done.stdout
    assert (tmp_path / "expunge.db").exists()


def test_something_left_is_exit_code_3(lite, provider) -> None:
    provider.faults.add(Fault(Reply.ERROR, method="DELETE", path="/v1/files/file-1", status=403, times=None))
    lite.open("file-1", "file-2")
    done = lite.up("--until-idle", code=3)
    assert [row["state"] for row in lite.entries()] == ["escalated"]
    assert "1 escalated" in done.stdout


def test_a_lane_that_an_operator_paused_is_not_waited_for(lite) -> None:
    lite.open("file-1")
    with lite.database.begin() as tx:
        ensure_lane(tx, "ai")
        tx.run("UPDATE erasure_lane SET paused_by = 'operator', paused_since = {now}")
    lite.up("--until-idle", code=3)
    assert [row["state"] for row in lite.entries()] == ["ready"]


def test_the_timeout_ends_it(lite, provider) -> None:
    provider.faults.add(Fault(Reply.ERROR, method="DELETE", status=503, times=None))
    lite.open("file-1")
    done = lite.up("--until-idle", "--timeout", "1", code=3)
    assert "The time was up" in done.stdout
    lite.up("--timeout", "0.2")


@pytest.mark.parametrize("arguments", [(), ("--until-idle",)], ids=" ".join)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_asked_to_stop_it_settles_what_was_called_and_gives_back_the_rest(lite, provider, number, arguments) -> None:
    """Exit code 0, even if it was to run until nothing is left: it did what it was asked."""
    with (lite.folder / "expunge.toml").open("a") as settings:
        settings.write("concurrency = 1\n")
    provider.seed(files=["file-1"])
    provider.faults.add(Fault(Reply.HANG, method="DELETE", times=1, acts=True))
    lite.open(*(f"file-{number}" for number in range(1, 50)))
    with start("expunge", "up", *arguments, cwd=lite.folder) as process:
        wait_for(lambda: provider.log.lines("DELETE"), what="the first call")
        process.send_signal(number)
        assert any("run.stopping" in line for line in iter(process.stderr.readline, ""))
        provider.faults.release()
        out, err = process.communicate(timeout=30)
    assert process.returncode == 0, err
    assert [row["locator"] for row in lite.receipts()] == ["file-1"]
    assert [row["state"] for row in lite.entries()] == ["ready"] * 48
    assert [row["attempt"] for row in lite.entries()] == [0] * 48
    assert "gone" in out


def test_a_second_signal_ends_it_at_once(lite, provider) -> None:
    provider.faults.add(Fault(Reply.HANG, method="DELETE", times=1))
    lite.open("file-1")
    with start("expunge", "up", cwd=lite.folder) as process:
        wait_for(lambda: provider.log.lines("DELETE"), what="the first call")
        process.terminate()
        wait_for(lambda: process.poll() is None and _is_caught(process), what="the first signal")
        process.terminate()
        process.communicate(timeout=10)
    assert process.returncode == 1
    assert [row["state"] for row in lite.entries()] == ["calling"]


def _is_caught(process) -> bool:
    """Whether no signal is pending for the process any more."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    pending = next(line for line in status.splitlines() if line.startswith("ShdPnd"))
    return int(pending.split()[1], 16) == 0


def test_postgresql_must_be_migrated_first(tmp_path, empty_postgres_url) -> None:
    (tmp_path / "expunge.toml").write_text(f'database_url = "{empty_postgres_url}"')
    done = run("expunge", "up", "--until-idle", cwd=tmp_path, code=1)
    assert done.stderr.strip().splitlines()[-1].endswith("run expunge migrate")
    run("expunge", "migrate", cwd=tmp_path)
    run("expunge", "up", "--until-idle", cwd=tmp_path)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ('database_url = "postgresql+psycopg://u:hunter2@127.0.0.1:1/d"', "the database cannot be used"),
        ('database_url = "sqlite:////no/such/folder/x.db"', "the database cannot be used"),
        ("lease_seconds = 0", "lease_seconds: must be greater than 0"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(tmp_path, settings, said) -> None:
    (tmp_path / "expunge.toml").write_text(settings)
    done = run("expunge", "up", "--until-idle", cwd=tmp_path, code=1)
    assert said in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert "hunter2" not in done.stderr
    assert done.stdout == ""


def test_it_works_with_postgresql_and_valkey(tmp_path, postgres_url, valkey_url, provider) -> None:
    place = Place(tmp_path, postgres_url, provider, f'broker_url = "{valkey_url}"')
    provider.seed(files=["file-1"], conversations={"conv_1": ["msg_1", "msg_2"]})
    with place.database.begin() as tx:
        targets = [Target("ai", "file", "file-1"), Target("ai", "conversation", "conv_1")]
        open_case(tx.connection, case_id="c1", subject="s", targets=targets)
    place.up("--until-idle")
    assert place.case()["state"] == "complete"
    assert provider.state()["proj_demo"]["conversations"] == {}
    place.database.close()


def test_a_broker_that_is_away_is_waited_for(lite, provider) -> None:
    path = lite.folder / "expunge.toml"
    path.write_text('broker_url = "redis://127.0.0.1:1/0"\n' + path.read_text())
    lite.open("file-1")
    done = lite.up("--until-idle", "--timeout", "2", code=3)
    assert "Traceback" not in done.stderr
