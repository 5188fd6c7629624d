"""Notices: what a webhook is owed, written in the transaction of what it tells of."""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from expunge.models.basis import BASES, due_date
from expunge.models.database import Transaction
from expunge.models.states import NoticeKind
from expunge.models.types import Json, UtcDateTime

_INSERT = sa.text(
    "INSERT INTO erasure_notice (kind, dedupe, case_id, entry_id, account, body)"
    " VALUES (:kind, :dedupe, :case_id, :entry_id, :account, :body) ON CONFLICT (dedupe) DO NOTHING"
).bindparams(sa.bindparam("body", type_=Json))


def add_notice(
    tx: Transaction,
    kind: NoticeKind,
    dedupe: str,
    *,
    case_id: str | None = None,
    entry_id: int | None = None,
    account: str | None = None,
    **body: Any,
) -> bool:
    """Owe a notice; False if one with the same `dedupe` is owed or sent already. `body` holds ids and codes only."""
    result = tx.connection.execute(
        _INSERT,
        {
            "kind": str(kind),
            "dedupe": f"{kind}/{dedupe}",
            "case_id": case_id,
            "entry_id": entry_id,
            "account": account,
            "body": body,
        },
    )
    return result.rowcount == 1


def claim_notices(tx: Transaction, limit: int, *, again_after_seconds: float) -> list[Any]:
    """Due notices, put off so that no other sweep sends them meanwhile; rows of id, kind, case_id, entry_id, account,
    body, created_at, attempt. A sweep that dies sends them again: at least once."""
    rows = tx.typed_rows(
        "UPDATE erasure_notice SET attempt = attempt + 1, due_at = {now+again} WHERE id IN ("
        "SELECT id FROM erasure_notice WHERE sent_at IS NULL AND due_at <= {now} ORDER BY id LIMIT :limit"
        " {skip locked}) AND sent_at IS NULL"
        " RETURNING id, kind, case_id, entry_id, account, body, created_at, attempt",
        {"body": Json, "created_at": UtcDateTime()},
        limit=limit,
        again=again_after_seconds,
    )
    return sorted(rows, key=lambda row: row.id)


def notice_sent(tx: Transaction, notice_id: int) -> None:
    """It was accepted."""
    tx.run("UPDATE erasure_notice SET sent_at = {now} WHERE id = :id AND sent_at IS NULL", id=notice_id)


def notice_later(tx: Transaction, notice_id: int, delay_seconds: float) -> None:
    """It was not accepted: try again later."""
    tx.run(
        "UPDATE erasure_notice SET due_at = {now+delay} WHERE id = :id AND sent_at IS NULL",
        id=notice_id,
        delay=delay_seconds,
    )


def owe_due_soon(tx: Transaction, within: Sequence[float], limit: int) -> list[str]:
    """Owe one notice for every open case at each of these distances from its statutory date, in seconds; gives the case
    ids newly owed. Of several distances that a case has passed at once only the nearest is told. Held entries do not
    stop the clock. An extended case has its distances anew."""
    owed: list[str] = []
    nearer = 0.0
    for distance in sorted(set(within)):
        owed += _owe_clock(
            tx,
            NoticeKind.CASE_DUE_SOON,
            f"{distance:g}",
            "c.due_at <= {now+within} AND c.due_at >= {now+nearer}",
            limit,
            within=distance,
            nearer=nearer,
        )
        nearer = distance
    return owed


def owe_overdue(tx: Transaction, limit: int) -> list[str]:
    """Owe one notice for every open case whose statutory date has passed; gives the case ids newly owed."""
    return _owe_clock(tx, NoticeKind.CASE_OVERDUE, "0", "c.due_at < {now}", limit)


def _owe_clock(
    tx: Transaction, kind: NoticeKind, distance: str, near: str, limit: int, **parameters: float
) -> list[str]:
    # the tag has no slash, so that no case id can be taken for another's
    tag = "CAST(:distance AS text) || CASE WHEN c.extended_at IS NULL THEN '' ELSE '+' END"
    rows = tx.typed_rows(
        f"SELECT c.id, c.due_at, {tag} || '/' || c.id AS dedupe,"
        " (SELECT count(*) FROM erasure_outbox o WHERE o.case_id = c.id AND NOT o.settled) AS entries_left"
        f" FROM erasure_case c WHERE c.completed_at IS NULL AND {near}"
        f" AND NOT EXISTS (SELECT 1 FROM erasure_notice n WHERE n.dedupe = CAST(:kind AS text) || '/' || {tag}"
        " || '/' || c.id) ORDER BY c.due_at, c.id LIMIT :limit",
        {"due_at": UtcDateTime()},
        limit=limit,
        kind=str(kind),
        distance=distance,
        **parameters,
    )
    return [
        row.id
        for row in rows
        if add_notice(
            tx, kind, row.dedupe, case_id=row.id, due_at=row.due_at.isoformat(), entries_left=row.entries_left
        )
    ]


def fill_due_dates(tx: Transaction, limit: int) -> int:
    """Cases opened by plain SQL name a basis but no date: the date follows from `received_at`."""
    clocked = [basis for basis, period in BASES.items() if period is not None]
    names = ", ".join(f":b{number}" for number in range(len(clocked)))
    rows = tx.typed_rows(
        "SELECT id, basis, received_at FROM erasure_case"
        f" WHERE completed_at IS NULL AND due_at IS NULL AND basis IN ({names}) ORDER BY id LIMIT :limit",
        {"received_at": UtcDateTime()},
        limit=limit,
        **{f"b{number}": basis for number, basis in enumerate(clocked)},
    )
    for row in rows:
        tx.connection.execute(
            sa.text("UPDATE erasure_case SET due_at = :due WHERE id = :id AND due_at IS NULL").bindparams(
                sa.bindparam("due", type_=UtcDateTime())
            ),
            {"due": due_date(row.basis, row.received_at), "id": row.id},
        )
    return len(rows)
