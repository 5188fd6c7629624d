"""What a person decides: retry, waive, pause, resume. Each in the caller's transaction, with its erasure_decision row.

Entries that somebody else has locked are never waited for: a worker has them in its hands, so they are treated as in
flight. Nothing here can deadlock with a settle for that reason. Locks: entries, case, lane.
"""

import uuid
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from expunge.models.claim import ENTRY_COLUMNS, entries_of
from expunge.models.completion import complete_cases, wake_parents
from expunge.models.database import Transaction
from expunge.models.entry import receipt_about
from expunge.models.errors import EntryInFlight, EntryNotFound, InvalidDecision
from expunge.models.lanes import Lane, deferral, lock_lanes, read_lanes
from expunge.models.list_cases import database_clock, require_case
from expunge.models.plain_text import require_plain
from expunge.models.settle import write_receipts
from expunge.models.states import Action, Decision, EntryState, ReceiptStatus

_CHUNK = 1000


@dataclass(frozen=True, slots=True)
class Retried:
    """What a retry came to."""

    retried: int
    """Escalated entries that are ready again, with all their tries."""
    hurried: int
    """Entries that waited for their next try and are due now."""
    left: dict[str, int]
    """By state, those that a retry does nothing for: in flight, waiting for their parts, held."""
    lanes: frozenset[str]
    """Where something is due now: to be rung once it is committed."""


@dataclass(slots=True)
class Waived:
    """What a waiver came to."""

    receipts: list[str] = field(default_factory=list)
    """Ids of the receipts, one for each entry, parts included."""
    completed: list[str] = field(default_factory=list)
    """Cases that are complete now."""


@dataclass(frozen=True, slots=True)
class Resumed:
    """What was lifted."""

    lifted: list[Lane]
    """The pauses as they stood, by lane and bucket."""
    due: int
    """Entries that were put off because of a pause and are due now."""


def retry(
    tx: Transaction,
    *,
    ids: Collection[int] = (),
    case: str | None = None,
    account: str | None = None,
    by: str,
    why: str | None = None,
) -> Retried:
    """Try entries again at once: those named, or those of a case or an account.

    Raises EntryNotFound if one of the ids has no entry, CaseNotFound, or InvalidDecision; nothing is written then.
    """
    require_plain({"by": by, "why": why}, InvalidDecision)
    parameters: dict[str, Any]
    if ids:
        scope, parameters = "id {in ids}", {"ids": sorted(set(ids))}
        _require_all(tx, parameters["ids"])
    elif case is not None:
        scope, parameters = "case_id = :case AND NOT settled", {"case": case}
        require_case(tx, case)
    else:
        scope, parameters = "account = :account AND NOT settled", {"account": account}
    hurried = tx.rows(
        "UPDATE erasure_outbox SET due_at = {now} WHERE state = 'ready' AND id IN ("
        f"SELECT id FROM erasure_outbox WHERE {scope} AND state = 'ready' AND due_at > {{now}} {{skip locked}})"
        " RETURNING id, case_id, account",
        **parameters,
    )
    retried = tx.rows(
        "UPDATE erasure_outbox SET state = 'ready', due_at = {now}, tries = 0, refusals = 0, lost_leases = 0,"
        " escalations = 0, rounds = 0, reappeared = 0, reason = NULL WHERE state = 'escalated' AND id IN ("
        f"SELECT id FROM erasure_outbox WHERE {scope} AND state = 'escalated' {{skip locked}})"
        " RETURNING id, case_id, account",
        **parameters,
    )
    left = tx.rows(
        f"SELECT state, count(*) AS n FROM erasure_outbox WHERE {scope} AND state <> 'ready' GROUP BY state",
        **parameters,
    )
    moved = [*hurried, *retried]
    if ids:
        _record(tx, Decision.RETRY, by, why, [(row.account, row.case_id, row.id) for row in moved])
    else:
        _record(tx, Decision.RETRY, by, why, [(account, case, None)])
    lanes = frozenset(row.account for row in moved)
    return Retried(len(retried), len(hurried), {row.state: row.n for row in left}, lanes)


