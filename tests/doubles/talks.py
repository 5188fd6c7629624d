"""A small host: talks with works (which have parents, and are active or not), words that name files, and skills that
stay."""

from expunge.models import fence
from expunge.models.database import Database
from expunge.models.graph import ActiveRun, Graph, Member, Root, Rule, TargetColumns
from expunge.models.graph_live import read_graph
from expunge.models.purged import Principal

ADA = Principal("ada", "acme")
TALKS = Graph(
    "talks",
    Root("talk", tenant="tenant", owner="owner", version="version", active_run=ActiveRun("work", ("running",))),
    (Member("work"), Member("word", targets=(TargetColumns("=ai", "=file", "file"),)), Member("skill", Rule.DETACH)),
)
TABLES = (
    "CREATE TABLE talk (id text PRIMARY KEY, tenant text, owner text, version integer, last_work text)",
    "CREATE TABLE work (id text PRIMARY KEY, talk_id text REFERENCES talk, parent text REFERENCES work, state text)",
    "CREATE TABLE word (id text PRIMARY KEY, work_id text REFERENCES work, file text)",
    "CREATE TABLE skill (id text PRIMARY KEY, work_id text REFERENCES work)",
    "INSERT INTO talk VALUES ('t1', 'acme', 'ada', 7, 'w2'), ('t2', 'acme', 'ada', 1, NULL)",
    "INSERT INTO work VALUES ('w1', 't1', NULL, 'done'), ('w2', NULL, 'w1', 'done'), ('x1', 't2', NULL, 'running')",
    "INSERT INTO word VALUES ('a', 'w1', 'file-1'), ('b', 'w2', NULL), ('c', 'x1', 'file-3')",
    "INSERT INTO skill VALUES ('s', 'w2'), ('u', 'x1')",
)


def create(database: Database) -> None:
    """Its tables, two conversations, and the fence."""
    with database.engine.begin() as connection:
        for statement in TABLES:
            connection.exec_driver_sql(statement)
    with database.engine.begin() as connection:
        fence.install(connection, read_graph(connection, TALKS))
