"""The server's side of a mirror: the index page by page, the point read, the delete. What an answer means is decided
here, and "gone" is said only on the server's own word.
"""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC
from typing import Any, TypeVar
from urllib.parse import quote

import httpx2
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from expunge.models.mirror_file import MirroredSession

PAGE_SIZE = 200
MOST_PAGES = 10_000
"""An index that does not end by then is not believed to be complete."""
MOST_BYTES = 16 * 1024 * 1024
"""Of one answer."""
ANSWER_SECONDS = 60.0
"""Of one answer, however slowly it trickles in."""
LONGEST_PAUSE = 3600.0
"""Seconds, whatever Retry-After says."""
_LONGEST_ID = 200
"""Of an id that a path may name; the reference host finds no longer one."""


class Stopped(Exception):
    """The server gave no answer that can be used: nothing may be concluded."""

    def __init__(self, why: str, *, for_all: bool = True, retry_after: float | None = None) -> None:
        super().__init__(why)
        self.why = why
        self.for_all = for_all
        """Whether asking for other conversations is of no use either."""
        self.retry_after = retry_after


@dataclass(frozen=True, slots=True)
class Deletion:
    """What the server answered to a delete."""

    gone: bool
    """It is gone from the server, and only then from here."""
    status: int | None = None
    """Of the answer; None if there was none, and the server may have deleted it all the same: ask again."""
    code: str | None = None
    """The server's: `invalid_state` while a run is active …"""
    run_id: str | None = None
    """The run that has to be stopped first."""
    retry_after_seconds: float | None = None


class _Session(BaseModel):
    model_config = ConfigDict(strict=True)
    id: str = Field(min_length=1)
    title: str | None
    updated_at: AwareDatetime
    active_run_id: str | None
    last_run_id: str | None


class _Page(BaseModel):
    model_config = ConfigDict(strict=True)
    sessions: list[_Session]
    next_cursor: str | None


T = TypeVar("T")
_PAGE = TypeAdapter(_Page)
_SESSION = TypeAdapter(_Session)


class Index:
    """Conversations of one token's principal on one server."""

    def __init__(self, client: httpx2.Client, token: str, *, page_size: int = PAGE_SIZE, most_pages: int = MOST_PAGES):
        self._client = client
        self._token = token
        self._page_size = page_size
        self._most_pages = most_pages

    def pages(self) -> Iterator[list[MirroredSession]]:
        """The whole index. Raises Stopped unless it was seen to its end."""
        cursor: str | None = None
        cursors: set[str] = set()
        seen: set[str] = set()
        for _ in range(self._most_pages):
            query = {"limit": str(self._page_size)} | ({"cursor": cursor} if cursor else {})
            status, headers, body = self._ask("GET", "/v1/sessions", query)
            if status != 200:
                raise _stopped(status, headers, body)
            page = _read(_PAGE, body)
            if page is None:
                raise Stopped("a page of the index cannot be read")
            ids = {session.id for session in page.sessions}
            if page.next_cursor is not None and ids <= seen:
                raise Stopped("the index goes in a circle")
            seen |= ids
            yield [_mirrored(session) for session in page.sessions if can_be_named(session.id)]
            cursor = page.next_cursor
            if cursor is None:
                return
            if not cursor or cursor in cursors:
                raise Stopped("the index repeats a cursor")
            cursors.add(cursor)
        raise Stopped("the index does not end")

    def read(self, session_id: str) -> MirroredSession | None:
        """One conversation; None is the server's own word that it is not there. Raises Stopped for anything else."""
        status, headers, body = self._ask("GET", _path(session_id))
        if status == 200:
            session = _read(_SESSION, body)
            if session is None or session.id != session_id:
                raise Stopped("a conversation cannot be read", for_all=False)
            return _mirrored(session)
        if status == 404 and _problem(body).get("code") == "not_found":
            return None
        raise _stopped(status, headers, body)

    def delete(self, session_id: str) -> Deletion:
        """Ask the server to delete a conversation for ever. Never raises for what the server did or did not answer."""
        if not can_be_named(session_id):
            return Deletion(False)
        try:
            status, headers, body = self._ask("DELETE", _path(session_id))
        except Stopped:
            return Deletion(False)
        if status == 204:
            return Deletion(True, status)
        problem = _problem(body)
        details = problem.get("details")
        run_id = details.get("run_id") if isinstance(details, dict) else None
        code = problem.get("code")
        return Deletion(
            False,
            status,
            code if isinstance(code, str) else None,
            run_id if isinstance(run_id, str) else None,
            _retry_after(headers),
        )

    def _ask(self, method: str, path: str, query: dict[str, str] | None = None) -> tuple[int, httpx2.Headers, bytes]:
        headers = {"Authorization": f"Bearer {self._token}", "Accept": "application/json"}
        began = time.monotonic()
        try:
            with self._client.stream(method, path, params=query, headers=headers, follow_redirects=False) as answer:
                body = bytearray()
                for chunk in answer.iter_bytes():
                    body += chunk
                    if len(body) > MOST_BYTES or time.monotonic() - began > ANSWER_SECONDS:
                        raise Stopped("an answer is too long")
                return answer.status_code, answer.headers, bytes(body)
        except (httpx2.HTTPError, httpx2.StreamError, OSError, ValueError) as error:  # ValueError: a token that is none
            raise Stopped(f"no answer: {type(error).__name__}") from error


def can_be_named(session_id: str) -> bool:
    """Whether a path can name it. Another one could be neither read nor deleted, so it is not mirrored."""
    return 0 < len(session_id) <= _LONGEST_ID and not {"/", "\\", "\0"} & set(session_id)


def _path(session_id: str) -> str:
    # two dots would be a step up
    return "/v1/sessions/" + quote(session_id, safe="").replace(".", "%2E")


def _mirrored(session: _Session) -> MirroredSession:
    updated_at = session.updated_at.astimezone(UTC).isoformat(timespec="microseconds")
    return MirroredSession(session.id, session.title, updated_at, session.active_run_id, session.last_run_id)


def _read(shape: TypeAdapter[T], body: bytes) -> T | None:
    try:
        return shape.validate_json(body)
    except ValidationError:
        return None


def _problem(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _stopped(status: int, headers: httpx2.Headers, body: bytes) -> Stopped:
    for_all = status in (401, 403, 429, 503) or 300 <= status < 400
    return Stopped(f"status {status}", for_all=for_all, retry_after=_retry_after(headers))


def _retry_after(headers: httpx2.Headers) -> float | None:
    """Seconds; a date is not read."""
    said = headers.get("Retry-After", "").strip()
    return min(float(said), LONGEST_PAUSE) if said.isascii() and said.isdigit() and len(said) < 10 else None
