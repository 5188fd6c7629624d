"""Second looks: what is erased waits in the outbox for another look, without keeping its case open.

A row with `action` = `verify` is a look that is owed. `settled` says that the closing receipt exists, so that only the
look is left; without it the store has accepted the order and not finished it, and the case stays open. When a settled
row is to be erased again, a trigger reopens its case, whoever changed the row.
"""

from collections.abc import Collection, Sequence

from expunge.models.claim import ENTRY_COLUMNS, entries_of
from expunge.models.database import Transaction
from expunge.models.entry import Entry
from expunge.models.mark import ESCALATED_RETRY_SECONDS
from expunge.models.settle import Move
from expunge.models.states import EntryState

BACK_TO_ERASE = (
    "action = 'delete', settled = false, state = 'ready', due_at = {now}, tries = 0, refusals = 0, lost_leases = 0,"
    " escalations = 0, rounds = 0, had_parts = false, cursor = NULL, lease_token = NULL, lease_until = NULL,"
    " reason = NULL"
)
"""What a settled row becomes that is to be erased again. A look that is under way loses its lease with it, and so what
it found: it was before."""


def turn(tx: Transaction, moves: Sequence[Move], *, token: str) -> list[int]:
    """Entries that wait for something else from now on, if they are still ours; gives those. Their counts begin anew,
    but for escalations, which a success alone ends. What is gone is nobody's part any more, whoever took it as one
    while it was called: if it comes back, it is erased, and looked at, for itself."""
    together: dict[tuple[object, ...], list[Move]] = {}
    for moved in moves:  # of a thousand keys that one call has erased all go the same way
        way = (moved.state, moved.action, moved.settled, moved.delay_seconds, moved.reason, moved.reappeared)
        together.setdefault(way, []).append(moved)
    return [entry_id for alike in together.values() for entry_id in _turn(tx, alike, token)]


def _turn(tx: Transaction, alike: Sequence[Move], token: str) -> list[int]:
    moved = alike[0]
    escalated = moved.state is EntryState.ESCALATED
    rows = tx.rows(
        """
        UPDATE erasure_outbox
           SET action = :action, settled = :settled, state = :state, due_at = {now+delay}, reason = :reason,
               tries = 0, refusals = 0, lost_leases = 0, rounds = 0, had_parts = false, cursor = NULL,
               escalations = CASE WHEN :settled THEN 0 ELSE escalations + :escalated END,
               reappeared = reappeared + :reappeared, lease_token = NULL, lease_until = NULL,
               parent_id = CASE WHEN :settled THEN NULL ELSE parent_id END
         WHERE id {in ids} AND lease_token = :token AND state = 'calling' RETURNING id
        """,
        ids=[each.entry_id for each in alike],
        token=token,
        action=str(moved.action),
        settled=moved.settled,
        state=str(moved.state),
        delay=ESCALATED_RETRY_SECONDS if escalated else moved.delay_seconds,
        reason=moved.reason,
        escalated=int(escalated),
        reappeared=moved.reappeared,
    )
    return [row.id for row in rows]


def lock_unlookable(tx: Transaction, account: str, limit: int) -> list[Entry]:
    """Due, settled rows of an account that the settings do not name, locked: nobody can look there."""
    lock = " FOR UPDATE OF o SKIP LOCKED" if tx.dialect == "postgresql" else ""
    rows = tx.rows(
        f"SELECT {ENTRY_COLUMNS} FROM erasure_outbox o JOIN erasure_case c ON c.id = o.case_id"
        " WHERE o.account = :account AND o.state = 'ready' AND o.due_at <= {now} AND o.settled"
        f" ORDER BY o.due_at, o.id LIMIT :limit{lock}",
        account=account,
        limit=limit,
    )
    return entries_of(rows)


def drop_looks(tx: Transaction, ids: Collection[int]) -> int:
    """Settled rows whose look will never be made. The caller writes their receipts in the same transaction."""
    return tx.run("DELETE FROM erasure_outbox WHERE id {in ids} AND settled AND state = 'ready'", ids=ids)
