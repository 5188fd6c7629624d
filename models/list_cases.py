"""Reading cases, with what is derived: their state, whether they are overdue, and how much is left and done."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from expunge.models.database import Database, Transaction
from expunge.models.errors import CaseNotFound
from expunge.models.keyset import PAGE, RowDict, pages
from expunge.models.states import CaseState, EntryState
from expunge.models.tables import ErasureCase, ErasureRecord, OutboxEntry
from expunge.models.types import Json, UtcDateTime


def case_state(entries: Mapping[str, int], completed_at: datetime | None) -> CaseState:
    """The first that applies; `entries` counts the case's outbox by state."""
    if entries.get(EntryState.ESCALATED):
        return CaseState.ESCALATED
    if entries.get(EntryState.HELD):
        return CaseState.HELD
    if completed_at is None:
        return CaseState.OPEN
    return CaseState.COMPLETE


def list_cases(database: Database, size: int = PAGE, *, overdue: bool = False) -> Iterator[list[RowDict]]:
    """All cases in pages, the oldest first: their columns, then `state`, `overdue`, `entries` (counted by state) and
    `receipts` (counted). Overdue is said of cases that are not complete, by the database's clock at the beginning;
    with `overdue` there are no others."""
    with database.read() as tx:
        now = database_clock(tx)
    for page in pages(database, _cases(database.dialect), [ErasureCase.opened_at, ErasureCase.id], size):
        rows = [_derived(row, now) for row in page]
        yield [row for row in rows if row["overdue"]] if overdue else rows


def read_case(tx: Transaction, case_id: str) -> RowDict:
    """One case as `list_cases` gives it. Raises CaseNotFound."""
    now = database_clock(tx)
    row = tx.connection.execute(_cases(tx.dialect).where(ErasureCase.id == case_id)).one_or_none()
    if row is None:
        raise CaseNotFound(f"there is no case {case_id}")
    return _derived(dict(row._mapping), now)


def require_case(tx: Transaction, case_id: str) -> None:
    """Raises CaseNotFound unless there is a case with this id, or a receipt of one: receipts outlive their case."""
    for table in ("erasure_case WHERE id", "erasure_record WHERE case_id"):
        if tx.first(f"SELECT 1 FROM {table} = :case LIMIT 1", case=case_id):
            return
    raise CaseNotFound(f"there is no case {case_id}")


def database_clock(tx: Transaction) -> datetime:
    """What the database takes the time to be."""
    now: datetime = tx.typed_rows("SELECT {now} AS now", {"now": UtcDateTime()})[0].now
    return now


def _cases(dialect: str) -> sa.Select[Any]:
    # one statement, so that columns and counts are of one moment
    by_state = (
        sa.select(OutboxEntry.state, sa.func.count().label("n"))
        .where(OutboxEntry.case_id == ErasureCase.id, ~OutboxEntry.settled)
        .group_by(OutboxEntry.state)
        .correlate(ErasureCase)
        .subquery()
    )
    as_object = sa.func.jsonb_object_agg if dialect == "postgresql" else sa.func.json_group_object
    entries = sa.select(as_object(by_state.c.state, by_state.c.n, type_=Json)).correlate(ErasureCase).scalar_subquery()
    receipts = (
        sa.select(sa.func.count())
        .select_from(ErasureRecord)
        .where(ErasureRecord.case_id == ErasureCase.id)
        .correlate(ErasureCase)
        .scalar_subquery()
    )
    return sa.select(*ErasureCase.__table__.columns, entries.label("entries"), receipts.label("receipts"))


def _derived(row: RowDict, now: datetime) -> RowDict:
    entries, receipts = row.pop("entries") or {}, row.pop("receipts")
    state = case_state(entries, row["completed_at"])
    due_at = row["due_at"]
    return {
        **row,
        "state": str(state),
        "overdue": due_at is not None and due_at < now and state is not CaseState.COMPLETE,
        "entries": {str(state): entries[state] for state in EntryState if state in entries},
        "receipts": receipts,
    }
