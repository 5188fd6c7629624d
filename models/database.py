"""Our own connections to the host's database, and the small differences between SQLite and PostgreSQL.

- PostgreSQL: READ COMMITTED, whatever the server's default is.
- SQLite: WAL, synchronous=FULL, foreign keys on, and BEGIN IMMEDIATE for everything that writes: a transaction that
  begins by reading and then writes gets "database is locked" at once, whatever the busy timeout.
- Statements are written once, with three marks: `{now}` and `{now+name}` (the database's clock, plus the bound
  parameter `name` in seconds), `{in ids}` or `{in text ids}` (a bound list) and `{for update}` / `{skip locked}`.
"""

import json
import os
import re
import sqlite3
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import lru_cache
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine, Row
from sqlalchemy.exc import DBAPIError
from sqlalchemy.types import TypeEngine

from expunge.models.errors import ConfigurationError
from expunge.models.types import SQLITE_TIME

SQLITE_BUSY_SECONDS = 60.0
CONNECT_SECONDS = 5
_URLS = "sqlite:///FILE or postgresql+psycopg://USER:PASSWORD@HOST/DATABASE"

_MARK = re.compile(r"\{(now(?:\+\w+)?|in (?:text )?\w+|for update|skip locked)\}")
_BEGIN = "expunge_begin"


def read_url(url: str) -> sa.URL:
    """The URL of a database that we can use.

    Raises ValueError, with what it must be, for a URL that cannot be read or a database that is neither SQLite nor
    PostgreSQL. The URL may hold a password, so it is never repeated.
    """
    try:
        parsed = sa.make_url(url)
    except (sa.exc.ArgumentError, ValueError):  # a port that is no number
        raise ValueError(f"must look like {_URLS}") from None
    if parsed.drivername in ("postgresql", "postgres"):
        parsed = parsed.set(drivername="postgresql+psycopg")
    if parsed.drivername in ("sqlite", "sqlite+pysqlite"):
        if parsed.host is not None:
            raise ValueError("must have three slashes, sqlite:///FILE, or four before an absolute path")
    elif parsed.drivername != "postgresql+psycopg":
        raise ValueError(f"must look like {_URLS}; {parsed.drivername} is not supported")
    return parsed


def create_engine(url: str, *, pool_size: int = 10) -> Engine:
    """An engine for Expunge's own transactions. Raises ConfigurationError for a URL that `read_url` refuses."""
    try:
        parsed = read_url(url)
    except ValueError as error:
        raise ConfigurationError(f"database_url: {error}") from None
    if parsed.get_backend_name() == "postgresql":
        arguments = {"connect_timeout": CONNECT_SECONDS, "application_name": "expunge", **parsed.query}
        return sa.create_engine(
            parsed,
            isolation_level="READ COMMITTED",
            hide_parameters=True,  # an error's text would repeat locators and subjects
            pool_size=pool_size,
            max_overflow=pool_size,
            pool_pre_ping=True,
            connect_args=arguments,
        )
    engine = sa.create_engine(
        parsed,
        hide_parameters=True,
        connect_args={"timeout": SQLITE_BUSY_SECONDS, "check_same_thread": False},
        **_sqlite_pool(parsed),
    )
    _prepare_sqlite(engine)
    return engine


def _sqlite_pool(url: sa.URL) -> dict[str, Any]:
    if url.database in (None, "", ":memory:"):
        return {"poolclass": sa.pool.StaticPool}
    return {"poolclass": sa.pool.QueuePool, "pool_size": 5, "max_overflow": 20}


def _prepare_sqlite(engine: Engine) -> None:
    @sa.event.listens_for(engine, "connect")
    def _connect(connection: Any, record: Any) -> None:
        connection.isolation_level = None  # the driver begins nothing by itself
        cursor = connection.cursor()
        cursor.execute(f"PRAGMA busy_timeout = {int(SQLITE_BUSY_SECONDS * 1000)}")
        cursor.execute("PRAGMA journal_mode = WAL")
        cursor.execute("PRAGMA synchronous = FULL")
        cursor.execute("PRAGMA foreign_keys = ON")
        cursor.close()

    @sa.event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        connection.exec_driver_sql(connection.get_execution_options().get(_BEGIN, "BEGIN IMMEDIATE"))


@lru_cache(maxsize=512)
def _compile(template: str, dialect: str) -> sa.TextClause:
    def fragment(match: re.Match[str]) -> str:
        mark = match.group(1)
        if mark.startswith("now"):
            seconds = f":skew + :{mark[4:]}" if "+" in mark else ":skew"
            if dialect == "postgresql":
                return f"(statement_timestamp() + make_interval(secs => {seconds}))"
            return (
                f"strftime('{SQLITE_TIME.replace(':', chr(92) + ':')}000', 'now', printf('%+.3f seconds', {seconds}))"
            )
        if mark.startswith("in "):
            name, type_ = mark.split(" ")[-1], "text" if mark.startswith("in text ") else "bigint"
            if dialect == "postgresql":
                return f"= ANY(CAST(:{name} AS {type_}[]))"
            return f"IN (SELECT value FROM json_each(:{name}))"
        if dialect != "postgresql":
            return ""
        return "FOR UPDATE" if mark == "for update" else "FOR UPDATE SKIP LOCKED"

    return sa.text(_MARK.sub(fragment, template))


