"""What a live database says of its tables: columns, keys and foreign keys, in one form for SQLite and PostgreSQL.

A table is named bare in the connection's own schema, and `schema.table` elsewhere; every schema is looked at. A
partition is no table of its own, and SQLite takes no notice of case. SQLAlchemy's inspector reads the keys of
PostgreSQL, and nothing else: it warns of each type that SQLAlchemy does not know, and of each index over an expression,
and a host may have made warnings errors; of SQLite's foreign keys it loses ON DELETE where a column's own REFERENCES
has it.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection
from sqlalchemy.engine.reflection import Inspector, ObjectKind

from expunge.models import purge_tables, upkeep_tables  # noqa: F401  their tables are Base's too
from expunge.models.tables import Base

_Place = tuple[str | None, str]
"""Schema and table; SQLite has no schema."""


@dataclass(frozen=True, slots=True)
class LiveColumn:
    """One column."""

    name: str
    nullable: bool
    generated: bool = False
    """The database computes it: nothing can be written there."""


@dataclass(frozen=True, slots=True)
class ForeignKey:
    """One foreign key of a table."""

    name: str
    """Empty if it has none, and on SQLite, which does not tell."""
    columns: tuple[str, ...]
    parent: str
    parent_columns: tuple[str, ...]
    deferrable: bool
    """Whether it can be looked at as late as the commit. Any can on SQLite, by PRAGMA defer_foreign_keys, but for
    RESTRICT."""
    on_delete: str | None
    """`CASCADE`, `SET NULL` …; None for NO ACTION."""


@dataclass(frozen=True, slots=True)
class SchemaTable:
    """One table."""

    name: str
    columns: Mapping[str, LiveColumn]
    key: tuple[str, ...]
    """Primary key; empty if there is none."""
    unique: frozenset[tuple[str, ...]]
    """The other keys: columns that are unique together, without a condition."""
    foreign_keys: tuple[ForeignKey, ...]


@dataclass(frozen=True, slots=True)
class Schema:
    """All tables of the database, by name; Expunge's own are left out, and views are none."""

    tables: Mapping[str, SchemaTable]
    partitions: Mapping[str, str]
    """Partition to the table that it is a part of (PostgreSQL)."""


_POSTGRES_PARTITIONS = """
SELECT n.nspname, c.relname, pn.nspname, p.relname
FROM pg_class c
JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_class p ON p.oid = pg_partition_root(c.oid)
JOIN pg_namespace pn ON pn.oid = p.relnamespace
WHERE c.relispartition AND c.relkind IN ('r', 'p', 'f')
"""
_POSTGRES_MARK = """
SELECT current_schema(),
       (SELECT sum(hashtextextended(concat_ws('|', c.oid, n.nspname, c.relname, c.relispartition, a.attnum, a.attname,
                                              a.attnotnull, a.attgenerated, a.atttypid), 0))
        FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_attribute a ON a.attrelid = c.oid
        WHERE c.relkind IN ('r', 'p') AND c.relpersistence <> 't' AND a.attnum > 0 AND NOT a.attisdropped
          AND n.nspname <> 'information_schema' AND NOT starts_with(n.nspname, 'pg_')),
       (SELECT sum(hashtextextended(concat_ws('|', k.oid, k.conname, k.conrelid, k.conkey, k.confrelid, k.confkey,
                                              k.confdeltype, k.condeferrable), 0))
        FROM pg_constraint k WHERE k.contype IN ('f', 'p', 'u'))
"""
_POSTGRES_COLUMNS = """
SELECT n.nspname, c.relname, a.attname, NOT a.attnotnull, a.attgenerated <> ''
FROM pg_class c
JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_attribute a ON a.attrelid = c.oid
WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relpersistence <> 't' AND a.attnum > 0
  AND NOT a.attisdropped AND n.nspname <> 'information_schema' AND NOT starts_with(n.nspname, 'pg_')
ORDER BY n.nspname, c.relname, a.attnum
"""
_SQLITE_COLUMNS = """
SELECT NULL, t.name, c.name, NOT c."notnull", c.hidden IN (2, 3)
FROM sqlite_master t, pragma_table_xinfo(t.name) c
WHERE t.type = 'table' AND t.name NOT GLOB 'sqlite_*' AND c.hidden <> 1
ORDER BY t.name, c.cid
"""
_POSTGRES_UNIQUE = """
SELECT n.nspname, c.relname, i.indexrelid, a.attname
FROM pg_index i
JOIN pg_class c ON c.oid = i.indrelid
JOIN pg_namespace n ON n.oid = c.relnamespace
CROSS JOIN unnest(i.indkey) WITH ORDINALITY AS k (attnum, place)
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.attnum
WHERE i.indisunique AND i.indpred IS NULL AND i.indexprs IS NULL AND k.place <= i.indnkeyatts
ORDER BY i.indexrelid, k.place
"""
_SQLITE_KEYS = """
SELECT t.name, c.name
FROM sqlite_master t, pragma_table_info(t.name) c
WHERE t.type = 'table' AND c.pk
ORDER BY t.name, c.pk
"""
_SQLITE_FOREIGN = """
SELECT t.name, f.id, f."from", f."table", f."to", f.on_delete
FROM sqlite_master t, pragma_foreign_key_list(t.name) f
WHERE t.type = 'table'
ORDER BY t.name, f.id, f.seq
"""
_SQLITE_UNIQUE = """
SELECT NULL, t.name, l.name, i.name
FROM sqlite_master t, pragma_index_list(t.name) l, pragma_index_info(l.name) i
WHERE t.type = 'table' AND l."unique" AND NOT l.partial
ORDER BY t.name, l.name, i.seqno
"""
_SQLITE_MARK = "SELECT name, sql FROM sqlite_master WHERE type = 'table' ORDER BY name"


