"""Standard output that is full, has no reader any more, or was never open: no traceback, and nothing is lost."""

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from commands import start
from rows import add_receipts, receipt

from expunge.models import Target, open_case
from expunge.models.database import Database
from expunge.models.list_outbox import EntryFilter, list_entries
from expunge.models.list_receipts import ReceiptFilter, list_receipts
from expunge.worker.demo_provider import DemoProvider

Process = subprocess.Popen[str]
Break = Callable[..., tuple[int, str]]
MANY = 20_000
"""Receipts: more than a pipe holds."""
READER_GONE = 141

COMMANDS = {
    "help": ("--help",),
    "version": ("--version",),
    "json": ("cases", "--json"),
    "csv": ("receipts", "--csv"),
    "table": ("receipts",),
    "a line": ("outbox",),
    "check": ("check",),
    "migrate": ("migrate",),
    "pause": ("pause", "ai"),
    "erase": ("erase", "--subject", "u-2", "--nothing-found"),
    "up": ("up", "--until-idle"),
}


def _ended(process: Process) -> tuple[int, str]:
    _, err = process.communicate(timeout=60)
    return process.returncode, err


def _full(*arguments: str, cwd: Path) -> tuple[int, str]:
    with open("/dev/full", "wb") as full, start("expunge", *arguments, cwd=cwd, stdout=full.fileno()) as process:
        return _ended(process)


def _closed(*arguments: str, cwd: Path) -> tuple[int, str]:
    command = ["sh", "-c", 'exec "$0" "$@" >&-']
    with start("expunge", *arguments, cwd=cwd, stdout=subprocess.DEVNULL, under=command) as process:
        return _ended(process)


def _without_reader(*arguments: str, cwd: Path) -> tuple[int, str]:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        with start("expunge", *arguments, cwd=cwd, stdout=writing) as process:
            return _ended(process)
    finally:
        os.close(writing)


def _with_enough(process: Process) -> tuple[int, str]:
    """The reader reads no further."""
    assert process.stdout is not None
    process.stdout.close()
    process.stdout = None
    return _ended(process)


@pytest.fixture
def provider() -> Iterator[DemoProvider]:
    with DemoProvider() as running:
        yield running


@pytest.fixture
def database(sqlite_url: str, tmp_path: Path, provider: DemoProvider) -> Iterator[Database]:
    (tmp_path / "expunge.toml").write_text(
        f'database_url = "{sqlite_url}"\nsweep_seconds = 0.3\nlog_level = "error"\n'
        f'[accounts.ai]\nstore = "openai"\nbase_url = "{provider.base_url}"\nconcurrency = 1\n'
    )
    opened = Database.open(sqlite_url)
    yield opened
    opened.close()


def _fill(database: Database, receipts: int) -> None:
    with database.begin() as tx:
        open_case(tx.connection, case_id="c0", subject="u-1", nothing_found=True, targets=[])
    add_receipts(database, [receipt("c0", f"b/{number}") for number in range(receipts)])


@pytest.mark.parametrize(
    ("break_it", "said"), [(_full, "No space left on device"), (_closed, "it is closed")], ids=["full", "closed"]
)
@pytest.mark.parametrize("arguments", COMMANDS.values(), ids=COMMANDS)
def test_what_cannot_be_written_is_said_in_one_line(
    database: Database, tmp_path: Path, arguments: tuple[str, ...], break_it: Break, said: str
) -> None:
    _fill(database, receipts=1)
    code, err = break_it(*arguments, cwd=tmp_path)
    assert err == f"Error: standard output cannot be written: {said}; what the command has done stays done\n"
    assert code == 1


@pytest.mark.parametrize("arguments", COMMANDS.values(), ids=COMMANDS)
def test_without_a_reader_it_ends_quietly(database: Database, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    _fill(database, receipts=1)
    assert _without_reader(*arguments, cwd=tmp_path) == (READER_GONE, "")


@pytest.mark.parametrize("arguments", [("--json",), ("--csv",), ()], ids=["json", "csv", "table"])
def test_a_reader_that_has_enough_ends_a_long_listing(
    database: Database, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    _fill(database, receipts=MANY)
    with start("expunge", "receipts", *arguments, cwd=tmp_path, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        assert _with_enough(process) == (READER_GONE, "")


def _open(database: Database, provider: DemoProvider, files: int) -> None:
    provider.seed(files=[f"file-{number}" for number in range(files)])
    with database.begin() as tx:
        targets = [Target("ai", "file", f"file-{number}") for number in range(files)]
        open_case(tx.connection, case_id="c1", subject="u-1", targets=targets)


def _nothing_is_lost(database: Database, provider: DemoProvider, files: int) -> None:
    """Every call has its receipt, and what was not called is ready for the next worker."""
    receipts = [row for page in list_receipts(database, ReceiptFilter()) for row in page]
    entries = [row for page in list_entries(database, EntryFilter()) for row in page]
    assert len(receipts) == len(provider.log.lines("DELETE")) == files - len(entries)
    assert {row["status"] for row in receipts} == {"deleted"}
    assert {row["state"] for row in entries} <= {"ready"}


def test_up_with_a_full_disk_settles_what_it_called_and_says_so(
    database: Database, tmp_path: Path, provider: DemoProvider
) -> None:
    _open(database, provider, 300)
    code, err = _full("up", "--json", cwd=tmp_path)
    assert err.startswith("Error: standard output cannot be written: No space left on device")
    assert (code, len(err.splitlines())) == (1, 1)
    _nothing_is_lost(database, provider, 300)


@pytest.mark.parametrize("arguments", [(), ("--until-idle",)], ids=["up", "until-idle"])
def test_up_whose_reader_has_gone_settles_what_it_called(
    database: Database, tmp_path: Path, provider: DemoProvider, arguments: tuple[str, ...]
) -> None:
    _open(database, provider, 300)
    with start("expunge", "up", "--json", *arguments, cwd=tmp_path, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["status"] == "deleted"
        assert _with_enough(process) == (READER_GONE, "")
    _nothing_is_lost(database, provider, 300)
