"""The fence: what it refuses and what it lets pass, on both databases. Rows and tombstone are there together, as after
a restore, so that old values are looked at as well as new ones."""

import sqlite3
from collections.abc import Sequence

import pytest
from doubles.fenced import GRAPH, Fenced, create, run

from expunge.models import fence
from expunge.models.database import Database
from expunge.models.errors import ConversationPurged, translate
from expunge.models.fence_restored import restored
from expunge.models.graph_live import read_graph
from expunge.models.purge import purge
from expunge.models.purge_again import purge_again
from expunge.models.purged import Principal, PurgeStatus

ANN = Principal("ann", "acme")


@pytest.fixture
def host(database: Database) -> Fenced:
    """Two conversations, `a` and `b`, with a row of every table; `a` is purged."""
    found = Fenced(database)
    found.fill("a", "b")
    found.bury("a")
    return found


def refused(host: Fenced, writes: Sequence[str]) -> None:
    """Each of them is refused, for no other reason, and changes nothing."""
    before = host.everything()
    for write in writes:
        with host.database.engine.connect() as connection, connection.begin() as transaction:
            with pytest.raises(ConversationPurged):
                run(connection, write)
                pytest.fail(write)
            transaction.rollback()
    assert host.everything() == before


def accepted(host: Fenced, writes: Sequence[str]) -> None:
    """Each of them changes one row; it is rolled back."""
    for write in writes:
        with host.database.engine.connect() as connection, connection.begin() as transaction:
            assert run(connection, write).rowcount == 1, write
            transaction.rollback()


INSERTS = [
    "session (id) VALUES ('{}1')",
    "run (id, session_id) VALUES ('new', '{}')",
    "event (id, session_id) VALUES ('new', '{}')",
    "event (id, run_id) VALUES ('new', 'r{}')",
    "event (id, parent_id) VALUES ('new', 'e{}')",
    "event (id, parent_id) VALUES ('new', 'er{}')",
    "event (id, parent_id) VALUES ('new', 'eee{}')",
    "event (id, session_id, run_id) VALUES ('new', 'b', 'r{}')",
    "event (id, session_id, parent_id) VALUES ('new', 'b', 'eee{}')",
    "memory (id, source_session_id) VALUES ('new', '{}')",
    "memory (id, formed_session_id) VALUES ('new', '{}')",
    "memory (id, source_session_id, formed_session_id) VALUES ('new', 'b', '{}')",
    "step (id, run_id) VALUES ('new', 'r{}')",
    "step (id, outcome_id) VALUES ('new', 'o{}')",
    "step (id, outcome_id) VALUES ('new', 'oo{}')",
    "outcome (id, step_id) VALUES ('new', 's{}')",
    "outcome (id, step_id) VALUES ('new', 'so{}')",
    "skill (id, run_id) VALUES ('new', 'r{}')",
    "invoice (id, session_id) VALUES ('new', '{}')",
]


def test_nothing_is_inserted(host: Fenced) -> None:
    host.bury("a1")
    refused(host, [f"INSERT INTO {insert.format('a')}" for insert in INSERTS])
    accepted(host, [f"INSERT INTO {insert.format('b')}" for insert in INSERTS])


UPDATES = [
    "run SET state = 'x' WHERE id = 'r{}'",
    "event SET body = 'x' WHERE id = 'e{}'",
    "event SET body = 'x' WHERE id = 'er{}'",
    "event SET body = 'x' WHERE id = 'eee{}'",
    "event SET session_id = 'b' WHERE id = 'e{}'",
    "event SET run_id = 'rb' WHERE id = 'er{}'",
    "event SET parent_id = 'eb' WHERE id = 'eee{}'",
    "event SET session_id = NULL WHERE id = 'e{}'",
    "event SET run_id = NULL WHERE id = 'er{}'",
    "event SET parent_id = NULL, session_id = 'b' WHERE id = 'ee{}'",
    "event SET session_id = '{}' WHERE id = 'eb'",
    "event SET run_id = 'r{}' WHERE id = 'eb'",
    "event SET parent_id = 'eee{}' WHERE id = 'eb'",
    "event SET id = 'x' WHERE id = 'e{}'",
    "memory SET body = 'x' WHERE id = 'm{}'",
    "memory SET source_session_id = NULL WHERE id = 'm{}'",
    "memory SET formed_session_id = '{}' WHERE id = 'mb'",
    "step SET id = id WHERE id = 's{}'",
    "step SET outcome_id = NULL WHERE id = 'so{}'",
    "step SET outcome_id = 'o{}' WHERE id = 'sb'",
    "outcome SET step_id = 'sb' WHERE id = 'oo{}'",
    "outcome SET step_id = 's{}' WHERE id = 'ob'",
    "skill SET body = 'x' WHERE id = 'k{}'",
    "skill SET run_id = 'r{}' WHERE id = 'kb'",
    "invoice SET body = 'x' WHERE id = 'i{}'",
    "invoice SET session_id = 'b' WHERE id = 'i{}'",
    "invoice SET session_id = '{}' WHERE id = 'ib'",
    "session SET title = 'x' WHERE id = '{}'",
    "run SET session_id = 'b' WHERE id = 'r{}'",
    "run SET session_id = '{}' WHERE id = 'rb'",
]


