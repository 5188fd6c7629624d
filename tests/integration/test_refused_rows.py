"""A database that takes the connection but not a row: its neighbours are settled all the same, whoever decided them."""

from typing import Any

import pytest
import sqlalchemy as sa
from doubles.running import Bench
from structlog.testing import capture_logs

from expunge.models.database import Database
from expunge.tasks import settling
from expunge.tasks.outcomes import Outcome

NAMES = [f"b/{number}" for number in range(5)]
SICK = "b/2"


def opened(bench: Bench, decided_by: str) -> Bench:
    """Five entries of one case, which one call, or one look, decides about."""
    if decided_by == "call":
        bench.store.put(*NAMES)
    else:
        bench.store.versions.update({name: [] for name in NAMES})
    bench.open(*NAMES)
    return bench


@pytest.fixture(params=["call", "look"])
def bench(request, database) -> Bench:
    return opened(Bench(database), request.param)


def change_answers(bench: Bench, **fields: Any) -> None:
    """Every answer of the sick entry, and with `everywhere` of all, is given like this."""
    where = NAMES if fields.pop("everywhere", False) else [SICK]
    eraser = bench.runtime.eraser("mem")
    real = eraser.look
    bench.store.always.update(dict.fromkeys(where, fields))

    def look(entries: Any, until: float) -> Any:
        looked = real(entries, until)
        ids = {entry.id for entry in entries if entry.locator in where}
        for answer in looked.answers:
            for name, value in fields.items() if answer.entry_id in ids else ():
                setattr(answer, name, value)
        return looked

    eraser.look = look  # type: ignore[method-assign]


def refuse(monkeypatch: pytest.MonkeyPatch, *, even_bare: bool) -> list[Any]:
    """The database refuses the receipt of the sick entry; gives the receipts that it refused."""
    real, refused = settling.write_receipts, []

    def write_receipts(tx: Any, receipts: Any) -> None:
        sick = [
            each for each in receipts if each.locator == SICK and (even_bare or "dropped" not in (each.detail or {}))
        ]
        refused.extend(sick)
        if sick:
            raise sa.exc.DataError("INSERT", {}, Exception("value out of range"))
        real(tx, receipts)

    monkeypatch.setattr(settling, "write_receipts", write_receipts)
    return refused


def test_what_the_store_said_is_left_out_of_one_row(bench, monkeypatch) -> None:
    refuse(monkeypatch, even_bare=False)
    with capture_logs() as logs:
        report = bench.drain()
    assert (report.settled, bench.entries()) == (5, [])
    assert sorted(row.locator for row in bench.receipts()) == NAMES
    assert [row.locator for row in bench.receipts() if "dropped" in str(row.detail)] == [SICK]
    assert [line.get("entry_id") is not None for line in logs if line["event"] == "settle.refused"] == [False, True]
    assert sum(line["entries"] for line in logs if line["event"] == "call.settled") == 5
    assert [line["event"] for line in logs].count("case.completed") == 1
    assert bench.case().completed_at is not None


def test_a_row_that_is_refused_bare_as_well_waits_for_its_lease(bench, monkeypatch) -> None:
    """It is not tried again at once, over and over; and the neighbours are done with."""
    refused = refuse(monkeypatch, even_bare=True)
    bench.drain()
    bench.drain()
    assert sorted(row.locator for row in bench.receipts()) == [name for name in NAMES if name != SICK]
    entry = bench.entry()
    assert entry.locator == SICK
    assert entry.state in ("leased", "calling")
    assert len(refused) == 3  # all together, alone, bare
    monkeypatch.undo()
    bench.later(31)
    bench.sweep()
    bench.settle_all()
    assert bench.receipts(locator=SICK)[-1].status in ("deleted", "already_absent")
    assert bench.case().completed_at is not None


def test_entries_that_stay_are_moved_one_by_one_as_well(bench, monkeypatch) -> None:
    """Each with its count, its reason and its wait; a refusal of three entries still pauses the lane."""
    change_answers(bench, outcome=Outcome.REFUSED_SCOPE, error="InvalidAccessKeyId", everywhere=True)
    refused = refuse(monkeypatch, even_bare=False)
    with capture_logs() as logs:
        bench.drain()
    assert len(refused) == 2
    moved = [(row.state, row.tries, row.refusals, row.reason) for row in bench.entries()]
    assert set(moved) <= {("ready", 1, 1, "InvalidAccessKeyId"), ("ready", 0, 0, None)}
    assert moved.count(("ready", 1, 1, "InvalidAccessKeyId")) == len(bench.receipts()) >= 3
    assert [line["event"] for line in logs].count("lane.paused") == 1


@pytest.mark.parametrize("decided_by", ["call", "look"])
def test_postgresql_itself_refuses_a_number(postgres_url, decided_by) -> None:
    """Without a double for the database."""
    database = Database.open(postgres_url)
    bench = opened(Bench(database), decided_by)
    change_answers(bench, http_status=10**12)
    bench.drain()
    assert bench.entries() == []
    assert {row.locator for row in bench.receipts()} == set(NAMES)
    assert [row.http_status for row in bench.receipts(locator=SICK)] == [None]
    database.close()
