"""A backup from before brings purged conversations back: they are named, and removed again."""

import json
from pathlib import Path

import pytest
import sqlalchemy as sa
from click.testing import CliRunner
from doubles import talks
from doubles.talks import ADA, TALKS

from expunge.models.database import Database
from expunge.models.errors import ConversationNotFound, ConversationPurged, Held, translate
from expunge.models.fence_names import trigger_name
from expunge.models.graph import Graph
from expunge.models.holds import place_hold
from expunge.models.purge import purge
from expunge.models.purge_again import came_back, purge_again
from expunge.models.purged import PurgeStatus
from expunge.worker.cli import main

_TABLES = ("talk", "work", "word", "skill")


@pytest.fixture
def host(database) -> Database:
    """t1 was purged, and its case is complete."""
    talks.create(database)
    return database


def _rows(database: Database, table: str) -> list[tuple[object, ...]]:
    with database.read() as tx:
        return [tuple(row) for row in tx.connection.exec_driver_sql(f"SELECT * FROM {table}")]


def _sql(database: Database, statement: str) -> None:
    with database.engine.begin() as connection:
        connection.execute(sa.text(statement))


def _restore(database: Database, backup: dict[str, list[tuple[object, ...]]]) -> None:
    """As a restore does: the tables' rows are replaced with no trigger firing."""
    with database.engine.begin() as connection:
        fences = _lower_fence(connection, TALKS)
        if connection.dialect.name == "sqlite":
            connection.exec_driver_sql("PRAGMA defer_foreign_keys = ON")
        for table in reversed(_TABLES):
            connection.exec_driver_sql(f"DELETE FROM {table}")
        for table in _TABLES:
            for row in backup[table]:
                connection.exec_driver_sql(f"INSERT INTO {table} VALUES {_literal(row)}")
        for statement in fences:
            connection.exec_driver_sql(statement)


def _literal(row: tuple[object, ...]) -> str:
    return f"({', '.join('NULL' if value is None else repr(value) for value in row)})"


def _lower_fence(connection: sa.Connection, graph: Graph) -> list[str]:
    """Gives the statements that raise it again, as it was."""
    raise_again = []
    for table in _TABLES:
        for when in ("insert", "update") if connection.dialect.name == "sqlite" else ("",):
            name = trigger_name(graph.name, table, when)
            if connection.dialect.name == "sqlite":
                (statement,) = connection.exec_driver_sql(
                    "SELECT sql FROM sqlite_master WHERE name = ?", (name,)
                ).scalars()
                raise_again.append(statement)
                connection.exec_driver_sql(f'DROP TRIGGER "{name}"')
            else:
                connection.exec_driver_sql(f'ALTER TABLE {table} DISABLE TRIGGER "{name}"')
                raise_again.append(f'ALTER TABLE {table} ENABLE ALWAYS TRIGGER "{name}"')
    return raise_again


def _purge(database: Database, conversation: str = "t1") -> None:
    with database.engine.begin() as connection:
        assert purge(connection, TALKS, conversation, principal=ADA).status == PurgeStatus.PURGED


def _again(database: Database, conversation: str = "t1"):
    with database.engine.begin() as connection:
        return purge_again(connection, TALKS, conversation)


def _came_back(database: Database) -> list[str]:
    with database.read() as tx:
        return list(came_back(tx.connection, TALKS))


@pytest.fixture
def restored(host) -> Database:
    """t1 was purged and its outbox is empty; then the host's tables were put back as they had been before."""
    backup = {table: _rows(host, table) for table in _TABLES}
    _purge(host)
    _sql(host, "DELETE FROM erasure_outbox")
    _sql(host, "UPDATE erasure_case SET completed_at = opened_at")
    assert _came_back(host) == []
    _restore(host, backup)
    return host


def test_what_came_back_is_named_and_removed_and_its_case_is_open_again(restored):
    stones = _rows(restored, "erasure_tombstone")
    assert _came_back(restored) == ["t1"]
    purged = _again(restored)
    assert purged.status == PurgeStatus.PURGED
    assert purged.deleted == {"talk": 1, "work": 2, "word": 2}
    assert purged.detached == {"skill": 1}
    assert _rows(restored, "talk") == [("t2", "acme", "ada", 1, None)]
    assert [row[0] for row in _rows(restored, "word")] == ["c"]
    assert sorted(_rows(restored, "skill"), key=str) == [("s", None), ("u", "x1")]
    assert _rows(restored, "erasure_tombstone") == stones
    with restored.read() as tx:
        found = tx.connection.exec_driver_sql(
            "SELECT completed_at, locator FROM erasure_case c, erasure_outbox o"
        ).all()
    assert [tuple(row) for row in found] == [(None, "file-1")]
    assert _came_back(restored) == []
    assert _again(restored).status == PurgeStatus.ALREADY_PURGED


def test_the_fence_kept_what_came_back_from_being_written(restored):
    with pytest.raises(sa.exc.DBAPIError) as caught:
        _sql(restored, "UPDATE word SET file = 'file-2' WHERE id = 'a'")
    assert isinstance(translate(caught.value), ConversationPurged)


