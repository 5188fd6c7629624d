"""`expunge serve` as a process: it says where it listens, and ends when it is told to."""

import json
import re
import signal
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import commands
import pytest
from host import Host

from expunge.models.database import Database


@contextmanager
def served(url: str, folder: Path) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    with commands.start("expunge", "serve", "--port", "0", cwd=folder, EXPUNGE_DATABASE_URL=url) as process:
        assert process.stderr is not None
        for line in process.stderr:
            found = re.fullmatch(r"Listening on (http://127\.0\.0\.1:\d+)\n", line)
            if found:
                break
        else:
            raise AssertionError(f"it ended: {process.wait()}")
        yield process, found[1]


def _ask(method: str, url: str, token: str = "") -> tuple[int, bytes]:
    request = urllib.request.Request(url, method=method, headers={"Authorization": f"Bearer {token}"})
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


def test_a_conversation_is_deleted_and_the_process_ends_cleanly(host_url: str, tmp_path: Path) -> None:
    database = Database.open(host_url)
    host = Host(database)
    token = host.token()
    host.session("s1")
    host.message("s1", "said in confidence")
    with served(host_url, tmp_path) as (process, url):
        assert _ask("GET", f"{url}/healthz") == (200, b'{"status":"ok"}')
        listed = json.loads(_ask("GET", f"{url}/v1/sessions", token)[1])
        assert [(one["id"], one["title"]) for one in listed["sessions"]] == [("s1", "said in confidence")]
        assert _ask("DELETE", f"{url}/v1/sessions/s1", token) == (204, b"")
        assert _ask("DELETE", f"{url}/v1/sessions/s1", token) == (204, b"")
        missing = _ask("DELETE", f"{url}/v1/sessions/s2", token)
        other = _ask("DELETE", f"{url}/v1/sessions/s1", host.token("acme", "bob"))
        assert missing == other
        assert missing[0] == 404
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (0, ""), err
    for private in ("confidence", "s1", token, "ann", "bob"):
        assert private not in err
    assert "/v1/sessions/{session_id}" in err
    assert host.sql("SELECT conversation FROM erasure_tombstone") == [("s1",)]
    database.close()


def test_a_request_under_way_is_answered_before_it_ends(host_sqlite_template: Path, tmp_path: Path) -> None:
    """Half a request is sent, then the signal, then the rest."""
    (tmp_path / "host.db").write_bytes(host_sqlite_template.read_bytes())
    database = Database.open(f"sqlite:///{tmp_path / 'host.db'}")
    token = Host(database).token()
    database.close()
    with served(f"sqlite:///{tmp_path / 'host.db'}", tmp_path) as (process, url):
        host, port = url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=30) as connection:
            head = f"POST /v1/sessions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n"
            head += "Content-Type: application/json\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n"
            connection.sendall(head.encode())
            assert connection.recv(1000).startswith(b"HTTP/1.1 100")  # the application waits for the body
            process.send_signal(signal.SIGINT)
            connection.sendall(b"{}")
            answer = b""
            while piece := connection.recv(1000):
                answer += piece
        assert answer.startswith(b"HTTP/1.1 201")
        process.communicate(timeout=30)
    assert process.returncode == 0


def test_it_says_what_is_missing(sqlite_url: str, tmp_path: Path) -> None:
    ran = commands.run("expunge", "serve", "--port", "0", cwd=tmp_path, code=1, EXPUNGE_DATABASE_URL=sqlite_url)
    assert ran.stderr.strip().endswith("run expunge migrate --with-sessions")


def test_a_port_that_is_taken(host_sqlite_template: Path, tmp_path: Path) -> None:
    (tmp_path / "host.db").write_bytes(host_sqlite_template.read_bytes())
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ran = commands.run(
            *("expunge", "serve", "--port", str(port)),
            cwd=tmp_path,
            code=1,
            EXPUNGE_DATABASE_URL=f"sqlite:///{tmp_path / 'host.db'}",
        )
    assert f"cannot listen on 127.0.0.1 port {port}: address already in use" in ran.stderr
    assert len(ran.stderr.splitlines()) == 1


@pytest.mark.parametrize("port", ["-1", "65536", "http"])
def test_a_port_that_cannot_be(tmp_path: Path, port: str) -> None:
    from click.testing import CliRunner

    from expunge.worker.cli import main

    assert CliRunner().invoke(main, ["serve", "--port", port]).exit_code == 2
