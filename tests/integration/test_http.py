"""The reference host's requests and answers, without a socket: who may, what comes back, and how an error looks."""

import json
import logging
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
from host import BOTH, Caller, Host

from expunge.models.database import Database
from expunge.worker import http
from expunge.worker.http_sessions import MOST

ROUTES = [
    ("GET", "/v1/sessions", "session.read"),
    ("GET", "/v1/sessions/s1", "session.read"),
    ("POST", "/v1/sessions", "session.write"),
    ("POST", "/v1/sessions/s1/events", "session.write"),
    ("DELETE", "/v1/sessions/s1", "session.write"),
]


@pytest.fixture
def host(host_database: Database) -> Host:
    return Host(host_database)


@pytest.fixture
def lite(host_sqlite_template: Path, tmp_path: Path) -> Iterator[Host]:
    """Where the database makes no difference."""
    shutil.copy(host_sqlite_template, tmp_path / "lite.db")
    database = Database.open(f"sqlite:///{tmp_path / 'lite.db'}")
    yield Host(database)
    database.close()


def _is_problem(response: Any, status: int, code: str) -> bool:
    body = response.json()
    assert response.headers["content-type"] == "application/json"
    assert (response.status_code, body["code"], set(body)) == (status, code, {"code", "message", "details"})
    return True


def test_every_route_is_here(lite: Host) -> None:
    told = lite.client.get("/openapi.json").json()["paths"]
    found = {(method.upper(), path.replace("{session_id}", "s1")) for path, at in told.items() for method in at}
    assert found == {(method, path) for method, path, _ in ROUTES} | {("GET", "/healthz")}


@pytest.mark.parametrize(("method", "path", "scope"), ROUTES)
def test_a_token_with_the_scope_is_needed_before_anything_else(lite: Host, method: str, path: str, scope: str) -> None:
    for headers in ({}, {"Authorization": "Basic YTpi"}, {"Authorization": ""}):
        answer = lite.client.request(method, path, headers=headers, content=b"{not json")
        assert _is_problem(answer, 401, "unauthenticated")
        assert answer.headers["www-authenticate"] == 'Bearer realm="expunge"'
    for token in ("", "x", "expunge_0000000000000000_" + "A" * 43, "Ĳ".encode()):
        sent = token if isinstance(token, bytes) else token.encode()
        answer = lite.client.request(method, path, headers={b"authorization": b"Bearer " + sent}, content=b"{not json")
        assert _is_problem(answer, 401, "unauthenticated")
        assert 'error="invalid_token"' in answer.headers["www-authenticate"]
    other = next(one for one in BOTH if one != scope)
    answer = lite.caller(scopes=[other]).request(method, path, content=b"{not json")
    assert _is_problem(answer, 403, "forbidden")
    assert answer.json()["details"] == {"scope": scope}
    assert f'scope="{scope}"' in answer.headers["www-authenticate"]
    assert lite.sql("SELECT id FROM session") == []


def test_a_revoked_token_is_no_token(lite: Host) -> None:
    caller = lite.caller()
    assert caller.get("/v1/sessions").status_code == 200
    lite.sql("UPDATE session_token SET revoked_at = created_at")
    assert caller.get("/v1/sessions").status_code == 401


def test_a_conversation_from_its_beginning(host: Host) -> None:
    ann = host.caller()
    made = ann.post("/v1/sessions", json={})
    assert made.status_code == 201
    created = made.json()
    path = f"/v1/sessions/{created['id']}"
    assert created == {
        **created,
        "title": None,
        "version": 1,
        "created_at": created["updated_at"],
        "active_run_id": None,
        "last_run_id": None,
    }
    assert ann.get(path).json() == created
    payload = {"role": "user", "content": [{"type": "text", "text": "  Where is\nmy order? "}], "parent": None}
    first = ann.post(f"{path}/events", json={"type": "message", "payload": payload})
    second = ann.post(f"{path}/events", json={"type": "message", "payload": {"role": "user", "content": "again"}})
    assert (first.status_code, second.status_code) == (201, 201)
    assert first.json()["position"] < second.json()["position"]
    now = ann.get(path).json()
    assert (now["title"], now["version"]) == ("Where is my order?", 3)
    assert now["updated_at"] > created["updated_at"]
    assert host.sql("SELECT title FROM session") == [("Where is my order?",)]
    assert ann.get("/v1/sessions").json() == {"sessions": [now], "next_cursor": None}
    assert json.loads(host.sql("SELECT payload FROM event ORDER BY position")[0].payload) == payload


