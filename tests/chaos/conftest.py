"""Two stores that log and can be tripped at any request, a case over both, and workers that may be killed."""

import itertools
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest
from chaos import checker, worker_process
from servers.s3_stub import S3Stub
from waiting import wait_for

from expunge.models import Target, open_case
from expunge.models.database import Database
from expunge.models.decisions import retry
from expunge.worker.demo_provider import DemoProvider

ROUNDS = int(os.environ.get("CHAOS_ROUNDS", "1"))
SEED = int(os.environ.get("CHAOS_SEED", "1"))

# workers are forked from a process that has loaded everything and runs nothing: a new one costs milliseconds
_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(
    ["boto3", "openai", "psycopg", "expunge.tasks.sweep", "expunge.tasks.erasers.s3", "expunge.tasks.erasers.openai"]
)


class Trip:
    """Counts requests of both stores and does something once at a given one, while it is served."""

    def __init__(self) -> None:
        self.count = 0
        self._lock = threading.Lock()
        self._at: dict[int, Callable[[], object]] = {}

    def at(self, number: int, action: Callable[[], object]) -> None:
        self._at[number] = action

    def __call__(self) -> None:
        with self._lock:
            self.count += 1
            action = self._at.pop(self.count, None)
        if action is not None:
            action()


class TrippedS3(S3Stub):
    trip: Trip

    def answer(self, request: Any) -> Any:
        answer = super().answer(request)
        self.trip()  # done and logged, not answered
        return answer


class TrippedProvider(DemoProvider):
    trip: Trip

    def serve(self, request: Any) -> Any:
        outgoing = super().serve(request)
        self.trip()
        return outgoing


