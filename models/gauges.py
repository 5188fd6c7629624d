"""The numbers of the database that dashboards and `expunge check` watch. All ages are by the database's clock.

They are read within `STATEMENT_SECONDS` a statement, so that whoever watches never holds up whoever works.
"""

import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from expunge.models.database import Transaction
from expunge.models.lanes import Lane, all_lanes
from expunge.models.states import EntryState
from expunge.models.types import UtcDateTime

STATEMENT_SECONDS = 5.0
SUCCESS_SECONDS = 3600.0
"""So far back a lane's last success is looked for: what lies further back is `an hour or more`."""
OF_A_CALL = "('deleted', 'already_absent', 'ended', 'absent', 'accepted')"
"""Receipts that say that a call came to something."""
TRIED = (EntryState.READY, EntryState.LEASED, EntryState.CALLING)
"""Entries that workers move, without a person, a hold's end or another entry."""
_STEPS = 10_000
"""Of SQLite's machine between two looks at the clock."""


@dataclass(frozen=True, slots=True)
class Gauges:
    """As they stood at one moment."""

    entries: dict[tuple[str, str], int] = field(default_factory=dict)
    """By account and state."""
    oldest_due_seconds: dict[str, float] = field(default_factory=dict)
    """Of accounts with due entries, whether paused or not."""
    success_seconds: dict[str, float] = field(default_factory=dict)
    """Of accounts with entries that are tried again and again, due just now or not: since their last receipt of
    `OF_A_CALL`, `SUCCESS_SECONDS` at the most."""
    lanes: list[Lane] = field(default_factory=list)
    sweep_seconds: float | None = None
    """Since a sweep last came to its end; None if none ever did."""
    archive_queue: int = 0
    cases_open: int = 0
    cases_overdue: int = 0
    cases_held: int = 0


@dataclass(frozen=True, slots=True)
class Stuck:
    """A lane that is called, and where nothing is ever erased."""

    account: str
    calls: int
    """Answers within `SUCCESS_SECONDS`."""
    oldest_seconds: float
    """Since its oldest entry was opened."""


@contextmanager
def within(tx: Transaction, seconds: float = STATEMENT_SECONDS) -> Iterator[None]:
    """Statements of this transaction end after so many seconds, with an OperationalError. SQLite has no such setting
    of its own: there all of them together do."""
    if tx.dialect == "postgresql":
        tx.rows("SELECT set_config('statement_timeout', :limit, true)", limit=str(int(seconds * 1000)))
        yield
        return
    ends = time.monotonic() + seconds
    driver: Any = tx.connection.connection.dbapi_connection
    driver.set_progress_handler(lambda: time.monotonic() > ends, _STEPS)
    try:
        yield
    finally:
        driver.set_progress_handler(None, 0)


def read_gauges(tx: Transaction, accounts: Collection[str]) -> Gauges:
    """Read them all. `accounts` are those of the settings: of others, which plain SQL may have brought, only the
    entries are counted."""
    entries = tx.rows(
        """
        SELECT account, state, count(*) AS n, count(CASE WHEN action = 'delete' THEN 1 END) AS erasures
          FROM erasure_outbox GROUP BY account, state
        """
    )
    # whoever waits for the next try is among them: with back-off an entry is due for moments only
    tried = {row.account for row in entries if row.erasures and row.state in TRIED}
    due = _ages(
        tx,
        "SELECT account AS name, min(due_at) AS at FROM erasure_outbox"
        " WHERE state = 'ready' AND due_at <= {now} GROUP BY account",
    )
    cases = tx.rows(
        """
        SELECT count(*) AS open, count(CASE WHEN due_at < {now} THEN 1 END) AS overdue
          FROM erasure_case WHERE completed_at IS NULL
        """
    )[0]
    return Gauges(
        entries={(row.account, row.state): row.n for row in entries},
        oldest_due_seconds=due,
        success_seconds={account: _since_success(tx, account) for account in sorted(tried & set(accounts))},
        lanes=all_lanes(tx),
        sweep_seconds=_ages(tx, "SELECT name, ended_at AS at FROM erasure_sweep WHERE ended_at IS NOT NULL").get(SWEEP),
        archive_queue=_count(tx, "SELECT count(*) AS n FROM erasure_archive_queue"),
        cases_open=cases.open,
        cases_overdue=cases.overdue,
        cases_held=_count(tx, "SELECT count(DISTINCT case_id) AS n FROM erasure_outbox WHERE state = 'held'"),
    )


