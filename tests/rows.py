"""Rows for tests, made through the models."""

import uuid
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa

from expunge.models import Target, open_case
from expunge.models.database import Database
from expunge.models.entry import Receipt
from expunge.models.settle import write_receipts
from expunge.models.tables import ErasureRecord, OutboxEntry

NOW = datetime(2026, 10, 18, 9, 30, tzinfo=UTC)


def add_case(database: Database, case: str, locators: list[str], **options: Any) -> list[int]:
    """A case with objects at account `artifacts`; gives the ids of its new entries, in the order of their locators."""
    options = {"subject": "s", "tenant": "t", "account": "artifacts", "kind": "object", **options}
    account, kind = options.pop("account"), options.pop("kind")
    with database.begin() as tx:
        open_case(
            tx.connection,
            case_id=case,
            targets=[Target(account, kind, locator) for locator in locators],
            nothing_found=not locators,
            **options,
        )
        rows = tx.rows("SELECT id, locator FROM erasure_outbox WHERE case_id = :case", case=case)
    ids = {row.locator: row.id for row in rows}
    return [ids[locator] for locator in locators]


def change_entries(database: Database, ids: list[int], **values: Any) -> None:
    """Put entries into a state, as a drain would have left them."""
    if values.get("state") in ("leased", "calling"):
        values = {"lease_token": str(uuid.uuid4()), "lease_until": NOW, "attempt": 1, **values}
    with database.begin() as tx:
        tx.connection.execute(sa.update(OutboxEntry).where(OutboxEntry.id.in_(ids)).values(**values))


def receipt(case: str, locator: str, **values: Any) -> Receipt:
    """A receipt as a drain would make it."""
    return Receipt(
        **{
            "id": str(uuid.uuid4()),
            "case_id": case,
            "entry_id": None,
            "tenant": "t",
            "subject": "s",
            "conversation": None,
            "account": "artifacts",
            "store": "s3",
            "kind": "object",
            "locator": locator,
            "attempt": 1,
            "action": "delete",
            "status": "deleted",
            "operation": "DeleteObjects",
            "at": NOW,
            **values,
        }
    )


def add_receipts(database: Database, receipts: list[Receipt]) -> None:
    """Write them."""
    with database.begin() as tx:
        for start in range(0, len(receipts), 5000):
            write_receipts(tx, receipts[start : start + 5000])


def add_many_receipts(database: Database, case: str, number: int) -> None:
    """Receipts that the database copies from some of ours: to make each of some 100,000 here takes longer than what is
    tried with them."""
    made = min(number, 2_000)
    add_receipts(database, [receipt(case, f"b/{'k' * 100}/{n}", detail={"n": n}) for n in range(made)])
    names = [column.name for column in ErasureRecord.__table__.columns if column.name not in ("id", "recorded_at")]
    fresh = "gen_random_uuid()" if database.dialect == "postgresql" else "lower(hex(randomblob(16)))"
    with database.begin() as tx:
        while made < number:
            made += tx.run(
                f"INSERT INTO erasure_record (id, {', '.join(names)}) SELECT {fresh}, {', '.join(names)} "
                "FROM erasure_record WHERE case_id = :case LIMIT :most",
                case=case,
                most=number - made,
            )
