"""What is owed to the archive, and how it gets there: exactly once by id, in order, whoever dies on the way.

Triggers put every new row into the queue with the row itself, from the moment that `begin_archive` has committed; what
was there before is queued in that transaction. A batch is given the number of its segment, and that is committed; then
the segment is written, with exactly those rows; then they leave the queue. Whoever finds a numbered batch writes it
again: the rows are never changed, so the bytes are the same. Rows are chosen because they have no number yet, never
because their id is above another one: a row may commit after one with a higher id.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from expunge.models.database import Transaction
from expunge.models.journal import TABLES
from expunge.models.keyset import RowDict, listed
from expunge.models.migrations.archive import reference
from expunge.models.types import UtcDateTime

LOCK_SECONDS = 5
"""Beginning waits so long for whoever writes receipts; after that the next sweep tries again."""
_EXISTING = {
    "tombstone": ("erasure_tombstone", "x.purged_at, x.graph, x.conversation"),
    "decision": ("erasure_decision", "x.id"),
    "receipt": ("erasure_record", "x.recorded_at, x.id"),
}
_IN = 500
"""Values of one IN list."""


@dataclass(frozen=True, slots=True)
class ArchiveState:
    """How an archive stands."""

    url: str
    segment: int
    """The last number given."""
    failures: int
    failing_since: datetime | None
    reason: str | None
    due: bool
    """False: it failed, and waits for its next try."""


def read_archive(tx: Transaction) -> ArchiveState | None:
    """The archive that was begun, or None."""
    rows = tx.typed_rows(
        "SELECT url, segment, failures, failing_since, reason, CASE WHEN due_at <= {now} THEN 1 ELSE 0 END AS due"
        " FROM erasure_archive",
        {"failing_since": UtcDateTime()},
    )
    if not rows:
        return None
    row = rows[0]
    return ArchiveState(row.url, row.segment, row.failures, row.failing_since, row.reason, bool(row.due))


def count_owed(tx: Transaction) -> int:
    """Rows that are not in the archive yet."""
    row = tx.first("SELECT count(*) AS n FROM erasure_archive_queue")
    return int(row.n) if row else 0


def begin_archive(tx: Transaction, url: str) -> bool:
    """Begin an archive at this address, with everything that there is; False if it was begun. Another address than
    before is a new archive.

    Writers of receipts wait meanwhile, and those under way are waited for: a row is in the queue by its trigger or by
    this, never by neither. Raises the database's error if they take longer than LOCK_SECONDS.
    """
    if tx.dialect == "postgresql":
        tx.run(f"SET LOCAL lock_timeout = '{LOCK_SECONDS}s'")
        # in the order of whoever writes two of them: a hold and its decision, a waiver, a purge that keeps holds out
        for table in ("erasure_hold", "erasure_record", "erasure_decision", "erasure_tombstone"):
            tx.run(f"LOCK TABLE {table} IN SHARE ROW EXCLUSIVE MODE")
    found = tx.first("SELECT url, segment FROM erasure_archive")
    if found is not None and found.url == url:
        return False
    tx.run("DELETE FROM erasure_archive_queue")
    tx.run("DELETE FROM erasure_archive")
    # numbers go on: a sweep that still writes to the address before must not end one of these segments
    tx.run(
        "INSERT INTO erasure_archive (id, url, segment) VALUES (1, :url, :segment)",
        url=url,
        segment=0 if found is None else found.segment,
    )
    for kind, (table, order) in _EXISTING.items():
        tx.run(
            f"INSERT INTO erasure_archive_queue (kind, ref) SELECT '{kind}', {reference(tx.dialect, kind, 'x')}"
            f" FROM {table} x ORDER BY {order}"
        )
    tx.run(
        "INSERT INTO erasure_archive_queue (kind, ref) SELECT 'hold', CAST(id AS text) FROM erasure_hold ORDER BY id"
    )
    tx.run(
        "INSERT INTO erasure_archive_queue (kind, ref) SELECT 'hold', CAST(id AS text) || '/released' FROM erasure_hold"
        " WHERE released_at IS NOT NULL ORDER BY id"
    )
    return True


def next_segment(tx: Transaction, limit: int) -> int | None:
    """The number of a segment that is to be written: one that somebody began, else a new one with what has no number
    yet, in the order in which it came; None if there is nothing."""
    archive = tx.first("SELECT segment FROM erasure_archive {for update}")
    if archive is None:
        return None
    begun = tx.first("SELECT min(segment) AS n FROM erasure_archive_queue WHERE segment IS NOT NULL")
    if begun is not None and begun.n is not None:
        return int(begun.n)
    number = archive.segment + 1
    given = tx.run(
        "UPDATE erasure_archive_queue SET segment = :number WHERE id IN (SELECT id FROM erasure_archive_queue"
        " WHERE segment IS NULL ORDER BY id LIMIT :limit) AND segment IS NULL",
        number=number,
        limit=limit,
    )
    if not given:
        return None
    tx.run("UPDATE erasure_archive SET segment = :number", number=number)
    return int(number)


def read_segment(tx: Transaction, number: int) -> list[tuple[str, RowDict]]:
    """The rows of a segment, as kind and columns, in its order; none if somebody else has written it meanwhile."""
    queued = tx.rows("SELECT kind, ref FROM erasure_archive_queue WHERE segment = :number ORDER BY id", number=number)
    refs: dict[str, list[str]] = {}
    for item in queued:
        refs.setdefault(item.kind, []).append(item.ref)
    found = {kind: _rows_of(tx, kind, wanted) for kind, wanted in refs.items()}
    return [(item.kind, found[item.kind][item.ref]) for item in queued if item.ref in found[item.kind]]


def finish_segment(tx: Transaction, number: int) -> int:
    """It is in the archive, and stays there: its rows leave the queue; gives how many."""
    gone = tx.run("DELETE FROM erasure_archive_queue WHERE segment = :number", number=number)
    tx.run(
        "UPDATE erasure_archive SET failures = 0, failing_since = NULL, reason = NULL, due_at = {now}"
        " WHERE failures > 0 OR failing_since IS NOT NULL"
    )
    return gone


def archive_failed(tx: Transaction, reason: str, delay_seconds: float) -> ArchiveState | None:
    """It could not be written: the next try is after the delay. Gives how it stands."""
    tx.run(
        "UPDATE erasure_archive SET failures = failures + 1, failing_since = coalesce(failing_since, {now}),"
        " reason = :reason, due_at = {now+delay}",
        reason=reason,
        delay=delay_seconds,
    )
    return read_archive(tx)


def take_as_archived(tx: Transaction, kind: str, rows: Sequence[RowDict]) -> None:
    """These rows came from the archive: they are in it, and owed no more."""
    ref = "CAST(:id AS text)"
    if kind == "tombstone":
        array = "json_build_array" if tx.dialect == "postgresql" else "json_array"
        ref = f"CAST({array}(CAST(:graph AS text), CAST(:conversation AS text)) AS text)"
    names = ("graph", "conversation") if kind == "tombstone" else ("id",)
    tx.run_each(
        f"DELETE FROM erasure_archive_queue WHERE kind = '{kind}' AND ref = {ref} AND segment IS NULL",
        [{name: str(row[name]) for name in names} for row in rows],
    )


def raise_segment(tx: Transaction, number: int) -> None:
    """Segments up to this number are there: a database that was put back goes on after them."""
    tx.run("UPDATE erasure_archive SET segment = :number WHERE segment < :number", number=number)


def _rows_of(tx: Transaction, kind: str, refs: Sequence[str]) -> dict[str, RowDict]:
    """The rows by what names them in the queue."""
    table = TABLES[kind]
    if kind == "tombstone":
        return _tombstones_of(tx, refs)
    numbers = {ref: int(ref.partition("/")[0]) for ref in refs} if kind != "receipt" else {ref: ref for ref in refs}
    keys: list[Any] = list(dict.fromkeys(numbers.values()))
    rows: dict[Any, RowDict] = {}
    for start in range(0, len(keys), _IN):
        found = tx.connection.execute(sa.select(table).where(table.c.id.in_(keys[start : start + _IN])))
        rows.update((row["id"], dict(row)) for row in found.mappings())
    named = {ref: rows[number] for ref, number in numbers.items() if number in rows}
    if kind == "hold":
        # as it was placed: the same bytes, whenever it is written
        placed = dict.fromkeys(("released_at", "released_by", "released_why"))
        named = {ref: row if ref.endswith("/released") else {**row, **placed} for ref, row in named.items()}
    return named


def _tombstones_of(tx: Transaction, refs: Sequence[str]) -> dict[str, RowDict]:
    by_key = {tuple(json.loads(ref)): ref for ref in refs}
    rows = tx.typed_rows(
        f"SELECT t.* FROM {listed(tx.dialect, 2)} JOIN erasure_tombstone t ON t.graph = k0 AND t.conversation = k1",
        {"purged_at": UtcDateTime()},
        keys=json.dumps(list(by_key)),
    )
    return {by_key[row.graph, row.conversation]: dict(row._mapping) for row in rows}