def waive(tx: Transaction, ids: Collection[int], *, by: str, why: str) -> Waived:
    """Decide that entries will not be erased: a `waived` receipt each, then the row goes. With a composite target go
    its parts.

    Raises EntryNotFound or EntryInFlight, naming the entries, and InvalidDecision without `by` or `why`; nothing is
    written then.
    """
    if not by.strip() or not why.strip():
        raise InvalidDecision("a waiver needs to say who decided and why")
    require_plain({"by": by, "why": why}, InvalidDecision)
    asked = _require_all(tx, sorted(set(ids)))
    locked = _lock_with_parts(tx, list(asked))
    waived = Waived()
    parents: set[int] = set()
    cases: set[str] = set()
    now = database_clock(tx)
    for start in range(0, len(locked), _CHUNK):
        chunk = locked[start : start + _CHUNK]
        entries = entries_of(
            tx.rows(
                f"SELECT {ENTRY_COLUMNS} FROM erasure_outbox o JOIN erasure_case c ON c.id = o.case_id"
                " WHERE o.id {in ids}",
                ids=chunk,
            )
        )
        cases.update(entry.case_id for entry in entries)
        parents.update(entry.parent_id for entry in entries if entry.parent_id is not None)
        receipts = [
            receipt_about(
                entry,
                None,
                id=str(uuid.uuid4()),
                attempt=entry.attempt,
                action=str(Action.DECISION),
                status=str(ReceiptStatus.WAIVED),
                at=now,
                actor=by,
                why=why,
            )
            for entry in entries
        ]
        write_receipts(tx, receipts)
        waived.receipts += [receipt.id for receipt in receipts]
    tx.run("DELETE FROM erasure_outbox WHERE id {in ids}", ids=locked)
    _record(tx, Decision.WAIVE, by, why, [(asked[i].account, asked[i].case_id, i) for i in asked])
    wake_parents(tx, parents.difference(locked))
    waived.completed = complete_cases(tx, cases)
    return waived


def pause(tx: Transaction, account: str, *, by: str, why: str | None = None) -> None:
    """Stop calls to an account until somebody resumes it; a call that is under way ends. Raises InvalidDecision."""
    require_plain({"by": by, "why": why}, InvalidDecision)
    _record(tx, Decision.PAUSE, by, why, [(account, None, None)])
    tx.run(
        """
        INSERT INTO erasure_lane (account, scope, paused_by, paused_since, reason)
        VALUES (:account, '', 'operator', {now}, :why)
        ON CONFLICT (account, scope) DO UPDATE
           SET paused_by = 'operator', paused_until = NULL, refused = false, reason = excluded.reason,
               paused_since = CASE WHEN erasure_lane.paused_by = 'operator' THEN erasure_lane.paused_since
                                   ELSE excluded.paused_since END
        """,
        account=account,
        why=why or None,
    )


def resume(tx: Transaction, account: str, *, by: str, why: str | None = None) -> Resumed:
    """Lift every pause of a lane and its buckets, whoever made it, and forget its failures. Raises InvalidDecision."""
    require_plain({"by": by, "why": why}, InvalidDecision)
    due = hurry_deferred(tx, account)
    _record(tx, Decision.RESUME, by, why, [(account, None, None)])
    lock_lanes(tx, account)
    before = read_lanes(tx, account)
    tx.run(
        "UPDATE erasure_lane SET paused_by = NULL, paused_until = NULL, paused_since = NULL, reason = NULL,"
        " refused = false, failures = 0, failing = NULL WHERE account = :account",
        account=account,
    )
    return Resumed([lane for lane in before.values() if lane.paused_by is not None], due)


