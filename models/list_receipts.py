"""Reading receipts, in the order in which the database recorded them."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from expunge.models.database import Database, Transaction
from expunge.models.keyset import PAGE, RowDict, columns_of, equals, pages
from expunge.models.tables import ErasureRecord

RECEIPT_COLUMNS = columns_of(ErasureRecord)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiptFilter:
    """What receipts must have; None does not narrow. The locator is compared exactly."""

    case: str | None = None
    subject: str | None = None
    tenant: str | None = None
    account: str | None = None
    kind: str | None = None
    status: str | None = None
    locator: str | None = None
    since: datetime | None = None
    """`recorded_at` at this moment or later."""
    until: datetime | None = None
    """`recorded_at` before this moment."""


def list_receipts(database: Database, wanted: ReceiptFilter, size: int = PAGE) -> Iterator[list[RowDict]]:
    """Receipts in pages, by `recorded_at` and then id."""
    record = ErasureRecord
    statement = sa.select(*record.__table__.columns)
    with database.read() as tx:
        for indexed, value in (
            (record.case_id, wanted.case),
            (record.subject, wanted.subject),
            (record.tenant, wanted.tenant),
        ):
            if value is not None:
                statement = statement.where(equals(tx, indexed, value))
    for column, value in (
        (record.account, wanted.account),
        (record.kind, wanted.kind),
        (record.status, wanted.status),
        (record.locator, wanted.locator),
    ):
        if value is not None:
            statement = statement.where(column == value)
    if wanted.since is not None:
        statement = statement.where(record.recorded_at >= wanted.since)
    if wanted.until is not None:
        statement = statement.where(record.recorded_at < wanted.until)
    yield from pages(database, statement, [record.recorded_at, record.id], size)


def read_receipts(tx: Transaction, ids: Collection[str]) -> list[RowDict]:
    """Some thousand receipts by their ids."""
    statement = sa.select(*ErasureRecord.__table__.columns).where(ErasureRecord.id.in_(list(ids)))
    rows = tx.connection.execute(statement.order_by(ErasureRecord.recorded_at, ErasureRecord.id))
    return [dict(row._mapping) for row in rows]
