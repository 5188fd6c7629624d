"""Reading the outbox: what is still to be erased, and whether its lane is paused."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from expunge.models.database import Database, Transaction
from expunge.models.keyset import PAGE, RowDict, columns_of, equals, pages
from expunge.models.lanes import Lane, all_lanes
from expunge.models.states import PausedBy
from expunge.models.tables import OutboxEntry

ENTRY_COLUMNS = columns_of(OutboxEntry)


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryFilter:
    """What entries must have; None does not narrow."""

    case: str | None = None
    account: str | None = None
    state: str | None = None


def list_entries(database: Database, wanted: EntryFilter, size: int = PAGE) -> Iterator[list[RowDict]]:
    """Outbox entries in pages, by id."""
    entry = OutboxEntry
    statement = sa.select(*entry.__table__.columns)
    with database.read() as tx:
        for column, value in (
            (entry.case_id, wanted.case),
            (entry.account, wanted.account),
            (entry.state, wanted.state),
        ):
            if value is not None:
                statement = statement.where(equals(tx, column, value))
    yield from pages(database, statement, [entry.id], size)


def read_entries(tx: Transaction, ids: Collection[int]) -> list[RowDict]:
    """Some thousand entries by their ids; those that are gone are left out."""
    statement = sa.select(*OutboxEntry.__table__.columns).where(OutboxEntry.id.in_(list(ids)))
    return [dict(row._mapping) for row in tx.connection.execute(statement.order_by(OutboxEntry.id))]


def paused_lanes(database: Database, account: str | None = None) -> list[Lane]:
    """Lanes, or buckets of them, where nothing is called at the moment, and those whose breaker lets only single
    probes through."""
    with database.read() as tx:
        return [lane for lane in all_lanes(tx, account) if lane.is_paused or lane.paused_by == PausedBy.BREAKER]


def pause_of(row: Mapping[str, Any], paused: Sequence[Lane]) -> Lane | None:
    """The pause that keeps an entry waiting: its lane's, or that of the bucket it is in."""
    for lane in sorted(paused, key=lambda lane: lane.scope):
        if lane.account == row["account"] and (not lane.scope or f"{row['locator']}/".startswith(f"{lane.scope}/")):
            return lane
    return None
