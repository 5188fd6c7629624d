"""Lanes: their pauses, and the places for drains in the fleet.

A lane that simply runs has no row, and a lane's row is written only when something changes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Row

from expunge.models.database import Transaction
from expunge.models.types import Json, UtcDateTime

_MOST_FAILING = 3


@dataclass(frozen=True, slots=True)
class Lane:
    """A row of erasure_lane as it stood; `is_paused` is by the database's clock."""

    account: str
    scope: str
    paused_by: str | None
    paused_until: datetime | None
    paused_since: datetime | None
    reason: str | None
    refused: bool
    failures: int
    failing: dict[str, Any]
    is_paused: bool


def paused(lane: str, *, by: str = "IS NOT NULL", until: str = "{now}") -> str:
    """SQL: this row of erasure_lane is paused, by the operator or for longer than `until`. `by` narrows who else."""
    return f"({lane}.paused_by = 'operator' OR ({lane}.paused_by {by} AND {lane}.paused_until > {until}))"


def in_bucket(lane: str) -> str:
    """SQL: entry `o` is in the bucket that this row of erasure_lane is about."""
    return f"substr(o.locator, 1, length({lane}.scope) + 1) = {lane}.scope || '/'"


def _lane_not_paused(by: str = "IS NOT NULL") -> str:
    """The lane of `:account` is not paused; decided once a statement, not for every row."""
    return (
        "NOT EXISTS (SELECT 1 FROM erasure_lane l WHERE l.account = :account AND l.scope = ''"
        f" AND {paused('l', by=by)})"
    )


_PAUSED_BUCKET = f"SELECT 1 FROM erasure_lane s WHERE s.account = :account AND s.scope <> '' AND {paused('s')}"
NOT_PAUSED = (
    f"{_lane_not_paused()} AND (NOT EXISTS ({_PAUSED_BUCKET}) OR NOT EXISTS ({_PAUSED_BUCKET} AND {in_bucket('s')}))"
)
"""Neither the lane of `:account` nor the bucket of an entry `o` of it is paused; whether any bucket is at all is
decided once a statement."""
PROBE_NOT_PAUSED = _lane_not_paused("= 'throttle'")
"""The same for a probe, which goes through the breaker's pauses."""


def read_lanes(tx: Transaction, account: str | None = None) -> dict[str, Lane]:
    """The rows of one lane by scope."""
    return {lane.scope: lane for lane in all_lanes(tx, account)}


def all_lanes(tx: Transaction, account: str | None = None) -> list[Lane]:
    """Every lane row, or those of one account."""
    where = "" if account is None else " WHERE account = :account"
    rows = tx.typed_rows(
        "SELECT account, scope, paused_by, paused_until, paused_since, reason, refused, failures, failing,"
        f" coalesce({paused('erasure_lane')}, false) AS is_paused FROM erasure_lane{where} ORDER BY account, scope",
        {"paused_until": UtcDateTime(), "paused_since": UtcDateTime(), "failing": Json},
        **({} if account is None else {"account": account}),
    )
    return [_lane(row) for row in rows]


def _lane(row: Row[Any]) -> Lane:
    return Lane(
        account=row.account,
        scope=row.scope,
        paused_by=row.paused_by,
        paused_until=row.paused_until,
        paused_since=row.paused_since,
        reason=row.reason,
        refused=bool(row.refused),
        failures=row.failures,
        failing=row.failing or {},
        is_paused=bool(row.is_paused),
    )


def lanes_down(tx: Transaction, seconds: float) -> list[Lane]:
    """Lanes whose breaker has been open for so long because the store gives no good answer."""
    rows = tx.rows(
        "SELECT account, scope FROM erasure_lane WHERE paused_by = 'breaker' AND NOT refused"
        " AND paused_since <= {now+ago}",
        ago=-seconds,
    )
    long = {(row.account, row.scope) for row in rows}
    return [lane for lane in all_lanes(tx) if (lane.account, lane.scope) in long] if long else []


def ensure_lane(tx: Transaction, account: str, scope: str = "") -> Lane:
    """The lane's row, made if there is none, and locked to the end of the transaction."""
    tx.run(
        "INSERT INTO erasure_lane (account, scope) VALUES (:account, :scope) ON CONFLICT (account, scope) DO NOTHING",
        account=account,
        scope=scope,
    )
    tx.rows(
        "SELECT 1 FROM erasure_lane WHERE account = :account AND scope = :scope {for update}",
        account=account,
        scope=scope,
    )
    return read_lanes(tx, account)[scope]


def lock_lanes(tx: Transaction, account: str) -> None:
    """Lock the lane's rows that there are, in the order in which whoever needs several takes them: the lane itself,
    then its buckets by name."""
    tx.rows("SELECT 1 FROM erasure_lane WHERE account = :account ORDER BY scope {for update}", account=account)


