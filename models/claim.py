"""Claiming: due entries become `leased` by one drain's token."""

from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from sqlalchemy.engine import Row

from expunge.models.database import Transaction
from expunge.models.entry import Entry
from expunge.models.holds import hold_due
from expunge.models.lanes import Lane, read_lanes

ENTRY_COLUMNS = (
    "o.id, o.case_id, c.tenant, c.subject, c.conversation, o.account, o.kind, o.locator, o.parent_id, o.attempt,"
    " o.tries, o.refusals, o.lost_leases, o.escalations, o.rounds, o.had_parts, o.cursor, o.action,"
    " o.settled, o.reappeared, CAST(o.lease_token AS text)"
)
"""Of entries `o` and cases `c`, in the order of Entry's fields."""
_by_id = attrgetter("id")
_DUE = "account = :account AND state = 'ready' AND due_at <= {now}"

# `= ANY(ARRAY(SELECT … SKIP LOCKED))` picks the rows once; as a join the subquery could run again and lock more
_CLAIM_POSTGRESQL = f"""
UPDATE erasure_outbox o
   SET state = 'leased', lease_token = CAST(:token AS uuid), lease_until = {{now+lease}}
  FROM erasure_case c
 WHERE o.id = ANY(ARRAY(
           SELECT id FROM erasure_outbox WHERE {_DUE} ORDER BY due_at, id LIMIT :limit FOR UPDATE SKIP LOCKED))
   AND c.id = o.case_id
RETURNING {ENTRY_COLUMNS}
"""

_CLAIM_SQLITE = f"""
UPDATE erasure_outbox
   SET state = 'leased', lease_token = :token, lease_until = {{now+lease}}
 WHERE id IN (SELECT id FROM erasure_outbox WHERE {_DUE} ORDER BY due_at, id LIMIT :limit)
"""

_CLAIMED_SQLITE = f"""
SELECT {ENTRY_COLUMNS}
  FROM erasure_outbox o JOIN erasure_case c ON c.id = o.case_id
 WHERE o.lease_token = :token AND o.state = 'leased'
"""


@dataclass(frozen=True, slots=True)
class Claim:
    """What one claim got."""

    entries: list[Entry]
    lanes: dict[str, Lane]
    """The lane's rows by scope, as they stood; empty when it simply runs."""
    probe: bool = False
    """The breaker is open, and the one entry tries whether the store is back."""


def claim(tx: Transaction, account: str, *, token: str, limit: int, lease_seconds: float) -> Claim:
    """Lease up to `limit` due entries of a lane.

    While the lane is paused nothing is claimed. While its breaker is open, one entry is, and only if no other is
    leased or calling: the lane row is locked, so that of two claims only one probes. It never waits for entries, so
    taking the lane first cannot deadlock with a settle, which takes it last.
    """
    lanes = read_lanes(tx, account)
    lane = lanes.get("")
    probe = False
    if lane is not None and lane.is_paused:
        return Claim([], lanes)
    if lane is not None and lane.paused_by == "breaker":
        tx.rows("SELECT 1 FROM erasure_lane WHERE account = :account AND scope = '' {for update}", account=account)
        lane = read_lanes(tx, account).get("")
        if lane is not None and lane.is_paused:
            return Claim([], lanes)
        if lane is not None and lane.paused_by == "breaker":
            if tx.first(
                "SELECT 1 FROM erasure_outbox WHERE account = :account AND state IN ('leased', 'calling') LIMIT 1",
                account=account,
            ):
                return Claim([], lanes)
            probe, limit = True, 1
    hold_due(tx, account, limit)
    parameters = {"account": account, "token": token, "limit": limit, "lease": lease_seconds}
    if tx.dialect == "postgresql":
        rows = tx.rows(_CLAIM_POSTGRESQL, **parameters)
    elif tx.run(_CLAIM_SQLITE, **parameters):
        rows = tx.rows(_CLAIMED_SQLITE, token=token)
    else:
        rows = []
    return Claim(entries_of(rows), lanes, probe=probe)


def entries_of(rows: Sequence[Row[Any]]) -> list[Entry]:
    """Rows of `ENTRY_COLUMNS` as entries, in the order of their ids."""
    return sorted((Entry(*tuple(row)) for row in rows), key=_by_id)


def count_due(tx: Transaction, account: str, at_most: int) -> int:
    """How many entries of a lane are due, counted up to `at_most`."""
    row = tx.first(
        f"SELECT count(*) AS n FROM (SELECT 1 FROM erasure_outbox WHERE {_DUE} LIMIT :limit) due",
        account=account,
        limit=at_most,
    )
    return int(row.n) if row else 0
