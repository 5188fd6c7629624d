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
from expunge.models.list_cases import require_case
from expunge.models.plain_text import require_plain

COVERS = (
    "h.released_at IS NULL AND (h.tenant IS NULL OR h.tenant = c.tenant)"
    " AND (h.subject IS NULL OR h.subject = c.subject)"
    " AND (h.conversation IS NULL OR h.conversation = c.conversation OR h.conversation = o.conversation)"
    " AND (h.case_id IS NULL OR h.case_id = c.id)"
    " AND (h.account IS NULL OR h.account = o.account)"
    " AND (h.locator_prefix IS NULL OR substr(o.locator, 1, length(h.locator_prefix)) = h.locator_prefix)"
)
"""Whether hold `h` covers entry `o` of case `c`."""
IS_HELD = (
    "(o.action = 'delete' AND EXISTS (SELECT 1 FROM erasure_hold s WHERE s.released_at IS NULL)"
    " AND EXISTS (SELECT 1 FROM erasure_hold h, erasure_case c"
    f" WHERE c.id = o.case_id AND {COVERS}))"
)
"""For statements about entries `o`. Whether a hold stands at all is decided once a statement, and mostly none does. A
second look erases nothing, so no hold stops it."""


def place_hold(
    tx: Transaction,
    *,
    by: str,
    why: str,
    subject: str | None = None,
    tenant: str | None = None,
    conversation: str | None = None,
    case_id: str | None = None,
    account: str | None = None,
    locator_prefix: str | None = None,
    matter: str | None = None,
) -> tuple[int, Sequence[int]]:
    """Place a hold; gives its id and the entries in flight: those whose call was marked before it, those whose order a
    store has accepted and not finished, and those that somebody has locked at this moment, which are held by their mark
    unless it came first. `locator_prefix` is plain text, so that `bucket/u/1` covers `bucket/u/10` as well: when in
    doubt, keep.

    Raises InvalidDecision, also for a hold that covers nothing, and CaseNotFound.
    """
    covers = {
        "tenant": tenant,
        "subject": subject,
        "conversation": conversation,
        "case_id": case_id,
        "account": account,
        "locator_prefix": locator_prefix,
        "matter": matter,
    }
    require_plain({**covers, "by": by, "why": why}, InvalidDecision)
    _require_cover(covers)
    if case_id is not None:
        require_case(tx, case_id)
    names = (*covers, "placed_by", "placed_why")
    row = tx.first(
        f"INSERT INTO erasure_hold ({', '.join(names)}) VALUES ({', '.join(f':{name}' for name in names)})"
        " RETURNING id",
        **covers,
        placed_by=by,
        placed_why=why,
    )
    assert row is not None
    _decide(tx, "hold", row.id, by, why)
    covered = (
        f"EXISTS (SELECT 1 FROM erasure_case c JOIN erasure_hold h ON h.id = :hold WHERE c.id = o.case_id AND {COVERS})"
    )
    tx.run(
        "UPDATE erasure_outbox SET state = 'held', lease_token = NULL, lease_until = NULL, reason = 'held'"
        " WHERE id IN (SELECT o.id FROM erasure_outbox o WHERE o.state IN ('ready', 'leased') AND o.action = 'delete'"
        f" AND {covered} {{skip locked}}) AND state IN ('ready', 'leased')",
        hold=row.id,
    )
    # what is still `ready` or `leased` was skipped, or came in since: its mark may not have seen the hold. What a store
    # has accepted to erase it erases, whatever we do
    flying = tx.rows(
        "SELECT o.id FROM erasure_outbox o WHERE (CASE WHEN o.action = 'delete'"
        " THEN o.state IN ('ready', 'leased', 'calling') ELSE NOT o.settled END)"
        f" AND {covered} ORDER BY o.id",
        hold=row.id,
    )
    return row.id, [entry.id for entry in flying]


def _require_cover(covers: dict[str, str | None]) -> None:
    """A hold names one thing that it covers, and nothing that is empty."""
    ways = [name for name in ("subject", "conversation", "case_id", "account") if covers[name] is not None]
    if not ways:
        raise InvalidDecision("a hold must say what it covers: a subject, a conversation, a case, or an account")
    if (covers["account"] is None) != (covers["locator_prefix"] is None):
        raise InvalidDecision("a hold on an account needs the beginning of its locators, and the other way about")
    empty = [name for name, value in covers.items() if value is not None and not value.strip()]
    if empty:
        raise InvalidDecision(f"a hold's {', '.join(empty)} must not be empty")


def hold_new(tx: Transaction, case_id: str) -> int:
    """Entries of a case that wait for their first call and that a standing hold covers are `held`; gives how many."""
    return _hold(tx, "o.case_id = :case_id AND o.state = 'ready'", case_id=case_id)


def hold_due(tx: Transaction, account: str, limit: int) -> int:
    """The next due entries of a lane that a standing hold covers are `held` instead of claimed; gives how many. Asks
    nothing more where no hold stands."""
    if not tx.first("SELECT 1 FROM erasure_hold WHERE released_at IS NULL LIMIT 1"):
        return 0
    return _hold(
        tx,
        "o.account = :account AND o.state = 'ready' AND o.due_at <= {now}",
        ending="ORDER BY o.due_at, o.id LIMIT :limit {skip locked}",
        account=account,
        limit=limit,
    )


def _hold(tx: Transaction, which: str, ending: str = "{skip locked}", **parameters: object) -> int:
    return tx.run(
        "UPDATE erasure_outbox SET state = 'held', reason = 'held' WHERE id IN ("
        f"SELECT o.id FROM erasure_outbox o WHERE {which} AND {IS_HELD} {ending}) AND state = 'ready'",
        **parameters,
    )


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


def accounts_held(tx: Transaction) -> frozenset[str]:
    """The lanes with held entries."""
    rows = tx.rows("SELECT DISTINCT account FROM erasure_outbox WHERE state = 'held'")
    return frozenset(row.account for row in rows)


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
        " CAST(:conversation AS text) AS conversation, CAST(NULL AS text) AS id) c, (SELECT CAST(NULL AS text) AS"
        f" account, CAST('' AS text) AS locator, CAST(NULL AS text) AS conversation) o WHERE {COVERS} LIMIT 1"
    )
    values = {"tenant": tenant, "subject": subject, "conversation": conversation}
    if connection.execute(text(covered), values).first() is not None:
        raise Held("a legal hold covers the conversation: nothing was deleted")


def require_none_held(connection: Connection, case_id: str) -> None:
    """Raises Held if a standing hold covers an entry of this case: by its case, its account, or anything else."""
    held = text(f"SELECT 1 FROM erasure_outbox o WHERE o.case_id = :case AND {IS_HELD} LIMIT 1")
    if connection.execute(held, {"case": case_id}).first() is not None:
        raise Held("a legal hold covers something of the conversation: nothing was deleted")


def keep_holds_out(connection: Connection) -> None:
    """Let no hold be placed or released until the transaction has ended, and wait for those that are being placed. Take
    it before any row: whoever places a hold may want that row. On SQLite there is one writer at a time anyway."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("LOCK TABLE erasure_hold IN SHARE MODE"))
