"""`expunge graph`, as a host's CI runs it."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from expunge.models.database import Database
from expunge.worker.cli import main

TABLES = """
CREATE TABLE session (id text PRIMARY KEY, tenant_id text, parent_id text REFERENCES session (id));
CREATE TABLE run (id text PRIMARY KEY, session_id text NOT NULL REFERENCES session (id) ON DELETE CASCADE, state text);
CREATE TABLE artifact (id text PRIMARY KEY, run_id text REFERENCES run (id), made_in text, locator text);
CREATE TABLE skill (id text PRIMARY KEY, run_id text REFERENCES run (id));
CREATE TABLE invoice (id text PRIMARY KEY, session_id text)
"""
GRAPH = """
[graphs.sessions.root]
table = "session"
tenant = "tenant_id"
active_run = { table = "run", states = ["queued", "running"] }

[[graphs.sessions.members]]
table = "run"

[[graphs.sessions.members]]
table = "artifact"
references = [{ column = "made_in", to = "session" }]
targets = [{ account = "=artifacts", kind = "=object", locator = "locator" }]

[[graphs.sessions.members]]
table = "skill"
rule = "detach"

[[graphs.sessions.members]]
table = "invoice"
rule = "keep"
why = "ten years of bookkeeping"
references = [{ column = "session_id", to = "session" }]
"""
TREE = """\
session  root
key id, tenant tenant_id
active while run.state is queued, running
parent_id → session.id (foreign key)
├── run  delete
│   session_id → session.id (foreign key on delete cascade)
│   └── skill  detach
│       run_id → run.id (foreign key)
├── artifact  delete
│   run_id → run.id (foreign key)
│   made_in → session.id (declared)
│   erases =object locator at =artifacts
└── invoice  keep
    because ten years of bookkeeping
    session_id → session.id (declared)
"""


@pytest.fixture
def host(tmp_path: Path, database_url: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs statements in the host's database."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "expunge.toml").write_text(f'database_url = "{database_url}"\n{GRAPH}')

    def host(statements: str) -> None:
        database = Database.open(database_url)
        with database.begin() as tx:
            for statement in statements.split(";"):
                tx.connection.exec_driver_sql(statement)
        database.close()

    host(TABLES)
    return host


def run(*arguments: str, code: int = 0) -> Any:
    result = CliRunner().invoke(main, ["graph", *arguments])
    assert result.exit_code == code, result.output
    return result


def test_the_tree(host: Any) -> None:
    lines = [line.rstrip() for line in run().stdout.splitlines()]
    assert lines == [*TREE.splitlines(), "Graph sessions: 5 tables, all is well."]


def test_a_migration_that_forgot_the_graph_is_told(host: Any) -> None:
    run("sessions")
    host("CREATE TABLE run_log (id text PRIMARY KEY, run_id text REFERENCES run (id) ON DELETE CASCADE)")
    result = run("sessions", code=1)
    assert "WRONG run_log: its foreign key (run_id) leads to run, and nobody declared it" in result.stdout
    assert "Graph sessions: 5 tables, 1 problem." in result.stdout
    host("DROP TABLE run_log; CREATE TABLE note (id text PRIMARY KEY, in_session_id text)")
    assert "WRONG note.in_session_id: looks like a reference to session" in run(code=1).stdout


def test_json(host: Any) -> None:
    host("CREATE TABLE note (id text PRIMARY KEY, session_id text)")
    rows = [json.loads(line) for line in run("--json", code=1).stdout.splitlines()]
    assert [(row["what"], row.get("table")) for row in rows] == [
        ("root", "session"),
        ("member", "run"),
        ("member", "artifact"),
        ("member", "skill"),
        ("member", "invoice"),
        ("problem", None),
    ]
    assert {row["graph"] for row in rows} == {"sessions"}
    assert [row["rule"] for row in rows[1:5]] == ["delete", "delete", "detach", "keep"]
    assert rows[4]["why"] == "ten years of bookkeeping"
    assert rows[2]["references"] == [
        {"columns": ["run_id"], "to": "run", "to_columns": ["id"], "foreign_key": True, "on_delete": None},
        {"columns": ["made_in"], "to": "session", "to_columns": ["id"], "foreign_key": False, "on_delete": None},
    ]
    assert rows[2]["targets"] == [{"account": "=artifacts", "kind": "=object", "locator": "locator"}]
    assert rows[5]["text"].startswith("note.session_id: looks like")


def test_each_graph_of_the_settings_is_looked_at(host: Any, tmp_path: Path) -> None:
    with (tmp_path / "expunge.toml").open("a") as file:
        file.write('[graphs.others.root]\ntable = "thread"\n')
    result = run(code=1)
    assert "Graph sessions: 5 tables, all is well." in result.stdout
    assert "WRONG thread: the database has no such table" in result.stdout
    run("sessions")
    assert "graphs.other: is missing in the settings; known are sessions, others" in run("other", code=1).stderr


def test_nothing_to_look_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert "the settings have no graph: add [graphs.NAME]" in run(code=1).stderr
    (tmp_path / "expunge.toml").write_text(f'database_url = "sqlite:///not_there.db"\n{GRAPH}')
    assert "not_there.db does not exist: correct database_url" in run("--json", code=1).stderr
    assert not (tmp_path / "not_there.db").exists()


README_TABLES = """
CREATE TABLE session (id text PRIMARY KEY, tenant_id text);
CREATE TABLE run (id text PRIMARY KEY, session_id text NOT NULL REFERENCES session (id), state text);
CREATE TABLE memory (id text PRIMARY KEY, source_session_id text);
CREATE TABLE artifact (id text PRIMARY KEY, run_id text REFERENCES run (id), bucket_key text);
CREATE TABLE skill_revision (id text PRIMARY KEY, authoring_run_id text REFERENCES run (id));
CREATE TABLE invoice (id text PRIMARY KEY, session_id text);
CREATE TABLE web_login (id text PRIMARY KEY, session_id text)
"""


def test_the_graph_of_the_readme(tmp_path: Path, sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    settings = next(block for block in readme.split("```toml\n") if block.startswith("[graphs")).partition("```")[0]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "expunge.toml").write_text(f'database_url = "{sqlite_url}"\n{settings}')
    database = Database.open(sqlite_url)
    with database.begin() as tx:
        for statement in README_TABLES.split(";"):
            tx.connection.exec_driver_sql(statement)
    database.close()
    assert "Graph sessions: 6 tables, all is well." in run().stdout
