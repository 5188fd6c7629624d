"""What hosts in other languages may INSERT: nothing that a reader or the sweep would stumble over."""

import pytest
import sqlalchemy as sa

from expunge.models.database import Database
from expunge.models.notices import fill_due_dates

TIMES = [
    ("erasure_case", "received_at"),
    ("erasure_case", "due_at"),
    ("erasure_case", "completed_at"),
    ("erasure_outbox", "due_at"),
    ("erasure_inventory", "expires_at"),
]
BAD = ["infinity", "20000-01-01 00:00:00", "9999-12-31 23:59:59", "0044-03-15 00:00:00", "2026-02-30 00:00:00"]
NO_TIMES = ["tomorrow", "2026-01-01", "2026-01-01 00:00:00junk", "2026-01-01 00:00:00.1junk", "2026-01-01 25:00:00"]


def insert(tx, table, column, value):
    if table == "erasure_case":
        tx.connection.execute(sa.text(f"INSERT INTO erasure_case (id, subject, {column}) VALUES ('x', 's', '{value}')"))
        return
    owner, owner_value = ("case_id", "c1") if table == "erasure_outbox" else ("subject", "s")
    tx.connection.execute(
        sa.text(
            f"INSERT INTO {table} ({owner}, account, kind, locator, {column})"
            f" VALUES ('{owner_value}', 'a', 'object', 'b/k', '{value}')"
        )
    )


@pytest.fixture
def with_case(database):
    with database.begin() as tx:
        tx.run("INSERT INTO erasure_case (id, subject) VALUES ('c1', 's')")
    return database


@pytest.mark.parametrize("value", BAD)
@pytest.mark.parametrize(("table", "column"), TIMES)
def test_a_time_that_no_reader_can_take_is_refused(with_case, table, column, value):
    with pytest.raises(sa.exc.DBAPIError), with_case.begin() as tx:
        insert(tx, table, column, value)


@pytest.mark.parametrize("value", ["1900-01-01 00:00:00", "2024-02-29 23:59:59.999999", "8999-12-31 23:59:59"])
@pytest.mark.parametrize(("table", "column"), TIMES)
def test_any_other_time_is_taken(with_case, table, column, value):
    with with_case.begin() as tx:
        insert(tx, table, column, value)


def test_the_last_year_that_is_taken_has_a_statutory_date(database):
    with database.begin() as tx:
        tx.run(
            "INSERT INTO erasure_case (id, subject, basis, received_at)"
            " VALUES ('late', 's', 'gdpr', '8999-12-31 23:59:59')"
        )
        assert fill_due_dates(tx, 10) == 1


@pytest.mark.parametrize("value", NO_TIMES)
def test_sqlite_stores_no_text_for_a_time(sqlite_url, value):
    database = Database.open(sqlite_url)
    with pytest.raises(sa.exc.IntegrityError), database.begin() as tx:
        insert(tx, "erasure_case", "received_at", value)
    database.close()
