"""`expunge fence`, as somebody runs it who installs it or has restored a backup."""

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from doubles.fenced import TABLES

from expunge.models.database import Database
from expunge.worker.cli import main

SETTINGS = """
database_url = "{url}"

[graphs.chats.root]
table = "session"
tenant = "tenant"

[[graphs.chats.members]]
table = "run"

[[graphs.chats.members]]
table = "event"
references = [{{ column = "run_id", to = "run" }}]

[[graphs.chats.members]]
table = "memory"
references = [{{ column = "source_session_id", to = "session" }}, {{ column = "formed_session_id", to = "session" }}]

[[graphs.chats.members]]
table = "step"
references = [{{ column = "outcome_id", to = "outcome" }}]

[[graphs.chats.members]]
table = "outcome"

[[graphs.chats.members]]
table = "skill"
rule = "detach"

[[graphs.chats.members]]
table = "invoice"
rule = "keep"
why = "bookkeeping"
references = [{{ column = "session_id", to = "session" }}]
"""


@pytest.fixture
def settings(database: Database, database_url: str, tmp_path: Path) -> Path:
    with database.begin() as tx:
        for statement in filter(str.strip, TABLES.split(";")):
            tx.connection.exec_driver_sql(statement)
    path = tmp_path / "expunge.toml"
    path.write_text(SETTINGS.format(url=database_url))
    return path


def expunge(settings: Path, *arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(main, ["--config", str(settings), "fence", *arguments])
    assert result.exit_code == code, (result.output, result.exception)
    return result.output


def objects(settings: Path, *arguments: str, code: int = 0) -> list[dict[str, Any]]:
    return [json.loads(line) for line in expunge(settings, *arguments, "--json", code=code).splitlines()]


def test_install_and_check(settings: Path, database: Database) -> None:
    assert "has no fence: run expunge fence install" in expunge(settings, "check", code=1)
    assert expunge(settings, "install") == "The fence around graph chats is built: 8 tables.\n"
    assert expunge(settings, "install", "chats") == "The fence around graph chats stands already: 8 tables.\n"
    assert objects(settings, "install") == [{"graph": "chats", "tables": 8, "installed": False}]
    assert expunge(settings, "check") == "Fence around graph chats: it stands.\n"
    assert objects(settings, "check", "chats") == []
    expunge(settings, "check", "nobodys", code=1)
    with database.begin() as tx:
        tx.connection.exec_driver_sql("DROP TABLE outcome" + (" CASCADE" if database.dialect == "postgresql" else ""))
    expunge(settings, "check", code=1)
    with database.begin() as tx:
        tx.connection.exec_driver_sql("CREATE TABLE outcome (id text PRIMARY KEY, step_id text REFERENCES step (id))")
    assert objects(settings, "check", code=1)[0]["what"] == "problem"
    expunge(settings, "install")
    expunge(settings, "check")


def test_check_names_what_a_restore_brought_back(settings: Path, database: Database) -> None:
    expunge(settings, "install")
    with database.begin() as tx:
        tx.run("INSERT INTO session (id, tenant) VALUES ('c-7', 'acme'), ('c-8', 'acme')")
        tx.run("INSERT INTO memory (id, source_session_id) VALUES ('m1', 'c-7'), ('m2', 'c-7'), ('m3', 'c-8')")
        tx.run("INSERT INTO invoice (id, session_id) VALUES ('i', 'c-7')")
        tx.run("INSERT INTO erasure_tombstone (graph, conversation, principal) VALUES ('chats', 'c-7', 'ann')")
        tx.run("INSERT INTO erasure_tombstone (graph, conversation, principal) VALUES ('others', 'c-8', 'ann')")
    said = expunge(settings, "check", code=1)
    assert "purged conversation c-7 has rows (memory 2, session 1): run expunge purge --again" in said.replace(
        "\n", " "
    )
    (row,) = objects(settings, "check", code=1)
    assert row == {"graph": "chats", "what": "restored", "conversation": "c-7", "rows": {"session": 1, "memory": 2}}
    result = CliRunner().invoke(main, ["--config", str(settings), "purge", "--again", "--all", "--yes"])
    assert result.exit_code == 0, result.output
    expunge(settings, "check")


def test_sql_is_what_a_migration_needs(settings: Path, database: Database) -> None:
    """Run by the database's own client code, twice, it is the fence that `check` knows."""
    printed = expunge(settings, "sql")
    for _ in range(2):
        if database.dialect == "sqlite":
            path = str(database.engine.url.database)
            with sqlite3.connect(path) as connection:
                connection.executescript(f"BEGIN; {printed} COMMIT;")
            connection.close()
        else:
            with database.begin() as tx:
                tx.connection.connection.cursor().execute(printed)
        assert expunge(settings, "check", "chats") == "Fence around graph chats: it stands.\n"
    assert all(f"{row['statement']};\n" in printed for row in objects(settings, "sql", "chats"))
    other = "sqlite" if database.dialect == "postgresql" else "postgresql"
    assert ("plpgsql" in expunge(settings, "sql", "--dialect", other)) == (other == "postgresql")
