"""A server of conversations that a test holds in its hand: what it has, and what goes wrong while it is asked."""

import json
from collections import deque
from collections.abc import Callable
from typing import Any

import httpx2

TOKEN, STRANGER = "ada", "bob"
Fault = Callable[[], httpx2.Response]


def _timeout() -> httpx2.Response:
    raise httpx2.ReadTimeout("too late")


def _broken() -> httpx2.Response:
    raise httpx2.RemoteProtocolError("peer closed connection without sending complete message body")


def problem(status: int, code: str, details: Any = None, **headers: str) -> httpx2.Response:
    body = {"code": code, "message": "…", "details": details or {}}
    return httpx2.Response(status, json=body, headers={name.replace("_", "-"): text for name, text in headers.items()})


FAULTS: dict[str, Fault] = {
    "timeout": _timeout,
    "broken": _broken,
    "401": lambda: problem(401, "unauthenticated"),
    "403": lambda: problem(403, "forbidden"),
    "429": lambda: problem(429, "busy", Retry_After="7"),
    "500": lambda: problem(500, "internal"),
    "503": lambda: problem(503, "unavailable", Retry_After="7"),
    "proxy's 404": lambda: httpx2.Response(404, html="<h1>not found</h1>"),
    "404 of another kind": lambda: problem(404, "no_such_tenant"),
    "404 without an object": lambda: httpx2.Response(404, json=["not_found"]),
    "portal": lambda: httpx2.Response(200, html="<h1>please log in</h1>"),
    "redirect": lambda: httpx2.Response(302, headers={"Location": "https://elsewhere.example/login"}),
    "no content": lambda: httpx2.Response(200),
    "another shape": lambda: httpx2.Response(200, json={"items": [], "next": None}),
    "no cursor": lambda: httpx2.Response(200, json={"sessions": []}),
    "truncated": lambda: httpx2.Response(200, text='{"sessions": [], "next_curs'),
    "null": lambda: httpx2.Response(200, json=None),
}


class SessionServer:
    """One account's conversations; to a stranger's token there are none, and to any other it says 401."""

    def __init__(self) -> None:
        self.sessions: dict[str, int] = {}
        """Id to the time of its last activity."""
        self.purged: set[str] = set()
        self.active: set[str] = set()
        self.sick: set[str] = set()
        """Of these a read gives 500."""
        self.now = 0
        self.script: deque[Callable[[], httpx2.Response | None]] = deque()
        """What happens before each of the next answers; an answer that it gives is sent instead."""
        self.asked: list[tuple[str, str]] = []

    def client(self) -> httpx2.Client:
        return httpx2.Client(base_url="https://host.example", transport=httpx2.MockTransport(self.answer))

    def touch(self, session_id: str) -> None:
        """Create it, or be active in it."""
        if session_id not in self.purged:
            self.now += 1
            self.sessions[session_id] = self.now

    def purge(self, session_id: str) -> None:
        self.sessions.pop(session_id, None)
        self.purged.add(session_id)

    def view(self, session_id: str) -> dict[str, Any]:
        at = self.sessions[session_id]
        return {
            "id": session_id,
            "title": f"{session_id} at {at}",
            "version": at,
            "created_at": "2026-01-01T00:00:00Z",
            "updated_at": f"2026-01-01T{at // 3600:02}:{at // 60 % 60:02}:{at % 60:02}Z",
            "active_run_id": None,
            "last_run_id": None,
        }

    def answer(self, request: httpx2.Request) -> httpx2.Response:
        self.asked.append((request.method, request.url.path))
        if self.script:
            instead = self.script.popleft()()
            if instead is not None:
                return instead
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        if token not in (TOKEN, STRANGER):
            return problem(401, "unauthenticated")
        mine = self.sessions if token == TOKEN else {}
        session_id = request.url.path.removeprefix("/v1/sessions").removeprefix("/")
        if not session_id:
            return self._page(mine, request.url.params)
        if request.method == "GET":
            if session_id in self.sick:
                return problem(500, "internal")
            if session_id in mine:
                return httpx2.Response(200, json=self.view(session_id))
            return problem(404, "not_found")
        if session_id in self.active:
            return problem(409, "invalid_state", {"reason": "active_run_exists", "run_id": "r1"})
        if token == TOKEN and (session_id in mine or session_id in self.purged):
            self.purge(session_id)
            return httpx2.Response(204)
        return problem(404, "not_found")

    def _page(self, mine: dict[str, int], query: httpx2.QueryParams) -> httpx2.Response:
        """By a keyset, as the host: a cursor names a place, so what is active meanwhile is passed by."""
        places = sorted(((at, session_id) for session_id, at in mine.items()), reverse=True)
        if "cursor" in query:
            at, session_id = json.loads(query["cursor"])
            places = [place for place in places if place < (at, session_id)]
        limit = int(query["limit"])
        page, more = places[:limit], len(places) > limit
        return httpx2.Response(
            200,
            json={
                "sessions": [self.view(session_id) for _, session_id in page],
                "next_cursor": json.dumps(page[-1]) if more else None,
            },
        )
