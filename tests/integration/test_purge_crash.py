"""A purge that dies at any of its statements: nothing happened, or all of it did; and an answer that is lost."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import sqlalchemy as sa
from doubles import talks
from doubles.talks import ADA, TALKS

from expunge.models.database import Database
from expunge.models.inventory import track
from expunge.models.purge import purge
from expunge.models.purged import PurgeStatus

_EVERYTHING = (
    "talk",
    "work",
    "word",
    "skill",
    "erasure_case",
    "erasure_outbox",
    "erasure_inventory",
    "erasure_tombstone",
)


class Killed(Exception):
    """The process died."""


@pytest.fixture
def host(database) -> Database:
    talks.create(database)
    with database.engine.begin() as connection:
        track(connection, account="ai", kind="file", locator="file-9", subject="ada", tenant="acme", conversation="t1")
    return database


def _all_rows(database: Database) -> dict[str, set[str]]:
    with database.read() as tx:
        return {
            table: {str(tuple(row)) for row in tx.connection.exec_driver_sql(f"SELECT * FROM {table}")}
            for table in _EVERYTHING
        }


@contextmanager
def _killed_at(database: Database, number: int, *, after: bool) -> Iterator[list[str]]:
    """The connection is cut before or after the n-th statement is carried out; gives all statements until then."""
    seen: list[str] = []
    dead = False

    def cut(connection: Any, cursor: Any) -> None:
        nonlocal dead
        if dead or len(seen) != number:
            return
        dead = True
        # whatever the driver would do to end it well is what a dead process does not do
        raw = connection.connection.dbapi_connection
        if database.dialect == "postgresql":
            with database.engine.connect() as other:
                other.exec_driver_sql(f"SELECT pg_terminate_backend({raw.info.backend_pid})")
        else:
            cursor.close()
            raw.close()
        raise Killed

    def before(connection: Any, cursor: Any, statement: str, *_: Any) -> None:
        if not dead:
            seen.append(statement)
            if not after:
                cut(connection, cursor)

    def done(connection: Any, cursor: Any, *_: Any) -> None:
        if after:
            cut(connection, cursor)

    sa.event.listen(database.engine, "before_cursor_execute", before)
    sa.event.listen(database.engine, "after_cursor_execute", done)
    try:
        yield seen
    finally:
        sa.event.remove(database.engine, "before_cursor_execute", before)
        sa.event.remove(database.engine, "after_cursor_execute", done)


def _purge(database: Database, **options: Any) -> Any:
    connection = database.engine.connect()
    try:
        with connection.begin():
            return purge(connection, TALKS, "t1", principal=ADA, expected_version=7, **options)
    except BaseException:
        connection.invalidate()
        raise
    finally:
        connection.close()


def _comes_of(error: BaseException | None, kind: type[Exception]) -> bool:
    return error is not None and (isinstance(error, kind) or _comes_of(error.__context__, kind))


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_purge_that_dies_has_done_nothing(host, after):
    before = _all_rows(host)
    number = 0
    while True:
        number += 1
        try:
            with _killed_at(host, number, after=after) as seen:
                purged = _purge(host)
        except Exception as error:
            # whatever the living process says of its broken connection
            if not _comes_of(error, Killed):
                raise
            assert _all_rows(host) == before, seen[-1]
        else:
            break
    assert number > 30
    assert purged.status == PurgeStatus.PURGED
    left = _all_rows(host)
    assert left["talk"] == {str(("t2", "acme", "ada", 1, None))}
    assert left["work"] == {str(("x1", "t2", None, "running"))}
    assert left["word"] == {str(("c", "x1", "file-3"))}
    assert left["skill"] == {str(("s", None)), str(("u", "x1"))}
    assert len(left["erasure_outbox"]) == 2
    assert len(left["erasure_tombstone"]) == 1


def test_after_a_lost_answer_the_same_call_says_already_purged(host):
    """The commit reached the database; the connection broke before its answer was read."""
    connection = host.engine.connect()
    transaction = connection.begin()
    purge(connection, TALKS, "t1", principal=ADA, expected_version=7)
    connection.connection.dbapi_connection.commit()
    connection.invalidate()
    with pytest.raises(sa.exc.PendingRollbackError):
        transaction.commit()
    connection.close()
    done = _all_rows(host)
    again = _purge(host)
    assert (again.status, again.case_id) == (PurgeStatus.ALREADY_PURGED, "purge-talks-t1")
    assert _all_rows(host) == done
