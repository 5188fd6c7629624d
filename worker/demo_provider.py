"""A small provider of our own that behaves like OpenAI's API, for `expunge demo` and for tests.

The real SDK talks to it. It listens on the loopback interface only, keeps everything in memory, and can be told to
fail (demo_provider_faults.py). In a process of its own:

    python -m expunge.worker.demo_provider --port 8081 --log access.jsonl

It then prints one JSON line with its `url`. Its control paths need no key:

    POST   /__control__/faults    one fault or a list of them        DELETE  forgets them
    POST   /__control__/release   lets hanging requests go on
    POST   /__control__/keys      {"sk-x": {"organization": "org-x", "project": "proj_x"}}
    POST   /__control__/seed      {"project": "proj_x", "files": ["file-1"], "conversations": {"conv_1": ["msg_1"]}}
    POST   /__control__/modes     {"project": "proj_x", "attached": "refused", "lingers": 2}, {"dialect": "azure"}
    GET    /__control__/state     the ids that are there, by project
    GET    /__control__/log       the access log
"""

import argparse
import json
import secrets
import signal
import socket
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from expunge.worker.demo_provider_api import answer
from expunge.worker.demo_provider_cancel import seed_cancel
from expunge.worker.demo_provider_dialects import azure_not_found, headers, incoming, outgoing
from expunge.worker.demo_provider_faults import Fault, Faults, Reply, parse_fault
from expunge.worker.demo_provider_log import AccessLog
from expunge.worker.demo_provider_more import BY_NAME, NO_BODY, seed_plain
from expunge.worker.demo_provider_objects import ApiError, Identity, Json, Project, Request

DEMO_KEY = "sk-demo"
KEYS = {
    DEMO_KEY: Identity("org-demo", "proj_demo"),
    "sk-other-project": Identity("org-demo", "proj_other"),
    "sk-other-organization": Identity("org-other", "proj_elsewhere"),
}


@dataclass(slots=True)
class Outgoing:
    """An answer on its way; None as status closes the connection instead."""

    status: int | None
    content_type: str = "application/json"
    body: bytes = b""
    headers: Mapping[str, str] | None = None
    closes: bool = False
    """The connection is of no use after this answer: what comes next on it finds it closed."""


