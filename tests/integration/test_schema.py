"""The migrations: up, down, and nothing that the ORM classes do not say."""

import re

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from expunge.models import schema
from expunge.models.basis import BASES
from expunge.models.database import Database
from expunge.models.errors import SchemaError
from expunge.models.states import Action, CaseState, Decision, EntryAction, EntryState, PausedBy, ReceiptStatus, Scope
from expunge.models.tables import Base


@pytest.fixture(params=["sqlite", "postgresql"])
def empty(request, tmp_path):
    url = f"sqlite:///{tmp_path}/e.db" if request.param == "sqlite" else request.getfixturevalue("empty_postgres_url")
    database = Database.open(url)
    yield database
    database.close()


def test_up_down_up_beside_the_hosts_own_tables(empty):
    with empty.begin() as tx:
        tx.run("CREATE TABLE message (id INTEGER PRIMARY KEY, body TEXT)")
        tx.run("INSERT INTO message VALUES (1, 'kept')")
    with pytest.raises(SchemaError, match="run expunge migrate"):
        schema.require(empty)
    schema.migrate(empty)
    schema.migrate(empty)
    schema.require(empty)
    schema.downgrade(empty, "base")
    tables = sa.inspect(empty.engine).get_table_names()
    assert set(tables) <= {"message", "erasure_schema_version", "sqlite_sequence"}
    schema.migrate(empty)
    schema.require(empty)
    with empty.read() as tx:
        assert tx.first("SELECT body FROM message").body == "kept"


def test_rows_triggers_and_ids_outlive_an_upgrade_and_the_way_back(empty):
    schema.migrate(empty, "0002")
    with empty.begin() as tx:
        tx.run("INSERT INTO erasure_case (id, subject) VALUES ('c', 's')")
        for locator in ("b/1", "b/2"):
            tx.run(
                "INSERT INTO erasure_outbox (case_id, account, kind, locator) VALUES ('c', 'a', 'object', :locator)",
                locator=locator,
            )
        tx.run("DELETE FROM erasure_outbox WHERE locator = 'b/2'")
        tx.run("INSERT INTO erasure_decision (decision, actor) VALUES ('retry', 'me')")
    schema.migrate(empty)
    schema.downgrade(empty, "0002")
    schema.migrate(empty)
    with empty.begin() as tx:
        assert [row.action for row in tx.rows("SELECT action FROM erasure_outbox")] == ["delete"]
        tx.run("INSERT INTO erasure_outbox (case_id, account, kind, locator) VALUES ('c', 'a', 'object', 'b/3')")
        assert [row.id for row in tx.rows("SELECT id FROM erasure_outbox ORDER BY id")] == [1, 3]
        tx.run("INSERT INTO erasure_decision (decision, actor) VALUES ('replay', 'me')")
    for statement in (
        "UPDATE erasure_decision SET actor = 'you'",
        "UPDATE erasure_outbox SET action = 'nonsense'",
        "UPDATE erasure_outbox SET settled = true",
        "INSERT INTO erasure_decision (decision, actor) VALUES ('nonsense', 'me')",
    ):
        with pytest.raises(sa.exc.DBAPIError), empty.begin() as tx:
            tx.run(statement)
    with pytest.raises(RuntimeError, match="erasure_decision has rows"):
        schema.downgrade(empty, "0002")
    assert schema.current(empty) == schema.HEAD


def test_downgrade_refuses_to_drop_evidence(database):
    with database.begin() as tx:
        tx.run("INSERT INTO erasure_decision (decision, actor) VALUES ('retry', 'me')")
    with pytest.raises(RuntimeError, match="evidence"):
        schema.downgrade(database, "base")


# SQLAlchemy cannot read an index of expressions back from SQLite; PostgreSQL compares it
@pytest.mark.filterwarnings("ignore:.*expression-based index")
def test_autogenerate_finds_no_difference(database):
    from expunge.models.schema import VERSION_TABLE

    with database.engine.connect() as connection:
        context = MigrationContext.configure(
            connection,
            opts={
                "version_table": VERSION_TABLE,
                "compare_type": True,
                "include_name": lambda name, type_, parent: type_ != "table" or name.startswith("erasure_"),
            },
        )
        assert compare_metadata(context, Base.metadata) == []


@pytest.mark.parametrize(
    ("table", "column", "words"),
    [
        ("erasure_outbox", "state", EntryState),
        ("erasure_outbox", "action", EntryAction),
        ("erasure_record", "status", ReceiptStatus),
        ("erasure_record", "action", Action),
        ("erasure_case", "scope", Scope),
        ("erasure_case", "basis", BASES),
        ("erasure_lane", "paused_by", PausedBy),
        ("erasure_decision", "decision", Decision),
    ],
)
def test_checks_use_the_words_of_the_code(database, table, column, words):
    checks = {c["name"]: c["sqltext"] for c in sa.inspect(database.engine).get_check_constraints(table)}
    text = checks[f"ck_{table}_{column}"]
    assert set(re.findall(r"'(\w+)'", text)) == set(words)
    assert CaseState.COMPLETE  # derived: it has no column


@pytest.mark.parametrize(
    ("url", "missing"),
    [
        ("sqlite://", None),
        ("sqlite:///:memory:", None),
        ("sqlite:///file:x?mode=memory&cache=shared&uri=true", None),
        ("sqlite:///{here}/there.db", None),
        ("sqlite:///file:{here}/there.db?mode=ro&uri=true", None),
        ("sqlite:///{here}/typo.db", "{here}/typo.db"),
        ("sqlite:///{here}/no/folder/typo.db", "{here}/no/folder/typo.db"),
        ("sqlite:///file:{here}/typo.db?uri=true", "{here}/typo.db"),
        ("postgresql+psycopg://h/d", None),
    ],
)
def test_a_file_that_connecting_would_create_is_known(tmp_path, url, missing):
    (tmp_path / "there.db").touch()
    database = Database.open(url.format(here=tmp_path))
    assert database.missing_file == (missing and missing.format(here=tmp_path))
    if missing is not None:
        with pytest.raises(SchemaError, match=r"typo\.db does not exist: correct database_url, or run expunge migrate"):
            schema.require(database)
        assert [path.name for path in tmp_path.iterdir()] == ["there.db"]
    database.close()
