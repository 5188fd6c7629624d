"""The settle: receipts in, entries removed, retried or escalated, in one transaction.

Receipts come from what the worker knows, so they are written even if the lease is gone; entries are only moved while
the token is still theirs. Writing a receipt twice is writing it once.
"""

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any

import sqlalchemy as sa

from expunge.models.database import Transaction
from expunge.models.entry import Receipt
from expunge.models.mark import ESCALATED_RETRY_SECONDS
from expunge.models.states import EntryAction, EntryState
from expunge.models.types import Json, UtcDateTime

_COLUMNS = tuple(field.name for field in fields(Receipt))
_VALUES = attrgetter(*_COLUMNS)
_POSTGRESQL_TYPES = {
    "id": "uuid",
    "entry_id": "bigint",
    "attempt": "integer",
    "http_status": "integer",
    "detail": "text",
    "at": "timestamptz",
    "called_at": "timestamptz",
    "purge_due_at": "timestamptz",
}
_SQLITE_INSERT = sa.text(
    f"INSERT INTO erasure_record ({', '.join(_COLUMNS)}) SELECT {', '.join(f':{c}' for c in _COLUMNS)}"
    " WHERE NOT EXISTS (SELECT 1 FROM erasure_record WHERE id = :id)"
).bindparams(
    sa.bindparam("detail", type_=Json),
    *(sa.bindparam(name, type_=UtcDateTime()) for name in ("at", "called_at", "purge_due_at")),
)


@dataclass(frozen=True, slots=True)
class Move:
    """Where an entry goes that is not gone yet."""

    entry_id: int
    state: EntryState
    """READY, ESCALATED or LEASED (its parts are settled; it is looked at again under the same lease)."""
    delay_seconds: float = 0.0
    tries: int = 0
    """Added."""
    refusals: int = 0
    """Added."""
    reason: str | None = None
    action: EntryAction | None = None
    """What it waits for from now on, if that is something else: models/second_look.py, `turn`."""
    settled: bool = False
    """With an action: only a second look is left, and its case need not wait for it."""
    reappeared: int = 0
    """Added, with an action."""


def write_receipts(tx: Transaction, receipts: Sequence[Receipt]) -> None:
    """Append receipts; those that exist are left as they are."""
    if not receipts:
        return
    if tx.dialect == "postgresql":
        _write_postgresql(tx, receipts)
    else:
        tx.connection.execute(_SQLITE_INSERT, [{c: getattr(r, c) for c in _COLUMNS} for r in receipts])


def _write_postgresql(tx: Transaction, receipts: Sequence[Receipt]) -> None:
    """One statement with binary arrays. A column that is the same in all rows, as most are in one call, goes once."""
    arrays: list[str] = []
    names: list[str] = []
    selects: list[str] = []
    parameters: list[Any] = []
    constants: list[Any] = []
    columns = zip(*map(_VALUES, receipts), strict=True)
    for name, column in zip(_COLUMNS, columns, strict=True):
        values = list(column)
        if name == "detail":
            values = [None if v is None else json.dumps(v, ensure_ascii=True, default=str) for v in values]
        kind = _POSTGRESQL_TYPES.get(name, "text")
        first = values[0]
        if name != "id" and values.count(first) == len(values):
            constants.append(first)
            select = f"%b::{kind}"
        else:
            arrays.append(f"%b::{'text' if kind == 'uuid' else kind}[]")
            names.append(name)
            parameters.append(values)
            select = f"u.{name}::uuid" if kind == "uuid" else f"u.{name}"
        selects.append(f"({select})::jsonb" if name == "detail" else select)
    statement = (
        f"INSERT INTO erasure_record ({', '.join(_COLUMNS)}) SELECT {', '.join(selects)}"
        f" FROM unnest({', '.join(arrays)}) AS u({', '.join(names)}) ON CONFLICT (id) DO NOTHING"
    )
    raw = tx.connection.connection.driver_connection
    assert raw is not None
    try:
        raw.execute(statement, [*constants, *parameters])
    except Exception as error:
        # raised under SQLAlchemy, which must learn of a connection that is gone
        _as_sqlalchemy_error(tx, statement, error)
        raise


def _as_sqlalchemy_error(tx: Transaction, statement: str, error: Exception) -> None:
    dialect = tx.connection.dialect
    lost = dialect.is_disconnect(error, tx.connection.connection.driver_connection, None)  # type: ignore[arg-type]
    if lost:
        tx.connection.invalidate(error)
    module = dialect.loaded_dbapi
    raise sa.exc.DBAPIError.instance(
        statement, None, error, module.Error, connection_invalidated=lost, dialect=dialect
    ) from error


def remove(tx: Transaction, ids: Collection[int], *, token: str) -> int:
    """Entries that are gone at the store leave the outbox, if they are still ours."""
    if not ids:
        return 0
    return tx.run(
        "DELETE FROM erasure_outbox WHERE id {in ids} AND lease_token = :token AND state = 'calling'",
        ids=ids,
        token=token,
    )


