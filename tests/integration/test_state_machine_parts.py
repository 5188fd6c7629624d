"""Every order of unfolding composite targets, erasing their parts, losing leases and sweeping: it always comes to an
end, and no target is closed while something is left inside it. The real drain is stopped at its named steps."""

from pathlib import Path
from typing import Any

import pytest
from doubles.machines import TIMEOUT, OnDatabase, run_on_postgresql, run_on_sqlite
from doubles.parked import DONE, ParkedWorker
from doubles.running import Bench
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

from expunge.models import Target, open_case
from expunge.models.database import Database
from expunge.tasks.outcomes import Outcome

pytestmark = pytest.mark.timeout(TIMEOUT)
LEASE = 300.0
DAY = 86_400.0
RETRIES = {"retry_base_seconds": 100.0, "retry_max_seconds": 200.0}
KEYS = [f"b/p/{n}" for n in range(4)] + [f"b/p/q/{n}" for n in range(4)]
TARGETS = [*(("prefix", p) for p in ("b/p/", "b/p/q/", "b/empty/")), ("object", "b/p/0"), ("object", "b/p/q/1")]
STEPS = st.sampled_from([1, 1, 2, 2, 3, 3, 4, 7])
WHICH = st.integers(0, 11)
MOST_WORKERS = 3


class Machine(OnDatabase):
    """Prefixes, one inside the other and one of them empty, and objects that are targets of their own as well."""

    def __init__(self) -> None:
        super().__init__()
        self.url = type(self).fresh()
        self.bench = Bench(Database.open(self.url), batch=2, page=2, lease_seconds=LEASE, **RETRIES)
        self.targets: set[tuple[str, str, str]] = set()
        self.running: list[ParkedWorker] = []
        self.closed: set[str] = set()

    def teardown(self) -> None:
        for worker in self.running:
            worker.abandon()
        try:
            self.it_comes_to_an_end()
        finally:
            self.bench.database.close()
            type(self).drop(self.url)

    @initialize(
        there=st.lists(st.sampled_from(KEYS), min_size=2), wanted=st.lists(st.sampled_from(TARGETS), min_size=1)
    )
    def begin(self, there: list[str], wanted: list[tuple[str, str]]) -> None:
        self.bench.store.put(*there)
        self.open("c1", wanted)

    @rule(case=st.sampled_from(["c1", "c2"]), wanted=st.lists(st.sampled_from(TARGETS), min_size=1, max_size=3))
    def open(self, case: str, wanted: list[tuple[str, str]]) -> None:
        with self.bench.database.begin() as tx:
            targets = [Target("mem", kind, locator) for kind, locator in wanted]
            open_case(tx.connection, case_id=case, subject="s", targets=targets)
        self.targets |= {(case, kind, locator) for kind, locator in wanted}

    # no rule has a precondition: what is possible may depend on the clock, and Hypothesis needs to repeat itself
    @rule(limit=st.integers(1, 4), steps=STEPS)
    def claim(self, limit: int, steps: int) -> None:
        if len(self.running) == MOST_WORKERS:
            self.go_on(limit, steps)
            return
        worker = ParkedWorker(self.bench.another(), "mem", limit)
        if worker.entry_ids:
            self.running.append(worker)
            self._go_on(worker, steps)
        else:
            worker.abandon()

    @rule(which=WHICH, steps=STEPS)
    def go_on(self, which: int, steps: int) -> None:
        if self.running:
            self._go_on(self.running[which % len(self.running)], steps)
        else:
            self.claim(1 + which % 4, steps)

    def _go_on(self, worker: ParkedWorker, steps: int) -> None:
        for _ in range(steps):
            if worker.step() == DONE:
                self.running.remove(worker)
                return

    @rule(key=st.sampled_from(KEYS), gone=st.booleans(), outcome=st.sampled_from([Outcome.ERROR, "left out"]))
    def the_next_answer_is_bad(self, key: str, gone: bool, outcome: Any) -> None:
        def act() -> Any:
            if gone:
                self.bench.store.objects.discard(key)
            return outcome

        self.bench.store.script(key, act)

    @rule(sweep=st.booleans())
    def let_time_pass(self, sweep: bool) -> None:
        """Every lease ends, and every retry is due."""
        self.bench.later(LEASE + 1)
        if sweep:
            self.sweep()

    @invariant()
    def no_target_is_closed_while_something_is_left_in_it(self) -> None:
        there = self.bench.store.objects
        for row in self.bench.receipts():
            if str(row.id) in self.closed or row.status not in ("deleted", "already_absent"):
                continue
            inside = {o for o in there if o == row.locator or (row.kind == "prefix" and o.startswith(row.locator))}
            assert not inside, row
            self.closed.add(str(row.id))

    @invariant()
    def a_complete_case_has_no_entry(self) -> None:
        done = {row.id for row in self._cases() if row.completed_at is not None}
        assert not [row for row in self.bench.entries() if row.case_id in done]

    @invariant()
    def parts_are_of_the_same_case(self) -> None:
        entries = {row.id: row for row in self.bench.entries()}
        for row in entries.values():
            if row.parent_id is not None:
                parent = entries[row.parent_id]
                assert (parent.case_id, parent.kind) == (row.case_id, "prefix")

    def sweep(self) -> None:
        """Whoever waits has parts to wait for."""
        self.bench.sweep()
        parents = {row.parent_id for row in self.bench.entries()}
        assert {row.id for row in self.bench.entries(state="waiting")} <= parents

    def _cases(self) -> list[Any]:
        with self.bench.database.read() as tx:
            return list(tx.rows("SELECT id, completed_at FROM erasure_case"))

    def it_comes_to_an_end(self) -> None:
        """No abandoned worker or bad answer keeps anything from being erased; what was escalated is tried every day."""
        self.bench.store.scripts.clear()
        for _ in range(40):
            self.bench.later(DAY + 1)
            self.sweep()
            self.bench.drain()
            if not self.bench.entries():
                break
        assert self.bench.entries() == []
        self.no_target_is_closed_while_something_is_left_in_it()
        closed = {
            (r.case_id, r.kind, r.locator)
            for r in self.bench.receipts()
            if r.version is None and r.status in ("deleted", "already_absent")
        }
        assert self.targets <= closed
        assert all(row.completed_at is not None for row in self._cases())


def test_on_sqlite(sqlite_template: Path, tmp_path: Path) -> None:
    run_on_sqlite(Machine, sqlite_template, tmp_path, examples=40, steps=30)


def test_on_postgresql(postgres: Any, postgres_template: str) -> None:
    run_on_postgresql(Machine, postgres, postgres_template, examples=6, steps=30)