def test_nothing_is_updated(host: Fenced) -> None:
    refused(host, [f"UPDATE {update.format('a')}" for update in UPDATES])
    accepted(host, [f"UPDATE {update.format('b')}" for update in UPDATES])


def test_a_key_is_not_taken_and_not_given_up(host: Fenced) -> None:
    host.run("INSERT INTO session (id) VALUES ('c')")
    host.bury("d")
    for change in ("id = 'd' WHERE id = 'c'", "id = 'd2' WHERE id = 'a'"):
        with pytest.raises(ConversationPurged):
            host.run(f"UPDATE session SET {change}")
    assert host.run("UPDATE session SET id = 'c2' WHERE id = 'c'") == 1


def test_what_is_detached_may_leave_and_not_enter(host: Fenced) -> None:
    assert host.run("UPDATE skill SET run_id = NULL WHERE id = 'ka'") == 1
    assert host.run("UPDATE skill SET body = 'x' WHERE id = 'ka'") == 1
    assert host.run("UPDATE skill SET run_id = 'rb' WHERE id = 'ka'") == 1
    with pytest.raises(ConversationPurged):
        host.run("UPDATE skill SET run_id = 'ra' WHERE id = 'ka'")


def test_rows_are_read_and_removed(host: Fenced) -> None:
    assert host.run("SELECT id FROM event WHERE session_id = 'a'") == [("ea",)]
    assert host.run("DELETE FROM memory WHERE id = 'ma'") == 1


NOBODYS = [
    "INSERT INTO event (id, run_id) VALUES ('new', 'nobody')",
    "INSERT INTO event (id, session_id, run_id) VALUES ('new', 'b', 'nobody')",
    "INSERT INTO event (id, parent_id) VALUES ('new', 'nobody')",
    "INSERT INTO step (id, outcome_id) VALUES ('new', 'nobody')",
    "INSERT INTO skill (id, run_id) VALUES ('new', 'nobody')",
    "UPDATE event SET run_id = 'nobody' WHERE id = 'eb'",
    "UPDATE step SET outcome_id = 'nobody' WHERE id = 'sb'",
    "UPDATE outcome SET step_id = 'nobody' WHERE id = 'ob'",
]


def test_a_parent_that_is_not_there_is_refused(host: Fenced) -> None:
    refused(host, NOBODYS)


def test_rows_whose_parent_went_without_a_purge(host: Fenced) -> None:
    """Without a foreign key a run may go before its events: they can be let go, and nothing else."""
    host.run("INSERT INTO run (id, session_id) VALUES ('r', 'b')")
    host.run("INSERT INTO event (id, run_id) VALUES ('orphan', 'r')")
    host.run("INSERT INTO event (id, parent_id) VALUES ('below', 'orphan')")
    host.run("DELETE FROM run WHERE id = 'r'")
    for write in (
        "UPDATE event SET body = 'x' WHERE id = 'orphan'",
        "UPDATE event SET run_id = 'rb' WHERE id = 'orphan'",
        "INSERT INTO event (id, parent_id) VALUES ('new', 'below')",
        "UPDATE event SET parent_id = 'below' WHERE id = 'eb'",
    ):
        with pytest.raises(ConversationPurged):
            host.run(write)
    assert host.run("UPDATE event SET run_id = NULL WHERE id = 'orphan'") == 1


def test_a_row_may_be_its_own_parent(host: Fenced) -> None:
    assert host.run("INSERT INTO event (id, session_id, parent_id) VALUES ('self', 'b', 'self')") == 1
    assert host.run("INSERT INTO event (id, parent_id) VALUES ('child', 'self')") == 1
    assert host.run("UPDATE event SET parent_id = 'child' WHERE id = 'self'") == 1
    host.bury("b")
    with pytest.raises(ConversationPurged):
        host.run("UPDATE event SET body = 'x' WHERE id = 'child'")


def test_a_row_without_any_reference_is_nobodys(host: Fenced) -> None:
    assert host.run("INSERT INTO event (id) VALUES ('free')") == 1
    assert host.run("UPDATE event SET body = 'x' WHERE id = 'free'") == 1


STATEMENTS = [
    "INSERT INTO memory (id, source_session_id) VALUES ('new', 'a') ON CONFLICT (id) DO NOTHING",
    "INSERT INTO memory (id, source_session_id) VALUES ('mb', 'a')"
    " ON CONFLICT (id) DO UPDATE SET source_session_id = excluded.source_session_id",
    "INSERT INTO memory (id) VALUES ('mb') ON CONFLICT (id) DO UPDATE SET source_session_id = 'a'",
    "INSERT INTO memory (id, source_session_id) VALUES ('n1', 'b'), ('n2', 'b'), ('n3', 'a')",
    "INSERT INTO memory (id, source_session_id) SELECT 'n' || id, id FROM session",
    "UPDATE memory SET body = 'x'",
    "WITH found AS (SELECT 'a' AS s) INSERT INTO memory (id, source_session_id) SELECT 'new', s FROM found",
]


