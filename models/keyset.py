"""Long listings in pages: each begins after the last row of the one before, in a short read transaction of its own.

So a listing of millions of rows keeps no more than a page in memory, on either side, and holds back neither VACUUM nor
a WAL checkpoint. It is not one snapshot: a row that is committed behind the place that was read is not in it.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import InstrumentedAttribute

from expunge.models.database import Database, Transaction
from expunge.models.types import UtcDateTime

PAGE = 1000
_MANY = 20 * PAGE

Column = InstrumentedAttribute[Any]
RowDict = dict[str, Any]


def pages(
    database: Database, statement: sa.Select[Any], keys: Sequence[Column], size: int = PAGE
) -> Iterator[list[RowDict]]:
    """The rows of a statement in the order of its keys, which together are unique; every page has at least one row."""
    raw = [_as_stored(key, database.dialect) for key in keys]
    ordered = statement.add_columns(*(key.label(f"key_{n}") for n, key in enumerate(raw))).order_by(*raw).limit(size)
    page = ordered
    while True:
        with database.read() as tx:
            result = tx.connection.execute(page)
            names = list(result.keys())[: -len(raw)]
            rows = result.all()
        if not rows:
            return
        after = [sa.literal(value, key.type) for key, value in zip(raw, rows[-1][-len(raw) :], strict=True)]
        yield [dict(zip(names, row, strict=False)) for row in rows]
        if len(rows) < size:
            return
        page = ordered.where(sa.tuple_(*raw) > sa.tuple_(*after))


def _as_stored(key: Column, dialect: str) -> sa.ColumnElement[Any]:
    """SQLite keeps times as text, and a host may have written one with fewer digits than we do: read as a time and
    bound again it would be another text, and rows would be skipped or shown twice."""
    if dialect == "sqlite" and isinstance(key.type, UtcDateTime):
        return sa.type_coerce(key, sa.Text())
    return key.expression


def equals(tx: Transaction, column: Column, value: object) -> sa.ColumnElement[bool]:
    """`column = value` for a listing that is in another order.

    Where only some thousand rows match, finding them by the column's index and sorting them for every page is quick.
    Where many do, it would read all of them for every page, so the condition is written in a way that no index
    answers, and the rows are read once in the listing's own order.
    """
    some = sa.select(sa.literal(1)).where(column == value).limit(_MANY).subquery()
    found = tx.connection.execute(sa.select(sa.func.count()).select_from(some)).scalar_one()
    if found < _MANY:
        return column == value
    return column.concat("") == value


def columns_of(table: Any) -> list[str]:
    """The names of a table's columns, in their order."""
    return [column.name for column in table.__table__.columns]


def listed(dialect: str, width: int) -> str:
    """A table of texts k0, k1 … from the bound JSON list of lists `keys`. A database joins it by an index, where SQLite
    answers `(a, b) IN (…)` by reading everything."""
    if dialect == "postgresql":
        columns = ", ".join(f"j.value ->> {n} AS k{n}" for n in range(width))
        return f"(SELECT {columns} FROM json_array_elements(CAST(:keys AS json)) AS j(value)) AS k"
    columns = ", ".join(f"json_extract(j.value, '$[{n}]') AS k{n}" for n in range(width))
    return f"(SELECT {columns} FROM json_each(:keys) AS j) AS k"
