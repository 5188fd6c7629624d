"""The purge of a conversation in a real database: what it says, what it refuses, and what it leaves alone.

What every kind of store must do is in tests/conformance/test_purge_contract.py.
"""

import sqlite3
import threading

import pytest
import sqlalchemy as sa
from doubles import talks
from doubles.talks import ADA, TALKS
from sqlalchemy.orm import Session
from waiting import someone_waits, wait_for

from expunge.models import bell, fence
from expunge.models.database import Database
from expunge.models.errors import (
    ConversationBusy,
    ConversationNotFound,
    Held,
    InvalidCase,
    InvalidGraph,
    RunActive,
    VersionConflict,
)
from expunge.models.graph import Graph, Member, Reference, Root
from expunge.models.graph_live import read_graph
from expunge.models.holds import place_hold
from expunge.models.purge import case_id_of, purge
from expunge.models.purged import Principal, PurgeStatus
from expunge.models.tombstones import is_purged, list_tombstones

BOB = Principal("bob", "acme")


@pytest.fixture
def host(database) -> Database:
    talks.create(database)
    return database


def _purge(database, conversation="t1", principal=ADA, graph=TALKS, **options):
    with database.engine.begin() as connection:
        return purge(connection, graph, conversation, principal=principal, **options)


def _sql(database, statement, **parameters):
    with database.engine.begin() as connection:
        result = connection.execute(sa.text(statement), parameters)
        return [tuple(row) for row in result] if result.returns_rows else result.rowcount


def _state(database):
    tables = ("talk", "work", "word", "skill", "erasure_case", "erasure_outbox", "erasure_tombstone")
    return {table: sorted(map(str, _sql(database, f"SELECT * FROM {table}"))) for table in tables}


def test_what_it_says_and_leaves(host):
    purged = _purge(host, expected_version=7)
    assert (purged.status, purged.case_id) == (PurgeStatus.PURGED, "purge-talks-t1")
    assert purged.deleted == {"talk": 1, "work": 2, "word": 2}
    assert purged.detached == {"skill": 1}
    assert _sql(host, "SELECT case_id, account, kind, locator FROM erasure_outbox") == [
        ("purge-talks-t1", "ai", "file", "file-1")
    ]
    columns = "subject, tenant, basis, scope, conversation, nothing_found"
    (case,) = _sql(host, f"SELECT {columns} FROM erasure_case")
    assert case[:5] == ("ada", "acme", "request", "conversation", "t1")
    assert not case[5]
    assert [row["conversation"] for page in list_tombstones(host, "talks") for row in page] == ["t1"]
    assert list(list_tombstones(host, "others")) == []
    with host.engine.connect() as connection:
        assert is_purged(connection, TALKS, "t1")
        assert not is_purged(connection, TALKS, "t2")


@pytest.mark.parametrize("expected", ["7", 7])
def test_the_version_may_be_text(host, expected):
    assert _purge(host, expected_version=expected).status == PurgeStatus.PURGED


@pytest.mark.parametrize(
    ("error", "arguments"),
    [
        (VersionConflict, {"expected_version": 6}),
        (RunActive, {"conversation": "t2"}),
        (ConversationNotFound, {"principal": BOB}),
        (ConversationNotFound, {"principal": Principal("ada", "globex")}),
        (ConversationNotFound, {"principal": Principal("ada")}),
        (ConversationNotFound, {"conversation": "t3", "reserve_absent": False}),
        (InvalidCase, {"conversation": "t\x1b3"}),
        (InvalidCase, {"conversation": ""}),
    ],
)
def test_a_refusal_leaves_nothing_even_if_it_is_caught_and_committed(host, error, arguments):
    before = _state(host)
    with host.engine.begin() as connection:
        with pytest.raises(error):
            purge(connection, TALKS, **{"conversation": "t1", "principal": ADA, **arguments})
        connection.execute(sa.text("INSERT INTO skill VALUES ('mine', NULL)"))  # the transaction is still usable
    assert _sql(host, "DELETE FROM skill WHERE id = 'mine'") == 1
    assert _state(host) == before


