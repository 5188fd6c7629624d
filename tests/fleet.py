"""Celery's own workers and beats as processes, and what they share: a broker, and a settings file that all read."""

import json
import signal
import subprocess
import threading
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from commands import start
from sqlalchemy.orm import Session
from waiting import wait_for

from expunge.models import Target, open_case
from expunge.models.database import Database
from expunge.models.list_cases import read_case

CELERY = ("celery", "-A", "expunge.worker.app")
Accounts = Mapping[str, Mapping[str, Any]]


def url_of(broker: Any) -> str:
    """Of a Valkey server."""
    return f"redis://127.0.0.1:{broker.port}/0"


def write_settings(path: Path, *, database: str, broker: Any, accounts: Accounts, **settings: Any) -> None:
    """Write them as TOML, by their names. A value is written as in JSON, which TOML reads the same way."""
    tables = [("", {"database_url": database, "broker_url": url_of(broker), **settings})]
    tables += [(f"[accounts.{name}]\n", options) for name, options in accounts.items()]
    path.write_text(
        "\n".join(
            head + "".join(f"{key} = {json.dumps(value)}\n" for key, value in table.items()) for head, table in tables
        )
    )


class Process:
    """A running worker or beat, with what it logged so far."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line)

    def says(self, text: str) -> bool:
        return any(text in line for line in self.lines)

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(timeout=30)
        self._reader.join(10)
        return code


class Fleet:
    """Workers and beats in a folder, over one database and broker."""

    def __init__(self, folder: Path, url: str, broker: Any, accounts: Accounts, stack: ExitStack, **more: Any) -> None:
        self.folder, self.stack = folder, stack
        self.broker_url = url_of(broker)
        self.database = Database.open(url)
        self.settings = folder / "settings.toml"
        write_settings(self.settings, database=url, broker=broker, accounts=accounts, **{"sweep_seconds": 1, **more})
        self.cwd = folder / "cwd"
        self.cwd.mkdir()

    def start(self, *arguments: str, ready: str | None = None, **more: str) -> Process:
        config = {"EXPUNGE_CONFIG": str(self.settings), **more}
        process = Process(self.stack.enter_context(start(*CELERY, *arguments, cwd=self.cwd, **config)))
        if ready is not None:
            wait_for(lambda: process.says(ready) or process.process.poll() is not None, what=ready, seconds=60)
            assert process.process.poll() is None, process.lines
        return process

    def worker(self, name: str = "w1") -> Process:
        return self.start("worker", "-n", f"{name}@test", ready=" ready.")

    def beat(self) -> Process:
        return self.start("beat")

    def open(self, case: str, *locators: str, account: str = "ai", kind: str = "file") -> None:
        targets = [Target(account, kind, locator) for locator in locators]
        with Session(self.database.engine) as session, session.begin():
            open_case(session, case_id=case, subject="u-1", targets=targets)

    def complete(self, case: str) -> bool:
        with self.database.read() as tx:
            return bool(read_case(tx, case)["state"] == "complete")

    def await_complete(self, case: str, seconds: float = 40) -> None:
        wait_for(lambda: self.complete(case), seconds=seconds, what=f"case {case}")