class Transaction:
    """One open transaction, and how statements are run in it."""

    def __init__(self, connection: Connection, skew: float = 0.0) -> None:
        self.connection = connection
        self.dialect = connection.dialect.name
        self._skew = skew

    def _bind(self, template: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
        bound = dict(parameters)
        if "{now" in template:
            bound["skew"] = self._skew
        for name in re.findall(r"\{in (?:text )?(\w+)\}", template):
            ids = list(bound[name])
            bound[name] = ids if self.dialect == "postgresql" else json.dumps(ids)
        return bound

    def rows(self, template: str, **parameters: Any) -> Sequence[Row[Any]]:
        """Run one statement and give all its rows."""
        result = self.connection.execute(_compile(template, self.dialect), self._bind(template, parameters))
        return result.all()

    def typed_rows(self, template: str, types: Mapping[str, TypeEngine[Any]], **parameters: Any) -> Sequence[Row[Any]]:
        """Run one statement whose columns of these names need a type of ours, such as times and JSON."""
        statement = _compile(template, self.dialect).columns(**types)
        return self.connection.execute(statement, self._bind(template, parameters)).all()

    def first(self, template: str, **parameters: Any) -> Row[Any] | None:
        """Run one statement and give its first row."""
        return self.connection.execute(_compile(template, self.dialect), self._bind(template, parameters)).first()

    def run(self, template: str, **parameters: Any) -> int:
        """Run one statement that changes rows and give how many."""
        return self.connection.execute(_compile(template, self.dialect), self._bind(template, parameters)).rowcount

    def run_each(self, template: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Run one statement for every row of parameters."""
        if rows:
            self.connection.execute(_compile(template, self.dialect), [self._bind(template, row) for row in rows])


class Database:
    """The host's database, as Expunge's own code sees it.

    `skew` moves the database's clock as Expunge reads it, in seconds; for tests.
    """

    def __init__(self, engine: Engine, *, skew: timedelta = timedelta(0)) -> None:
        self.engine = engine
        self.skew = skew
        self._local = threading.local()

    @classmethod
    def open(cls, url: str, *, pool_size: int = 10) -> "Database":
        """Open by URL; nothing is connected yet."""
        return cls(create_engine(url, pool_size=pool_size))

    @property
    def dialect(self) -> str:
        """`sqlite` or `postgresql`."""
        return self.engine.dialect.name

    @property
    def missing_file(self) -> str | None:
        """The SQLite file that connecting would create; None if it is there, or if the database is in no file."""
        if self.dialect != "sqlite":
            return None
        (name,), options = self.engine.dialect.create_connect_args(self.engine.url)
        if options.get("uri"):
            parts = urlsplit(name)
            name = ":memory:" if "memory" in parse_qs(parts.query).get("mode", []) else unquote(parts.path)
        return None if name in ("", ":memory:") or os.path.exists(name) else name

    @property
    def in_transaction(self) -> bool:
        """Whether this thread has a transaction open: no store may be called then."""
        return getattr(self._local, "depth", 0) > 0

    @contextmanager
    def begin(self) -> Iterator[Transaction]:
        """A short transaction that writes."""
        with self._count(), self.engine.begin() as connection:
            yield self.on(connection)

    @contextmanager
    def read(self) -> Iterator[Transaction]:
        """A transaction that only reads, and so blocks no writer of SQLite."""
        with self._count(), self.engine.connect() as connection:
            connection = connection.execution_options(**{_BEGIN: "BEGIN"})
            with connection.begin():
                yield self.on(connection)

    def on(self, connection: Connection) -> Transaction:
        """Statements on somebody else's open connection."""
        return Transaction(connection, self.skew.total_seconds())

    @contextmanager
    def _count(self) -> Iterator[None]:
        self._local.depth = getattr(self._local, "depth", 0) + 1
        try:
            yield
        finally:
            self._local.depth -= 1

    def close(self) -> None:
        """Close all pooled connections."""
        self.engine.dispose()


def is_unreachable(error: BaseException) -> bool:
    """Whether the database, rather than what was asked of it, is the trouble: repeating later may succeed."""
    if isinstance(error, sa.exc.TimeoutError):
        return True
    if not isinstance(error, DBAPIError):
        return False
    if error.connection_invalidated or isinstance(error, (sa.exc.OperationalError, sa.exc.InterfaceError)):
        return True
    return isinstance(error, sa.exc.InternalError) and "read-only" in str(error.orig)


def is_locked(error: BaseException) -> bool:
    """Whether another process had SQLite's lock for longer than we wait. It is unreachable then, and no more than that:
    whoever has the lock will give it back, or be ended."""
    code = getattr(getattr(error, "orig", None), "sqlite_errorcode", 0)
    return code & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def is_damaged(error: BaseException) -> bool:
    """Whether the file is no SQLite database, or a broken one: repeating helps nothing."""
    code = getattr(getattr(error, "orig", None), "sqlite_errorcode", 0)
    return code & 0xFF in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT)


def describe_trouble(error: BaseException) -> str:
    """What is wrong with the database, to be read after its name; one line, without statement and parameters."""
    if is_locked(error):
        return "is locked by another process: try again when that is done, or end it"
    if is_damaged(error):
        return "is not one that SQLite can read: correct database_url, or restore the file from a backup"
    lines = str(getattr(error, "orig", None) or error).strip().splitlines()
    return f"cannot be used: {lines[0] if lines else type(error).__name__}"
