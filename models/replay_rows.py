"""Rows of an export or archive that the database has lost are put back as they were. What is there stays as it is."""

import json
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from expunge.models.database import Transaction
from expunge.models.journal import TABLES
from expunge.models.keyset import listed

Rows = Sequence[dict[str, Any]]
_IN = 500
"""Values of one IN list."""
_SAME = {
    "decision": ("at", "decision", "actor", "why", "account", "case_id", "entry_id", "hold_id"),
    "hold": ("placed_at", "placed_by", "placed_why", "tenant", "subject", "conversation", "case_id", "account",
             "locator_prefix", "matter"),
}  # fmt: skip
"""Their ids are numbers, which a database that was put back gives again: these columns tell a row from another."""
_RELEASE = ("released_at", "released_by", "released_why")


def put_back_receipts(tx: Transaction, rows: Rows) -> list[str]:
    """Receipts that are missing, by their id; gives the ids put back."""
    table = TABLES["receipt"]
    wanted = {row["id"]: row for row in rows}
    there = _existing(tx, table.c.id, wanted)
    missing = [row for id, row in wanted.items() if id not in there]
    insert_missing(tx, table, missing)
    return [row["id"] for row in missing]


def put_back_tombstones(tx: Transaction, rows: Rows) -> list[tuple[str, str]]:
    """Tombstones that are missing; gives graph and conversation of each."""
    table = TABLES["tombstone"]
    wanted = {(row["graph"], row["conversation"]): row for row in rows}
    found = tx.rows(
        f"SELECT t.graph, t.conversation FROM {listed(tx.dialect, 2)}"
        " JOIN erasure_tombstone t ON t.graph = k0 AND t.conversation = k1",
        keys=json.dumps(list(wanted)),
    )
    there = {(row.graph, row.conversation) for row in found}
    missing = [row for key, row in wanted.items() if key not in there]
    insert_missing(tx, table, missing)
    return [(row["graph"], row["conversation"]) for row in missing]


def put_back_decisions(tx: Transaction, rows: Rows) -> list[int]:
    """Decisions that are missing; gives their ids. One whose id was given to another meanwhile gets a new one."""
    return _put_back_numbered(tx, "decision", rows)


def put_back_holds(tx: Transaction, rows: Rows) -> list[int]:
    """Holds that are missing, and releases of holds that stand; gives the ids of those put back."""
    last: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in rows:
        last[_key("hold", row)] = row  # a release comes after its placing
    put_back = _put_back_numbered(tx, "hold", list(last.values()))
    table = TABLES["hold"]
    for row in last.values():
        if row.get("released_at") is not None:
            tx.connection.execute(
                sa.update(table)
                .where(*_is_same("hold", row), table.c.released_at.is_(None))
                .values({name: row[name] for name in _RELEASE})
            )
    return put_back


def put_back_cases(tx: Transaction, rows: Rows) -> list[str]:
    """Cases that are missing, as they were; gives their ids."""
    table = TABLES["case"]
    wanted = {row["id"]: row for row in rows}
    there = _existing(tx, table.c.id, wanted)
    missing = [row for id, row in wanted.items() if id not in there]
    insert_missing(tx, table, missing)
    return [row["id"] for row in missing]


def raise_sequence(tx: Transaction, table: str, most: int) -> None:
    """Ids up to this one are never given again: receipts name them."""
    if tx.dialect == "postgresql":
        tx.run(
            f"SELECT setval(pg_get_serial_sequence('{table}', 'id'), :most)"
            f" WHERE coalesce(pg_sequence_last_value(CAST(pg_get_serial_sequence('{table}', 'id') AS regclass)), 0)"
            " < :most",
            most=most,
        )
    elif not tx.run("UPDATE sqlite_sequence SET seq = max(seq, :most) WHERE name = :table", most=most, table=table):
        tx.run("INSERT INTO sqlite_sequence (name, seq) VALUES (:table, :most)", most=most, table=table)


def _put_back_numbered(tx: Transaction, kind: str, rows: Rows) -> list[int]:
    table = TABLES[kind]
    found = _existing_rows(tx, table, [row["id"] for row in rows])
    free: dict[int, dict[str, Any]] = {}
    taken = []
    for row in rows:
        there = found.get(row["id"]) or free.get(row["id"])
        if there is None:
            free[row["id"]] = row
        elif _key(kind, there) != _key(kind, row):
            taken.append(row)
    # one that lost its id to another may have been put back before under a new one
    lost_places = [row for row in taken if not _is_there(tx, kind, row)]
    fresh = [row for row in free.values() if not _is_there(tx, kind, row)]
    insert_missing(tx, table, fresh)
    ids = [int(row["id"]) for row in fresh]
    if ids:
        raise_sequence(tx, table.name, max(ids))
    for row in lost_places:
        values = {name: value for name, value in row.items() if name != "id"}
        ids.append(int(tx.connection.execute(sa.insert(table).values(values).returning(table.c.id)).scalar_one()))
    return ids


def _key(kind: str, row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(_stored(row.get(name)) for name in _SAME[kind])


def _stored(value: Any) -> Any:
    """SQLite keeps what it was given, to the microsecond; so does PostgreSQL."""
    return value.timestamp() if isinstance(value, datetime) else value


def _is_same(kind: str, row: dict[str, Any]) -> list[sa.ColumnElement[bool]]:
    columns = TABLES[kind].columns
    return [columns[name].is_not_distinct_from(row.get(name)) for name in _SAME[kind]]


def _is_there(tx: Transaction, kind: str, row: dict[str, Any]) -> bool:
    found = sa.select(sa.literal(1)).where(*_is_same(kind, row)).limit(1)
    return tx.connection.execute(found).first() is not None


def _existing(tx: Transaction, key: Any, wanted: Iterable[str]) -> set[str]:
    keys = list(wanted)
    there: set[str] = set()
    for start in range(0, len(keys), _IN):
        there.update(tx.connection.execute(sa.select(key).where(key.in_(keys[start : start + _IN]))).scalars())
    return there


def _existing_rows(tx: Transaction, table: sa.Table, ids: Sequence[int]) -> dict[int, dict[str, Any]]:
    rows: dict[int, dict[str, Any]] = {}
    for start in range(0, len(ids), _IN):
        found = tx.connection.execute(sa.select(table).where(table.c.id.in_(ids[start : start + _IN])))
        rows.update((row["id"], dict(row)) for row in found.mappings())
    return rows


def insert_missing(tx: Transaction, table: Any, rows: Rows) -> None:
    """Insert rows that were not there a moment ago; whoever else inserted one meanwhile was as right. A column that a
    row has not is left to the database."""
    by_columns: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in rows:
        by_columns.setdefault(tuple(sorted(row)), []).append(row)
    if tx.dialect == "postgresql":
        from sqlalchemy.dialects.postgresql import insert
    else:
        from sqlalchemy.dialects.sqlite import insert  # type: ignore[assignment]
    for alike in by_columns.values():
        tx.connection.execute(insert(table).on_conflict_do_nothing(), alike)