def move(tx: Transaction, moves: Sequence[Move], *, token: str, lease_seconds: float) -> None:
    """Entries that are not gone yet, if they are still ours. An answer came, so lost leases are forgotten."""
    tx.run_each(
        """
        UPDATE erasure_outbox
           SET state = :state, tries = tries + :tries, refusals = refusals + :refusals, lost_leases = 0,
               escalations = escalations + :escalated, reason = :reason,
               had_parts = (had_parts OR :again), due_at = {now+delay},
               lease_token = CASE WHEN :again THEN lease_token END,
               lease_until = CASE WHEN :again THEN {now+lease} END
         WHERE id = :id AND lease_token = :token AND state = 'calling'
        """,
        [
            {
                "id": moved.entry_id,
                "state": str(moved.state),
                "tries": moved.tries,
                "refusals": moved.refusals,
                "escalated": int(moved.state is EntryState.ESCALATED),
                "reason": moved.reason,
                "again": moved.state is EntryState.LEASED,
                "delay": ESCALATED_RETRY_SECONDS if moved.state is EntryState.ESCALATED else moved.delay_seconds,
                "token": token,
                "lease": lease_seconds,
            }
            for moved in moves
        ],
    )


def escalated_among(tx: Transaction, ids: Collection[int]) -> list[int]:
    """Those of the entries that are escalated."""
    rows = tx.rows("SELECT id FROM erasure_outbox WHERE id {in ids} AND state = 'escalated'", ids=ids)
    return [row.id for row in rows]


def add_parts(
    tx: Transaction,
    parent_id: int,
    case_id: str,
    account: str,
    children: Sequence[tuple[str, str]],
    *,
    token: str,
    cursor: str | None,
    delay_seconds: float,
) -> int:
    """Put parts of a composite target into the outbox. With a cursor the parent goes back to `ready` to list on, else
    it waits for its parts. Gives how many parts are its own; none, and nothing is done, if it is not ours any more.

    An entry of the case that is there already and has no parent is taken as a part. One that is another's part is left
    to it, and one that another worker has in its hands to that one: it is never waited for, since that worker may wait
    for what was taken before it. A listing that found parts but none of its own waits a while instead of for ever.
    """
    if not tx.first(
        "SELECT 1 FROM erasure_outbox WHERE id = :id AND lease_token = :token AND state = 'leased' {for update}",
        id=parent_id,
        token=token,
    ):
        return 0
    for taken_kind in sorted({kind for kind, _ in children}):
        # a listing found what waits for a second look only: it is there again, and to be erased
        tx.run(
            "UPDATE erasure_outbox SET action = 'delete', settled = false, due_at = {now}, tries = 0, refusals = 0"
            " WHERE settled AND id IN (SELECT id FROM erasure_outbox WHERE case_id = :case_id AND account = :account"
            " AND kind = :kind AND locator {in text locators} AND settled AND state = 'ready' {skip locked})",
            case_id=case_id,
            account=account,
            kind=taken_kind,
            locators=[locator for kind, locator in children if kind == taken_kind],
        )
        tx.run(
            "UPDATE erasure_outbox SET parent_id = :parent WHERE parent_id IS NULL AND NOT settled AND id IN ("
            "SELECT id FROM erasure_outbox WHERE case_id = :case_id AND account = :account AND kind = :kind"
            " AND locator {in text locators} AND parent_id IS NULL AND id <> :parent"
            " AND (state IN ('ready', 'held', 'escalated') OR lease_token = :token) {skip locked})",
            parent=parent_id,
            case_id=case_id,
            account=account,
            kind=taken_kind,
            locators=[locator for kind, locator in children if kind == taken_kind],
            token=token,
        )
    tx.run_each(
        "INSERT INTO erasure_outbox (case_id, account, kind, locator, parent_id)"
        " VALUES (:case_id, :account, :kind, :locator, :parent)"
        " ON CONFLICT (case_id, account, kind, locator) DO NOTHING",
        [
            {"case_id": case_id, "account": account, "kind": kind, "locator": locator, "parent": parent_id}
            for kind, locator in children
        ],
    )
    row = tx.first("SELECT count(*) AS n FROM erasure_outbox WHERE parent_id = :id AND NOT settled", id=parent_id)
    own = int(row.n) if row else 0
    finished = cursor is None
    tx.run(
        """
        UPDATE erasure_outbox
           SET state = :state, cursor = :cursor, lease_token = NULL, lease_until = NULL, lost_leases = 0,
               rounds = rounds + :round, had_parts = (had_parts OR :found), due_at = {now+delay}, reason = NULL
         WHERE id = :id
        """,
        id=parent_id,
        state="waiting" if finished and own else "ready",
        cursor=cursor,
        round=int(finished and (own > 0 or not children)),
        found=bool(children),
        delay=delay_seconds if finished and children and not own else 0.0,
    )
    return own