def test_titles_of_sessions_that_have_none(host: Host) -> None:
    host.session("set", title="  as set ")
    host.message("set", "not this")
    host.session("derived")
    host.message("derived", "not yet", role="assistant")
    host.message("derived", "this one")
    host.session("blank", title=" ")
    host.message("blank", "from the event")
    host.session("none")
    titles = {one["id"]: one["title"] for one in host.caller().get("/v1/sessions").json()["sessions"]}
    assert titles == {"set": "  as set ", "derived": "this one", "blank": "from the event", "none": None}
    assert host.sql("SELECT title FROM session WHERE id = 'derived'") == [(None,)]


def test_runs_that_are_active_and_that_are_over(host: Host) -> None:
    host.session("s1")
    ann = host.caller()

    def runs() -> tuple[Any, Any]:
        one = ann.get("/v1/sessions/s1").json()
        assert ann.get("/v1/sessions").json()["sessions"] == [one]
        return one["active_run_id"], one["last_run_id"]

    assert runs() == (None, None)
    for number, state in enumerate(["succeeded", "failed", "queued", "waiting", "running", "cancelled"]):
        host.run(f"r{number}", "s1", state)
        at = f"2026-01-01 00:00:0{number}" + ("Z" if host.database.dialect == "postgresql" else "")
        host.sql("UPDATE run SET created_at = :at WHERE id = :id", at=at, id=f"r{number}")
    assert runs() == ("r4", "r5")
    host.sql("UPDATE run SET state = 'succeeded' WHERE id = 'r4'")
    assert runs() == ("r3", "r5")
    host.sql("UPDATE run SET state = 'failed'")
    assert runs() == (None, "r5")


def test_somebody_elses_is_not_there(host: Host) -> None:
    host.session("s1")
    host.run("r1", "s1", "running")
    absent = host.caller().get("/v1/sessions/never")
    for other in (host.caller("acme", "bob"), host.caller("zeta", "ann")):
        assert other.get("/v1/sessions").json()["sessions"] == []
        answer = other.get("/v1/sessions/s1")
        assert (answer.status_code, answer.content, answer.headers) == (404, absent.content, absent.headers)
        written = other.post("/v1/sessions/s1/events", json={"type": "note", "payload": {}})
        assert (written.status_code, written.content) == (404, absent.content)
    assert host.sql("SELECT id FROM event") == []


def test_a_run_of_another_conversation_is_refused(host: Host) -> None:
    host.session("s1")
    host.session("s2")
    host.run("r2", "s2", "running")
    ann = host.caller()
    for run in ("r2", "r3"):
        answer = ann.post("/v1/sessions/s1/events", json={"type": "note", "payload": {}, "run_id": run})
        assert _is_problem(answer, 422, "invalid_request")
        assert answer.json()["details"]["fields"][0]["where"] == "body.run_id"
    assert ann.post("/v1/sessions/s2/events", json={"type": "note", "payload": {}, "run_id": "r2"}).status_code == 201


def test_a_page_that_cannot_be(host: Host) -> None:
    ann = host.caller()
    cursors = ["", "abc", "é", "WyIyMDI2LTEyLTAyVDA4OjQxOjI4KzAwOjAwIl0", "bnVsbA", "W1sxXSxbMl1d", "A" * 9000]
    queries = ["limit=0", f"limit={MOST + 1}", "limit=x", "limit=1.5", "limit=", "cursr=x"]
    for query in queries + [f"cursor={cursor}" for cursor in cursors]:
        answer = ann.get(f"/v1/sessions?{query}")
        assert _is_problem(answer, 422, "invalid_request")
        assert answer.json()["details"]["fields"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"3",
        b'"x"',
        b"\xff",
        b"{}",
        b'{"type": "a"}',
        b'{"type": "A b", "payload": {}}',
        b'{"type": "a", "payload": []}',
        b'{"type": "a", "payload": {}, "more": 1}',
        b'{"type": "a", "payload": {"n": NaN}}',
        b'{"type": "a", "payload": {"n": 1e999}}',
        b'{"type": "a", "payload": {"n": ' + b"1" * 5000 + b"}}",
        b'{"type": "a", "payload": {"n": ' + b"[" * 100_000 + b"]" * 100_000 + b"}}",
        b'{"type": "a", "payload": {}, "run_id": "\\u0000"}',
        b'{"type": "a", "payload": {}, "run_id": "\\ud800"}',
    ],
    ids=range(18),
)
def test_an_event_that_cannot_be(lite: Host, body: bytes) -> None:
    lite.session("s1")
    answer = lite.caller().post("/v1/sessions/s1/events", content=body, headers={"Content-Type": "application/json"})
    assert _is_problem(answer, 422, "invalid_request")
    assert lite.sql("SELECT id FROM event") == []


