"""The reference host's tables: made on request only, ours only, and good for plain SQL."""

import pytest
import sqlalchemy as sa
from host import Host

from expunge.models.database import Database
from expunge.models.errors import SchemaError
from expunge.models.graph_live import find_problems
from expunge.models.session_schema import create_sessions, have_sessions, require_sessions
from expunge.models.sessions import SESSIONS, metadata


def _tables(database: Database) -> set[str]:
    with database.engine.connect() as connection:
        return set(sa.inspect(connection).get_table_names())


def test_they_are_created_once_and_on_request_only(database: Database) -> None:
    assert not have_sessions(database)
    with pytest.raises(SchemaError, match="--with-sessions"):
        require_sessions(database)
    assert not _tables(database) & set(metadata.tables)
    assert set(create_sessions(database)) == set(metadata.tables)
    before = _tables(database)
    assert create_sessions(database) == []
    assert _tables(database) == before
    require_sessions(database)


def test_the_graph_fits_them(database: Database) -> None:
    create_sessions(database)
    with database.engine.begin() as connection:
        assert find_problems(connection, SESSIONS) == []


def test_every_column_is_as_declared(database: Database) -> None:
    create_sessions(database)
    with database.engine.connect() as connection:
        inspector = sa.inspect(connection)
        for table in metadata.tables.values():
            found = {column["name"]: column["nullable"] for column in inspector.get_columns(table.name)}
            assert found == {column.name: column.nullable for column in table.columns}
            keys = {tuple(key["constrained_columns"]) for key in inspector.get_foreign_keys(table.name)}
            assert keys == {tuple(constraint.column_keys) for constraint in table.foreign_key_constraints}


def test_another_hosts_table_of_the_same_name_is_left_alone(database: Database) -> None:
    with database.engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE event (id integer PRIMARY KEY, what text)")
        connection.exec_driver_sql("INSERT INTO event VALUES (1, 'theirs')")
    with pytest.raises(SchemaError, match="a table event already"):
        create_sessions(database)
    assert _tables(database) & set(metadata.tables) == {"event"}
    with database.engine.connect() as connection:
        assert connection.exec_driver_sql("SELECT what FROM event").scalar_one() == "theirs"


def test_plain_sql_needs_no_more_than_what_it_has_to_say(database: Database) -> None:
    host = Host(database)
    host.session("s1")
    host.sql("INSERT INTO run (id, session_id, state) VALUES ('r1', 's1', 'running')")
    rows = {
        "event (id, session_id, run_id, type, payload)": "'e1', 's1', 'r1', 'note', 'any text'",
        "artifact (id, session_id, account, kind, locator)": "'a1', 's1', 'artifacts', 'object', 'b/k'",
        "memory (id, source_session_id, formed_session_id, text)": "'m1', 's1', 's1', 'likes tea'",
        "skill_revision (id, authoring_run_id)": "'k1', 'r1'",
    }
    for where, values in rows.items():
        host.sql(f"INSERT INTO {where} VALUES ({values})")
    with pytest.raises(sa.exc.IntegrityError):
        host.sql("INSERT INTO run (id, session_id, state) VALUES ('r2', 's1', 'sleeping')")


def test_an_event_always_advances_its_session(database: Database) -> None:
    host = Host(database)
    host.session("s1")
    host.session("s2")
    seen = host.sql("SELECT updated_at, version FROM session WHERE id = 's1'")
    others = host.sql("SELECT updated_at, version FROM session WHERE id = 's2'")
    for _ in range(20):
        host.message("s1", "x")
        seen += host.sql("SELECT updated_at, version FROM session WHERE id = 's1'")
    assert [row.version for row in seen] == list(range(1, 22))
    assert seen == sorted(set(seen))
    assert host.sql("SELECT updated_at, version FROM session WHERE id = 's2'") == others


@pytest.mark.parametrize("ahead", ["2099-12-31 23:59:59.123456", "2099-12-31 23:59:59.999999", "2099-12-31 23:59:59"])
def test_a_clock_that_was_set_back_does_not_hold_a_session_back(database: Database, ahead: str) -> None:
    host = Host(database)
    host.session("s1")
    zone = "Z" if database.dialect == "postgresql" else ""
    host.sql("UPDATE session SET updated_at = :ahead WHERE id = 's1'", ahead=ahead + zone)
    before = host.caller().get("/v1/sessions/s1").json()["updated_at"]
    host.message("s1", "x")
    after = host.caller().get("/v1/sessions/s1").json()["updated_at"]
    assert after.replace("Z", "") > before.replace("Z", "")
    assert after < "2100-01-01T00:00:01"


def test_several_events_at_once_count_each(database: Database) -> None:
    host = Host(database)
    for name in ("s1", "s2"):
        host.session(name)
    host.sql("INSERT INTO event (session_id) VALUES ('s1'), ('s2'), ('s1')")
    assert host.sql("SELECT id, version FROM session ORDER BY id") == [("s1", 3), ("s2", 2)]
