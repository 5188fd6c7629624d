"""Reading cases, receipts and the outbox: exact, in order, in pages."""

from datetime import timedelta

import pytest
import sqlalchemy as sa
from rows import NOW, add_case, add_receipts, change_entries, receipt

from expunge.models import keyset
from expunge.models.database import Database
from expunge.models.decisions import pause
from expunge.models.errors import CaseNotFound
from expunge.models.lanes import ensure_lane, pause_lane
from expunge.models.list_cases import list_cases, read_case
from expunge.models.list_outbox import ENTRY_COLUMNS, EntryFilter, list_entries, pause_of, paused_lanes
from expunge.models.list_receipts import RECEIPT_COLUMNS, ReceiptFilter, list_receipts
from expunge.models.tables import ErasureCase, ErasureRecord


def _rows(pages):
    return [row for page in pages for row in page]


def _state(database, case):
    with database.read() as tx:
        return read_case(tx, case)


def test_a_case_has_its_columns_then_what_is_derived(database):
    add_case(database, "1", ["b/1", "b/2"], basis="gdpr", received_at=NOW)
    row = _state(database, "1")
    assert list(row) == [c.name for c in ErasureCase.__table__.columns] + ["state", "overdue", "entries", "receipts"]
    assert (row["id"], row["received_at"], row["due_at"]) == ("1", NOW, NOW.replace(month=11))
    assert (row["state"], row["entries"], row["receipts"]) == ("open", {"ready": 2}, 0)
    with pytest.raises(CaseNotFound):
        _state(database, "2")


def test_the_state_is_the_first_that_applies(database):
    one, two, _ = add_case(database, "1", ["b/1", "b/2", "b/3"])
    assert _state(database, "1")["state"] == "open"
    change_entries(database, [one], state="held", reason="held")
    assert _state(database, "1")["state"] == "held"
    change_entries(database, [two], state="escalated", reason="AccessDenied")
    row = _state(database, "1")
    assert (row["state"], row["entries"]) == ("escalated", {"ready": 1, "held": 1, "escalated": 1})
    add_case(database, "2", [])
    row = _state(database, "2")
    assert (row["state"], row["entries"], row["nothing_found"]) == ("complete", {}, True)


def test_overdue_goes_by_the_databases_clock_and_ends_with_completion(database):
    add_case(database, "1", ["b/1"], basis="gdpr")
    add_case(database, "2", [], basis="gdpr")
    add_case(database, "3", ["b/1"])
    assert [row["overdue"] for row in _rows(list_cases(database))] == [False, False, False]
    later = Database(database.engine, skew=timedelta(days=32))
    assert [row["overdue"] for row in _rows(list_cases(later))] == [True, False, False]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_cases_come_once_each_in_the_order_of_opening(database, size):
    for n in range(7):
        add_case(database, f"{n}", [f"b/{n}"])
    with database.begin() as tx:
        # what a host's plain SQL may have written: fewer digits, and several at one moment
        moment = "2026-01-01 00:00:00" if database.dialect == "sqlite" else "2026-01-01 00:00:00+00"
        tx.run("UPDATE erasure_case SET opened_at = :moment WHERE id IN ('1', '3', '5', '6')", moment=moment)
    pages = list(list_cases(database, size))
    assert [row["id"] for row in _rows(pages)] == ["1", "3", "5", "6", "0", "2", "4"]
    assert all(0 < len(page) <= size for page in pages)


def test_receipts_have_their_columns_in_the_order_of_recording(database):
    add_receipts(database, [receipt("1", "b/ü", detail={"existed": "unknown"}, http_status=200, purge_due_at=NOW)])
    add_receipts(database, [receipt("1", "b/2", version="v1"), receipt("2", "b/2", status="failed", error="SlowDown")])
    rows = _rows(list_receipts(database, ReceiptFilter()))
    assert [list(row) for row in rows] == [RECEIPT_COLUMNS] * 3
    (first,) = [row for row in rows if row["locator"] == "b/ü"]
    assert (first["detail"], first["http_status"], first["purge_due_at"]) == ({"existed": "unknown"}, 200, NOW)
    assert [(row["recorded_at"], row["id"]) for row in rows] == sorted((row["recorded_at"], row["id"]) for row in rows)


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({}, {"1", "2", "3", "4"}),
        ({"case": "x"}, {"1", "2"}),
        ({"subject": "other"}, {"3"}),
        ({"tenant": "acme"}, {"4"}),
        ({"account": "openai_eu"}, {"3"}),
        ({"kind": "file"}, {"3"}),
        ({"status": "failed"}, {"2"}),
        ({"locator": "b/100%"}, {"1"}),
        ({"locator": "b/1"}, set()),
        ({"case": "x", "status": "deleted", "subject": "s", "tenant": "t"}, {"1"}),
        ({"case": "nobody"}, set()),
    ],
)
@pytest.mark.parametrize("many", [0, 20_000])
def test_receipts_by_filter(database, wanted, found, many, monkeypatch):
    """Whether few or many rows match: that is found in two ways."""
    monkeypatch.setattr(keyset, "_MANY", many)
    made = {
        "1": receipt("x", "b/100%"),
        "2": receipt("x", "b/1000", status="failed", error="SlowDown"),
        "3": receipt("y", "file-1", kind="file", account="openai_eu", subject="other"),
        "4": receipt("y", "b/100_", tenant="acme"),
    }
    add_receipts(database, list(made.values()))
    names = {receipt.id: name for name, receipt in made.items()}
    rows = _rows(list_receipts(database, ReceiptFilter(**wanted), size=2))
    assert {names[row["id"]] for row in rows} == found
    assert len(rows) == len(found)


