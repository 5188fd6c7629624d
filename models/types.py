"""Column types that mean the same on SQLite and PostgreSQL."""

from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.engine.interfaces import Dialect
from sqlalchemy.types import TypeDecorator, TypeEngine

SQLITE_TIME = "%Y-%m-%d %H:%M:%f"
"""SQLite's strftime format of stored times (UTC); %f is SS.SSS."""

FIRST_YEAR, END_YEAR = 1900, 9000
"""The tables' CHECKs keep times from the beginning of the one to the beginning of the other: what lies outside is a
slip of the pen, and some of it no database here can compute with."""


class UtcDateTime(TypeDecorator[datetime]):
    """A moment in UTC: timestamptz on PostgreSQL, sortable text on SQLite. Only aware datetimes go in and out."""

    impl = sa.DateTime
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        if dialect.name == "postgresql":
            return dialect.type_descriptor(sa.DateTime(timezone=True))
        return dialect.type_descriptor(sa.DateTime())

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError("a time without a time zone")
        value = value.astimezone(UTC)
        return value if dialect.name == "postgresql" else value.replace(tzinfo=None)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


Identity = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
"""Generated ids. SQLite only generates for INTEGER PRIMARY KEY."""

Json = sa.JSON(none_as_null=True).with_variant(postgresql.JSONB(none_as_null=True), "postgresql")

Uuid = sa.Text().with_variant(postgresql.UUID(as_uuid=False), "postgresql")


def iso(moment: datetime | None) -> str | None:
    """ISO 8601 in UTC with a Z, to the millisecond; None stays None."""
    if moment is None:
        return None
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