def test_an_event_keeps_what_it_says(host: Host) -> None:
    host.session("s1")
    payload = {"text": "a\x00b \ud83d é 😀", "n": [1, 2.5, None, True, 10**30], "": {"deep": [[[]]]}}
    sent = json.dumps({"type": "note", "payload": payload}).encode()
    answer = host.caller().post("/v1/sessions/s1/events", content=sent, headers={"Content-Type": "application/json"})
    assert answer.status_code == 201
    assert json.loads(host.sql("SELECT payload FROM event")[0].payload) == payload


def test_a_body_that_is_too_large(lite: Host) -> None:
    lite.session("s1")
    ann = lite.caller()
    too_much = http.MAX_BODY_BYTES + 1
    told = ann.post("/v1/sessions/s1/events", content=b"x" * too_much)
    assert _is_problem(told, 413, "too_large")
    pieces = ann.post("/v1/sessions/s1/events", content=(b"x" * 4096 for _ in range(too_much // 4096 + 1)))
    assert _is_problem(pieces, 413, "too_large")
    start, end = b'{"type": "note", "payload": {"text": "', b'"}}'
    fits = start + b"x" * (http.MAX_BODY_BYTES - len(start) - len(end)) + end
    headers = {"Content-Type": "application/json"}
    assert ann.post("/v1/sessions/s1/events", content=fits, headers=headers).status_code == 201
    assert _is_problem(ann.post("/v1/sessions/s1/events", content=fits + b" ", headers=headers), 413, "too_large")


def test_errors_of_the_framework_have_the_same_shape(lite: Host) -> None:
    assert _is_problem(lite.client.get("/"), 404, "not_found")
    assert _is_problem(lite.client.get("/v1/sessions/"), 404, "not_found")
    assert _is_problem(lite.client.get("/docs"), 404, "not_found")
    for path, methods in (("/v1/sessions", "GET, POST"), ("/v1/sessions/s1", "DELETE, GET"), ("/healthz", "GET")):
        answer = lite.client.request("PATCH", path)
        assert _is_problem(answer, 405, "method_not_allowed")
        assert answer.headers["allow"] == methods


def test_an_id_that_nobody_has(host: Host) -> None:
    ann = host.caller()
    for id_ in ("%00", "x" * 201, "%ff", "%0a", "a%00b", "'", "%25", "..%2f", "%C2%98e", "%E2%80%AE", "%F0%9F%98%80"):
        for method in ("GET", "DELETE"):
            assert _is_problem(ann.request(method, f"/v1/sessions/{id_}"), 404, "not_found")


def test_a_fault_of_ours_says_nothing_but_its_id(lite: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("secret of ann")

    monkeypatch.setattr("expunge.worker.http_sessions.list_sessions", broken)
    with structlog.testing.capture_logs() as logs:
        answer = lite.caller().get("/v1/sessions")
    assert _is_problem(answer, 500, "internal")
    assert logs[0]["event"] == "request.failed"
    assert "secret" not in answer.text
    assert len(answer.headers["x-request-id"]) == 32


def test_a_request_id_comes_back(lite: Host) -> None:
    asked = {"X-Request-Id": "a.B-1_2"}
    assert lite.client.get("/healthz", headers=asked).headers["x-request-id"] == "a.B-1_2"
    for wrong in ("a b", "x" * 65, "é".encode(), ""):
        assert "x-request-id" not in lite.client.get("/healthz", headers={"X-Request-Id": wrong}).headers
    assert lite.client.get("/v1/sessions", headers=asked).headers["cache-control"] == "no-store"


def test_the_log_names_routes_and_nobody(lite: Host) -> None:
    lite.session("s1-of-ann")
    with structlog.testing.capture_logs() as logs:
        lite.caller().get("/v1/sessions/s1-of-ann")
        lite.caller().delete("/v1/sessions/never?expected_version=x")
    assert [(one["event"], one["route"], one["status"]) for one in logs] == [
        ("request.answered", "/v1/sessions/{session_id}", 200),
        ("request.answered", "/v1/sessions/{session_id}", 422),
    ]
    assert "ann" not in json.dumps(logs, default=str)


def test_a_database_that_is_away(lite: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    caller: Caller = lite.caller()
    lite.sql("ALTER TABLE session_token RENAME TO elsewhere")  # an OperationalError, as a server that is gone
    for answer in (lite.client.get("/healthz"), caller.get("/v1/sessions")):
        assert _is_problem(answer, 503, "unavailable")
        assert answer.headers["retry-after"] == "1"
        assert "x-request-id" in answer.headers


def test_importing_the_command_line_imports_no_framework() -> None:
    import subprocess
    import sys

    program = "import sys, expunge.worker.cli, expunge.worker.commands.serve; print('fastapi' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "False"
    assert logging.getLogger("uvicorn").handlers == []
