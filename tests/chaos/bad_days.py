"""Everything at once: the weather of both stores, and a person who places and releases holds meanwhile."""

import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from chaos import checker
from chaos.conftest import TrippedProvider, TrippedS3, World
from servers.s3_stub import Fault as S3Fault
from waiting import wait_for

from expunge.models.database import Database
from expunge.models.decisions import resume, retry
from expunge.models.holds import place_hold, release_hold
from expunge.worker.demo_provider_faults import Fault, Faults, Reply
from expunge.worker.demo_provider_objects import Identity

ENTRIES_OF_A_CASE = 60
"""Those of World.open: 44 objects, 2 prefixes with 20 more in them, 7 files, a vector store, a conversation of 7."""
TRANSIENT = 0.05
LOCKED = 0.01
BURST_EVERY, BURST = 150, 12
"""Requests from one throttling to the next, and how many it lasts."""
KILL_EVERY = 150
"""Requests of both stores from one killed worker to the next. By the clock, each would be killed before it has begun
where the machine is slow."""
S3_ERRORS = ("slow_down", "error_500", "html_503", "error_in_200", "drop_before", "drop_after")


class Weather:
    """Says of each request whether it fails, and how. `fine` until it is told otherwise."""

    def __init__(self, seed: str) -> None:
        self.fine = True
        self._chance = random.Random(seed)
        self._lock = threading.Lock()
        self._count = 0

    def next(self) -> str | None:
        """`throttled`, one of S3_ERRORS, or None."""
        with self._lock:
            if self.fine:
                return None
            self._count += 1
            if self._count % BURST_EVERY < BURST:
                return "throttled"
            return self._chance.choice(S3_ERRORS) if self._chance.random() < TRANSIENT else None


class StormyS3(TrippedS3):
    weather: Weather

    def _take_fault(self, operation: str) -> S3Fault | None:
        kind = self.weather.next() if operation != "ListBuckets" else None
        if kind == "throttled":
            return S3Fault(operation, "slow_down")
        return S3Fault(operation, kind) if kind else super()._take_fault(operation)


class StormyFaults(Faults):
    def __init__(self, weather: Weather) -> None:
        super().__init__()
        self.weather = weather

    def take(self, method: str, path: str) -> Fault | None:
        match self.weather.next():
            case None:
                return super().take(method, path)
            case "throttled" | "slow_down":
                return Fault(Reply.ERROR, status=429)
            case "html_503":
                return Fault(Reply.PAGE, status=503)
            case "drop_before":
                return Fault(Reply.DROP)
            case "drop_after":
                return Fault(Reply.DROP, acts=True)
            case _:
                return Fault(Reply.ERROR, status=500)


