"""The routes of a conversation: list, read, create, append, delete."""

from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response, Security
from pydantic import BaseModel, ConfigDict, Field

from expunge.models.database import Database
from expunge.models.errors import ConversationNotFound
from expunge.models.plain_text import require_plain
from expunge.models.purge import purge
from expunge.models.purged import PurgeStatus
from expunge.models.session_store import append_event, create_session, list_sessions, read_session
from expunge.models.sessions import SESSIONS
from expunge.worker.http_auth import BEARER, Caller, Reading, Writing
from expunge.worker.http_errors import UNSUPPORTED, Problem

MOST = 200
"""Conversations on a page."""
USUAL = 50
_LONGEST_ID = 200
_PLAIN = r"^[^\x00-\x1f\x7f]*$"
_LARGEST = 2**63 - 1


def _errors(**told: str) -> dict[int | str, dict[str, Any]]:
    common = {
        "401": "no token, or one that is unknown, revoked or expired",
        "403": "the token lacks the scope",
        "422": "the request is not one that this path takes",
        "503": "the database is busy or away: Retry-After says when to try again",
    }
    codes = {**common, **{name.removeprefix("e"): text for name, text in told.items()}}
    return {int(code): {"model": Problem, "description": text} for code, text in sorted(codes.items())}


_NOT_FOUND = "no such conversation, or not the caller's: the answer is the same"
_CHECKED = [Security(BEARER)]

reading = APIRouter(prefix="/v1/sessions", tags=["sessions"], route_class=Reading, dependencies=_CHECKED)
writing = APIRouter(prefix="/v1/sessions", tags=["sessions"], route_class=Writing, dependencies=_CHECKED)


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Session(BaseModel):
    """A conversation, as its owner sees it."""

    model_config = ConfigDict(from_attributes=True)

    id: str
    title: str | None = Field(description="Set, or the first text of the first message of the user, 64 characters.")
    version: int = Field(description="Raised by every event.")
    created_at: datetime
    updated_at: datetime = Field(description="Of the last event.")
    active_run_id: str | None = Field(description="The latest run that is queued, running or waiting.")
    last_run_id: str | None = Field(description="The latest run that is over.")


class Sessions(BaseModel):
    """A page of conversations."""

    sessions: list[Session]
    next_cursor: str | None = Field(description="Where the next page begins; null on the last.")


class PageQuery(_Strict):
    """Which page."""

    limit: int = Field(USUAL, ge=1, le=MOST, description="Conversations at the most.")
    cursor: str | None = Field(None, min_length=1, max_length=8192, description="next_cursor of the page before.")


class NewSession(_Strict):
    """What may be said of a new conversation."""

    title: str | None = Field(None, max_length=200, pattern=_PLAIN)


class NewEvent(_Strict):
    """What happened."""

    type: str = Field(pattern=r"^[a-z][a-z0-9_.]{0,63}$", description="`message` for what somebody said.")
    payload: dict[str, Any] = Field(
        description='Of a message: {"role": "user", "content": [{"type": "text", "text": "…"}], "parent": null}.'
    )
    run_id: str | None = Field(None, min_length=1, max_length=_LONGEST_ID, pattern=_PLAIN)


class Event(BaseModel):
    """An event that was appended."""

    model_config = ConfigDict(from_attributes=True)

    id: str
    position: int = Field(description="Later events have higher ones.")


class DeleteQuery(_Strict):
    """On what condition."""

    expected_version: int | None = Field(None, ge=0, le=_LARGEST, description="Delete this version only.")


SessionId = Annotated[str, Path(description="The conversation's id.")]


@reading.get("", response_model=Sessions, responses=_errors())
def list_(request: Request, caller: Caller, page: Annotated[PageQuery, Query()]) -> Any:
    """The caller's conversations, the most recently active first."""
    with _database(request).read() as tx:
        found = list_sessions(tx, caller, limit=page.limit, cursor=page.cursor)
        return Sessions(sessions=[Session.model_validate(one) for one in found.sessions], next_cursor=found.next_cursor)


@reading.get("/{session_id}", response_model=Session, responses=_errors(e404=_NOT_FOUND))
def read(request: Request, caller: Caller, session_id: SessionId) -> Any:
    """One conversation of the caller's. One that was deleted is not found."""
    _require_possible(session_id)
    with _database(request).read() as tx:
        return Session.model_validate(read_session(tx, caller, session_id))


@writing.post("", status_code=201, response_model=Session, responses=_errors(e413="the body is too large"))
def create(request: Request, caller: Caller, new: NewSession) -> Any:
    """Begin a conversation. Its id is made here, and never used again."""
    with _database(request).begin() as tx:
        return Session.model_validate(create_session(tx, caller, title=new.title))


@writing.post(
    "/{session_id}/events",
    status_code=201,
    response_model=Event,
    responses=_errors(
        e404=_NOT_FOUND, e410="the caller deleted this conversation for ever", e413="the body is too large"
    ),
)
def append(request: Request, caller: Caller, session_id: SessionId, new: NewEvent) -> Any:
    """Append an event; the conversation becomes the most recently active."""
    _require_possible(session_id)
    with _database(request).begin() as tx:
        return Event.model_validate(
            append_event(tx, caller, session_id, type=new.type, payload=new.payload, run_id=new.run_id)
        )


@writing.delete(
    "/{session_id}",
    status_code=204,
    response_class=Response,
    responses=_errors(
        e404=_NOT_FOUND,
        e409="a run is active, a legal hold stands, or the version is another",
        e501="the fence around the tables is missing: nothing was deleted",
    ),
)
def delete(
    request: Request, caller: Caller, session_id: SessionId, condition: Annotated[DeleteQuery, Query()]
) -> Response:
    """Delete a conversation and all that belongs to it, for ever; repeating it is the same answer.

    What it has at stores is in the outbox when this answers, and goes from there."""
    _require_possible(session_id)
    with _database(request).begin() as tx:
        done = purge(
            tx.connection,
            SESSIONS,
            session_id,
            principal=caller,
            expected_version=condition.expected_version,
            reserve_absent=False,
        )
    if done.status is PurgeStatus.UNSUPPORTED:
        raise UNSUPPORTED
    return Response(status_code=204)


def _database(request: Request) -> Database:
    database: Database = request.app.state.database
    return database


def _require_possible(session_id: str) -> None:
    """The host gives no conversation such an id, no case can name one, and PostgreSQL takes no zero byte."""
    require_plain({"id": session_id}, ConversationNotFound)
    if len(session_id) > _LONGEST_ID:
        raise ConversationNotFound("there is no such conversation")