@pytest.mark.parametrize("size", [1, 3, 50])
def test_receipts_recorded_at_one_moment_come_once_each(database, size):
    moments = [NOW + timedelta(milliseconds=n // 10) for n in range(50)]
    with database.begin() as tx:
        tx.connection.execute(
            sa.insert(ErasureRecord),
            [
                {
                    **{name: getattr(made, name) for name in RECEIPT_COLUMNS if name != "recorded_at"},
                    "recorded_at": moment,
                }
                for moment in moments
                for made in [receipt("1", "b/1")]
            ],
        )
    rows = _rows(list_receipts(database, ReceiptFilter(), size))
    assert [row["recorded_at"] for row in rows] == moments
    assert len({row["id"] for row in rows}) == 50
    since, until = moments[10], moments[30]
    rows = _rows(list_receipts(database, ReceiptFilter(since=since, until=until), size))
    assert [row["recorded_at"] for row in rows] == moments[10:30]


def test_no_transaction_is_open_between_pages(database):
    add_receipts(database, [receipt("1", f"b/{n}") for n in range(10)])
    for _ in list_receipts(database, ReceiptFilter(), size=3):
        assert not database.in_transaction
        assert database.engine.pool.checkedout() == 0


@pytest.mark.parametrize("many", [0, 20_000])
def test_entries_by_filter_in_the_order_of_their_ids(database, many, monkeypatch):
    monkeypatch.setattr(keyset, "_MANY", many)
    first = add_case(database, "1", [f"b/{n}" for n in range(5)])
    second = add_case(database, "2", ["file-1"], account="openai_eu", kind="file")
    change_entries(database, first[1:3], state="escalated", reason="AccessDenied")

    def found(**wanted):
        return [row["id"] for row in _rows(list_entries(database, EntryFilter(**wanted), size=2))]

    assert found() == sorted(first + second)
    assert found(case="1") == sorted(first)
    assert found(account="openai_eu") == second
    assert found(state="escalated") == sorted(first[1:3])
    assert found(case="1", account="artifacts", state="ready") == sorted(first[:1] + first[3:])
    assert found(case="3") == []
    row = _rows(list_entries(database, EntryFilter(case="2")))[0]
    assert list(row) == ENTRY_COLUMNS
    assert (row["attempt"], row["had_parts"], row["lease_until"]) == (0, False, None)


def test_pauses_of_lanes_and_buckets(database):
    with database.begin() as tx:
        pause(tx, "openai_eu", by="dana")
        ensure_lane(tx, "artifacts", "sick")
        pause_lane(tx, "artifacts", "sick", by="breaker", seconds=60, reason="NoSuchBucket", refused=True)
        ensure_lane(tx, "gone", "")
        pause_lane(tx, "gone", by="throttle", seconds=-1, reason="SlowDown")
        ensure_lane(tx, "counting", "")
    lanes = paused_lanes(database)
    assert [(lane.account, lane.scope) for lane in lanes] == [("artifacts", "sick"), ("openai_eu", "")]
    assert [lane.account for lane in paused_lanes(database, "artifacts")] == ["artifacts"]
    assert pause_of({"account": "openai_eu", "locator": "file-1"}, lanes) is lanes[1]
    assert pause_of({"account": "artifacts", "locator": "sick/key"}, lanes) is lanes[0]
    assert pause_of({"account": "artifacts", "locator": "sickness/key"}, lanes) is None
    assert pause_of({"account": "gone", "locator": "b/key"}, lanes) is None
