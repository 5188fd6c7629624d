"""Reading holds: what each covers, and what the provider will drop under it by itself."""

from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa

from expunge.models.database import Database, Transaction
from expunge.models.errors import InvalidDecision
from expunge.models.holds import COVERS
from expunge.models.keyset import PAGE, RowDict, pages
from expunge.models.tables import ErasureHold
from expunge.models.types import UtcDateTime

_COVERED = f"FROM erasure_outbox o JOIN erasure_case c ON c.id = o.case_id WHERE o.state = 'held' AND {COVERS}"
_TRACKED = (
    "FROM erasure_inventory i WHERE (h.tenant IS NULL OR h.tenant = i.tenant)"
    " AND (h.subject IS NULL OR h.subject = i.subject)"
    " AND (h.conversation IS NULL OR h.conversation = i.conversation) AND h.case_id IS NULL"
    " AND (h.account IS NULL OR h.account = i.account)"
    " AND (h.locator_prefix IS NULL OR substr(i.locator, 1, length(h.locator_prefix)) = h.locator_prefix)"
)
MOST_EXPIRING = 100
"""Objects that are named for one hold; `expiring` counts them all."""


def list_holds(database: Database, *, released: bool = False, size: int = PAGE) -> Iterator[list[RowDict]]:
    """The standing holds in pages, the oldest first, or with `released` all that ever were: their columns, `entries`
    (held by it now), `expiring` (objects under it that have a date by which the provider itself drops them) and
    `expires_first` (the first such date)."""
    query = sa.select(*ErasureHold.__table__.columns)
    if not released:
        query = query.where(ErasureHold.released_at.is_(None))
    for page in pages(database, query, [ErasureHold.placed_at, ErasureHold.id], size):
        with database.read() as tx:
            yield [_with_counts(tx, row) for row in page]


def _with_counts(tx: Transaction, row: RowDict) -> RowDict:
    counted = tx.typed_rows(
        f"SELECT (SELECT count(*) {_COVERED}) AS entries,"
        f" (SELECT count(*) {_COVERED} AND o.expires_at IS NOT NULL)"
        f" + (SELECT count(*) {_TRACKED} AND i.expires_at IS NOT NULL) AS expiring,"
        f" (SELECT min(o.expires_at) {_COVERED}) AS first_held,"
        f" (SELECT min(i.expires_at) {_TRACKED}) AS first_tracked"
        " FROM erasure_hold h WHERE h.id = :id AND h.released_at IS NULL",
        {"first_held": UtcDateTime(), "first_tracked": UtcDateTime()},
        id=row["id"],
    )
    if not counted:
        return {**row, "entries": 0, "expiring": 0, "expires_first": None}
    found = counted[0]
    dates = [date for date in (found.first_held, found.first_tracked) if date is not None]
    return {**row, "entries": found.entries, "expiring": found.expiring, "expires_first": min(dates, default=None)}


def read_hold(tx: Transaction, hold_id: int) -> RowDict:
    """One hold as `list_holds` gives it. Raises InvalidDecision if there is none."""
    row = tx.connection.execute(
        sa.select(*ErasureHold.__table__.columns).where(ErasureHold.id == hold_id)
    ).one_or_none()
    if row is None:
        raise InvalidDecision(f"there is no hold {hold_id}")
    return _with_counts(tx, dict(row._mapping))


def expiring_objects(tx: Transaction, hold_id: int) -> list[dict[str, Any]]:
    """What the provider itself will drop although a standing hold covers it, the first `MOST_EXPIRING`: account, kind,
    locator and date."""
    rows = tx.typed_rows(
        f"SELECT account, kind, locator, expires_at FROM (SELECT o.account, o.kind, o.locator, o.expires_at"
        f" FROM erasure_hold h, erasure_outbox o, erasure_case c WHERE h.id = :id AND c.id = o.case_id"
        f" AND o.state = 'held' AND o.expires_at IS NOT NULL AND {COVERS}"
        f" UNION SELECT i.account, i.kind, i.locator, i.expires_at FROM erasure_hold h, {_TRACKED[5:]}"
        " AND i.expires_at IS NOT NULL AND h.id = :id AND h.released_at IS NULL) found"
        " ORDER BY expires_at, account, locator LIMIT :most",
        {"expires_at": UtcDateTime()},
        id=hold_id,
        most=MOST_EXPIRING,
    )
    return [dict(row._mapping) for row in rows]


def holds_of_case(tx: Transaction, case_id: str) -> list[dict[str, Any]]:
    """The standing holds that cover held entries of a case: `id`, `matter`, `since`, `entries`, the oldest first."""
    rows = tx.typed_rows(
        "SELECT h.id, h.matter, h.placed_at AS since, count(*) AS entries"
        " FROM erasure_hold h, erasure_outbox o, erasure_case c WHERE o.case_id = :case AND c.id = o.case_id"
        f" AND o.state = 'held' AND {COVERS} GROUP BY h.id, h.matter, h.placed_at ORDER BY h.placed_at, h.id",
        {"since": UtcDateTime()},
        case=case_id,
    )
    return [dict(row._mapping) for row in rows]
