"""Everything that a restore would lose, as rows in pages: what `expunge export` writes.

Receipts, decisions, cases by their times; every tombstone and hold whatever its age, since one that is too old to be
looked at lets a purged conversation return; and what the outbox owes, since a restore forgets that as well.
"""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from expunge.models.database import Database
from expunge.models.keyset import PAGE, RowDict, pages
from expunge.models.purge_tables import Tombstone
from expunge.models.tables import ErasureCase, ErasureDecision, ErasureHold, ErasureRecord, OutboxEntry


def export_pages(database: Database, since: datetime | None, size: int = PAGE) -> Iterator[tuple[str, list[RowDict]]]:
    """Pages of one kind each. Memory for a page; no transaction is open between two pages.

    `since`: receipts by `recorded_at`, decisions by `at`, and the cases that were open then or opened later.
    """
    case, record, decision = ErasureCase, ErasureRecord, ErasureDecision
    cases, receipts, decisions = sa.select(case.__table__), sa.select(record.__table__), sa.select(decision.__table__)
    if since is not None:
        cases = cases.where(sa.or_(case.opened_at >= since, case.completed_at.is_(None), case.completed_at >= since))
        receipts = receipts.where(record.recorded_at >= since)
        decisions = decisions.where(decision.at >= since)
    stones = sa.select(Tombstone.__table__)
    entry = OutboxEntry
    owed: list[Any] = [entry.id, entry.case_id, entry.account, entry.kind, entry.locator, entry.parent_id]
    entries = sa.select(*owed, entry.conversation, entry.created_at).where(entry.settled.is_(False))
    for kind, statement, keys in (
        ("tombstone", stones, [Tombstone.graph, Tombstone.conversation]),
        ("hold", sa.select(ErasureHold.__table__), [ErasureHold.id]),
        ("entry", entries, [entry.id]),  # before the cases: one that is opened meanwhile is among them then
        ("case", cases, [case.opened_at, case.id]),
        ("decision", decisions, [decision.id]),
        ("receipt", receipts, [record.recorded_at, record.id]),
    ):
        for page in pages(database, statement, keys, size):
            yield kind, page