class BadDays(World):
    """Cases over both stores, and what happens to them."""

    def __init__(self, folder: Path, url: str, s3: StormyS3, provider: TrippedProvider, *, seed: str) -> None:
        super().__init__(folder, url, s3, provider)
        self.chance = random.Random(seed)
        self.weather = s3.weather = Weather(f"{seed}/weather")
        provider.faults = StormyFaults(self.weather)
        self.cases: dict[str, tuple[str, ...]] = {}
        """The beginnings of all locators of a case."""
        self.holds: list[checker.Hold] = []
        self.database = Database.open(url, pool_size=3)
        self.escalated: set[str] = set()
        self.killed = 0

    def open_all(self, entries: int, locked: float = 0.0) -> None:
        for number in range(max(1, entries // ENTRIES_OF_A_CASE)):
            at = f"u/{number:05}x"
            self.open(f"c{number}", at)
            mark = at.replace("/", "")
            self.cases[f"c{number}"] = (
                *(f"{bucket}/{at}/" for bucket in ("plain", "old")),
                *(f"{kind}{mark}" for kind in ("file-", "file-never", "vs_", "conv_")),
            )
        bucket = self.s3.bucket("old", lock=True)
        until = datetime.now(UTC) + timedelta(days=365)
        ours = sorted(key for key in bucket.objects if f"old/{key}" not in self.keep)
        for key in self.chance.sample(ours, round(locked * 2 * len(ours))):  # `plain` can lock nothing
            next(version for version in bucket.objects[key] if not version.is_marker).retain_until = until

    def locked(self) -> list[Any]:
        versions = self.s3.bucket("old").objects.values()
        return [version for each in versions for version in each if version.retain_until]

    @contextmanager
    def _meanwhile(self, step: Callable[[threading.Event], None]) -> Iterator[None]:
        """It is done over and over in a thread, until the end of the context."""
        ended, faults = threading.Event(), []

        def run() -> None:
            try:
                while not ended.is_set():
                    step(ended)
            except BaseException as error:
                faults.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
        if faults:
            raise faults[0]

    @contextmanager
    def holding(self) -> Iterator[None]:
        """Somebody places holds and releases them, one after the other, until the end of the context."""
        with self._meanwhile(self.hold_once):
            yield

    @contextmanager
    def killing(self, workers: list[BaseProcess], every: int = KILL_EVERY) -> Iterator[None]:
        """Each so many requests the oldest worker is killed, and a new one takes its place in the list."""
        goal = self.trip.count + every

        def step(ended: threading.Event) -> None:
            nonlocal goal
            if self.trip.count < goal:
                ended.wait(0.02)
                return
            goal += every
            workers.pop(0).kill()
            workers.append(self.start())
            self.killed += 1

        with self._meanwhile(step):
            yield

    def hold_once(self, ended: threading.Event, seconds: float = 0.4) -> None:
        case = self.chance.choice(sorted(self.cases))
        plain, old, files, _, _, conversation = prefixes = self.cases[case]
        whole: dict[str, Any] = {"case_id": case}
        ways: Sequence[tuple[dict[str, Any], tuple[str, ...]]] = (
            (whole, prefixes),
            *(
                ({"account": "objects", "locator_prefix": prefix}, (prefix,))
                for prefix in (plain, f"{old}single/", f"{plain}all/3", f"{old}all/")
            ),
            *(({"account": "ai", "locator_prefix": prefix}, (prefix,)) for prefix in (files, conversation)),
        )
        covers, beginnings = self.chance.choice(ways)
        with self.database.begin() as tx:
            hold, flying = place_hold(tx, by="counsel", why="a dispute", **covers)
        committed = time.time()
        ended.wait(self.chance.uniform(0.1, 1.0) * seconds)
        released = time.time()
        self.holds.append(checker.Hold(beginnings, committed, released, frozenset(flying)))
        with self.database.begin() as tx:
            release_hold(tx, hold, by="counsel", why="settled")

    def await_share(self, share: float, total: int, seconds: float, account: str = "%") -> None:
        """Until only this share of the targets has no receipt of success."""
        sql = (
            "SELECT count(*) AS n FROM erasure_outbox WHERE state <> 'escalated'"
            f" AND (reason IS NULL OR reason <> 'Retained') AND account LIKE '{account}'"
        )
        wait_for(
            lambda: self.retry_escalated() or checker.query(self.url, sql)[0]["n"] <= share * total,
            seconds=seconds,
            pause=0.1,
            what=f"{share} of the entries",
        )

    def await_only_retained(self, seconds: float) -> None:
        """Until all that is left is what a lock keeps, and prefixes over it."""
        sql = "SELECT locator, kind, state, reason, tries, due_at FROM erasure_outbox"

        def others() -> list[dict[str, Any]]:
            rows = checker.query(self.url, sql)
            kept = [row["locator"] for row in rows if row["reason"] == "Retained"]
            return [
                row
                for row in rows
                if row["locator"] not in kept
                and not (row["kind"] == "prefix" and any(name.startswith(row["locator"]) for name in kept))
            ]

        try:
            wait_for(lambda: self.retry_escalated() or not others(), seconds=seconds, pause=0.1)
        except AssertionError as error:
            lanes = checker.query(self.url, "SELECT * FROM erasure_lane")
            raise AssertionError(f"left: {others()} lanes: {lanes} {self.logs()}") from error

    def retry_escalated(self) -> None:
        """As a person would, but for what a lock keeps."""
        sql = "SELECT id, reason FROM erasure_outbox WHERE state = 'escalated' AND reason <> 'Retained'"
        found = checker.query(self.url, sql)
        if found:
            self.escalated |= {row["reason"] for row in found}
            with self.database.begin() as tx:
                retry(tx, ids=[row["id"] for row in found], by="a test")

    def await_killed(self, *processes: BaseProcess, seconds: float = 60.0) -> None:
        for process in processes:
            process.join(seconds)

    def change_identity(self) -> BaseProcess:
        """A worker that knows the account meets another one behind the same key; gives it once the lane is paused."""
        self.weather.fine = True  # or its pauses hide what is to be seen
        with self.database.begin() as tx:
            resume(tx, "ai", by="a test")
        before = len(self.provider.log.lines("DELETE"))
        steady = self.start()
        known = lambda: len(self.provider.log.lines("DELETE")) > before + 4  # noqa: E731
        wait_for(known, seconds=60.0, what="the provider's lane")
        rightful = self.provider.keys["sk-demo"]
        self.provider.keys["sk-demo"] = Identity("org-else", "proj_else")
        sql = "SELECT reason FROM erasure_lane WHERE account = 'ai' AND scope = '' AND paused_by IS NOT NULL"
        wait_for(lambda: checker.query(self.url, sql), seconds=60.0, what="the lane's pause")
        self.reason = checker.query(self.url, sql)[0]["reason"]
        self.weather.fine = False
        self.provider_rightful = rightful
        return steady

    def restore_identity(self, steady: BaseProcess) -> None:
        """The key is put right, the worker started anew, the lane resumed."""
        self.end(steady)
        self.provider.keys["sk-demo"] = replace(self.provider_rightful)
        with self.database.begin() as tx:
            resume(tx, "ai", by="a test", why="the key is right again")

    def unlock(self) -> None:
        """The locks' date has come."""
        for version in self.locked():
            version.retain_until = None
        with self.database.begin() as tx:
            retry(tx, account="objects", by="a test")

    def findings(self) -> list[str]:
        return checker.findings(self.url, self.stores, wanted=self.wanted, keep=self.keep, holds=self.holds)

    def close(self) -> None:
        super().close()
        self.database.close()
