"""The mark: the last thing before a call, and what is undone when there is no call.

It commits before the call, so that a worker that dies in between leaves its trace: no delete call without a receipt.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from expunge.models.database import Transaction
from expunge.models.holds import IS_HELD
from expunge.models.lanes import NOT_PAUSED, PROBE_NOT_PAUSED

_OURS = "o.id {in ids} AND o.lease_token = :token AND o.state = 'leased'"


@dataclass(slots=True)
class Marked:
    """What a mark came to."""

    attempts: dict[int, int] = field(default_factory=dict)
    """The entries that may be called now, with the number of this attempt."""
    held: list[int] = field(default_factory=list)
    """A hold stands; they are `held` now."""


def mark(
    tx: Transaction, account: str, ids: Collection[int], *, token: str, lease_seconds: float, probe: bool = False
) -> Marked:
    """Exactly these entries of one lane become `calling`, if they are still ours, their lease has not ended, no
    standing hold covers them, and neither their lane nor their bucket is paused. It counts the attempt and extends the
    lease.

    A probe goes through the breaker's pauses, never through the operator's.
    """
    if not ids:
        return Marked()
    pause = PROBE_NOT_PAUSED if probe else NOT_PAUSED
    rows = tx.rows(
        "UPDATE erasure_outbox AS o SET state = 'calling', attempt = attempt + 1, lease_until = {now+lease}"
        f" WHERE {_OURS} AND o.lease_until > {{now}} AND NOT ({IS_HELD}) AND {pause}"
        " RETURNING id, attempt",
        ids=ids,
        token=token,
        lease=lease_seconds,
        account=account,
    )
    marked = Marked({row.id: row.attempt for row in rows})
    if len(marked.attempts) < len(ids):
        rows = tx.rows(
            "UPDATE erasure_outbox AS o SET state = 'held', lease_token = NULL, lease_until = NULL, reason = 'held'"
            f" WHERE {_OURS} AND {IS_HELD} RETURNING id",
            ids=ids,
            token=token,
        )
        marked.held = [row.id for row in rows]
    return marked


def release(
    tx: Transaction, ids: Collection[int], *, token: str, delay_seconds: float = 0.0, reason: str | None = None
) -> int:
    """Entries that were claimed, or even marked, but about which nothing was sent go back to `ready`. Nothing is
    counted against them."""
    if not ids:
        return 0
    return tx.run(
        "UPDATE erasure_outbox SET state = 'ready', lease_token = NULL, lease_until = NULL,"
        " due_at = CASE WHEN :delay > 0 THEN {now+delay} ELSE due_at END, reason = coalesce(:reason, reason)"
        " WHERE id {in ids} AND lease_token = :token AND state IN ('leased', 'calling')",
        ids=ids,
        token=token,
        delay=delay_seconds,
        reason=reason,
    )


def release_leased(tx: Transaction, tokens: Collection[str]) -> int:
    """Whatever is leased under these tokens, and not called, is `ready` again at once."""
    released = 0
    for token in tokens:
        released += tx.run(
            "UPDATE erasure_outbox SET state = 'ready', lease_token = NULL, lease_until = NULL"
            " WHERE lease_token = :token AND state = 'leased' AND lease_until IS NOT NULL",
            token=token,
        )
    return released


def escalate_untriable(tx: Transaction, reasons: Sequence[tuple[int, str]], *, token: str) -> list[int]:
    """Claimed, even marked, entries that cannot be tried at all; nothing was sent, so there is no receipt. Gives those
    moved."""
    moved = []
    for entry_id, reason in reasons:
        if tx.run(
            "UPDATE erasure_outbox SET state = 'escalated', lease_token = NULL, lease_until = NULL,"
            " reason = :reason, due_at = {now+day}, escalations = escalations + 1"
            " WHERE id = :id AND lease_token = :token AND state IN ('leased', 'calling')",
            id=entry_id,
            token=token,
            reason=reason,
            day=ESCALATED_RETRY_SECONDS,
        ):
            moved.append(entry_id)
    return moved


ESCALATED_RETRY_SECONDS = 86_400.0
"""An escalated entry is tried once more a day by itself: an erasure is owed until it is done."""
