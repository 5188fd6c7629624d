"""Legal holds: which entries a standing hold covers, and how placing one meets a mark.

A hold's columns narrow it; a null column does not. An unnamed tenant therefore covers the subject in every tenant: when
in doubt, keep.

The database decides between a hold and a mark. `place_hold` moves what the hold covers in the transaction that commits
it; a mark that waited for it finds the entry `held`, and one that begins later sees the hold. Like every decision of a
person, it never waits for an entry that somebody has locked, so it cannot deadlock with a settle in whatever order that
takes its entries: such an entry counts as in flight, since a mark may be what has it.
"""

from collections.abc import Sequence

from sqlalchemy import text
from sqlalchemy.engine import Connection

from expunge.models.database import Transaction
from expunge.models.errors import Held, InvalidDecision
from expunge.models.plain_text import require_plain

_COVERS = (
    "h.released_at IS NULL AND (h.tenant IS NULL OR h.tenant = c.tenant)"
    " AND (h.subject IS NULL OR h.subject = c.subject)"
    " AND (h.conversation IS NULL OR h.conversation = c.conversation)"
)
IS_HELD = (
    "EXISTS (SELECT 1 FROM erasure_hold s WHERE s.released_at IS NULL)"
    " AND EXISTS (SELECT 1 FROM erasure_hold h, erasure_case c"
    f" WHERE c.id = o.case_id AND {_COVERS})"
)
"""For statements about entries `o`. The first half is decided once a statement: mostly no hold stands at all."""


def place_hold(
    tx: Transaction,
    *,
    subject: str | None,
    by: str,
    why: str,
    tenant: str | None = None,
    conversation: str | None = None,
    matter: str | None = None,
) -> tuple[int, Sequence[int]]:
    """Place a hold; gives its id and the entries in flight: those whose call was marked before it, and those that
    somebody has locked at this moment, which are held by their mark unless it came first.

    Raises InvalidDecision.
    """
    whom = {"subject": subject, "tenant": tenant, "conversation": conversation, "matter": matter}
    require_plain({**whom, "by": by, "why": why}, InvalidDecision)
    row = tx.first(
        "INSERT INTO erasure_hold (tenant, subject, conversation, matter, placed_by, placed_why)"
        " VALUES (:tenant, :subject, :conversation, :matter, :by, :why) RETURNING id",
        tenant=tenant,
        subject=subject,
        conversation=conversation,
        matter=matter,
        by=by,
        why=why,
    )
    assert row is not None
    _decide(tx, "hold", row.id, by, why)
    covered = (
        "EXISTS (SELECT 1 FROM erasure_case c JOIN erasure_hold h ON h.id = :hold"
        f" WHERE c.id = o.case_id AND {_COVERS})"
    )
    tx.run(
        "UPDATE erasure_outbox SET state = 'held', lease_token = NULL, lease_until = NULL, reason = 'held'"
        " WHERE id IN (SELECT o.id FROM erasure_outbox o WHERE o.state IN ('ready', 'leased')"
        f" AND {covered} {{skip locked}}) AND state IN ('ready', 'leased')",
        hold=row.id,
    )
    # what is still `ready` or `leased` was skipped, or came in since: its mark may not have seen the hold
    flying = tx.rows(
        "SELECT o.id FROM erasure_outbox o WHERE o.state IN ('ready', 'leased', 'calling')"
        f" AND {covered} ORDER BY o.id",
        hold=row.id,
    )
    return row.id, [entry.id for entry in flying]


def release_hold(tx: Transaction, hold_id: int, *, by: str, why: str) -> bool:
    """Release a hold; False if it does not stand. What no other hold covers is returned by the sweep.

    Raises InvalidDecision.
    """
    require_plain({"by": by, "why": why}, InvalidDecision)
    released = tx.run(
        "UPDATE erasure_hold SET released_at = {now}, released_by = :by, released_why = :why"
        " WHERE id = :hold AND released_at IS NULL",
        hold=hold_id,
        by=by,
        why=why,
    )
    if released:
        _decide(tx, "release", hold_id, by, why)
    return released == 1


def return_released(tx: Transaction, limit: int) -> int:
    """`held` entries that no standing hold covers become `ready`."""
    return tx.run(
        "UPDATE erasure_outbox SET state = 'ready', due_at = {now}, reason = NULL WHERE id IN ("
        f"SELECT o.id FROM erasure_outbox o WHERE o.state = 'held' AND NOT ({IS_HELD})"
        " ORDER BY o.id LIMIT :limit {skip locked}) AND state = 'held'",
        limit=limit,
    )


def _decide(tx: Transaction, decision: str, hold_id: int, by: str, why: str) -> None:
    tx.run(
        "INSERT INTO erasure_decision (decision, actor, why, hold_id) VALUES (:decision, :by, :why, :hold)",
        decision=decision,
        by=by,
        why=why,
        hold=hold_id,
    )


def require_unheld(connection: Connection, *, tenant: str | None, subject: str, conversation: str) -> None:
    """Raises Held if a standing hold covers the subject or the conversation."""
    covered = (
        "SELECT 1 FROM erasure_hold h, (SELECT CAST(:tenant AS text) AS tenant, CAST(:subject AS text) AS subject,"
        f" CAST(:conversation AS text) AS conversation) c WHERE {_COVERS} LIMIT 1"
    )
    values = {"tenant": tenant, "subject": subject, "conversation": conversation}
    if connection.execute(text(covered), values).first() is not None:
        raise Held("a legal hold covers the conversation: nothing was deleted")


def keep_holds_out(connection: Connection) -> None:
    """Let no hold be placed or released until the transaction has ended, and wait for those that are being placed. Take
    it before any row: whoever places a hold may want that row. On SQLite there is one writer at a time anyway."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("LOCK TABLE erasure_hold IN SHARE MODE"))
