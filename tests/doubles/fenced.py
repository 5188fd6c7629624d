"""A small host behind its fence: every rule, references with and without a foreign key, a table that refers to itself
and two that refer to each other."""

from contextlib import suppress
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from expunge.models import fence
from expunge.models.database import Database
from expunge.models.errors import translate
from expunge.models.graph import Graph, Member, Reference, Root, Rule
from expunge.models.graph_live import LiveGraph, read_graph

TABLES = """
CREATE TABLE session (id text PRIMARY KEY, tenant text, title text);
CREATE TABLE run (id text PRIMARY KEY, session_id text NOT NULL REFERENCES session (id), state text);
CREATE TABLE event (
    id text PRIMARY KEY, session_id text REFERENCES session (id), run_id text, parent_id text REFERENCES event (id),
    body text
);
CREATE TABLE memory (id text PRIMARY KEY, source_session_id text, formed_session_id text, body text);
CREATE TABLE step (id text PRIMARY KEY, run_id text REFERENCES run (id), outcome_id text);
CREATE TABLE outcome (id text PRIMARY KEY, step_id text REFERENCES step (id), body text);
CREATE TABLE skill (id text PRIMARY KEY, run_id text REFERENCES run (id), body text);
CREATE TABLE invoice (id text PRIMARY KEY, session_id text, body text);
"""
GRAPH = Graph(
    "chats",
    Root("session", tenant="tenant"),
    (
        Member("run"),
        Member("event", references=(Reference("run_id", "run"),)),
        Member(
            "memory", references=(Reference("source_session_id", "session"), Reference("formed_session_id", "session"))
        ),
        Member("step", references=(Reference("outcome_id", "outcome"),)),
        Member("outcome"),
        Member("skill", Rule.DETACH),
        Member("invoice", Rule.KEEP, why="bookkeeping", references=(Reference("session_id", "session"),)),
    ),
)
INSTANCES = ("a", "b")
"""Conversations; `fill` gives each of them a row of every table, with the conversation's name behind it."""


def create(connection: Connection, tables: str = TABLES) -> None:
    for statement in filter(str.strip, tables.split(";")):
        connection.exec_driver_sql(statement)


def fill(connection: Connection, name: str) -> None:
    run(connection, "INSERT INTO session (id, tenant) VALUES (:n, 'acme')", n=name)
    run(connection, "INSERT INTO run (id, session_id) VALUES ('r' || :n, :n)", n=name)
    run(connection, "INSERT INTO event (id, session_id) VALUES ('e' || :n, :n)", n=name)
    run(connection, "INSERT INTO event (id, run_id) VALUES ('er' || :n, 'r' || :n)", n=name)
    run(connection, "INSERT INTO event (id, parent_id) VALUES ('ee' || :n, 'er' || :n)", n=name)
    run(connection, "INSERT INTO event (id, parent_id) VALUES ('eee' || :n, 'ee' || :n)", n=name)
    run(connection, "INSERT INTO memory (id, source_session_id) VALUES ('m' || :n, :n)", n=name)
    run(connection, "INSERT INTO step (id, run_id) VALUES ('s' || :n, 'r' || :n)", n=name)
    run(connection, "INSERT INTO outcome (id, step_id) VALUES ('o' || :n, 's' || :n)", n=name)
    run(connection, "INSERT INTO step (id, outcome_id) VALUES ('so' || :n, 'o' || :n)", n=name)
    run(connection, "INSERT INTO outcome (id, step_id) VALUES ('oo' || :n, 'so' || :n)", n=name)
    run(connection, "UPDATE step SET outcome_id = 'oo' || :n WHERE id = 's' || :n", n=name)
    run(connection, "INSERT INTO skill (id, run_id) VALUES ('k' || :n, 'r' || :n)", n=name)
    run(connection, "INSERT INTO invoice (id, session_id) VALUES ('i' || :n, :n)", n=name)


def run(connection: Connection, statement: str, **parameters: Any) -> Any:
    """Plain SQL, with the errors of ours behind those of the database."""
    try:
        return connection.execute(sa.text(statement), parameters)
    except sa.exc.DBAPIError as error:
        known = translate(error)
        if known is None:
            raise
        raise known from error


def bury(connection: Connection, conversation: str, graph: str = "chats") -> None:
    """A tombstone, whatever rows there are: as after a restore."""
    run(
        connection,
        "INSERT INTO erasure_tombstone (graph, conversation, tenant, principal) VALUES (:g, :c, 'acme', 'ann')",
        g=graph,
        c=conversation,
    )


class Fenced:
    """The host in one database."""

    def __init__(self, database: Database, *, tables: str = TABLES, graph: Graph = GRAPH) -> None:
        self.database = database
        self.graph = graph
        with database.engine.begin() as connection:
            create(connection, tables)
        with database.engine.begin() as connection:
            fence.install(connection, self.live(connection))

    def live(self, connection: Connection) -> LiveGraph:
        return read_graph(connection, self.graph)

    def run(self, statement: str, **parameters: Any) -> Any:
        """One statement in a transaction of its own; gives its rows, or how many it changed."""
        with self.database.engine.begin() as connection:
            result = run(connection, statement, **parameters)
            return [tuple(row) for row in result] if result.returns_rows else result.rowcount

    def fill(self, *names: str) -> None:
        with self.database.engine.begin() as connection:
            for name in names:
                fill(connection, name)

    def bury(self, *names: str, graph: str = "chats") -> None:
        with self.database.engine.begin() as connection:
            for name in names:
                bury(connection, name, graph)

    def everything(self) -> dict[str, set[tuple[Any, ...]]]:
        return {name: set(self.run(f"SELECT * FROM {name}")) for name in self.tables()}

    def tables(self) -> list[str]:
        return [self.graph.root.table, *(member.table for member in self.graph.members)]

    def reinstall(self, *, lock: bool) -> None:
        """The fence without the writers' lock, or with it again."""
        with self.database.engine.begin() as connection:
            for statement in fence.fence_sql(self.live(connection), "postgresql", lock=lock):
                connection.exec_driver_sql(statement.replace("%", "%%"))

    def bucket(self, conversation: str) -> int:
        (row,) = self.run("SELECT erasure_fence_bucket_of(:g, :c)", g=self.graph.name, c=conversation)
        return int(row[0])

    def apart(self, *from_: str) -> str:
        """The name of a conversation in a bucket of its own."""
        taken = {self.bucket(name) for name in from_}
        return next(name for name in map("x{}".format, range(100)) if self.bucket(name) not in taken)


def close_quietly(connection: Connection) -> None:
    with suppress(sa.exc.DBAPIError):
        connection.rollback()
    connection.close()
