"""Deleting a conversation over HTTP: for ever, for its owner only, and with everything that it has at stores."""

import json
from typing import Any

import pytest
import sqlalchemy as sa
from host import Host, statements
from waiting import wait_for

from expunge.models import bell
from expunge.models.database import Database
from expunge.models.sessions import SESSIONS, metadata
from expunge.worker import http

BUCKET = "chat-artifacts/tenants/acme/"
CONTENT = [name for name in metadata.tables if name not in ("session_token", "skill_revision")]


@pytest.fixture
def host(host_database: Database) -> Host:
    return Host(host_database)


def fill(host: Host, name: str, **who: str) -> str:
    """A conversation with a row in every table."""
    host.session(name, **who)
    host.run(f"run-{name}", name, "succeeded")
    host.message(name, "hello")
    values = {
        "checkpoint": f"('ck-{name}', 'run-{name}')",
        "projection": f"('pr-{name}', '{name}')",
        "tool_invocation": f"('ti-{name}', 'run-{name}')",
        "approval": f"('ap-{name}', 'ti-{name}')",
        "memory": f"('me-{name}', '{name}')",
        "memory_rejection": f"('mr-{name}', 'me-{name}')",
        "recall_trace": f"('rt-{name}', '{name}')",
        "consolidation": f"('co-{name}', '{name}')",
    }
    columns = {
        "checkpoint": "run_id",
        "projection": "session_id",
        "tool_invocation": "run_id",
        "approval": "tool_invocation_id",
        "memory": "formed_session_id",
        "memory_rejection": "memory_id",
        "recall_trace": "session_id",
        "consolidation": "source_session_id",
    }
    for table, row in values.items():
        host.sql(f"INSERT INTO {table} (id, {columns[table]}) VALUES {row}")
    host.sql(
        "INSERT INTO artifact (id, session_id, account, kind, locator)"
        f" VALUES ('ar-{name}', '{name}', 'artifacts', 'object', '{BUCKET}{name}.pdf')"
    )
    host.sql(
        "INSERT INTO knowledge_document (id, artifact_id, account, kind, locator)"
        f" VALUES ('kd-{name}', 'ar-{name}', 'openai_eu', 'vector_store', 'vs_{name}')"
    )
    host.sql(f"INSERT INTO skill_revision (id, authoring_run_id, body) VALUES ('sk-{name}', 'run-{name}', 'published')")
    return name


def _rows(host: Host) -> dict[str, int]:
    return {table: host.sql(f"SELECT count(*) FROM {table}")[0][0] for table in CONTENT}


def test_everything_of_it_is_gone_and_everything_else_is_there(host: Host) -> None:
    fill(host, "s1")
    one = _rows(host)
    assert set(one.values()) == {1}
    fill(host, "s2")
    ann = host.caller()
    answer = ann.delete("/v1/sessions/s1")
    assert (answer.status_code, answer.content) == (204, b"")
    assert _rows(host) == one
    assert ann.get("/v1/sessions/s1").status_code == 404
    assert [row["id"] for row in ann.get("/v1/sessions").json()["sessions"]] == ["s2"]
    assert host.sql("SELECT id, authoring_run_id FROM skill_revision ORDER BY id") == [
        ("sk-s1", None),
        ("sk-s2", "run-s2"),
    ]
    assert sorted(host.sql("SELECT account, kind, locator FROM erasure_outbox")) == [
        ("artifacts", "object", f"{BUCKET}s1.pdf"),
        ("openai_eu", "vector_store", "vs_s1"),
    ]
    (case,) = host.sql("SELECT subject, tenant, basis, scope, conversation FROM erasure_case")
    assert tuple(case) == ("ann", "acme", "request", "conversation", "s1")
    (tombstone,) = host.sql("SELECT * FROM erasure_tombstone")
    assert tuple(tombstone)[:4] == (SESSIONS.name, "s1", "acme", "ann")


