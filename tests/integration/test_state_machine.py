"""Every order of opening, claiming, marking, calling, settling, losing leases, sweeping, holding and deciding, against
a simple model (tests/doubles/model.py), with the real drain stopped at its named steps. Second looks after a success
come on top of it in test_state_machine_looks.py."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from doubles.answers import ANSWERS, script_call, script_looks
from doubles.machines import TIMEOUT, OnDatabase, run_on_postgresql, run_on_sqlite
from doubles.model import BATCH, DAY, LEASE, RETRY, SUCCESS, TRIES, Model
from doubles.parked import DONE, ParkedWorker
from doubles.running import Bench
from hypothesis import strategies as st
from hypothesis.stateful import (
    initialize,
    invariant,
    rule,
)

from expunge.models import Target, open_case
from expunge.models.database import Database
from expunge.models.decisions import retry, waive
from expunge.models.errors import CaseConflict, EntryInFlight
from expunge.models.holds import place_hold, release_hold

CASES = st.sampled_from(["c1", "c2"])
TARGETS = st.lists(st.sampled_from([f"b/{n}" for n in range(4)]), min_size=1, max_size=3)
MOST_WORKERS = 4
WHICH = st.integers(0, 11)
STEPS = st.sampled_from([1, 1, 2, 2, 3, 3, 4, 7])
"""A worker is `marked` after two and `called` after three."""
pytestmark = pytest.mark.timeout(TIMEOUT)


class Machine(OnDatabase):
    """The real thing on one side, what it must come to on the other."""

    verify_after: float | None = None

    def __init__(self) -> None:
        super().__init__()
        self.url = type(self).fresh()
        self.bench = Bench(
            Database.open(self.url),
            batch=BATCH,
            lease_seconds=LEASE,
            retry_base_seconds=RETRY / 2,
            retry_max_seconds=RETRY,
            attempts_before_escalation=TRIES,
            verify_after=self.verify_after,
        )
        self.model = Model(verify_after=self.verify_after)
        self.seen: set[str] = set()
        self.holds: dict[str, int] = {}
        self.running: list[tuple[ParkedWorker, Any]] = []
        self.dead: list[ParkedWorker] = []
        self.next_call: dict[str, list[int]] = {}
        self.written: dict[str, Any] = {}

    def teardown(self) -> None:
        for worker in [*self.dead, *(worker for worker, _ in self.running)]:
            worker.abandon()
        self.bench.database.close()
        type(self).drop(self.url)

    @initialize(case=CASES, locators=TARGETS)
    def open_the_first(self, case: str, locators: list[str]) -> None:
        self.open(case, locators, [True] * 3)

    @rule(case=CASES, locators=TARGETS, there=st.lists(st.booleans(), min_size=3, max_size=3))
    def open(self, case: str, locators: list[str], there: list[bool]) -> None:
        for locator, is_there in zip(locators, there, strict=False):
            if locator not in self.seen and is_there:
                self.bench.store.put(locator)
            self.seen.add(locator)
        fresh = self.model.fresh(case, locators)
        with self.bench.database.begin() as tx:
            targets = [Target("mem", "object", locator) for locator in locators]
            opened = open_case(tx.connection, case_id=case, subject=case, basis="gdpr", targets=targets)
            rows = tx.rows("SELECT id, locator FROM erasure_outbox WHERE case_id = :case", case=case)
        assert (opened.added, opened.created) == (len(fresh), case not in self.model.cases)
        self.model.cases.add(case)
        for row in rows:
            if row.locator in fresh:
                self.model.add(row.id, case, row.locator)
        if fresh:
            self.model.opened(case)

    # no rule has a precondition: what is possible may depend on the clock, and Hypothesis needs to repeat itself
    @rule(limit=st.integers(1, 5), answers=ANSWERS, steps=STEPS)
    def claim(self, limit: int, answers: list[str], steps: int) -> None:
        due = self.model.due()
        if len(self.running) == MOST_WORKERS:
            self.go_on(limit, answers, steps)
            return
        if not due:
            self.let_time_pass(long=False, then_sweep=True)
            return
        covered = self.model.due_under_a_hold()
        worker = ParkedWorker(self.bench.another(), "mem", limit)
        held = covered & {row.id for row in self.bench.entries(state="held")}
        assert len(held) == min(limit, len(covered))
        self.model.hold_due(held)
        due -= held
        if not worker.entry_ids:
            assert not due
            worker.abandon()
            return
        assert set(worker.entry_ids) <= due
        assert len(worker.entry_ids) == min(limit, len(due))
        self.model.claim(worker.token, worker.entry_ids)
        self.running.append((worker, self.model.worker(worker.token, worker.entry_ids)))
        self.go_on(len(self.running) - 1, answers, steps)

    @rule(which=WHICH, answers=ANSWERS, steps=STEPS)
    def go_on(self, which: int, answers: list[str], steps: int) -> None:
        """A worker goes on: a step, or many. It does not know that its lease may be over."""
        if not self.running:
            self.claim(1 + which % 5, answers, steps)
            return
        worker, plan = self.running[which % len(self.running)]
        for _ in range(steps):
            statuses = None
            if worker.token in self.next_call:
                statuses = script_call(self.bench.store, self.model, self.next_call.pop(worker.token), answers)
            try:
                expected, about = plan.send(statuses)
                if expected == "look":
                    expected, about = plan.send(script_looks(self.bench.store, self.model, about, answers))
            except StopIteration:
                expected, about = DONE, []
            assert worker.step() == expected
            if about:
                self.next_call[worker.token] = about
            if expected == DONE:
                self.running.remove((worker, plan))
                return

    @rule(which=WHICH)
    def kill(self, which: int) -> None:
        """It never goes on. What it holds is freed by the sweep."""
        if len(self.running) < MOST_WORKERS:
            return
        worker, plan = self.running.pop(which % len(self.running))
        self.next_call.pop(worker.token, None)
        plan.close()
        self.dead.append(worker)

    @rule(long=st.sampled_from([False, False, True]), then_sweep=st.sampled_from([True, True, False]))
    def let_time_pass(self, long: bool, then_sweep: bool) -> None:
        """Every lease ends, and every retry is due; after the long time what was escalated as well."""
        seconds = DAY + 1 if long else LEASE + 1
        if long:
            self.bench.store.finish()
        self.bench.later(seconds)
        self.model.now += seconds
        if then_sweep:
            self.sweep()

    def sweep(self) -> None:
        self.bench.sweep()
        self.model.sweep()

    @rule(
        decide=st.sampled_from(["hold", "release", "release", "retry", "waive", "nothing found"]),
        case=CASES,
        which=WHICH,
    )
    def people(self, decide: str, case: str, which: int) -> None:
        known = case in self.model.cases
        if decide == "hold" and known and case not in self.holds:
            self._hold(case)
        elif decide == "release" and case in self.holds:
            with self.bench.database.begin() as tx:
                assert release_hold(tx, self.holds.pop(case), by="counsel", why="over")
            self.model.held.discard(case)
        elif decide == "retry" and known:
            with self.bench.database.begin() as tx:
                retry(tx, case=case, by="ops")
            self.model.retry(case)
        elif decide == "waive" and self.model.entries:
            self._waive(sorted(self.model.entries)[which % len(self.model.entries)])
        elif decide == "nothing found":
            self._nothing_found(case)

    def _nothing_found(self, case: str) -> None:
        found = bool(self.bench.entries(case_id=case) or self.bench.receipts(case_id=case))
        try:
            with self.bench.database.begin() as tx:
                open_case(tx.connection, case_id=case, subject=case, basis="gdpr", nothing_found=True)
        except CaseConflict:
            assert found
        else:
            assert not found
            self.model.cases.add(case)

    def _hold(self, case: str) -> None:
        with self.bench.database.begin() as tx:
            self.holds[case], flying = place_hold(tx, subject=case, by="counsel", why="matter 7")
        assert list(flying) == self.model.hold(case)

    def _waive(self, entry_id: int) -> None:
        busy = self.model.entries[entry_id].state in ("leased", "calling")
        try:
            with self.bench.database.begin() as tx:
                waive(tx, [entry_id], by="dpo", why="kept by law")
        except EntryInFlight:
            assert busy
        else:
            assert not busy
            self.model.waive(entry_id)

    @invariant()
    def entries_are_as_the_model_says(self) -> None:
        found = {
            row.id: (
                *(row.state, row.attempt, row.tries, row.lost_leases, _text(row.lease_token)),
                *(row.action, bool(row.settled), row.reappeared),
            )
            for row in self.bench.entries()
        }
        assert found == {
            e.id: (e.state, e.attempt, e.tries, e.lost, e.owner, e.action, e.settled, e.reappeared)
            for e in self.model.entries.values()
        }

    @invariant()
    def receipts_only_grow_and_never_change(self) -> None:
        rows = {_text(row.id): tuple(row) for row in self.bench.receipts()}
        assert {receipt_id: rows.get(receipt_id) for receipt_id in self.written} == self.written
        self.written = rows

    @invariant()
    def receipts_say_what_happened(self) -> None:
        receipts = self.bench.receipts()
        assert Counter((r.entry_id, r.attempt, r.status) for r in receipts) == self.model.receipts
        still_there = self._there()
        assert not [r for r in receipts if r.status in SUCCESS and r.locator in still_there]

    def _there(self) -> set[str]:
        """What is at the store and was never made anew."""
        return self.bench.store.objects

    @invariant()
    def every_call_has_its_receipt_or_is_under_way(self) -> None:
        asked = Counter((operation, locator) for operation, locators in self.bench.store.log for locator in locators)
        called = Counter({locator: n for (operation, locator), n in asked.items() if operation == "delete"})
        looked = Counter({locator: n for (operation, locator), n in asked.items() if operation == "verify"})
        expected: Counter[str] = Counter()
        answered = {(entry_id, attempt) for entry_id, attempt, _ in self.model.receipts}
        for entry_id, attempt in self.model.calls:
            expected[self.model.locators[entry_id]] += 1
            entry = self.model.entries.get(entry_id)
            under_way = entry is not None and (entry.state, entry.attempt) == ("calling", attempt)
            assert under_way or (entry_id, attempt) in answered
        assert called == expected
        assert looked == self.model.looks

    @invariant()
    def a_case_is_complete_when_nothing_is_left_and_only_then(self) -> None:
        with self.bench.database.read() as tx:
            rows = tx.rows("SELECT id, completed_at FROM erasure_case")
        assert {row.id: row.completed_at is not None for row in rows} == {
            case: self.model.is_complete(case) for case in self.model.cases
        }

    @invariant()
    def nothing_was_found_only_where_nothing_was(self) -> None:
        with self.bench.database.read() as tx:
            said = {row.id for row in tx.rows("SELECT id FROM erasure_case WHERE nothing_found")}
        assert not said & {row.case_id for row in [*self.bench.entries(), *self.bench.receipts()]}


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def test_on_sqlite(sqlite_template: Path, tmp_path: Path) -> None:
    run_on_sqlite(Machine, sqlite_template, tmp_path, examples=60, steps=40)


def test_on_postgresql(postgres: Any, postgres_template: str) -> None:
    run_on_postgresql(Machine, postgres, postgres_template, examples=6, steps=40)