def schema_mark(connection: Connection) -> str:
    """Another text after every change of a table, column or key, at the cost of one statement that reads no rows of the
    host's. What was read is as good as new while the mark is the same."""
    statement = _POSTGRES_MARK if connection.dialect.name == "postgresql" else _SQLITE_MARK
    rows = connection.exec_driver_sql(statement).all()
    return hashlib.sha256(repr([tuple(row) for row in rows]).encode()).hexdigest()


def read_schema(connection: Connection) -> Schema:
    """Read every table of the database that is not the system's, or Expunge's own."""
    read = _read_postgres if connection.dialect.name == "postgresql" else _read_sqlite
    tables, partitions = read(connection)
    return Schema({table.name: table for table in tables if table.name not in Base.metadata.tables}, partitions)


def _read_postgres(connection: Connection) -> tuple[list[SchemaTable], Mapping[str, str]]:
    # not the inspector's default_schema_name: this connection may have set a search_path of its own
    path = list(connection.exec_driver_sql("SELECT unnest(current_schemas(false))").scalars())
    columns = _columns(connection, _POSTGRES_COLUMNS)
    unique = _unique(connection, _POSTGRES_UNIQUE)
    inspector: Inspector = sa.inspect(connection)
    keys: dict[Any, Any] = {}
    foreign: dict[Any, Any] = {}
    for schema in {schema for schema, _ in columns}:
        keys |= inspector.get_multi_pk_constraint(schema, kind=ObjectKind.TABLE)
        foreign |= inspector.get_multi_foreign_keys(schema, kind=ObjectKind.TABLE)

    def named(schema: str | None, table: str) -> str:
        return table if path and schema == path[0] else f"{schema}.{table}"

    def foreign_key(schema: str | None, key: Mapping[str, Any]) -> ForeignKey:
        # without a schema it is one that the search_path finds
        places = [key["referred_schema"]] if key["referred_schema"] else [*path, schema]
        table = key["referred_table"]
        return ForeignKey(
            name=key["name"] or "",
            columns=tuple(key["constrained_columns"]),
            parent=named(next((place for place in places if (place, table) in columns), schema), table),
            parent_columns=tuple(key["referred_columns"]),
            deferrable=bool(key["options"].get("deferrable")),
            on_delete=key["options"].get("ondelete"),
        )

    tables = [
        SchemaTable(
            name=named(*place),
            columns=found,
            key=tuple((keys.get(place) or {}).get("constrained_columns", ())),
            unique=unique.get(place, frozenset()),
            foreign_keys=_in_order(foreign_key(place[0], key) for key in foreign.get(place, ())),
        )
        for place, found in columns.items()
    ]
    partitions = {
        named(schema, table): named(root_schema, root)
        for schema, table, root_schema, root in connection.exec_driver_sql(_POSTGRES_PARTITIONS)
    }
    return tables, partitions


def _read_sqlite(connection: Connection) -> tuple[list[SchemaTable], Mapping[str, str]]:
    columns = {table: found for (_, table), found in _columns(connection, _SQLITE_COLUMNS).items()}
    unique = _unique(connection, _SQLITE_UNIQUE)
    keys: dict[str, tuple[str, ...]] = {}
    for table, column in connection.exec_driver_sql(_SQLITE_KEYS):
        keys[table] = (*keys.get(table, ()), column)
    real = {table.casefold(): table for table in columns}
    real_columns = {table: {column.casefold(): column for column in found} for table, found in columns.items()}

    def spelled(table: str, column: str) -> str:
        """A foreign key has names as its author wrote them, in whatever case."""
        return real_columns.get(table, {}).get(column.casefold(), column)

    foreign: dict[str, dict[int, ForeignKey]] = {}
    for child, number, column, said, to, action in connection.exec_driver_sql(_SQLITE_FOREIGN):
        parent = real.get(said.casefold(), said)
        ours = foreign.setdefault(child, {})
        before = ours.get(number)
        ours[number] = ForeignKey(
            name="",
            columns=(*(before.columns if before else ()), spelled(child, column)),
            parent=parent,
            # without columns it is the parent's primary key
            parent_columns=keys.get(parent, ())
            if to is None
            else (*(before.parent_columns if before else ()), spelled(parent, to)),
            deferrable=action != "RESTRICT",
            on_delete=None if action == "NO ACTION" else action,
        )
    tables = [
        SchemaTable(
            name=table,
            columns=found,
            key=keys.get(table, ()),
            unique=unique.get((None, table), frozenset()),
            foreign_keys=_in_order(foreign.get(table, {}).values()),
        )
        for table, found in columns.items()
    ]
    return tables, {}


def _in_order(keys: Iterable[ForeignKey]) -> tuple[ForeignKey, ...]:
    return tuple(sorted(keys, key=lambda key: (key.columns, key.name)))


def _columns(connection: Connection, statement: str) -> Mapping[_Place, Mapping[str, LiveColumn]]:
    found: dict[_Place, dict[str, LiveColumn]] = {}
    for schema, table, column, nullable, generated in connection.exec_driver_sql(statement):
        found.setdefault((schema, table), {})[column] = LiveColumn(column, bool(nullable), bool(generated))
    return found


def _unique(connection: Connection, statement: str) -> Mapping[_Place, frozenset[tuple[str, ...]]]:
    found: dict[_Place, dict[Any, tuple[str, ...]]] = {}
    for schema, table, index, column in connection.exec_driver_sql(statement):
        columns = found.setdefault((schema, table), {})
        columns[index] = (*columns.get(index, ()), column)
    return {place: frozenset(indexes.values()) for place, indexes in found.items()}
