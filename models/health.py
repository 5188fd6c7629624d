"""Whether what is due is being done: the numbers that `expunge check` and dashboards read."""

from dataclasses import dataclass
from datetime import datetime

from expunge.models.database import Transaction
from expunge.models.lanes import paused
from expunge.models.types import UtcDateTime


@dataclass(frozen=True, slots=True)
class Health:
    """By the database's clock."""

    version: str
    """Of the database server."""
    due: int
    """Entries due in lanes that are not paused, counted up to `COUNT_LIMIT`."""
    oldest_due_at: datetime | None
    oldest_waits_seconds: float
    drains: int
    """Running in the fleet."""
    notices: int
    """Owed."""
    oldest_notice_seconds: float
    escalated: int
    overdue_cases: int


COUNT_LIMIT = 100_000
_PAUSED = f"EXISTS (SELECT 1 FROM erasure_lane l WHERE l.account = o.account AND l.scope = '' AND {paused('l')})"


def read_health(tx: Transaction) -> Health:
    """Read them; cheap enough for a probe once a minute."""
    now = tx.typed_rows("SELECT {now} AS now", {"now": UtcDateTime()})[0].now
    due = f"FROM erasure_outbox o WHERE o.state = 'ready' AND o.due_at <= {{now}} AND NOT {_PAUSED}"
    oldest = tx.typed_rows(f"SELECT min(o.due_at) AS at {due}", {"at": UtcDateTime()})[0].at
    owed = tx.typed_rows(
        "SELECT count(*) AS n, min(created_at) AS at FROM erasure_notice WHERE sent_at IS NULL", {"at": UtcDateTime()}
    )[0]
    return Health(
        version=_server_version(tx),
        due=_count(tx, f"SELECT count(*) AS n FROM (SELECT 1 {due} LIMIT {COUNT_LIMIT}) due"),
        oldest_due_at=oldest,
        oldest_waits_seconds=(now - oldest).total_seconds() if oldest else 0.0,
        drains=_count(tx, "SELECT count(*) AS n FROM erasure_drain WHERE lease_until > {now}"),
        notices=owed.n,
        oldest_notice_seconds=(now - owed.at).total_seconds() if owed.at else 0.0,
        escalated=_count(tx, "SELECT count(*) AS n FROM erasure_outbox WHERE state = 'escalated'"),
        overdue_cases=_count(
            tx, "SELECT count(*) AS n FROM erasure_case WHERE completed_at IS NULL AND due_at < {now}"
        ),
    )


def _count(tx: Transaction, statement: str) -> int:
    row = tx.first(statement)
    return int(row.n) if row else 0


def _server_version(tx: Transaction) -> str:
    if tx.dialect == "postgresql":
        row = tx.first("SHOW server_version")
        return f"PostgreSQL {str(row[0]).split()[0]}" if row else "PostgreSQL"
    row = tx.first("SELECT sqlite_version()")
    return f"SQLite {row[0]}" if row else "SQLite"
