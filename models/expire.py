"""What time alone moves: leases that ended, a day since the escalation, parents whose parts are gone."""

from collections.abc import Collection, Sequence

from expunge.models.claim import ENTRY_COLUMNS, entries_of
from expunge.models.database import Transaction
from expunge.models.entry import Entry
from expunge.models.mark import ESCALATED_RETRY_SECONDS

MOST_LOST_LEASES = 3
"""Leases lost while calling before an entry is escalated: it may be what kills the worker."""


def return_leased(tx: Transaction, limit: int) -> int:
    """`leased` entries whose lease ended go back to `ready`; nothing was called, so nothing is counted."""
    return tx.run(
        "UPDATE erasure_outbox SET state = 'ready', lease_token = NULL, lease_until = NULL WHERE id IN ("
        "SELECT id FROM erasure_outbox WHERE state = 'leased' AND lease_until <= {now}"
        " ORDER BY id LIMIT :limit {skip locked}) AND state = 'leased'",
        limit=limit,
    )


def lock_interrupted(tx: Transaction, limit: int) -> list[Entry]:
    """`calling` entries whose lease ended, locked: their worker died or hangs, and the store may have acted."""
    lock = " FOR UPDATE OF o SKIP LOCKED" if tx.dialect == "postgresql" else ""
    rows = tx.rows(
        f"SELECT {ENTRY_COLUMNS} FROM erasure_outbox o JOIN erasure_case c ON c.id = o.case_id"
        f" WHERE o.state = 'calling' AND o.lease_until <= {{now}} ORDER BY o.id LIMIT :limit{lock}",
        limit=limit,
    )
    return entries_of(rows)


def end_interrupted(tx: Transaction, ids: Collection[int]) -> list[int]:
    """Put locked, interrupted entries back to `ready`, or escalate them after the third lost lease; gives those
    escalated. The caller writes their `unknown` receipts in the same transaction."""
    rows = tx.rows(
        """
        UPDATE erasure_outbox
           SET lost_leases = lost_leases + 1, lease_token = NULL, lease_until = NULL,
               state = CASE WHEN lost_leases + 1 >= :most THEN 'escalated' ELSE 'ready' END,
               escalations = escalations + CASE WHEN lost_leases + 1 >= :most THEN 1 ELSE 0 END,
               due_at = CASE WHEN lost_leases + 1 >= :most THEN {now+day} ELSE {now} END,
               reason = 'Interrupted'
         WHERE id {in ids} AND state = 'calling'
        RETURNING id, state
        """,
        ids=ids,
        most=MOST_LOST_LEASES,
        day=ESCALATED_RETRY_SECONDS,
    )
    return [row.id for row in rows if row.state == "escalated"]


def revive_escalated(tx: Transaction, limit: int) -> Sequence[int]:
    """Escalated entries that nobody decided about for a day are tried once more. Their counts stay, so one more
    failure escalates them again."""
    rows = tx.rows(
        "UPDATE erasure_outbox SET state = 'ready' WHERE id IN ("
        "SELECT id FROM erasure_outbox WHERE state = 'escalated' AND due_at <= {now}"
        " ORDER BY id LIMIT :limit {skip locked}) AND state = 'escalated' RETURNING id",
        limit=limit,
    )
    return [row.id for row in rows]


def parents_without_parts(tx: Transaction, limit: int) -> list[int]:
    """`waiting` entries that have no part left: two settles at the same moment may leave them."""
    rows = tx.rows(
        "SELECT o.id FROM erasure_outbox o WHERE o.state = 'waiting'"
        " AND NOT EXISTS (SELECT 1 FROM erasure_outbox part WHERE part.parent_id = o.id AND NOT part.settled)"
        " ORDER BY o.id LIMIT :limit",
        limit=limit,
    )
    return [row.id for row in rows]


def ready_accounts(tx: Transaction) -> list[str]:
    """Every account that has `ready` entries, found by skipping through the index."""
    rows = tx.rows(
        """
        WITH RECURSIVE lane(account) AS (
            SELECT min(account) FROM erasure_outbox WHERE state = 'ready'
            UNION ALL
            SELECT (SELECT min(o.account) FROM erasure_outbox o WHERE o.state = 'ready' AND o.account > lane.account)
              FROM lane WHERE lane.account IS NOT NULL
        )
        SELECT account FROM lane WHERE account IS NOT NULL
        """
    )
    return [row.account for row in rows]


def escalate_account(tx: Transaction, account: str, reason: str, limit: int) -> Sequence[tuple[int, str, int]]:
    """Escalate due entries of an account that the settings do not name; gives (id, case id, attempt) of each. There was
    no call, so there is no receipt."""
    rows = tx.rows(
        "UPDATE erasure_outbox SET state = 'escalated', reason = :reason, due_at = {now+day},"
        " escalations = escalations + 1 WHERE id IN ("
        "SELECT id FROM erasure_outbox WHERE account = :account AND state = 'ready' AND due_at <= {now}"
        " AND NOT settled ORDER BY due_at, id LIMIT :limit {skip locked}) AND state = 'ready'"
        " RETURNING id, case_id, attempt",
        account=account,
        reason=reason,
        limit=limit,
        day=ESCALATED_RETRY_SECONDS,
    )
    return [(row.id, row.case_id, row.attempt) for row in rows]
