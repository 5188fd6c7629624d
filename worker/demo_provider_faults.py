"""Faults that the demo provider can be told to show, so that a failing store can be seen and tested.

A fault matches requests by method and path, for a number of times. It says whether the request is carried out all the
same (`acts`), and what the client gets in place of the true answer.
"""

import json
import threading
from dataclasses import dataclass, field, fields
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any

from expunge.worker.demo_provider_objects import ApiError, Json

PAGE = "<!doctype html><html><head><title>Sign in</title></head><body>Please sign in.</body></html>"

_MESSAGES = {
    400: ("Bad request.", "invalid_request_error", None),
    401: ("Incorrect API key provided.", "invalid_request_error", "invalid_api_key"),
    403: ("You have insufficient permissions for this operation.", "invalid_request_error", None),
    404: ("Not found.", "invalid_request_error", None),
    409: ("The resource is in use.", "invalid_request_error", "conflict"),
    429: ("Rate limit reached for requests.", "requests", "rate_limit_exceeded"),
    500: ("The server had an error while processing your request.", "server_error", None),
    503: ("The engine is currently overloaded, please try again later.", "server_error", None),
}


class Reply(StrEnum):
    """What the client gets."""

    TRUE = "true"
    """The API's own answer, with `body` laid over it and `headers` changed."""
    ERROR = "error"
    """An error in the API's shape: `status`, and `message`, `type`, `code` if they matter."""
    PAGE = "page"
    """HTML with `status`, as a proxy or a login page gives it; none of the API's headers."""
    EMPTY = "empty"
    """`status` with no body."""
    JSON = "json"
    """`status` with `body` as it is."""
    DROP = "drop"
    """The connection is closed without an answer."""
    HANG = "hang"
    """Nothing, until the faults are released; then the true answer if it was carried out, else a closed connection."""


@dataclass(slots=True)
class Fault:
    """One scripted fault."""

    reply: Reply
    method: str = "*"
    path: str = "*"
    """Of the whole path (`/v1/files/file-1`), with `*` as a wildcard."""
    times: int | None = 1
    """How often; None for always."""
    skip: int = 0
    """Matching requests that pass first."""
    acts: bool = False
    """Whether the request is carried out all the same; with TRUE it always is."""
    status: int = 200
    body: Any = None
    headers: dict[str, str | None] = field(default_factory=dict)
    """Set, or removed with None."""
    message: str | None = None
    type: str | None = None
    code: str | None = None

    def error(self) -> Json:
        """The body of ERROR."""
        message, type, code = _MESSAGES.get(self.status, ("Something went wrong.", "server_error", None))
        error = ApiError(
            self.status, self.message or message, type=self.type or type, code=code if self.code is None else self.code
        )
        return error.body

    def content(self, truth: Json) -> tuple[int, str, bytes]:
        """Status, content type and body, given the true answer. Not for DROP."""
        match self.reply:
            case Reply.ERROR:
                return self.status, "application/json", json.dumps(self.error()).encode()
            case Reply.PAGE:
                return self.status, "text/html", PAGE.encode()
            case Reply.EMPTY:
                return self.status, "application/json", b""
            case Reply.JSON:
                return self.status, "application/json", json.dumps(self.body).encode()
            case _:
                return self.status, "application/json", json.dumps({**truth, **(self.body or {})}).encode()


def parse_fault(given: Json) -> Fault:
    """A fault from JSON. Raises ValueError for what it does not know."""
    known = {item.name for item in fields(Fault)}
    if not set(given) <= known:
        raise ValueError(f"unknown: {', '.join(sorted(set(given) - known))}")
    return Fault(**{**given, "reply": Reply(given["reply"])})


class Faults:
    """The faults that still stand."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._standing: list[Fault] = []
        self._released = threading.Event()

    def add(self, *faults: Fault) -> None:
        with self._lock:
            self._standing += faults

    def clear(self) -> None:
        """Forget them all; what hangs goes on hanging."""
        with self._lock:
            self._standing.clear()

    def take(self, method: str, path: str) -> Fault | None:
        """The first fault that stands for this request, counted down."""
        with self._lock:
            for fault in self._standing:
                if not (fnmatchcase(method, fault.method) and fnmatchcase(path, fault.path)):
                    continue
                if fault.skip > 0:
                    fault.skip -= 1
                    continue
                if fault.times is not None:
                    fault.times -= 1
                    if fault.times == 0:
                        self._standing.remove(fault)
                return fault
        return None

    def gate(self) -> threading.Event:
        """What a hanging request waits for. Taken before it is logged, so that who saw the log line can release it."""
        with self._lock:
            return self._released

    def release(self) -> None:
        """Let everything go on that hangs now; later ones hang again."""
        with self._lock:
            released, self._released = self._released, threading.Event()
        released.set()