def test_rows_that_came_back_without_the_conversations_own(restored):
    """A backup of some tables only: foreign keys were off."""
    _sql(restored, "UPDATE talk SET last_work = NULL WHERE id = 't2'")
    with restored.engine.begin() as connection:
        if connection.dialect.name == "sqlite":
            connection.exec_driver_sql("COMMIT")
            connection.exec_driver_sql("PRAGMA foreign_keys = OFF")
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        else:
            connection.exec_driver_sql("ALTER TABLE work DROP CONSTRAINT work_talk_id_fkey")
        connection.exec_driver_sql("DELETE FROM talk WHERE id = 't1'")
        if connection.dialect.name == "sqlite":
            connection.exec_driver_sql("COMMIT")
            connection.exec_driver_sql("PRAGMA foreign_keys = ON")
            connection.exec_driver_sql("BEGIN IMMEDIATE")
    if restored.dialect == "postgresql":
        # the graph is another one without its foreign key
        return
    assert _came_back(restored) == ["t1"]
    assert _again(restored).deleted == {"work": 2, "word": 2}
    assert _came_back(restored) == []


def test_what_was_never_purged_is_left_alone(host):
    with pytest.raises(ConversationNotFound, match="never purged"):
        _again(host, "t1")
    assert len(_rows(host, "talk")) == 2


def test_a_hold_keeps_what_came_back(restored):
    with restored.begin() as tx:
        place_hold(tx, subject=None, conversation="t1", by="lawyer", why="a matter")
    with pytest.raises(Held):
        _again(restored)
    assert _came_back(restored) == ["t1"]


# -- the command


@pytest.fixture
def run(host, tmp_path, database_url):
    config = tmp_path / "expunge.toml"
    config.write_text(f'database_url = "{database_url}"\n[graphs.talks]\nimport = "doubles.talks:TALKS"\n')

    def run(*arguments: str, code: int = 0):
        result = CliRunner().invoke(main, ["purge", *arguments, "--config", str(Path(config))])
        assert result.exit_code == code, (result.output, result.exception)
        return result

    return run


WHO = ("--principal", "ada", "--tenant", "acme")


def test_the_command_purges_and_says_what(run, host):
    (row,) = [json.loads(line) for line in run("t1", *WHO, "--yes", "--json").stdout.splitlines()]
    assert row == {
        "conversation": "t1",
        "status": "purged",
        "case_id": "purge-talks-t1",
        "deleted": {"talk": 1, "work": 2, "word": 2},
        "detached": {"skill": 1},
    }
    assert [row[0] for row in _rows(host, "talk")] == ["t2"]
    assert run("t1", *WHO, "--yes", "--expected-version", "7").stdout == "t1: already purged; case purge-talks-t1.\n"


def test_the_command_counts_for_people(run):
    assert run("t1", *WHO, "--yes", "--expected-version", "7").stdout == (
        "t1: purged, 5 rows removed (talk 1, word 2, work 2); 1 row detached (skill 1); case purge-talks-t1.\n"
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("t2", *WHO), "run x1"),
        (("t1", *WHO, "--expected-version", "8"), "version"),
        (("t1", "--principal", "bob", "--tenant", "acme"), "no such conversation"),
        (("--again", "t1"), "never purged"),
    ],
)
def test_a_refusal_is_one_line_and_changes_nothing(run, host, arguments, said):
    result = run(*arguments, "--yes", code=1)
    assert said in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert len(_rows(host, "talk")) == 2


def test_an_open_fence_is_said(run, host):
    _sql(host, "DELETE FROM erasure_fence")
    assert "fence" in run("t1", *WHO, "--yes", code=1).stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("t1", *WHO),  # no terminal to ask at
        ("--again", "--all"),
        ("t1", "--yes"),
        (*WHO, "--yes"),
        ("t1", "t2", *WHO, "--yes"),
        ("t1", *WHO, "--all", "--yes"),
        ("--again", "--yes"),
        ("--again", "--all", "t1", "--yes"),
        ("--again", "t1", *WHO, "--yes"),
    ],
)
def test_wrong_usage(run, restored, arguments):
    run(*arguments, code=2)
    assert _came_back(restored) == ["t1"]
    assert len(_rows(restored, "talk")) == 2


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("n\n", 1), ("\n", 1)])
def test_on_a_terminal_it_asks(run, host, monkeypatch, answer, code):
    monkeypatch.setattr("expunge.worker.commands.purge._has_terminal", lambda: True)
    monkeypatch.setattr("click.confirm", lambda question, **_: answer == "y\n")
    run("t1", *WHO, code=code)
    assert len(_rows(host, "talk")) == (2 if code else 1)


def test_the_command_purges_again(run, restored):
    assert run("--again", "--all", "--yes").stdout.startswith("t1: purged, 5 rows removed")
    assert run("--again", "--all", "--yes").stdout == "No purged conversation has rows.\n"
    assert run("--again", "t1", "--yes", "--json").stdout.count('"already_purged"') == 1