def test_a_failure_half_way_leaves_nothing_even_if_it_is_caught_and_committed(host):
    """Somebody's table that the graph cannot know of, since it appeared after the look at it."""
    before = _state(host)
    with host.engine.begin() as connection:
        seen = []

        def forget(connection, cursor, statement, *_):
            seen.append(statement)
            if statement.startswith("DELETE FROM") and "talk" in statement:
                raise RuntimeError("power")

        sa.event.listen(connection, "before_cursor_execute", forget)
        with pytest.raises(RuntimeError, match="power"):
            purge(connection, TALKS, "t1", principal=ADA)
        sa.event.remove(connection, "before_cursor_execute", forget)
    assert any(statement.startswith("DELETE FROM") for statement in seen[:-1])
    assert _state(host) == before


def test_the_run_that_is_active_is_named(host):
    with pytest.raises(RunActive) as caught:
        _purge(host, "t2")
    assert caught.value.run_id == "x1"


@pytest.mark.parametrize("whom", [{"subject": "ada"}, {"subject": None, "conversation": "t1"}])
def test_a_hold_forbids_it_until_it_is_released(host, whom):
    with host.begin() as tx:
        place_hold(tx, **{"subject": None, **whom}, by="lawyer", why="a matter")
    before = _state(host)
    with pytest.raises(Held):
        _purge(host)
    assert _state(host) == before
    _sql(host, "UPDATE erasure_hold SET released_at = placed_at, released_by = 'lawyer', released_why = 'settled'")
    assert _purge(host).status == PurgeStatus.PURGED


def test_strangers_and_nobody_see_the_same_statements(host):
    """An id of somebody else's, a tombstone of somebody else's, and an id that never was."""
    _purge(host)
    said = []
    for conversation, principal in (("t2", BOB), ("t1", BOB), ("t9", ADA)):
        statements: list[str] = []
        with host.engine.begin() as connection:
            sa.event.listen(connection, "before_cursor_execute", lambda *a, to=statements: to.append(a[2]))
            with pytest.raises(ConversationNotFound) as caught:
                purge(connection, TALKS, conversation, principal=principal, reserve_absent=False)
        said.append((statements, str(caught.value)))
    assert said[0] == said[1] == said[2]
    assert len(said[0][0]) > 2


def test_an_absent_id_is_reserved_with_whatever_version(host):
    purged = _purge(host, "t9", expected_version=3)
    assert (purged.status, purged.deleted) == (PurgeStatus.PURGED, {})
    assert _purge(host, "t9").status == PurgeStatus.ALREADY_PURGED
    with pytest.raises(ConversationNotFound):
        _purge(host, "t9", BOB)


def test_a_session_forgets_what_it_had_read(host):
    with Session(host.engine) as session, session.begin():
        assert purge(session, TALKS, "t1", principal=ADA).status == PurgeStatus.PURGED
    assert _sql(host, "SELECT id FROM talk") == [("t2",)]


def test_the_doorbell_rings_after_the_commit(host):
    rung: list[frozenset[str]] = []
    bell.hang(rung.append)
    with host.engine.connect() as connection:
        with connection.begin() as transaction:
            purge(connection, TALKS, "t1", principal=ADA)
            transaction.rollback()
        with connection.begin():
            purge(connection, TALKS, "t1", principal=ADA)
    wait_for(lambda: rung, what="the doorbell")
    assert rung == [frozenset({"ai"})]


def test_what_no_outbox_can_hold_neither_stops_it_nor_is_forgotten(host):
    """A locator of the wrong shape is an entry like any other from plain SQL, which a drain escalates. An empty one and
    one that no store can have are a person's to look at."""
    for name, locator in (("d", "not a file"), ("e", ""), ("f", "x" * 1101), ("g", "é" * 600), ("h", "file-1")):
        _sql(host, "INSERT INTO word VALUES (:id, 'w2', :file)", id=name, file=locator)
    assert _purge(host).deleted["word"] == 7
    assert set(_sql(host, "SELECT account, kind, locator FROM erasure_outbox")) == {
        ("ai", "file", "file-1"),
        ("ai", "file", "not a file"),
        ("unusable", "unusable", "word.file"),
    }


