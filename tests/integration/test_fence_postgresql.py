"""The fence on PostgreSQL: writers beside a purge, at every isolation level, by every way in; and its locks."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from doubles.fenced import GRAPH, Fenced, run
from sqlalchemy.engine import Connection
from sqlalchemy.exc import DBAPIError
from waiting import someone_waits, wait_for

from expunge.models import fence
from expunge.models.database import Database
from expunge.models.errors import ConfigurationError, ConversationBusy, ConversationPurged
from expunge.models.fence_names import BUCKETS
from expunge.models.fence_postgresql import LOCK_CLASS
from expunge.models.graph import Graph, Member, Reference, Root
from expunge.models.purge import purge
from expunge.models.purged import Principal, PurgeStatus

ANN = Principal("ann", "acme")


@pytest.fixture
def host(postgres_url: str) -> Iterator[Fenced]:
    """Two conversations, `a` and `b`, with a row of every table."""
    database = Database.open(postgres_url)
    found = Fenced(database)
    found.fill("a", "b")
    yield found
    database.close()


@contextmanager
def writer(host: Fenced, level: str = "READ COMMITTED") -> Iterator[Connection]:
    """A transaction of the host, rolled back unless the test commits it."""
    with host.database.engine.connect().execution_options(isolation_level=level) as connection:
        yield connection
        connection.rollback()


def bury(host: Fenced, conversation: str = "a") -> None:
    with host.database.engine.begin() as connection:
        assert purge(connection, GRAPH, conversation, principal=ANN).status == PurgeStatus.PURGED


def in_background(act: Any) -> tuple[threading.Thread, list[Any]]:
    told: list[Any] = []

    def do() -> None:
        try:
            told.append(act())
        except Exception as error:
            told.append(error)

    thread = threading.Thread(target=do)
    thread.start()
    return thread, told


WRITES = [
    "INSERT INTO memory (id, source_session_id) VALUES ('new-{0}', '{0}')",
    "INSERT INTO event (id, run_id) VALUES ('new-{0}', 'r{0}')",
    "UPDATE memory SET formed_session_id = '{0}' WHERE id = 'mb'",
    "UPDATE invoice SET session_id = '{0}' WHERE id = 'ib'",
]
"""That no foreign key refuses."""
INTO_A = [write.format("a") for write in WRITES]


def left(host: Fenced, conversation: str = "a") -> list[Any]:
    """What a purge has left of a conversation, or what came back."""
    return host.run(
        "SELECT id FROM memory WHERE :c IN (source_session_id, formed_session_id)"
        " UNION SELECT id FROM event WHERE run_id = 'r' || :c"
        " UNION SELECT id FROM invoice WHERE session_id = :c AND id <> 'i' || :c",
        c=conversation,
    )


def test_a_purge_waits_for_the_writer_that_was_first(host: Fenced) -> None:
    host.fill(*"wxyz")
    for conversation, write in zip("wxyz", WRITES, strict=True):
        with writer(host) as connection:
            run(connection, write.format(conversation))
            thread, told = in_background(lambda name=conversation: bury(host, name))
            wait_for(lambda: someone_waits(host.database), what="the purge")
            connection.commit()
            thread.join()
        assert told == [None]
        # what is kept may have come before the purge
        assert left(host, conversation) == ([("ib",)] if "invoice" in write else [])


def test_without_the_lock_it_comes_back(host: Fenced) -> None:
    """The fault that the lock is there for: otherwise the test above proves nothing."""
    host.fill(*"wxyz")
    host.reinstall(lock=False)
    for conversation, write in zip("wxyz", WRITES, strict=True):
        with writer(host) as connection:
            run(connection, write.format(conversation))
            bury(host, conversation)
            connection.commit()
        assert len(left(host, conversation)) == 1


def test_the_writer_that_comes_later_is_told_to_try_again(host: Fenced) -> None:
    with writer(host) as purging:
        assert purge(purging, GRAPH, "a", principal=ANN).status == PurgeStatus.PURGED
        for write in INTO_A:
            with writer(host) as connection, pytest.raises(ConversationBusy) as raised:
                run(connection, write)
            assert raised.value.__cause__.orig.sqlstate == "40001"
        purging.commit()
    for write in INTO_A:
        with pytest.raises(ConversationPurged):
            host.run(write)


def test_an_update_that_has_its_row_does_not_wait(host: Fenced) -> None:
    """It would be a deadlock: the purge waits for the row, and the trigger for the purge."""
    with writer(host) as purging, writer(host) as connection:
        connection.exec_driver_sql("SELECT 1 FROM memory WHERE id = 'ma' FOR UPDATE")
        thread, told = in_background(lambda: purge(purging, GRAPH, "a", principal=ANN))
        wait_for(lambda: someone_waits(host.database), what="the purge")
        with pytest.raises(ConversationBusy):
            run(connection, "UPDATE memory SET body = 'x' WHERE id = 'ma'")
        connection.rollback()
        thread.join()
        purging.commit()
    assert told[0].status == PurgeStatus.PURGED


LEVELS = pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])


@LEVELS
def test_an_older_snapshot_brings_nothing_back(host: Fenced, level: str) -> None:
    with writer(host, level) as connection:
        connection.exec_driver_sql("SELECT count(*) FROM session")
        bury(host)
        assert connection.exec_driver_sql("SELECT count(*) FROM erasure_tombstone").scalar_one() == 0
        for write in INTO_A:
            with pytest.raises(DBAPIError) as raised, connection.begin_nested():
                connection.exec_driver_sql(write)
            assert raised.value.orig.sqlstate == "40001"  # type: ignore[union-attr]
    for write in INTO_A:
        with writer(host, level) as connection, pytest.raises(ConversationPurged):
            run(connection, write)
    assert left(host) == []


@LEVELS
def test_an_older_snapshot_goes_on_elsewhere(host: Fenced, level: str) -> None:
    other = host.apart("a", "b")
    with writer(host, level) as connection:
        connection.exec_driver_sql("SELECT count(*) FROM session")
        bury(host)
        run(connection, "INSERT INTO session (id) VALUES (:id)", id=other)
        run(connection, "UPDATE run SET state = 'x' WHERE id = 'rb'")
        connection.commit()


@LEVELS
def test_a_purge_waits_for_writers_of_every_level(host: Fenced, level: str) -> None:
    with writer(host, level) as connection:
        run(connection, INTO_A[0])
        thread, _ = in_background(lambda: bury(host))
        wait_for(lambda: someone_waits(host.database), what="the purge")
        connection.commit()
        thread.join()
    assert left(host) == []


def test_a_parent_that_moves_takes_nothing_along(host: Fenced) -> None:
    """An event of run `rb` is written while the run moves into the conversation that is purged."""
    other = host.apart("a", "b")
    host.run("INSERT INTO session (id, tenant) VALUES (:id, 'acme')", id=other)
    move = "UPDATE run SET session_id = :id WHERE id = 'rb'"
    with writer(host) as events, writer(host) as moving:
        run(events, "INSERT INTO event (id, run_id) VALUES ('new', 'rb')")
        with pytest.raises(ConversationBusy):
            run(moving, move, id=other)
        moving.rollback()
        events.rollback()
        run(moving, move, id=other)
        with pytest.raises(ConversationBusy):
            run(events, "INSERT INTO event (id, run_id) VALUES ('new', 'rb')")
        events.rollback()
        moving.commit()
    host.run("INSERT INTO event (id, run_id) VALUES ('new', 'rb')")
    with host.database.engine.begin() as connection:
        assert purge(connection, GRAPH, other, principal=ANN).deleted["run"] == 1
    assert host.run("SELECT 1 FROM event WHERE id = 'new'") == []


def test_moves_inside_a_conversation_and_of_leaves_stand_in_nobodys_way(host: Fenced) -> None:
    host.run("INSERT INTO run (id, session_id) VALUES ('r2', 'b')")
    with writer(host) as one, writer(host) as another:
        run(one, "UPDATE memory SET body = 'x' WHERE id = 'mb'")
        run(another, "UPDATE event SET run_id = 'r2' WHERE id = 'erb'")
        run(another, "UPDATE memory SET formed_session_id = 'a' WHERE id = 'ma'")


# -- every way in -----------------------------------------------------------------------------------------------------


def raw(host: Fenced) -> Any:
    return psycopg.connect(host.database.engine.url.render_as_string(False).replace("+psycopg", ""), autocommit=True)


MERGES = [
    "MERGE INTO memory USING (SELECT 'new' AS id) s ON memory.id = s.id"
    " WHEN NOT MATCHED THEN INSERT (id, source_session_id) VALUES (s.id, '{}')",
    "MERGE INTO memory USING (SELECT 'mb' AS id) s ON memory.id = s.id"
    " WHEN MATCHED THEN UPDATE SET source_session_id = '{}'",
    "WITH moved AS (UPDATE memory SET source_session_id = '{}' WHERE id = 'mb' RETURNING 1) SELECT * FROM moved",
    "INSERT INTO event (id, run_id) SELECT 'new', id FROM run WHERE id = 'r{}'",
]


def test_by_copy_merge_and_as_a_replica(host: Fenced) -> None:
    host.bury("a")
    with raw(host) as connection:
        for role in ("origin", "replica", "local"):
            connection.execute(f"SET session_replication_role = {role}")
            for statement in MERGES:
                with pytest.raises(psycopg.errors.RestrictViolation, match="expunge: conversation purged"):
                    connection.execute(statement.format("a"))
                with connection.transaction(force_rollback=True):
                    connection.execute(statement.format("b"))
            cursor = connection.cursor()
            with pytest.raises(psycopg.errors.RestrictViolation), cursor.copy("COPY run FROM STDIN") as copy:
                copy.write_row(("n1", "b", None))
                copy.write_row(("n2", "a", None))
    assert host.run("SELECT id FROM run WHERE id LIKE 'n%'") == []


def test_a_writer_without_rights_on_tombstones_and_parents(host: Fenced) -> None:
    host.bury("a")
    with raw(host) as connection, connection.transaction(force_rollback=True):
        connection.execute("CREATE ROLE fence_writer; GRANT INSERT ON event, memory TO fence_writer")
        connection.execute("SET LOCAL ROLE fence_writer")
        # what the writer puts before the tables of the same name changes nothing
        connection.execute("CREATE TEMPORARY TABLE erasure_tombstone (graph text, conversation text)")
        connection.execute("CREATE TEMPORARY TABLE run (id text, session_id text)")
        connection.execute("SET LOCAL search_path = pg_temp, public")
        connection.execute("INSERT INTO event (id, run_id) VALUES ('new', 'rb')")
        for write in INTO_A[:2]:
            with pytest.raises(psycopg.errors.RestrictViolation), connection.transaction():
                connection.execute(write)


def test_it_sees_what_a_trigger_of_the_host_has_made_of_a_row(host: Fenced) -> None:
    host.bury("a")
    host.run(
        "CREATE FUNCTION host_sets() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN NEW.source_session_id = 'a'; RETURN NEW; END $$"
    )
    host.run("CREATE TRIGGER host_sets BEFORE INSERT ON memory FOR EACH ROW EXECUTE FUNCTION host_sets()")
    with pytest.raises(ConversationPurged):
        host.run("INSERT INTO memory (id, source_session_id) VALUES ('new', 'b')")


def test_partitions_are_guarded_also_those_that_come_later(postgres_url: str) -> None:
    database = Database.open(postgres_url)
    tables = """
    CREATE TABLE session (id text PRIMARY KEY);
    CREATE TABLE event (id integer, session_id text) PARTITION BY RANGE (id);
    CREATE TABLE event_1 PARTITION OF event FOR VALUES FROM (0) TO (10)
    """
    graph = Graph("parts", Root("session"), (Member("event", references=(Reference("session_id", "session"),)),))
    host = Fenced(database, tables=tables, graph=graph)
    host.run("CREATE TABLE event_2 PARTITION OF event FOR VALUES FROM (10) TO (20)")
    host.run("INSERT INTO event VALUES (1, 'b'), (11, 'a')")
    host.bury("a", graph="parts")
    for role in ("origin", "replica"):
        for write in (
            "INSERT INTO event VALUES (2, 'a')",
            "INSERT INTO event VALUES (12, 'a')",
            "INSERT INTO event_2 VALUES (12, 'a')",
            "UPDATE event_2 SET session_id = 'b'",
            "UPDATE event SET id = 15, session_id = 'a' WHERE id = 1",
        ):
            with writer(host) as connection, pytest.raises(ConversationPurged):
                connection.exec_driver_sql(f"SET LOCAL session_replication_role = {role}")
                run(connection, write)
    database.close()


# -- locks ------------------------------------------------------------------------------------------------------------


def test_a_bulk_writer_takes_no_more_locks_than_there_are_buckets(host: Fenced) -> None:
    with writer(host) as connection:
        run(connection, "INSERT INTO session (id) SELECT 'bulk' || g FROM generate_series(1, 20000) g")
        run(connection, "INSERT INTO memory (id, source_session_id) SELECT id, id FROM session WHERE id LIKE 'bulk%'")
        held = "SELECT count(*), count(DISTINCT objid) FROM pg_locks WHERE locktype = 'advisory' AND pid ="
        locks, buckets = connection.exec_driver_sql(f"{held} pg_backend_pid()").one()
    assert locks == buckets
    assert BUCKETS * 0.9 < locks <= BUCKETS


def test_a_purge_refuses_another_isolation_than_read_committed(host: Fenced) -> None:
    for level in ("REPEATABLE READ", "SERIALIZABLE"):
        with writer(host, level) as connection, pytest.raises(ConfigurationError, match="READ COMMITTED"):
            fence.close_for_purge(connection, "chats", "a")


def test_a_purge_that_has_written_waits_for_nobody(host: Fenced) -> None:
    """Two that wrote to the same conversation and then both want to purge it would wait for each other."""
    with writer(host) as one, writer(host) as another:
        for name, connection in (("n1", one), ("n2", another)):
            run(connection, "INSERT INTO memory (id, source_session_id) VALUES (:id, 'a')", id=name)
        for connection in (one, another):
            with pytest.raises(ConversationBusy):
                fence.close_for_purge(connection, "chats", "a")
        another.rollback()
        assert purge(one, GRAPH, "a", principal=ANN).deleted["memory"] == 2
        with pytest.raises(ConversationPurged):
            run(one, INTO_A[0])


def test_a_purge_waits_no_longer_than_it_may(host: Fenced) -> None:
    with writer(host) as one, writer(host) as another:
        run(one, INTO_A[0])
        another.exec_driver_sql("SET LOCAL lock_timeout = '77s'")
        with another.begin_nested() as nested, pytest.raises(ConversationBusy):
            try:
                fence.close_for_purge(another, "chats", "a", wait_seconds=0.05)
            finally:
                nested.rollback()
        one.rollback()
        fence.close_for_purge(another, "chats", "a")
        assert another.exec_driver_sql("SHOW lock_timeout").scalar_one() == "77s"


def test_each_purge_marks_its_bucket(host: Fenced) -> None:
    bury(host)
    assert host.run("SELECT bucket FROM erasure_fence_bucket WHERE purges > 0") == [(host.bucket("a"),)]
    assert host.run("SELECT count(*) FROM erasure_fence_bucket") == [(BUCKETS,)]
    assert 0 < LOCK_CLASS < 2**31


# -- whether it stands ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "purges", "said"),
    [
        ("ALTER TABLE event DISABLE TRIGGER ALL", False, "not enabled ALWAYS"),
        ("ALTER TABLE event DISABLE TRIGGER USER", False, "not enabled ALWAYS"),
        ("ALTER TABLE event ENABLE TRIGGER USER", False, "not enabled ALWAYS"),
        (
            "CREATE OR REPLACE FUNCTION erasure_fence_check(graph text, conversation text, moving boolean DEFAULT"
            " false, refuse boolean DEFAULT true) RETURNS void LANGUAGE plpgsql AS $$ BEGIN END $$",
            True,
            "the function erasure_fence_check",
        ),
        ("ALTER TABLE event ADD CONSTRAINT f FOREIGN KEY (run_id) REFERENCES run (id)", False, "older than the graph"),
    ],
)
def test_a_fence_that_somebody_opened_is_seen_and_mended(host: Fenced, change: str, purges: bool, said: str) -> None:
    host.run(change)
    with writer(host) as connection:
        live = host.live(connection)
        assert (fence.why_open(connection, live) is None) == purges
        assert said in "\n".join(fence.check(connection, live))
        assert fence.install(connection, live)
        assert fence.check(connection, live) == []


def test_it_works_in_another_schema_than_public(postgres_url: str) -> None:
    plain = Database.open(postgres_url)
    with plain.engine.begin() as connection:
        connection.exec_driver_sql('CREATE SCHEMA "the %% app"')
        for table in ("tombstone", "fence", "fence_bucket", "outbox", "case", "inventory", "hold", "archive"):
            connection.exec_driver_sql(f'ALTER TABLE erasure_{table} SET SCHEMA "the %% app"')
    plain.close()
    database = Database.open(f"{postgres_url}&options=-csearch_path%3D%22the%5C%20%25%5C%20app%22")
    host = Fenced(database)
    host.fill("a", "b")
    host.bury("a")
    with pytest.raises(ConversationPurged):
        host.run("INSERT INTO event (id, run_id) VALUES ('new', 'ra')")
    assert host.run("INSERT INTO event (id, run_id) VALUES ('new', 'rb')") == 1
    with writer(host) as connection:
        assert fence.check(connection, host.live(connection)) == []
        fence.close_for_purge(connection, "chats", "b")
    database.close()
