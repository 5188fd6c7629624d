"""Errors over HTTP: one shape for all of them, with a code for programs and a message for people. No message repeats
what was sent, and none says whether somebody else's conversation exists."""

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from sqlalchemy.exc import SQLAlchemyError
from starlette.exceptions import HTTPException

from expunge.models.database import is_locked, is_unreachable
from expunge.models.errors import (
    ConversationBusy,
    ConversationNotFound,
    ConversationPurged,
    ExpungeError,
    Held,
    InvalidCursor,
    InvalidEvent,
    InvalidGraph,
    RunActive,
    VersionConflict,
    translate,
)

RETRY_SECONDS = 1
"""What Retry-After says while somebody else has the lock, or the database is away."""
_CODES = {
    401: "unauthenticated",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    413: "too_large",
    422: "invalid_request",
}
_MESSAGES = {
    404: "there is nothing here",
    405: "this path does not take this method",
    413: "the body is too large",
    422: "the body cannot be read",
}
_SHOWN = {"query", "path", "body", "limit", "cursor", "expected_version", "title", "type", "payload", "run_id"}
"""Names that an error may repeat: ours."""


class Problem(BaseModel):
    """Every error, whatever its status."""

    code: str = Field(description="For programs: not_found, invalid_state …")
    message: str = Field(description="For people.")
    details: dict[str, Any] = Field(description="What a program needs besides: empty, or what the code promises.")


class Refusal(HTTPException):
    """An error with its code and details."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        details: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(status, detail=message, headers=dict(headers or {}))
        self.code = code
        self.details = dict(details or {})


UNSUPPORTED = Refusal(501, "unsupported", "the host cannot keep what it deletes from coming back: nothing was deleted")
"""The fence is missing or another graph's, or the tables are no longer those of the graph."""


def problem(refusal: HTTPException) -> JSONResponse:
    """The answer for it."""
    status = 422 if refusal.status_code == 400 else refusal.status_code  # a body that cannot be read is not valid
    if isinstance(refusal, Refusal):
        code, message, details = refusal.code, str(refusal.detail), refusal.details
    else:  # the framework's own: an unknown path, a method, a body that is too large or cannot be read
        code, details = _CODES.get(status, "error"), {}
        message = _MESSAGES.get(status, HTTPStatus(status).phrase.lower())
    return JSONResponse({"code": code, "message": message, "details": details}, status, headers=refusal.headers)


def refusal_of(error: Exception) -> Refusal | None:
    """What an error of ours or of the database is over HTTP; None if it is a fault of this program."""
    match error:
        case SQLAlchemyError():
            known = translate(error)
            if known is not None:
                return refusal_of(known)
            if is_locked(error):
                return refusal_of(ConversationBusy())
            return _unavailable("unavailable", "the database is busy or away") if is_unreachable(error) else None
        case ConversationNotFound():
            return Refusal(404, "not_found", "there is no such conversation")
        case ConversationPurged():
            return Refusal(410, "conversation_purged", "the conversation was deleted for ever")
        case RunActive():
            reason = {"reason": "active_run_exists", "run_id": error.run_id}
            return Refusal(409, "invalid_state", "a run of the conversation is active: stop it first", reason)
        case VersionConflict():
            reason = {"reason": "version_conflict"}
            return Refusal(409, "invalid_state", "the conversation is not at the expected version", reason)
        case Held():
            return Refusal(409, "legal_hold", "a legal hold stands: the conversation is kept")
        case InvalidGraph():
            return UNSUPPORTED
        case ConversationBusy():
            return _unavailable("busy", "somebody else is writing: try again")
        case InvalidCursor() | InvalidEvent():
            name, _, what = str(error).partition(": ")
            where = "query" if isinstance(error, InvalidCursor) else "body"
            return invalid([{"where": f"{where}.{name}", "what": what}])
    return None


def invalid(fields: Sequence[Mapping[str, str]]) -> Refusal:
    """What was sent cannot be taken."""
    return Refusal(422, "invalid_request", "the request is not one that this path takes", {"fields": list(fields)})


def handle_errors(app: FastAPI) -> None:
    """Answer every error in the one shape."""

    @app.exception_handler(HTTPException)
    async def _refused(request: Request, error: HTTPException) -> JSONResponse:
        answer = problem(error)
        if error.status_code == 405:  # the framework names the methods of one of the path's routes
            taken = app.openapi()["paths"].get(getattr(request.scope.get("route"), "path", None), {})
            answer.headers["Allow"] = ", ".join(sorted(method.upper() for method in taken)) or "GET"
        return answer

    @app.exception_handler(RequestValidationError)
    async def _not_valid(_: Request, error: RequestValidationError) -> JSONResponse:
        return problem(invalid([_field(one) for one in error.errors()]))

    @app.exception_handler(ExpungeError)
    @app.exception_handler(SQLAlchemyError)
    async def _known(_: Request, error: Exception) -> JSONResponse:
        refusal = refusal_of(error)
        if refusal is None:
            raise error
        return problem(refusal)


def _field(error: Mapping[str, Any]) -> dict[str, str]:
    where = ".".join(str(part) for part in error["loc"] if part in _SHOWN)
    return {"where": where, "what": str(error["type"])}


def _unavailable(code: str, message: str) -> Refusal:
    return Refusal(503, code, message, headers={"Retry-After": str(RETRY_SECONDS)})
