"""The fence around every shape of graph: exactly those writes are refused that a plain walk up the rows finds; and keys
of every kind."""

import os
import uuid
from typing import Any

import pytest
import sqlalchemy as sa
from doubles.fenced import Fenced, run
from doubles.random_graph import ROOT, Host, hosts, number_of
from hypothesis import HealthCheck, given, settings

from expunge.models import fence
from expunge.models.database import Database
from expunge.models.errors import ConversationPurged
from expunge.models.graph import Graph, Member, Reference, Root
from expunge.models.graph_live import read_graph

ROUNDS = int(os.environ.get("CHAOS_ROUNDS", "1"))


def conversations(host: Host, table: str, row: dict[str, Any]) -> set[str]:
    """What the row belongs to, by walking up until nothing is new."""
    found = {row["id"]} if table == ROOT else set()
    seen: set[tuple[str, int]] = set()
    ahead = [(table, row)]
    while ahead:
        name, here = ahead.pop()
        for link in host.links[name]:
            value = here[link.column]
            if value is None:
                continue
            if link.to == ROOT:
                found.add(value)
            elif (link.to, value) not in seen:
                seen.add((link.to, value))
                ahead.append((link.to, host.rows[link.to][number_of(value)]))
    return found


def is_refused(connection: sa.Connection, statement: str, **parameters: Any) -> bool:
    nested = connection.begin_nested()
    try:
        run(connection, statement, **parameters)
    except ConversationPurged:
        return True
    finally:
        nested.rollback()
    return False