def test_repeating_it_is_the_same_answer(host: Host) -> None:
    fill(host, "s1")
    ann = host.caller()
    first = ann.delete("/v1/sessions/s1", params={"expected_version": 2})
    again = ann.delete("/v1/sessions/s1", params={"expected_version": 2})
    also = host.caller().delete("/v1/sessions/s1")
    assert [one.status_code for one in (first, again, also)] == [204, 204, 204]
    assert host.sql("SELECT count(*) FROM erasure_outbox") == [(2,)]


def test_it_can_never_come_back(host: Host) -> None:
    fill(host, "s1")
    ann = host.caller()
    ann.delete("/v1/sessions/s1")
    written = ann.post("/v1/sessions/s1/events", json={"type": "note", "payload": {}})
    assert (written.status_code, written.json()["code"]) == (410, "conversation_purged")
    for late in (
        lambda: host.session("s1"),
        lambda: host.message("s1", "late"),
        lambda: host.run("r9", "s1", "queued"),
    ):
        with pytest.raises(sa.exc.DBAPIError):
            late()
    assert set(_rows(host).values()) == {0}


def test_somebody_elses_looks_as_if_it_had_never_been(host: Host) -> None:
    """Alive, purged, of another principal, of another tenant, and never: the same bytes by the same statements."""
    fill(host, "alive")
    fill(host, "purged")
    assert host.caller().delete("/v1/sessions/purged").status_code == 204
    before = _rows(host)
    for other in (host.caller("acme", "bob"), host.caller("zeta", "ann")):
        seen = []
        for name in ("never", "alive", "purged", "never", "alive", "purged"):
            with statements(host.database) as sent:
                answer = other.delete(f"/v1/sessions/{name}")
            seen.append((answer.status_code, answer.content, sorted(answer.headers.items()), sent))
        assert seen[0][0] == 404
        assert all(one == seen[3] for one in seen[3:])  # the first may read the schema
        assert all(one[:3] == seen[3][:3] for one in seen)
        for method, path in (("GET", ""), ("POST", "/events")):
            seen = []
            for name in ("never", "alive", "purged"):
                body = {"json": {"type": "note", "payload": {}}} if method == "POST" else {}
                with statements(host.database) as sent:
                    answer = other.request(method, f"/v1/sessions/{name}{path}", **body)
                seen.append((answer.status_code, answer.content, sorted(answer.headers.items()), sent))
            assert seen[0][0] == 404
            assert all(one == seen[0] for one in seen)
    assert _rows(host) == before
    assert host.sql("SELECT count(*) FROM erasure_tombstone") == [(1,)]  # an absent id is not reserved


def test_an_id_that_never_was_can_still_be_used(host: Host) -> None:
    assert host.caller().delete("/v1/sessions/s1").status_code == 404
    host.session("s1")
    assert host.caller().get("/v1/sessions/s1").status_code == 200


@pytest.mark.parametrize("state", ["queued", "running", "waiting"])
def test_a_run_that_is_active_must_be_stopped_first(host: Host, state: str) -> None:
    fill(host, "s1")
    host.run("r2", "s1", state)
    before = _rows(host)
    answer = host.caller().delete("/v1/sessions/s1")
    assert answer.status_code == 409
    assert (answer.json()["code"], answer.json()["details"]) == (
        "invalid_state",
        {"reason": "active_run_exists", "run_id": "r2"},
    )
    assert _rows(host) == before
    assert host.caller("acme", "bob").delete("/v1/sessions/s1").status_code == 404
    host.sql("UPDATE run SET state = 'cancelled' WHERE id = 'r2'")
    assert host.caller().delete("/v1/sessions/s1").status_code == 204


def test_another_version_is_not_deleted(host: Host) -> None:
    fill(host, "s1")
    answer = host.caller().delete("/v1/sessions/s1?expected_version=1")
    assert (answer.status_code, answer.json()["details"]) == (409, {"reason": "version_conflict"})
    assert host.caller().delete("/v1/sessions/s1?expected_version=2").status_code == 204


