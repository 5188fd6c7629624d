"""Real servers and real Celery workers for the benchmarks; every one is stopped at the end."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from servers.postgres import Postgres
from servers.valkey import start as start_valkey

from expunge.models import schema
from expunge.models.database import Database

BIN = Path(sys.executable).parent


@contextmanager
def servers() -> Iterator[tuple[str, Any]]:
    """A migrated PostgreSQL database (fsync and synchronous_commit on) and a Valkey: (database URL, Valkey)."""
    postgres = Postgres(syncs=True)
    valkey = start_valkey()
    try:
        url = postgres.url(postgres.create())
        database = Database.open(url)
        schema.migrate(database)
        database.close()
        yield url, valkey
    finally:
        valkey.stop()
        postgres.stop()


def configuration(url: str, valkey: Any, *, threads: int = 2, extra: str = "", accounts: str) -> Path:
    """Write an expunge.toml; gives its path."""
    folder = Path(tempfile.mkdtemp(prefix="expunge-bench-"))
    path = folder / "expunge.toml"
    path.write_text(
        f'database_url = "{url}"\nbroker_url = "redis://127.0.0.1:{valkey.port}/0"\nthreads = {threads}\n'
        f'log_level = "warning"\n{extra}\n{accounts}\n'
    )
    return path


@contextmanager
def celery(config: Path, *commands: list[str], pythonpath: str = "") -> Iterator[list[subprocess.Popen[bytes]]]:
    """Celery processes of the app, by their arguments (`["worker"]`, `["beat"]`)."""
    environment = {**os.environ, "EXPUNGE_CONFIG": str(config), "PYTHONPATH": pythonpath}
    processes = []
    try:
        for number, arguments in enumerate(commands):
            log = open(config.parent / f"celery-{number}.log", "wb")  # noqa: SIM115
            name = ["-n", f"w{number}@%h"] if arguments[0] == "worker" else []
            processes.append(
                subprocess.Popen(
                    [str(BIN / "celery"), "-A", "expunge.worker.app", *arguments, *name],
                    env=environment,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    cwd=config.parent,
                )
            )
        yield processes
    finally:
        for process in processes:
            process.send_signal(signal.SIGTERM)
        for process in processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()


def wait_for(condition: Callable[[], bool], seconds: float, what: str) -> None:
    """Poll every 10 ms."""
    ends = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > ends:
            raise SystemExit(f"waited {seconds} s in vain for {what}")
        time.sleep(0.01)