SWEEP = "sweep"


def begin_sweep(tx: Transaction) -> None:
    """A sweep begins; when the last one ended stays."""
    tx.run(
        "INSERT INTO erasure_sweep (name, started_at) VALUES (:name, {now})"
        " ON CONFLICT (name) DO UPDATE SET started_at = excluded.started_at",
        name=SWEEP,
    )


def end_sweep(tx: Transaction) -> None:
    """It came to its end: every step was taken."""
    tx.run("UPDATE erasure_sweep SET ended_at = {now} WHERE name = :name", name=SWEEP)


@dataclass(frozen=True, slots=True)
class LastSweep:
    """When the sweep last ran; None if it never did."""

    ended_at: datetime | None
    age_seconds: float | None
    entry_waits_seconds: float | None
    """Since the oldest entry was opened; None without entries."""


def last_sweep(tx: Transaction) -> LastSweep:
    """Read it, and since when there is something to sweep for."""
    row = tx.typed_rows(
        "SELECT {now} AS now, (SELECT ended_at FROM erasure_sweep WHERE name = :name) AS ended_at,"
        " (SELECT min(created_at) FROM erasure_outbox) AS created_at",
        {"now": UtcDateTime(), "ended_at": UtcDateTime(), "created_at": UtcDateTime()},
        name=SWEEP,
    )[0]
    return LastSweep(
        row.ended_at,
        (row.now - row.ended_at).total_seconds() if row.ended_at else None,
        (row.now - row.created_at).total_seconds() if row.created_at else None,
    )


def stuck_lanes(tx: Transaction, stale_seconds: float) -> list[Stuck]:
    """Lanes with entries older than `stale_seconds` that are tried again and again, whose stores were called within
    `SUCCESS_SECONDS`, and where no call came to anything. An operator's pause is meant, and not among them."""
    old = _ages(
        tx,
        """
        SELECT o.account AS name, min(o.created_at) AS at FROM erasure_outbox o
         WHERE o.action = 'delete' AND o.state IN ('ready', 'leased', 'calling')
           AND NOT EXISTS (SELECT 1 FROM erasure_lane l
                            WHERE l.account = o.account AND l.scope = '' AND l.paused_by = 'operator')
         GROUP BY o.account
        """,
    )
    found = []
    for account, age in sorted(old.items()):
        if age <= stale_seconds:
            continue
        row = tx.rows(
            f"""
            SELECT count(*) AS calls, count(CASE WHEN status IN {OF_A_CALL} THEN 1 END) AS good FROM erasure_record
             WHERE account = :account AND recorded_at > {{now+ago}} AND called_at IS NOT NULL
            """,
            account=account,
            ago=-SUCCESS_SECONDS,
        )[0]
        if row.calls and not row.good:
            found.append(Stuck(account, row.calls, age))
    return found


def oldest_due_entry(tx: Transaction) -> int | None:
    """The id of the entry that has been due for longest in a lane that is not paused."""
    row = tx.first(
        """
        SELECT o.id FROM erasure_outbox o WHERE o.state = 'ready' AND o.due_at <= {now}
           AND NOT EXISTS (SELECT 1 FROM erasure_lane l WHERE l.account = o.account AND l.scope = ''
                             AND (l.paused_by = 'operator' OR (l.paused_by IS NOT NULL AND l.paused_until > {now})))
         ORDER BY o.due_at, o.id LIMIT 1
        """
    )
    return None if row is None else int(row.id)


def _since_success(tx: Transaction, account: str) -> float:
    since = _ages(
        tx,
        f"""
        SELECT account AS name, recorded_at AS at FROM erasure_record
         WHERE account = :account AND recorded_at > {{now+ago}} AND status IN {OF_A_CALL}
         ORDER BY recorded_at DESC LIMIT 1
        """,
        account=account,
        ago=-SUCCESS_SECONDS,
    )
    return since.get(account, SUCCESS_SECONDS)


def _ages(tx: Transaction, statement: str, **parameters: Any) -> dict[str, float]:
    """Seconds since `at` by `name`."""
    now = tx.typed_rows("SELECT {now} AS now", {"now": UtcDateTime()})[0].now
    rows = tx.typed_rows(statement, {"at": UtcDateTime()}, **parameters)
    return {row.name: max(0.0, (now - row.at).total_seconds()) for row in rows}


def _count(tx: Transaction, statement: str) -> int:
    row = tx.first(statement)
    return int(row.n) if row else 0