def hurry_deferred(tx: Transaction, account: str) -> int:
    """Make entries that were put off for a paused bucket due now. Call it again after a resume has committed: a drain
    that still saw the pause may have put some off meanwhile."""
    return tx.run(
        "UPDATE erasure_outbox SET due_at = {now}, reason = NULL WHERE id IN (SELECT id FROM erasure_outbox"
        " WHERE account = :account AND state = 'ready' AND reason LIKE :deferred {skip locked}) AND state = 'ready'",
        account=account,
        deferred=deferral("%"),
    )


def _require_all(tx: Transaction, ids: Sequence[int]) -> dict[int, Any]:
    rows = {
        row.id: row
        for row in tx.rows("SELECT id, case_id, account FROM erasure_outbox WHERE id {in ids} ORDER BY id", ids=ids)
    }
    missing = [entry_id for entry_id in ids if entry_id not in rows]
    if missing:
        raise EntryNotFound(f"{_named(missing)} not in the outbox, and may have been settled; nothing was changed")
    return rows


def _lock_with_parts(tx: Transaction, ids: Sequence[int]) -> list[int]:
    """Lock entries and everything inside them that is still owed; gives their ids. Whether something is erased already
    is seen under the lock: a settle may come through until then."""
    erased = "SELECT id FROM erasure_outbox WHERE id {in ids} AND settled ORDER BY id"
    _refuse_erased([row.id for row in tx.rows(erased, ids=ids)])
    locked: list[int] = []
    wanted, seen = list(ids), set(ids)
    while wanted:
        rows = tx.rows(
            "SELECT id, state, settled FROM erasure_outbox WHERE id {in ids} ORDER BY id {skip locked}", ids=wanted
        )
        busy = [row.id for row in rows if row.state in (EntryState.LEASED, EntryState.CALLING)]
        skipped = sorted(set(wanted) - {row.id for row in rows})
        if skipped:
            busy += [row.id for row in tx.rows("SELECT id FROM erasure_outbox WHERE id {in ids}", ids=skipped)]
            gone = sorted(set(skipped) - set(busy))
            if not busy and set(gone) & set(ids):
                _require_all(tx, ids)
        if busy:
            raise EntryInFlight(
                f"{_named(sorted(busy))} in a worker's hands right now: decide when it has been settled;"
                " nothing was changed"
            )
        _refuse_erased([row.id for row in rows if row.settled and row.id in ids])
        owed = [row.id for row in rows if not row.settled]
        locked += owed
        # whoever is locked here is not leased, so it gets no further parts before we commit
        children = tx.rows("SELECT id FROM erasure_outbox WHERE parent_id {in ids} AND NOT settled", ids=owed)
        wanted = [row.id for row in children if row.id not in seen]
        seen.update(wanted)
    return sorted(locked)


def _refuse_erased(ids: Sequence[int]) -> None:
    if ids:
        raise InvalidDecision(
            f"{_named(ids)} erased, and waits for a second look only: there is nothing to waive; nothing was changed"
        )


def _named(ids: Sequence[int]) -> str:
    shown = ", ".join(str(entry_id) for entry_id in ids[:10]) + (f" and {len(ids) - 10} more" if len(ids) > 10 else "")
    return f"entry {shown} is" if len(ids) == 1 else f"entries {shown} are"


def _record(
    tx: Transaction,
    decision: Decision,
    by: str,
    why: str | None,
    about: Sequence[tuple[str | None, str | None, int | None]],
) -> None:
    """`about`: account, case and entry of each row."""
    tx.run_each(
        "INSERT INTO erasure_decision (decision, actor, why, account, case_id, entry_id)"
        " VALUES (:decision, :by, :why, :account, :case, :entry)",
        [
            {
                "decision": str(decision),
                "by": by,
                "why": why or None,
                "account": account,
                "case": case,
                "entry": entry,
            }
            for account, case, entry in about
        ],
    )
