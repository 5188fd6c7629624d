"""A Runtime over a database and in-memory stores, and how tests look at what came of it."""

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from doubles.store import Store, StoreEraser

from expunge.models import Target, open_case
from expunge.models.database import Database
from expunge.tasks.drain import DrainReport, drain
from expunge.tasks.erasers.contract import AccountOptions
from expunge.tasks.runtime import Policy, Runtime
from expunge.tasks.sweep import SweepReport, sweep

QUICK: dict[str, Any] = {"lease_seconds": 30.0, "retry_base_seconds": 2.0, "sweep_seconds": 1.0}


class Bench:
    """One account `mem` by default, each account with a store of its own."""

    def __init__(
        self,
        database: Database,
        *,
        accounts: Iterable[str] = ("mem",),
        batch: int = 10,
        concurrency: int = 4,
        page: int = 100,
        timeout: float = 1.0,
        verify_after: float | None = None,
        purge_windows: dict[str, Any] | None = None,
        **policy: Any,
    ) -> None:
        self.database = database
        self.stores = {name: Store() for name in accounts}
        self.rung: list[str] = []
        self.policy = Policy(**{**QUICK, **policy})
        self._batch, self._concurrency, self._page = batch, concurrency, page
        self._timeout = timeout
        self.verify_after, self.purge_windows = verify_after, purge_windows or {}
        self.runtime = self.another()

    @property
    def store(self) -> Store:
        return self.stores["mem"]

    def another(self) -> Runtime:
        """Another process's runtime over the same database and stores."""
        options = {
            name: AccountOptions(
                store="memory",
                concurrency=self._concurrency,
                purge_window_days=30,
                verify_after=self.verify_after,
                purge_windows=self.purge_windows,
            )
            for name in self.stores
        }
        runtime = Runtime(self.database, self.policy, options, ring=self.rung.append)
        for name, store in self.stores.items():
            runtime._erasers[name] = StoreEraser(name, store, batch=self._batch, page=self._page, timeout=self._timeout)
        return runtime

    def open(self, *locators: str, case: str = "c1", kind: str = "object", account: str = "mem", **more: Any) -> None:
        with self.database.begin() as tx:
            targets = [Target(account, kind, locator) for locator in locators]
            open_case(tx.connection, case_id=case, subject="s", targets=targets, **more)

    def drain(self, lane: str = "mem", runtime: Runtime | None = None) -> DrainReport:
        return drain(runtime or self.runtime, lane)

    def sweep(self) -> SweepReport:
        return sweep(self.runtime)

    def later(self, seconds: float) -> None:
        """Move the database's clock, as Expunge reads it, forward."""
        self.database.skew += timedelta(seconds=seconds)

    def settle_all(self, lane: str = "mem", rounds: int = 50, step: float = 4000.0) -> None:
        """Drain and sweep, letting time pass, until nothing is left or nothing moves."""
        for _ in range(rounds):
            self.drain(lane)
            self.sweep()
            if not self.entries():
                return
            self.later(step)
        raise AssertionError(f"still there after {rounds} rounds: {self.entries()}")

    def entries(self, **where: Any) -> list[Any]:
        return self._rows("erasure_outbox", where, "id")

    def entry(self, **where: Any) -> Any:
        (row,) = self.entries(**where)
        return row

    def receipts(self, **where: Any) -> list[Any]:
        return self._rows("erasure_record", where, "recorded_at, attempt, at")

    def statuses(self, **where: Any) -> list[str]:
        return [row.status for row in self.receipts(**where)]

    def lanes(self, **where: Any) -> list[Any]:
        return self._rows("erasure_lane", where, "account, scope")

    def notices(self, **where: Any) -> list[Any]:
        return self._rows("erasure_notice", where, "id")

    def case(self, case: str = "c1") -> Any:
        (row,) = self._rows("erasure_case", {"id": case}, "id")
        return row

    def _rows(self, table: str, where: dict[str, Any], order: str) -> list[Any]:
        condition = " AND ".join(f"{name} = :{name}" for name in where) or "1 = 1"
        with self.database.read() as tx:
            return list(tx.rows(f"SELECT * FROM {table} WHERE {condition} ORDER BY {order}", **where))