def test_an_expected_version_needs_a_column(host):
    graph = Graph("talks", Root("talk", tenant="tenant", owner="owner"), TALKS.members)
    with host.engine.begin() as connection:
        fence.install(connection, read_graph(connection, graph))
    with pytest.raises(InvalidGraph, match="expected_version"):
        _purge(host, graph=graph, expected_version=1)


@pytest.mark.parametrize(
    ("type_", "id_", "others"),
    [
        ("integer", "7", ["07", "7.0", " 7", "x", "99999999999999999999"]),
        ("bigint", "-7", ["+7", "--7"]),
        ("varchar(40)", "a b", ["A B", "a b "]),
        ("uuid", "0b7e5f6e-58a5-4c3c-9d8f-0f2a3c1d4e5f", ["0B7E5F6E-58A5-4C3C-9D8F-0F2A3C1D4E5F", "7"]),
    ],
)
def test_keys_of_other_types(database, type_, id_, others):
    """A text that is not exactly how the database writes the key is another id."""
    graph = Graph("rooms", Root("room"), (Member("line", references=(Reference("room_id", "room"),)),))
    with database.engine.begin() as connection:
        connection.exec_driver_sql(f"CREATE TABLE room (id {type_} PRIMARY KEY)")
        connection.exec_driver_sql(f"CREATE TABLE line (room_id {type_})")
        connection.exec_driver_sql(f"INSERT INTO room VALUES ('{id_}')")
        connection.exec_driver_sql(f"INSERT INTO line VALUES ('{id_}')")
        fence.install(connection, read_graph(connection, graph))
    for other in others:
        with pytest.raises(ConversationNotFound):
            _purge(database, other, graph=graph, reserve_absent=False)
    assert _purge(database, id_, graph=graph).deleted == {"room": 1, "line": 1}


def test_two_keys_and_none(database):
    """References of two columns, to what is no primary key; a table without any key; names that must be quoted."""
    graph = Graph(
        "cases",
        Root('the "Case"', key="id"),
        (Member("order"), Member("line", references=(Reference("case:id", 'the "Case"'),))),
    )
    with database.engine.begin() as connection:
        for statement in (
            'CREATE TABLE "the ""Case""" (id text UNIQUE, a integer, b integer, UNIQUE (a, b))',
            'CREATE TABLE "order" (no integer, up integer, a integer, b integer, UNIQUE (no, a),'
            ' FOREIGN KEY (a, b) REFERENCES "the ""Case""" (a, b), FOREIGN KEY (up, a) REFERENCES "order" (no, a))',
            'CREATE TABLE line ("case:id" text, no integer, a integer, FOREIGN KEY (no, a) REFERENCES "order" (no, a))',
            """INSERT INTO "the ""Case\""" VALUES ('c1', 1, 1), ('c2', 1, 2)""",
            'INSERT INTO "order" VALUES (1, NULL, 1, 1), (2, 1, 1, NULL), (3, NULL, 1, 2), (4, NULL, NULL, 1)',
            "INSERT INTO line VALUES ('c1', NULL, NULL), ('c2', 2, 1), ('c2', 3, 1), (NULL, 2, NULL)",
        ):
            connection.exec_driver_sql(statement)
        fence.install(connection, read_graph(connection, graph))
    purged = _purge(database, "c1", graph=graph)
    assert purged.deleted == {'the "Case"': 1, "order": 2, "line": 2}
    assert sorted(_sql(database, 'SELECT no FROM "order"')) == [(3,), (4,)]


def test_a_long_id_and_one_of_strange_letters_have_a_case_of_their_own():
    assert case_id_of("talks", "t1") == "purge-talks-t1"
    long = [case_id_of("t" * 64, letter * 1000) for letter in "ab"]
    assert len({*long, case_id_of("talks", "a\nb"), case_id_of("talks", "a\tb")}) == 4
    assert max(map(len, long)) <= 200


