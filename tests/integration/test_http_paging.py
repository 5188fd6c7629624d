"""Pages of conversations: whole, in order, and good while rows come, go and move."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from host import Host
from hypothesis import given, settings
from hypothesis import strategies as st
from waiting import wait_for

from expunge.models.database import Database
from expunge.models.errors import InvalidCursor
from expunge.models.list_cases import database_clock
from expunge.models.purged import Principal
from expunge.models.session_schema import create_sessions
from expunge.models.session_store import list_sessions

ANN = Principal("ann", "acme")
_START = datetime(2026, 1, 1, tzinfo=UTC)


def _pages(caller: Any, limit: int) -> list[list[str]]:
    pages, cursor = [], None
    while True:
        page = caller.get("/v1/sessions", params={"limit": limit, **({"cursor": cursor} if cursor else {})}).json()
        pages.append([one["id"] for one in page["sessions"]])
        cursor = page["next_cursor"]
        if cursor is None:
            return pages


def _wait_for_a_later_time(host: Host) -> None:
    """SQLite's clock counts milliseconds: two events in one of them are equally recent."""

    def is_later() -> bool:
        with host.database.read() as tx:
            return database_clock(tx) > before

    with host.database.read() as tx:
        before = database_clock(tx)
    wait_for(is_later, pause=0.001, what="a later time")


def test_the_most_recently_active_come_first(host_database: Database) -> None:
    host = Host(host_database)
    for name in ("a", "b", "c", "d", "e"):
        host.session(name)
    host.session("x", principal="bob")
    for name in ("d", "a", "c"):
        _wait_for_a_later_time(host)
        host.message(name, "hi")
    ann = host.caller()
    assert [one for page in _pages(ann, 2) for one in page][:3] == ["c", "a", "d"]
    assert [len(page) for page in _pages(ann, 2)] == [2, 2, 1]
    assert [len(page) for page in _pages(ann, 5)] == [5]
    assert _pages(host.caller("acme", "eve"), 5) == [[]]


def test_a_cursor_outlives_its_row(host_database: Database) -> None:
    host = Host(host_database)
    for name in ("a", "b", "c"):
        host.session(name)
        host.message(name, "hi")
    ann = host.caller()
    page = ann.get("/v1/sessions?limit=1").json()
    assert page["sessions"][0]["id"] == "c"
    host.sql("DELETE FROM event WHERE session_id = 'c'")
    host.sql("DELETE FROM session WHERE id = 'c'")
    rest = ann.get("/v1/sessions", params={"cursor": page["next_cursor"]}).json()
    assert [one["id"] for one in rest["sessions"]] == ["b", "a"]


def test_somebody_elses_cursor_shows_nothing_of_theirs(host_database: Database) -> None:
    host = Host(host_database)
    for name in ("a", "b"):
        host.session(name)
        host.session(f"{name}-bob", principal="bob")
    cursor = host.caller().get("/v1/sessions?limit=1").json()["next_cursor"]
    page = host.caller("acme", "bob").get("/v1/sessions", params={"cursor": cursor}).json()
    assert {one["id"] for one in page["sessions"]} <= {"a-bob", "b-bob"}


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """One database for all examples: each has a principal of its own."""
    from expunge.models import schema

    if request.param == "sqlite":
        path: Path = tmp_path_factory.mktemp("paging") / "paging.db"
        database = Database.open(f"sqlite:///{path}")
        schema.migrate(database)
        yield from _prepared(database)
        return
    postgres = request.getfixturevalue("postgres")
    name = postgres.create(request.getfixturevalue("postgres_template"))
    yield from _prepared(Database.open(postgres.url(name)))
    postgres.drop(name)


def _prepared(database: Database) -> Any:
    create_sessions(database)
    yield database
    database.close()


_number = iter(range(10**9))


@settings(max_examples=25, deadline=None)
@given(
    ages=st.lists(st.integers(0, 3), max_size=12),
    limit=st.integers(1, 5),
    digits=st.sampled_from([0, 3, 6]),
    changes=st.lists(st.tuples(st.sampled_from(["move", "add"]), st.integers(0, 11)), max_size=6),
)
def test_every_row_that_stays_is_seen_exactly_once(
    shared: Database, ages: list[int], limit: int, digits: int, changes: list[tuple[str, int]]
) -> None:
    """Equal times included; between two pages rows move to the front and appear there."""
    example = next(_number)
    host = Host.__new__(Host)
    host.database = shared
    principal = Principal(f"p{example}", "acme")
    ids = [f"{example}-{number:02}" for number in range(len(ages))]

    def text(moment: datetime) -> str:
        written = moment.strftime("%Y-%m-%d %H:%M:%S.%f")
        return written[: len(written) - 6 + digits].rstrip(".") + ("Z" if shared.dialect == "postgresql" else "")

    times = [text(_START - timedelta(milliseconds=age)) for age in ages]
    rows = [{"id": id_, "by": principal.id, "at": at} for id_, at in zip(ids, times, strict=True)]
    if rows:
        with shared.begin() as tx:
            tx.run_each(
                "INSERT INTO session (id, tenant_id, principal_id, updated_at) VALUES (:id, 'acme', :by, :at)", rows
            )
    order = [id_ for _, id_ in sorted(zip(times, ids, strict=True), reverse=True)]
    moved: set[str] = set()
    seen: list[str] = []
    cursor, waiting = None, list(changes)
    while True:
        with shared.read() as tx:
            page = list_sessions(tx, principal, limit=limit, cursor=cursor)
        seen += [one.id for one in page.sessions]
        cursor = page.next_cursor
        if cursor is None:
            break
        assert len(page.sessions) == limit
        if waiting:
            what, number = waiting.pop()
            if what == "move" and number < len(ids):
                moved.add(ids[number])
                at = text(_START + timedelta(days=1 + number))
                host.sql("UPDATE session SET updated_at = :at WHERE id = :id", at=at, id=ids[number])
            elif what == "add":
                host.session(f"{example}-new-{len(waiting)}", principal=principal.id)  # at the front
    assert len(seen) == len(set(seen))
    assert [id_ for id_ in seen if id_ not in moved] == [id_ for id_ in order if id_ not in moved]


@given(cursor=st.one_of(st.text(max_size=60), st.binary(max_size=40).map(lambda raw: raw.hex())))
def test_what_is_no_cursor_is_refused(sqlite_cursor_database: Database, cursor: str) -> None:
    with sqlite_cursor_database.read() as tx, pytest.raises(InvalidCursor):
        list_sessions(tx, ANN, limit=1, cursor=cursor)


@pytest.fixture(scope="module")
def sqlite_cursor_database(host_sqlite_template: Path) -> Any:
    yield from _prepared(Database.open(f"sqlite:///{host_sqlite_template}"))