class World:
    """The stores, one case's objects in them beside other people's, and the workers on one database."""

    def __init__(self, folder: Path, url: str, s3: TrippedS3, provider: TrippedProvider) -> None:
        self.folder, self.url, self.s3, self.provider = folder, url, s3, provider
        self.trip = s3.trip = provider.trip = Trip()
        self.stores = checker.Stores(s3.url, folder / "s3.jsonl", provider.base_url, folder / "provider.jsonl")
        self.keep: set[str] = set()
        self.wanted: set[str] = set()
        self.processes: list[BaseProcess] = []
        self.options: tuple[str, ...] = ()
        """What every worker is told."""
        self._numbers = itertools.count(1)

    def open(self, case: str = "c1", at: str = "u/1") -> None:
        """Some forty objects in a plain and in a versioned bucket, two prefixes, files, a conversation with items."""
        objects = []
        for bucket in (self.s3.bucket("plain"), self.s3.bucket("old", versioning="Enabled")):
            for number in range(9):
                objects.append(f"{bucket.name}/{at}/single/{number}")
            objects.append(f"{bucket.name}/{at}/odd\x01name")
            inside = [f"{at}/all/{number}" for number in range(10)]
            for locator in [*objects[-10:], *(f"{bucket.name}/{key}" for key in inside)]:
                for _ in range(2):
                    bucket.put(locator.partition("/")[2])
            bucket.put(f"{at}0/all/stays")
            self.keep.add(f"{bucket.name}/{at}0/all/stays")
            objects.append(f"{bucket.name}/{at}/never")
        self.s3.buckets["old"].delete(f"{at}/single/0", None)
        self.s3.buckets["old"].delete(f"{at}/all/0", None)
        mark = at.replace("/", "")
        files = [f"file-{mark}{number}" for number in range(6)]
        stays = f"file-stays{mark}"
        items = [f"msg_{mark}{number}" for number in range(7)]
        self.provider.seed(files=[*files, stays], vector_stores=[f"vs_{mark}"], conversations={f"conv_{mark}": items})
        self.keep.add(stays)
        targets = [Target("objects", "object", locator) for locator in objects]
        targets += [Target("objects", "prefix", f"{bucket}/{at}/all/") for bucket in ("plain", "old")]
        targets += [Target("ai", "file", file) for file in (*files, f"file-never{mark}")]
        targets += [Target("ai", "vector_store", f"vs_{mark}"), Target("ai", "conversation", f"conv_{mark}")]
        self.wanted |= {target.locator for target in targets}
        database = Database.open(self.url)
        with database.begin() as tx:
            open_case(tx.connection, case_id=case, subject="s", targets=targets)
        database.close()

    def start(self, *arguments: str) -> BaseProcess:
        """A worker; it runs until it is killed or `finish`."""
        log = self.folder / f"worker{next(self._numbers)}.jsonl"
        where = ["--database", self.url, "--s3", self.s3.url, "--provider", self.provider.base_url, "--log", str(log)]
        process = _FORKS.Process(target=worker_process.main, args=([*where, *self.options, *arguments],), name=log.stem)
        process.start()
        self.processes.append(process)
        return process

    def await_end(self, process: BaseProcess, code: int) -> None:
        process.join(30)
        assert process.exitcode == code, (process.name, process.exitcode, self.logs())

    def await_stopped(self, process: BaseProcess) -> None:
        """Until the whole process is stopped."""
        wait_for(lambda: _state(process) == "T" or process.exitcode is not None, what=f"{process.name} to stop")
        assert process.exitcode is None, self.logs()

    def is_complete(self) -> bool:
        """Whether all cases are."""
        return not checker.query(self.url, "SELECT id FROM erasure_case WHERE completed_at IS NULL")

    def await_complete(self, seconds: float = 40.0) -> None:
        try:
            wait_for(lambda: self.is_complete() or self._retry_escalated(), seconds=seconds, what="the cases")
        except AssertionError as error:
            raise AssertionError(f"seed {SEED}: not complete: {self.left()} {self.logs()}") from error

    def _retry_escalated(self) -> None:
        """As a person would: three workers that died over one entry may have escalated it."""
        sql = "SELECT id, reason FROM erasure_outbox WHERE state = 'escalated'"
        escalated = checker.query(self.url, sql)
        if escalated:
            assert {row["reason"] for row in escalated} == {"Interrupted"}, (SEED, escalated, self.logs())
            database = Database.open(self.url)
            with database.begin() as tx:
                retry(tx, ids=[row["id"] for row in escalated], by="a test")
            database.close()

    def left(self) -> Any:
        return checker.query(self.url, "SELECT locator, state, reason, attempt, lost_leases FROM erasure_outbox")

    def finish(self, *arguments: str, workers: int = 2) -> None:
        """Fresh workers complete the case, and end as they are told to."""
        fresh = [self.start(*arguments) for _ in range(workers)]
        self.await_complete()
        for process in fresh:
            self.end(process)

    def end(self, process: BaseProcess) -> None:
        log = self.folder / f"{process.name}.jsonl"
        begun = lambda: process.exitcode is not None or (log.exists() and "worker.begun" in log.read_text())  # noqa: E731
        wait_for(begun, seconds=20.0, what="a worker to begin")
        os.kill(process.pid or 0, signal.SIGTERM)
        self.await_end(process, 0)

    def findings(self) -> list[str]:
        return checker.findings(self.url, self.stores, wanted=self.wanted, keep=self.keep)

    def delete_calls(self) -> list[checker.DeleteCall]:
        return list(checker.delete_calls(self.stores))

    def check(self) -> None:
        """All invariants that can be seen from outside."""
        found = self.findings()
        assert not found, "\n".join([f"seed {SEED}", *found, self.logs()])

    def receipts(self) -> list[dict[str, Any]]:
        return checker.query(self.url, "SELECT * FROM erasure_record")

    def logs(self) -> str:
        """What the workers logged, for people."""
        paths = sorted(self.folder.glob("worker*.jsonl"))
        return "\n".join(f"{path}:\n" + "\n".join(path.read_text().splitlines()[-8:]) for path in paths)

    def close(self) -> None:
        for process in self.processes:
            if process.exitcode is None:
                process.kill()
            process.join(10)
            process.close()


def _state(process: BaseProcess) -> str:
    try:
        return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


@pytest.fixture
def make_world(tmp_path: Path) -> Iterator[Callable[..., World]]:
    """`make_world(database_url)`, or another class of world."""
    with (tmp_path / "s3.jsonl").open("a", encoding="utf-8") as log:
        s3 = TrippedS3(log_file=log)
        thread = threading.Thread(target=s3.serve, daemon=True)
        thread.start()
        worlds: list[World] = []
        with TrippedProvider(log_path=tmp_path / "provider.jsonl") as provider:

            def make(url: str, kind: type[World] = World) -> World:
                worlds.append(kind(tmp_path, url, s3, provider))
                return worlds[-1]

            yield make
            for world in worlds:
                world.close()
        s3.close()
        thread.join()


@pytest.fixture
def world(make_world: Callable[[str], World], database_url: str) -> World:
    """On each kind of database."""
    made = make_world(database_url)
    made.open()
    return made