# -- connections that cannot keep the promise


@pytest.mark.parametrize("isolation", ["REPEATABLE READ", "SERIALIZABLE", "AUTOCOMMIT"])
def test_postgresql_at_another_isolation_is_unsupported(postgres_url, isolation):
    database = Database.open(postgres_url)
    talks.create(database)
    before = _state(database)
    with database.engine.connect().execution_options(isolation_level=isolation) as connection:
        purged = purge(connection, TALKS, "t1", principal=ADA)
    assert purged.status == PurgeStatus.UNSUPPORTED
    assert purged.reason
    assert _state(database) == before
    database.close()


def test_a_missing_fence_is_unsupported(host):
    _sql(host, "DELETE FROM erasure_fence")
    before = _state(host)
    purged = _purge(host)
    assert (purged.status, bool(purged.reason)) == (PurgeStatus.UNSUPPORTED, True)
    assert _state(host) == before


@pytest.fixture
def sqlite_host(sqlite_url):
    database = Database.open(sqlite_url)
    talks.create(database)
    yield database
    database.close()


def test_a_hosts_own_sqlite_engine(sqlite_host, sqlite_url):
    """The driver's own mode begins a transaction at the first write; the purge begins with one."""
    engine = sa.create_engine(sqlite_url)
    with engine.connect() as connection:
        assert purge(connection, TALKS, "t1", principal=ADA).status == PurgeStatus.PURGED
        connection.rollback()
        assert _sql(sqlite_host, "SELECT id FROM talk") == [("t1",), ("t2",)]
        assert purge(connection, TALKS, "t1", principal=ADA).status == PurgeStatus.PURGED
        connection.commit()
    engine.dispose()
    assert _sql(sqlite_host, "SELECT id FROM talk") == [("t2",)]


def test_sqlite_that_commits_each_statement_is_unsupported(sqlite_host, sqlite_url):
    engine = sa.create_engine(sqlite_url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        assert purge(connection, TALKS, "t1", principal=ADA).status == PurgeStatus.UNSUPPORTED
    engine.dispose()
    assert _sql(sqlite_host, "SELECT id FROM talk") == [("t1",), ("t2",)]


def test_sqlite_that_has_read_what_changed_since_is_busy(sqlite_host, sqlite_url):
    path = sqlite_url.removeprefix("sqlite:///")
    engine = sa.create_engine("sqlite://", creator=lambda: sqlite3.connect(path, isolation_level=None, timeout=0))
    with engine.connect() as connection:
        connection.exec_driver_sql("BEGIN")
        connection.exec_driver_sql("SELECT * FROM talk").all()
        _sql(sqlite_host, "UPDATE talk SET version = 8 WHERE id = 't1'")
        with pytest.raises(ConversationBusy):
            purge(connection, TALKS, "t1", principal=ADA)
    engine.dispose()


# -- purges that meet


def test_two_purges_of_one_conversation(postgres_url):
    """The second waits, and finds it purged."""
    database = Database.open(postgres_url)
    talks.create(database)
    found = []
    with database.engine.begin() as connection:
        purge(connection, TALKS, "t1", principal=ADA)
        other = threading.Thread(target=lambda: found.append(_purge(database)))
        other.start()
        wait_for(lambda: someone_waits(database), what="the second purge")
    other.join(30)
    assert [purged.status for purged in found] == [PurgeStatus.ALREADY_PURGED]
    database.close()


def test_a_hold_that_is_being_placed_decides(postgres_url):
    """The purge waits for it to be committed, and then sees it."""
    database = Database.open(postgres_url)
    talks.create(database)
    caught = []

    def run():
        with pytest.raises(Held) as error:
            _purge(database)
        caught.append(error)

    with database.begin() as tx:
        place_hold(tx, subject="ada", by="lawyer", why="a matter")
        other = threading.Thread(target=run)
        other.start()
        wait_for(lambda: someone_waits(database), what="the purge")
    other.join(30)
    assert caught
    database.close()