def test_whatever_the_statement(host: Fenced) -> None:
    refused(host, STATEMENTS)


def test_a_parent_of_the_same_statement_counts(host: Fenced) -> None:
    statement = "INSERT INTO event (id, session_id, parent_id) VALUES ('n1', '{0}', NULL), ('n2', NULL, 'n1')"
    assert host.run(statement.format("b")) == 2
    with pytest.raises(ConversationPurged):
        host.run(statement.format("a"))


def test_tombstones_of_another_graph_do_not_matter(host: Fenced) -> None:
    host.bury("b", graph="other")
    host.bury("b", graph="chats2")
    assert host.run("UPDATE run SET state = 'x' WHERE id = 'rb'") == 1


def test_it_stands_or_says_what_is_wrong(database: Database) -> None:
    with database.engine.begin() as connection:
        create(connection)
    with database.engine.begin() as connection:
        live = read_graph(connection, GRAPH)
        assert "has no fence" in str(fence.why_open(connection, live))
        assert fence.install(connection, live)
        assert fence.why_open(connection, live) is None
        assert fence.check(connection, live) == []
        assert not fence.install(connection, live)
        connection.exec_driver_sql("UPDATE erasure_fence SET fingerprint = 'old'")
        assert "older than the graph" in str(fence.why_open(connection, live))
        assert fence.install(connection, live)
        assert fence.why_open(connection, live) is None


def test_a_trigger_that_is_gone_opens_it(host: Fenced) -> None:
    sqlite = host.database.dialect == "sqlite"
    find = "SELECT name FROM sqlite_master WHERE type = 'trigger' AND tbl_name = 'event'"
    if not sqlite:
        find = "SELECT tgname FROM pg_trigger WHERE tgrelid = 'event'::regclass AND NOT tgisinternal"
    for (name,) in host.run(find):
        with host.database.engine.connect() as connection, connection.begin() as transaction:
            live = host.live(connection)
            connection.exec_driver_sql(f'DROP TRIGGER "{name}"' + ("" if sqlite else " ON event"))
            assert str(fence.why_open(connection, live)).startswith("event: the trigger")
            assert purge(connection, host.graph, "b", principal=ANN).status == PurgeStatus.UNSUPPORTED
            assert fence.install(connection, live)
            assert fence.why_open(connection, live) is None
            transaction.rollback()


def test_what_a_restore_brought_back_is_counted_and_removed(host: Fenced) -> None:
    # `eeea` and `ooa` find their way only by going round a second time
    counts = {"event": 3, "memory": 1, "outcome": 1, "run": 1, "session": 1, "skill": 1, "step": 2}
    with host.database.engine.begin() as connection:
        live = host.live(connection)
        assert restored(connection, live) == {"a": counts}
        assert purge_again(connection, host.graph, "a").status == PurgeStatus.PURGED
        assert restored(connection, live) == {}
    assert host.run("SELECT id FROM skill WHERE run_id IS NULL") == [("ka",)]
    assert host.run("SELECT id FROM invoice") == [("ia",), ("ib",)]


# -- SQLite's own -----------------------------------------------------------------------------------------------------

INSERT = "INSERT INTO memory (id, source_session_id) VALUES (?, 'a')"


def test_sqlite_a_connection_that_was_there_before(sqlite_url: str) -> None:
    path = sqlite_url.removeprefix("sqlite:///")
    database = Database.open(sqlite_url)
    with database.engine.begin() as connection:
        create(connection)
    early = sqlite3.connect(path, isolation_level=None)
    early.execute("INSERT INTO session (id, tenant) VALUES ('a', 'acme')")
    early.execute(INSERT, ("early",))
    reader = sqlite3.connect(f"file:{path}?mode=ro", uri=True, isolation_level=None)
    assert reader.execute("SELECT count(*) FROM memory").fetchone() == (1,)
    with database.engine.begin() as connection:
        fence.install(connection, read_graph(connection, GRAPH))
        assert purge(connection, GRAPH, "a", principal=ANN).deleted == {"session": 1, "memory": 1}
    early.execute("INSERT INTO memory (id) VALUES ('other')")
    writes = [INSERT.replace("INSERT", f"INSERT OR {how}") for how in ("REPLACE", "IGNORE", "FAIL", "ABORT")]
    writes += [f"UPDATE OR {how} memory SET source_session_id = 'a' WHERE id <> ?" for how in ("REPLACE", "IGNORE")]
    for write in (INSERT, INSERT.replace("INSERT", "REPLACE"), *writes):
        with pytest.raises(sqlite3.IntegrityError) as raised:
            early.execute(write, ("late",))
        assert isinstance(translate(raised.value), ConversationPurged)
    assert reader.execute("SELECT id, source_session_id FROM memory").fetchall() == [("other", None)]
    early.close()
    reader.close()
    database.close()