class DemoProvider:
    """The server, in this process. A context manager; `base_url` is what a client wants to know."""

    def __init__(self, port: int = 0, log_path: Path | None = None) -> None:
        self.keys = dict(KEYS)
        self.projects: dict[str, Project] = {}
        self.faults = Faults()
        self.dialect = "openai"
        self.log = AccessLog(log_path)
        self._lock = threading.RLock()
        self._server = _Server(("127.0.0.1", port), self)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def __enter__(self) -> "DemoProvider":
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop, let hanging requests go and close every connection."""
        self._server.shutdown()
        self.faults.release()
        self._server.close_connections()
        self._server.server_close()
        self._thread.join()
        self.log.close()

    def project(self, name: str = "proj_demo") -> Project:
        with self._lock:
            return self.projects.setdefault(name, Project())

    def seed(self, project: str = "proj_demo", **wanted: Any) -> None:
        """Make objects with known ids; see Project.seed."""
        with self._lock:
            self.project(project).seed(wanted)
            for name in BY_NAME.keys() & wanted.keys():
                seed_plain(self.project(project), name, list(wanted[name]))
            seed_cancel(self.project(project), wanted)

    def modes(self, dialect: str | None = None, project: str = "proj_demo", **modes: Any) -> None:
        """Behave otherwise from now on: see Project.modes and demo_provider_dialects.py."""
        with self._lock:
            self.dialect = dialect or self.dialect
            self.project(project).modes = replace(self.project(project).modes, **modes)

    def state(self) -> Json:
        """The ids that are there, by project."""
        with self._lock:
            return {name: project.dump() for name, project in self.projects.items()}

    def serve(self, request: Request) -> Outgoing:
        """One request of the API: carried out and logged as one step, so that the log knows every deletion."""
        request_id, begun = "req_" + secrets.token_hex(16), datetime.now(UTC)
        gate, fault = self.faults.gate(), self.faults.take(request.method, request.path)
        asked, request = request, incoming(self.dialect, request) or replace(request, path="/unknown")
        identity = self.keys.get(request.headers.get("authorization", "").removeprefix("Bearer "))
        with self._lock:
            acts = fault is None or fault.acts or fault.reply is Reply.TRUE
            status, truth = self._carry_out(request, identity) if acts else (200, {})
            if request.path == "/unknown":
                status, truth = azure_not_found()
            answered = self._outgoing(fault, status, truth)
            if fault is None:
                answered = _in_dialect(self.dialect, asked, status, truth)
                if status == 200 and request.method == "DELETE" and NO_BODY.fullmatch(request.path):
                    answered.body = b""
            self.log.add(
                {
                    "begun": begun.timestamp(),
                    "time": datetime.now(UTC).isoformat(),
                    "method": request.method,
                    "path": request.path,
                    "request_id": request_id,
                    "status": answered.status if fault is None or fault.reply is not Reply.HANG else None,
                    "acted": acts and status < 400,
                    "organization": identity.organization if identity else None,
                    "project": identity.project if identity else None,
                    "fault": fault.reply.value if fault else None,
                }
            )
        if fault is not None and fault.reply is Reply.HANG:
            gate.wait()
        answered.headers = headers(self.dialect, request_id, _headers(request_id, identity, fault))
        return answered

    def _carry_out(self, request: Request, identity: Identity | None) -> tuple[int, Json]:
        try:
            if identity is None:
                raise ApiError(401, "Incorrect API key provided.", code="invalid_api_key")
            for name in ("organization", "project"):
                if request.headers.get(f"openai-{name}", getattr(identity, name)) != getattr(identity, name):
                    message = f"OpenAI-{name.title()} header should match {name} for API key"
                    raise ApiError(401, message, code=f"mismatched_{name}")
            return 200, answer(self.project(identity.project), request)
        except ApiError as error:
            return error.status, error.body

    def _outgoing(self, fault: Fault | None, status: int, truth: Json) -> Outgoing:
        if fault is None:
            return Outgoing(status, body=json.dumps(truth).encode())
        if fault.reply is Reply.DROP or (fault.reply is Reply.HANG and not fault.acts):
            return Outgoing(None)
        told, content_type, body = fault.content(truth)
        return Outgoing(status if fault.reply in (Reply.TRUE, Reply.HANG) else told, content_type, body)

    def control(self, request: Request) -> Json:
        """What the control paths do. Raises ApiError and ValueError."""
        match request.method, request.path.removeprefix("/__control__/"):
            case "POST", "faults":
                given = json.loads(request.body)
                self.faults.add(*(parse_fault(one) for one in (given if isinstance(given, list) else [given])))
            case "DELETE", "faults":
                self.faults.clear()
            case "POST", "release":
                self.faults.release()
            case "POST", "keys":
                self.keys.update({key: Identity(**whose) for key, whose in request.json().items()})
            case "POST", "seed":
                self.seed(**request.json())
            case "POST", "modes":
                self.modes(**request.json())
            case "GET", "state":
                return self.state()
            case "GET", "log":
                return {"log": self.log.lines()}
            case _:
                raise ApiError(404, "No such control.")
        return {"ok": True}


def _in_dialect(dialect: str, request: Request, status: int, truth: Json) -> Outgoing:
    told, body = outgoing(dialect, request, status, truth)
    return Outgoing(
        told, body=b"" if body is None else json.dumps(body).encode(), closes=dialect == "ogx" and told >= 400
    )


def _headers(request_id: str, identity: Identity | None, fault: Fault | None) -> Mapping[str, str]:
    headers: dict[str, str | None] = {}
    if fault is None or fault.reply is not Reply.PAGE:
        headers |= {"x-request-id": request_id, "openai-processing-ms": "5", "openai-version": "2020-10-01"}
        if identity is not None:
            headers |= {"openai-organization": identity.organization, "openai-project": identity.project}
    if fault is not None:
        headers |= {name.lower(): value for name, value in fault.headers.items()}
    return {name: value for name, value in headers.items() if value is not None}


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def __init__(self, address: tuple[str, int], provider: DemoProvider) -> None:
        self.provider = provider
        self._open: set[socket.socket] = set()
        self._guard = threading.Lock()
        super().__init__(address, _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._guard:
            self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._guard:
            self._open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away while it was answered is an everyday thing in these tests."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)

    def close_connections(self) -> None:
        with self._guard:
            for connection in self._open:
                try:
                    connection.shutdown(socket.SHUT_RDWR)
                except OSError:
                    continue


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    server_version = "demo-provider"
    sys_version = ""
    wbufsize = -1
    disable_nagle_algorithm = True

    spent = False

    def _handle(self) -> None:
        if self.spent:
            self.close_connection = True
            return
        url = urlsplit(self.path)
        request = Request(
            self.command,
            url.path,
            dict(parse_qsl(url.query)),
            {name.lower(): value for name, value in self.headers.items()},
            self.rfile.read(int(self.headers.get("content-length") or 0)),
        )
        self._send(self._control(request) if url.path.startswith("/__control__/") else self._api(request))

    do_GET = do_POST = do_DELETE = do_PUT = do_PATCH = do_HEAD = _handle  # noqa: N815

    def _api(self, request: Request) -> Outgoing:
        return self.server.provider.serve(request)

    def _control(self, request: Request) -> Outgoing:
        try:
            return Outgoing(200, body=json.dumps(self.server.provider.control(request)).encode())
        except ApiError as error:
            return Outgoing(error.status, body=json.dumps(error.body).encode())
        except (ValueError, KeyError, TypeError) as error:
            return Outgoing(400, body=json.dumps({"error": {"message": repr(error)}}).encode())

    def _send(self, outgoing: Outgoing) -> None:
        if outgoing.status is None:
            self.close_connection = True
            return
        self.send_response(outgoing.status)
        for name, value in (outgoing.headers or {}).items():
            self.send_header(name, value)
        if outgoing.status != 204:
            self.send_header("Content-Type", outgoing.content_type)
            self.send_header("Content-Length", str(len(outgoing.body)))
        self.end_headers()
        if outgoing.status != 204 and self.command != "HEAD":
            self.wfile.write(outgoing.body)
        self.spent = outgoing.closes

    def log_message(self, format: str, *args: Any) -> None:
        """The access log is ours."""


def main(arguments: list[str] | None = None) -> None:
    """Serve until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(description="A provider like OpenAI's API, on this machine only.")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--log", type=Path, help="the access log, as JSON lines")
    parsed = parser.parse_args(arguments)
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    with DemoProvider(parsed.port, parsed.log) as provider:
        sys.stdout.write(json.dumps({"url": provider.base_url}) + "\n")
        sys.stdout.flush()
        stopped.wait()


if __name__ == "__main__":
    main()
