"""Around every request: its id, the limit of its body, one line in the log, and an answer whatever goes wrong inside.

Neither the path nor anything that was sent is logged; the route is.
"""

import re
import time
import uuid
from typing import Any

import structlog
from fastapi import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from expunge.worker.http_errors import Refusal, problem

_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")


log = structlog.get_logger()


class Requests:
    """A client's X-Request-Id comes back. One of ours is sent with server errors only: otherwise no two answers would
    be the same, and that a conversation is somebody else's must not be told from its absence."""

    def __init__(self, app: ASGIApp, max_body_bytes: int) -> None:
        self._app = app
        self._max_body_bytes = max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As ASGI says."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.monotonic()
        given = _given(scope)
        request_id = given or uuid.uuid4().hex.encode()
        status: int | None = None
        received = 0

        async def take() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > self._max_body_bytes:
                raise HTTPException(413)
            return message

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = list(message.get("headers", []))
                headers.append((b"cache-control", b"no-store"))
                if given is not None or message["status"] >= 500:
                    headers.append((b"x-request-id", request_id))
                message = {**message, "headers": headers}
            await send(message)

        with structlog.contextvars.bound_contextvars(request_id=request_id.decode()):
            try:
                if _declared(scope) > self._max_body_bytes:
                    await problem(HTTPException(413))(scope, receive, answer)
                else:
                    await self._app(scope, take, answer)
            except Exception:
                log.exception("request.failed", route=_route(scope))
                if status is not None:
                    raise
                failed = Refusal(500, "internal", "something went wrong here: the log has this request's id")
                await problem(failed)(scope, receive, answer)
            log.info(
                "request.answered",
                method=scope["method"],
                route=_route(scope),
                status=status,
                seconds=round(time.monotonic() - began, 4),
            )


def _declared(scope: Scope) -> int:
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit():
            return int(value[:20])
    return 0


def _given(scope: Scope) -> bytes | None:
    for name, value in scope["headers"]:
        if name == b"x-request-id" and _REQUEST_ID.fullmatch(value):
            found: bytes = value
            return found
    return None


def _route(scope: Scope) -> Any:
    return getattr(scope.get("route"), "path", None)
