"""One deadline for a whole request.

The HTTP client's timeouts are for each step by itself (connect, send, every read), so that a server which answers in
drops could keep a call alive past its lease. These hooks give every step what is left of one deadline instead.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import httpx2

_deadline: ContextVar[float | None] = ContextVar("openai_deadline", default=None)
_LEAST = 0.001
"""Seconds: a step that has no time left fails at once."""


@contextmanager
def deadline(moment: float) -> Iterator[None]:
    """Requests of this thread must be answered before `moment` (`time.monotonic()`)."""
    token = _deadline.set(moment)
    try:
        yield
    finally:
        _deadline.reset(token)


class _Remaining(dict[str, float | None]):
    """Timeouts by step, as the transport asks for them when the step begins."""

    def __init__(self, steps: dict[str, float | None], moment: float) -> None:
        super().__init__(steps)
        self._moment = moment

    def get(self, step: str, default: Any = None) -> float:
        left = max(self._moment - time.monotonic(), _LEAST)
        own = super().get(step, default)
        return left if own is None else min(left, own)


def _limited_stream(
    stream: "httpx2.SyncByteStream", moment: float, request: "httpx2.Request"
) -> "httpx2.SyncByteStream":
    """A body that may not outlast the deadline."""
    made: httpx2.SyncByteStream = _limited_class()(stream, moment, request)
    return made


@cache
def _limited_class() -> Any:
    """The class is made late, since what it derives from is: see openai_client.py."""
    import httpx2

    class Limited(httpx2.SyncByteStream):
        def __init__(self, stream: httpx2.SyncByteStream, moment: float, request: httpx2.Request) -> None:
            self._stream = stream
            self._moment = moment
            self._request = request

        def __iter__(self) -> Iterator[bytes]:
            for chunk in self._stream:
                yield chunk
                if time.monotonic() > self._moment:
                    raise httpx2.ReadTimeout("The answer took longer than its deadline.", request=self._request)

        def close(self) -> None:
            self._stream.close()

    return Limited


def limit_request(request: "httpx2.Request") -> None:
    """Event hook of the client, before a request is sent."""
    moment = _deadline.get()
    if moment is not None:
        request.extensions["timeout"] = _Remaining(request.extensions.get("timeout", {}), moment)


def limit_response(response: "httpx2.Response") -> None:
    """Event hook of the client, when the headers have come."""
    import httpx2

    moment = _deadline.get()
    if moment is not None and isinstance(response.stream, httpx2.SyncByteStream):
        response.stream = _limited_stream(response.stream, moment, response.request)