@pytest.mark.parametrize(
    "covers",
    [
        "(tenant, subject, {}) VALUES ('acme', 'ann', {})",
        f"(account, locator_prefix, {{}}) VALUES ('artifacts', '{BUCKET}', {{}})",
    ],
)
def test_a_legal_hold_stands(host: Host, covers: str) -> None:
    fill(host, "s1")
    host.sql("INSERT INTO erasure_hold " + covers.format("placed_by, placed_why", "'counsel', 'matter 7'"))
    before = _rows(host)
    answer = host.caller().delete("/v1/sessions/s1")
    assert (answer.status_code, answer.json()["code"]) == (409, "legal_hold")
    assert "matter" not in answer.text
    assert _rows(host) == before


def test_the_doorbell_rings_at_once(host: Host) -> None:
    rung: list[frozenset[str]] = []
    bell.hang(rung.append)
    fill(host, "s1")
    host.caller().delete("/v1/sessions/s1")
    wait_for(lambda: frozenset().union(*rung) == {"artifacts", "openai_eu"}, what="the bell")


def test_without_its_fence_nothing_is_deleted(host: Host) -> None:
    fill(host, "s1")
    host.sql("DELETE FROM erasure_fence")
    before = _rows(host)
    answer = host.caller().delete("/v1/sessions/s1")
    assert (answer.status_code, answer.json()["code"]) == (501, "unsupported")
    assert _rows(host) == before


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch, host_database: Database) -> Host:
    """Whose requests wait for no lock."""
    monkeypatch.setattr(http, "LOCK_SECONDS", 0.05)
    return Host(host_database)


def test_a_lock_of_somebody_else_is_waited_for_a_little_only(quick: Host) -> None:
    fill(quick, "s1")
    caller = quick.caller()
    with quick.database.engine.begin() as other:
        other.exec_driver_sql("UPDATE session SET title = 'x' WHERE id = 's1'")
        for answer in (
            caller.delete("/v1/sessions/s1"),
            caller.post("/v1/sessions/s1/events", json={"type": "message", "payload": {"role": "user", "text": "x"}}),
        ):
            assert answer.status_code == 503, answer.text
            assert answer.json()["code"] in ("busy", "unavailable")
            assert int(answer.headers["retry-after"]) >= 1
    assert caller.delete("/v1/sessions/s1").status_code == 204


KEEPS_ITS_ROWS = {
    "sqlite": ["CREATE TRIGGER soft BEFORE DELETE ON memory BEGIN SELECT RAISE(IGNORE); END"],
    "postgresql": [
        "CREATE FUNCTION soft() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
        "CREATE TRIGGER soft BEFORE DELETE ON memory FOR EACH ROW EXECUTE FUNCTION soft()",
    ],
}


def test_nothing_is_called_deleted_that_a_trigger_keeps(host: Host) -> None:
    fill(host, "s1")
    for statement in KEEPS_ITS_ROWS[host.database.dialect]:
        host.sql(statement)
    before = host.sql("SELECT id FROM event"), host.sql("SELECT id FROM memory")
    assert before[1]
    answer = host.caller().delete("/v1/sessions/s1")
    assert answer.status_code == 501, answer.text
    assert (host.sql("SELECT id FROM event"), host.sql("SELECT id FROM memory")) == before
    assert host.sql("SELECT conversation FROM erasure_tombstone") == []


def test_what_a_restore_brought_back_is_not_shown(host: Host) -> None:
    for name in ("s1", "s2"):
        fill(host, name)
    host.sql(
        "INSERT INTO erasure_tombstone (graph, conversation, tenant, principal)"
        " VALUES ('sessions', 's1', 'acme', 'ann')"
    )
    caller = host.caller()
    assert caller.get("/v1/sessions/s1").status_code == 404
    assert [each["id"] for each in caller.get("/v1/sessions").json()["sessions"]] == ["s2"]


def test_nothing_of_the_conversation_is_in_what_stays(host: Host) -> None:
    fill(host, "s1")
    host.sql("UPDATE session SET title = 'secret-title' WHERE id = 's1'")
    host.message("s1", "secret-text")
    host.caller().delete("/v1/sessions/s1")
    with host.database.engine.connect() as connection:
        tables = sa.inspect(connection).get_table_names()
    kept: list[Any] = [row for table in tables for row in host.sql(f'SELECT * FROM "{table}"')]
    assert "secret" not in json.dumps([list(row) for row in kept], default=str)