def pause_lane(
    tx: Transaction,
    account: str,
    scope: str = "",
    *,
    by: str,
    seconds: float,
    reason: str,
    refused: bool = False,
) -> bool:
    """Pause a lane (or one bucket of it) for some seconds; False if the operator's pause stands, which nobody else
    changes. A pause that began earlier keeps its beginning, and one that ends later its end: who answers late, or knows
    less, takes back nothing that the store asked for."""
    changed = tx.run(
        """
        UPDATE erasure_lane
           SET paused_by = :by, reason = :reason, refused = :refused,
               paused_until = CASE WHEN paused_until > {now+seconds} THEN paused_until ELSE {now+seconds} END,
               paused_since = CASE WHEN paused_by = :by AND paused_since IS NOT NULL THEN paused_since ELSE {now} END
         WHERE account = :account AND scope = :scope AND (paused_by IS NULL OR paused_by <> 'operator')
        """,
        by=by,
        seconds=seconds,
        reason=reason,
        refused=refused,
        account=account,
        scope=scope,
    )
    return changed == 1


def set_failures(tx: Transaction, account: str, scope: str, failures: int, failing: dict[str, Any] | None) -> None:
    """Remember failures in a row; the caller has locked the row by `ensure_lane`."""
    tx.connection.execute(
        sa.text(
            "UPDATE erasure_lane SET failures = :failures, failing = :failing"
            " WHERE account = :account AND scope = :scope"
        ).bindparams(sa.bindparam("failing", type_=Json)),
        {"failures": failures, "failing": failing, "account": account, "scope": scope},
    )


def clear_lane(tx: Transaction, account: str, scope: str = "") -> bool:
    """The store gave a good answer: failures are forgotten and a breaker or a throttle that has run out is over.
    Entries that were put off for it are due again. Whether a pause was lifted."""
    lifted = tx.run(
        """
        UPDATE erasure_lane
           SET paused_by = NULL, paused_until = NULL, paused_since = NULL, reason = NULL, refused = false,
               failures = 0, failing = NULL
         WHERE account = :account AND scope = :scope
           AND (paused_by = 'breaker' OR (paused_by = 'throttle' AND paused_until <= {now}))
        """,
        account=account,
        scope=scope,
    )
    forgotten = lifted or tx.run(
        "UPDATE erasure_lane SET failures = 0, failing = NULL"
        " WHERE account = :account AND scope = :scope AND failures > 0 AND paused_by IS NULL",
        account=account,
        scope=scope,
    )
    if forgotten and scope:
        undefer(tx, account, scope)
    return lifted > 0


def deferral(scope: str) -> str:
    """The reason of an entry that was put off because its bucket is paused."""
    return f"paused:{scope}"


def undefer(tx: Transaction, account: str, scope: str) -> int:
    """Entries put off for a paused scope are due now.

    The lane is locked already, and entries are locked before lanes: so it waits for none. Whoever has a `ready` entry
    locked claims it, hurries it, holds it or waives it, and needs no help.
    """
    return tx.run(
        "UPDATE erasure_outbox SET due_at = {now}, reason = NULL WHERE id IN (SELECT id FROM erasure_outbox"
        " WHERE account = :account AND state = 'ready' AND reason = :reason {skip locked}) AND state = 'ready'",
        account=account,
        reason=deferral(scope),
    )


def take_place(tx: Transaction, account: str, *, places: int, token: str, lease_seconds: float) -> int | None:
    """Take one of the lane's places for drains in the fleet; None if none is free. The place of a worker that died is
    free when its lease has ended."""
    taken = {
        row.slot
        for row in tx.rows(
            "SELECT slot FROM erasure_drain WHERE account = :account AND lease_until > {now}", account=account
        )
    }
    for slot in range(places):
        if slot in taken:
            continue
        if tx.first(
            """
            INSERT INTO erasure_drain (account, slot, token, lease_until)
            VALUES (:account, :slot, :token, {now+lease})
            ON CONFLICT (account, slot) DO UPDATE SET token = excluded.token, lease_until = excluded.lease_until
              WHERE erasure_drain.lease_until <= {now}
            RETURNING slot
            """,
            account=account,
            slot=slot,
            token=token,
            lease=lease_seconds,
        ):
            return slot
    return None


def keep_place(tx: Transaction, account: str, slot: int, *, token: str, lease_seconds: float) -> bool:
    """Extend a place; False if it was lost."""
    return (
        tx.run(
            "UPDATE erasure_drain SET lease_until = {now+lease}"
            " WHERE account = :account AND slot = :slot AND token = :token",
            account=account,
            slot=slot,
            token=token,
            lease=lease_seconds,
        )
        == 1
    )


def leave_place(tx: Transaction, account: str, slot: int, *, token: str) -> None:
    """Give the place back."""
    tx.run(
        "DELETE FROM erasure_drain WHERE account = :account AND slot = :slot AND token = :token",
        account=account,
        slot=slot,
        token=token,
    )


def free_places(tx: Transaction, account: str, places: int) -> int:
    """How many drains of a lane may still start."""
    row = tx.first(
        "SELECT count(*) AS n FROM erasure_drain WHERE account = :account AND slot < :places AND lease_until > {now}",
        account=account,
        places=places,
    )
    return places - (int(row.n) if row else 0)


def merge_failing(known: Sequence[int], fresh: Sequence[int]) -> list[int]:
    """Up to three different entries that failed in a row: enough to tell a sick store from a sick entry."""
    return list(dict.fromkeys([*known, *fresh]))[:_MOST_FAILING]
