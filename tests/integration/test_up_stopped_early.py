"""expunge up, stopped before it has begun: a clean end at whatever moment the signal comes."""

import re
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import start
from waiting import wait_for

from expunge.worker import start as script

Process = subprocess.Popen[str]


def _catches(process: Process, number: int = signal.SIGTERM) -> bool:
    """Whether the process has a handler of its own for a signal."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    found = re.search(r"^SigCgt:\s*(\w+)$", status, re.MULTILINE)
    return found is not None and bool(int(found[1], 16) >> (number - 1) & 1)


def _has_loaded(library: str) -> Callable[[Process, Path], bool]:
    def has_loaded(process: Process, _: Path) -> bool:
        return _catches(process) and library in Path(f"/proc/{process.pid}/maps").read_text()

    return has_loaded


def _has_written(name: str) -> Callable[[Process, Path], bool]:
    return lambda _, folder: (folder / name).exists()


def _has_logged(process: Process, _: Path) -> bool:
    assert process.stderr is not None
    return process.stderr.read(1) != ""


MOMENTS: dict[str, Callable[[Process, Path], bool]] = {
    "its first line": lambda process, _: _catches(process),
    "while it imports": _has_loaded("_pydantic_core"),
    "while it imports more": _has_loaded("_sqlite3"),
    "as the file appears": _has_written("expunge.db"),
    "as the tables are made": _has_written("expunge.db-wal"),
    "its first log line": _has_logged,
}


@pytest.mark.parametrize(
    ("number", "arguments"),
    [(signal.SIGTERM, ()), (signal.SIGINT, ("--json",)), (signal.SIGTERM, ("--until-idle",))],
    ids=["SIGTERM", "SIGINT with --json", "SIGTERM with --until-idle"],
)
@pytest.mark.parametrize("moment", MOMENTS.values(), ids=MOMENTS)
def test_at_any_moment_it_ends_cleanly(tmp_path, moment, number, arguments) -> None:
    with start("expunge", "up", *arguments, cwd=tmp_path) as process:
        wait_for(lambda: moment(process, tmp_path), what="the moment", pause=0.0005)
        process.send_signal(number)
        _, err = process.communicate(timeout=30)
    assert process.returncode == 0, err
    assert "Traceback" not in err


def test_other_commands_leave_signals_as_they_are(tmp_path) -> None:
    with start("expunge", "cases", cwd=tmp_path) as process:
        wait_for(lambda: "_sqlite3" in Path(f"/proc/{process.pid}/maps").read_text(), what="its imports", pause=0.0005)
        assert not _catches(process)
        process.terminate()
        process.communicate(timeout=30)
    assert process.returncode == -signal.SIGTERM


@pytest.mark.parametrize(
    ("arguments", "runs_on"),
    [
        (["up"], True),
        (["up", "--json"], True),
        (["serve", "--port", "0"], True),
        (["--config", "x.toml", "up"], True),
        (["--config=x.toml", "up"], True),
        (["--config", "up", "cases"], False),
        (["--config", "up"], False),
        (["--help"], False),
        (["cases", "up"], False),
        ([], False),
    ],
)
def test_the_command_is_known_before_anything_is_imported(arguments, runs_on) -> None:
    assert script._runs_on(arguments) is runs_on
