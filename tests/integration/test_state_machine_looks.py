"""Every order of what test_state_machine.py does, with a second look owed after each success, and with whatever may
happen while it is owed: the application puts objects back, people hold, pause, extend and erase again, the store only
accepts. At the end nothing is looked at for ever, and no success is without its second look."""

from pathlib import Path
from typing import Any

import pytest
from doubles.machines import TIMEOUT, run_on_postgresql, run_on_sqlite
from doubles.model import DAY, SUCCESS
from hypothesis import strategies as st
from hypothesis.stateful import rule
from integration.test_state_machine import CASES, WHICH, Machine

from expunge.models.decisions import pause, resume, retry, waive
from expunge.models.errors import EntryInFlight, InvalidDecision
from expunge.models.extend import extend_case
from expunge.models.holds import release_hold
from expunge.models.second_look import BACK_TO_ERASE

AFTER = 450.0
"""Seconds: one short time is not enough, two are."""
MOST_ROUNDS = 12
pytestmark = pytest.mark.timeout(TIMEOUT)


class Looks(Machine):
    """A closed target waits for its second look."""

    verify_after = AFTER

    def __init__(self) -> None:
        super().__init__()
        self.extended: set[str] = set()
        self.put_back: set[str] = set()

    def teardown(self) -> None:
        try:
            self.it_comes_to_an_end()
        finally:
            super().teardown()

    @rule(which=WHICH)
    def application_puts_it_back(self, which: int) -> None:
        if self.seen:
            locator = sorted(self.seen)[which % len(self.seen)]
            self.bench.store.put(locator)
            self.bench.store.accepted.discard(locator)
            self.put_back.add(locator)

    @rule(decide=st.sampled_from(["pause", "resume", "resume"]))
    def the_operator(self, decide: str) -> None:
        with self.bench.database.begin() as tx:
            (pause if decide == "pause" else resume)(tx, "mem", by="ops")
        (self.model.pause if decide == "pause" else self.model.resume)()

    @rule(decide=st.sampled_from(["retry", "again", "waive"]), which=WHICH)
    def about_one_entry(self, decide: str, which: int) -> None:
        if not self.model.entries:
            return
        entry = self.model.entries[sorted(self.model.entries)[which % len(self.model.entries)]]
        if decide == "retry":
            with self.bench.database.begin() as tx:
                retry(tx, ids=[entry.id], by="ops")
            self.model.retry_one(entry)
        elif decide == "waive":
            self._waive(entry.id)
        else:
            with self.bench.database.begin() as tx:  # as `purge --again` does
                tx.run(f"UPDATE erasure_outbox SET {BACK_TO_ERASE} WHERE settled AND id = :id", id=entry.id)
            self.model.again(entry)

    def _waive(self, entry_id: int) -> None:
        if not self.model.entries[entry_id].settled:
            super()._waive(entry_id)
            return
        with pytest.raises((InvalidDecision, EntryInFlight)), self.bench.database.begin() as tx:
            waive(tx, [entry_id], by="dpo", why="kept by law")

    @rule(case=CASES)
    def extend(self, case: str) -> None:
        """Once, and while something is left to be erased: a look that is owed is not."""
        if case not in self.model.cases or self.model.now > 25 * DAY:
            return
        try:
            with self.bench.database.begin() as tx:
                extend_case(tx, case, by="dpo", why="many requests")
        except InvalidDecision:
            assert case in self.extended or self.model.is_complete(case)
        else:
            assert case not in self.extended
            assert not self.model.is_complete(case)
            self.extended.add(case)

    def _there(self) -> set[str]:
        return self.bench.store.objects - self.put_back

    def it_comes_to_an_end(self) -> None:
        """Whatever was decided and answered before: the store answers again, and no order of a person stands."""
        for worker, _ in self.running:
            worker.abandon()
        self.bench.store.scripts.clear()
        with self.bench.database.begin() as tx:
            resume(tx, "mem", by="ops")
            for hold in self.holds.values():
                release_hold(tx, hold, by="counsel", why="over")
        for _ in range(MOST_ROUNDS):
            self.bench.later(DAY + 1)
            self.bench.store.finish()
            self.bench.sweep()
            self.bench.drain()
            if not self.bench.entries():
                break
        assert self.bench.entries() == []
        with self.bench.database.read() as tx:
            opened = tx.rows("SELECT id, completed_at FROM erasure_case WHERE NOT nothing_found")
        assert all(row.completed_at is not None for row in opened if self.bench.receipts(case_id=row.id))
        told: dict[int, set[str]] = {}
        for row in self.bench.receipts():
            told.setdefault(row.entry_id, set()).add(row.status)
        ends = {"absent", "unverifiable", "waived"}
        assert not [entry for entry, statuses in told.items() if statuses & set(SUCCESS) and not statuses & ends]


def test_on_sqlite(sqlite_template: Path, tmp_path: Path) -> None:
    run_on_sqlite(Looks, sqlite_template, tmp_path, examples=15, steps=40)


def test_on_postgresql(postgres: Any, postgres_template: str) -> None:
    run_on_postgresql(Looks, postgres, postgres_template, examples=3, steps=40)
