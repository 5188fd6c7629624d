"""What follows when entries are gone: their parents wake, their cases complete.

Locks are taken in the order entries, case, lane.
"""

from collections.abc import Collection, Sequence

from expunge.models.database import Transaction

_LEFT = "SELECT 1 FROM erasure_outbox o WHERE o.case_id = erasure_case.id AND NOT o.settled"
_EVIDENCE = "(nothing_found OR EXISTS (SELECT 1 FROM erasure_record r WHERE r.case_id = erasure_case.id))"


def wake_parents(tx: Transaction, parent_ids: Collection[int]) -> list[int]:
    """Make waiting parents without parts `ready` again; gives their ids.

    The parent is locked first and its parts are looked for in a second statement: of two transactions that remove the
    last two parts, the later one sees both gone.
    """
    woken = []
    for parent_id in sorted(set(parent_ids)):
        locked = tx.first(
            "SELECT id FROM erasure_outbox WHERE id = :id AND state = 'waiting' {for update}", id=parent_id
        )
        if locked and tx.run(
            "UPDATE erasure_outbox SET state = 'ready', due_at = {now}, cursor = NULL"
            " WHERE id = :id AND state = 'waiting'"
            " AND NOT EXISTS (SELECT 1 FROM erasure_outbox part WHERE part.parent_id = :id AND NOT part.settled)",
            id=parent_id,
        ):
            woken.append(parent_id)
    return woken


def complete_cases(tx: Transaction, case_ids: Collection[str]) -> list[str]:
    """Complete those of the cases that have no entry left; gives their ids.

    A first look without a lock spares the lock while entries are plainly left. Then the case row is locked FOR UPDATE
    and the entries are looked for in a second statement: an INSERT in flight holds its case row by the foreign key,
    so it is waited for, and seen.
    """
    done = tx.rows(
        f"SELECT id FROM erasure_case WHERE id {{in text ids}} AND NOT EXISTS ({_LEFT}) ORDER BY id",
        ids=sorted(set(case_ids)),
    )
    completed = []
    for (case_id,) in done:
        if not tx.first("SELECT 1 FROM erasure_case WHERE id = :id AND completed_at IS NULL {for update}", id=case_id):
            continue
        if tx.run(
            f"UPDATE erasure_case SET completed_at = {{now}} WHERE id = :id AND completed_at IS NULL"
            f" AND NOT EXISTS ({_LEFT}) AND {_EVIDENCE}",
            id=case_id,
        ):
            completed.append(case_id)
    return completed


def completable_cases(tx: Transaction, limit: int) -> Sequence[str]:
    """Ids of open cases that have no entry left: what two settles at the same moment may leave to the sweep."""
    found = tx.rows(
        f"SELECT id FROM erasure_case WHERE completed_at IS NULL AND NOT EXISTS ({_LEFT}) AND {_EVIDENCE}"
        " ORDER BY id LIMIT :limit",
        limit=limit,
    )
    return [row.id for row in found]