@settings(deadline=None, max_examples=15 * ROUNDS, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(host=hosts())
def test_exactly_the_writes_to_the_conversation_are_refused(database: Database, host: Host) -> None:
    with database.engine.connect() as connection, connection.begin() as transaction:
        host.create(connection)
        live = read_graph(connection, host.graph)
        fence.install(connection, live)
        assert fence.check(connection, live) == []
        run(connection, "INSERT INTO erasure_tombstone (graph, conversation, principal) VALUES ('talks', 't0', 'ann')")
        for table, rows in host.rows.items():
            for row in rows.values():
                belongs = conversations(host, table, row)
                update = f"UPDATE {table} SET locator = 'x' WHERE id = :id"
                assert is_refused(connection, update, id=row["id"]) == ("t0" in belongs), (table, row)
                copy = {**row, "id": "t9" if table == ROOT else 99}
                names = ", ".join(copy)
                insert = f"INSERT INTO {table} ({names}) VALUES ({', '.join(map(':{}'.format, copy))})"
                belongs = conversations(host, table, copy)
                assert is_refused(connection, insert, **copy) == ("t0" in belongs), (table, copy)
        transaction.rollback()


# -- keys -------------------------------------------------------------------------------------------------------------

KEYED = """
CREATE TABLE session (id {root} PRIMARY KEY, title text);
CREATE TABLE run (session_id {reference} REFERENCES session (id), place integer, state text,
                  PRIMARY KEY (session_id, place));
CREATE TABLE "the event" (id integer PRIMARY KEY, "of session" {reference}, place integer, "say ""it"" now" text,
                  FOREIGN KEY ("of session", place) REFERENCES run (session_id, place));
CREATE TABLE tool (id integer PRIMARY KEY, event_id integer)
"""
KEYED_GRAPH = Graph(
    "keyed",
    Root("session"),
    (Member("run"), Member("the event"), Member("tool", references=(Reference("event_id", "the event"),))),
)
KEYS = {
    "text": ("text", "text", "it's %1 :x", "b"),
    "integer": ("integer", "bigint", 1, 2),
    "uuid": ("uuid", "uuid", uuid.UUID(int=10**38), uuid.UUID(int=7)),
    "varchar": ("varchar(20)", "text", "a", "b"),
}


@pytest.mark.parametrize("kind", KEYS)
def test_keys_of_every_kind(database: Database, kind: str) -> None:
    root, reference, a, b = KEYS[kind]
    if database.dialect == "sqlite" and kind == "uuid":
        a, b = str(a), str(b)
    host = Fenced(database, tables=KEYED.format(root=root, reference=reference), graph=KEYED_GRAPH)
    for number, key in enumerate((a, b), 1):
        host.run("INSERT INTO session (id) VALUES (:k)", k=key)
        host.run("INSERT INTO run (session_id, place) VALUES (:k, 1)", k=key)
        host.run('INSERT INTO "the event" (id, "of session", place) VALUES (:n, :k, 1)', n=number, k=key)
        host.run("INSERT INTO tool (id, event_id) VALUES (:n, :n)", n=number)
    host.bury(str(a), graph="keyed")
    writes = [
        "INSERT INTO run (session_id, place) VALUES (:k, 2)",
        'INSERT INTO "the event" (id, "of session", place) VALUES (9, :k, 1)',
        "INSERT INTO tool (id, event_id) VALUES (9, :n)",
        "UPDATE session SET title = 'x' WHERE id = :k",
        "UPDATE run SET state = 'x' WHERE session_id = :k",
        """UPDATE "the event" SET "say ""it"" now" = 'x' WHERE id = :n""",
        "UPDATE tool SET event_id = event_id WHERE id = :n",
    ]
    for write in writes:
        for k, n in ((a, 1), (b, 2)):
            parameters = {"k": k} if ":k" in write else {"n": n}
            with database.engine.connect() as connection, connection.begin():
                assert is_refused(connection, write, **parameters) == (n == 1), write


def test_a_reference_to_another_column_of_the_root(database: Database) -> None:
    tables = """
    CREATE TABLE session (id text PRIMARY KEY, public text UNIQUE);
    CREATE TABLE note (id text PRIMARY KEY, public text REFERENCES session (public))
    """
    host = Fenced(database, tables=tables, graph=Graph("keyed", Root("session"), (Member("note"),)))
    host.run("INSERT INTO session (id, public) VALUES ('a', 'pa'), ('b', 'pb')")
    host.bury("a", graph="keyed")
    for write in ("INSERT INTO note VALUES ('n', 'pa')", "INSERT INTO note VALUES ('n', 'nobody')"):
        with pytest.raises(ConversationPurged):
            host.run(write)
    assert host.run("INSERT INTO note VALUES ('n', 'pb')") == 1


def test_sqlite_does_not_give_a_purged_number_again(sqlite_url: str) -> None:
    """The highest rowid + 1 is what SQLite chooses, and the highest was purged."""
    database = Database.open(sqlite_url)
    tables = "CREATE TABLE session (id integer PRIMARY KEY, title text)"
    host = Fenced(database, tables=tables, graph=Graph("numbered", Root("session")))
    host.run("INSERT INTO session (title) VALUES ('one'), ('two')")
    host.run("DELETE FROM session WHERE id = 2")
    host.bury("2", graph="numbered")
    with pytest.raises(ConversationPurged):
        host.run("INSERT INTO session (title) VALUES ('three')")
    assert host.run("INSERT INTO session (id, title) VALUES (3, 'three')") == 1
    assert host.run("INSERT INTO session (title) VALUES ('four')") == 1
    database.close()


def test_parents_that_come_later_where_postgresql_looks_at_the_end(postgres_url: str) -> None:
    """In a cycle of deferrable foreign keys there is no order in which every parent is there first."""
    database = Database.open(postgres_url)
    later = "DEFERRABLE INITIALLY DEFERRED"
    tables = f"""
    CREATE TABLE session (id text PRIMARY KEY);
    CREATE TABLE run (id text PRIMARY KEY, session_id text REFERENCES session (id), last text);
    CREATE TABLE event (id text PRIMARY KEY, run_id text REFERENCES run (id) {later});
    ALTER TABLE run ADD FOREIGN KEY (last) REFERENCES event (id) {later}
    """
    host = Fenced(database, tables=tables, graph=Graph("late", Root("session"), (Member("run"), Member("event"))))
    host.run("INSERT INTO session VALUES ('a'), ('b')")
    with database.engine.begin() as connection:
        run(connection, "INSERT INTO run VALUES ('rb', 'b', 'eb')")
        run(connection, "INSERT INTO event VALUES ('eb', 'rb')")
    host.bury("a", graph="late")
    with pytest.raises(ConversationPurged), database.engine.begin() as connection:
        run(connection, "INSERT INTO event VALUES ('ea', 'ra')")
        run(connection, "INSERT INTO run VALUES ('ra', 'a', 'ea')")
    with pytest.raises(sa.exc.IntegrityError), database.engine.begin() as connection:
        run(connection, "INSERT INTO event VALUES ('ea', 'nobody')")
    database.close()


def test_a_cascade_of_the_hosts_own_is_not_hindered(database: Database) -> None:
    """While it runs, a row with several references sees some of its parents gone already."""
    tables = """
    CREATE TABLE session (id text PRIMARY KEY);
    CREATE TABLE run (id text PRIMARY KEY, session_id text REFERENCES session (id) ON DELETE CASCADE);
    CREATE TABLE event (id text PRIMARY KEY, run_id text REFERENCES run (id) ON DELETE CASCADE);
    CREATE TABLE tool (id text PRIMARY KEY, event_id text REFERENCES event (id) ON DELETE CASCADE,
                       run_id text REFERENCES run (id) ON DELETE SET NULL,
                       session_id text REFERENCES session (id) ON DELETE SET NULL)
    """
    graph = Graph("cascade", Root("session"), (Member("run"), Member("event"), Member("tool")))
    host = Fenced(database, tables=tables, graph=graph)
    for table in ("session VALUES ('a')", "run VALUES ('r', 'a')", "event VALUES ('e', 'r')"):
        host.run(f"INSERT INTO {table}")
    host.run("INSERT INTO tool VALUES ('t', 'e', 'r', 'a'), ('u', NULL, 'r', 'a')")
    with database.engine.begin() as connection:
        run(connection, "DELETE FROM session WHERE id = 'a'")
    assert host.run("SELECT id FROM tool") == [("u",)]
