"""Runs the reference host in this process until it is told to stop."""

import signal
import socket
from collections.abc import Callable
from types import FrameType

import uvicorn
from fastapi import FastAPI

from expunge.models.errors import ConfigurationError

GRACE_SECONDS = 10
"""For requests under way, once it is told to stop."""


def bind(host: str, port: int) -> socket.socket:
    """A socket that listens; port 0 takes any that is free. Raises ConfigurationError."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        return socket.create_server(address[:2], family=family, backlog=2048)
    except (OSError, UnicodeError, OverflowError) as error:
        what = getattr(error, "strerror", None) or str(error)
        raise ConfigurationError(f"cannot listen on {host} port {port}: {what.lower()}") from None


def url_of(listener: socket.socket) -> str:
    """Where it listens."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if listener.family == socket.AF_INET6 else f"http://{host}:{port}"


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, started: Callable[[], None]) -> None:
        super().__init__(config)
        self._told = started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._told()


def serve(app: FastAPI, listener: socket.socket, started: Callable[[], None]) -> None:
    """Answer requests until SIGTERM or SIGINT; those under way are finished first, a second signal cuts them off."""
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,  # it would hold paths; http_requests.py has our own line
        lifespan="off",
        server_header=False,
        proxy_headers=False,
        ws="none",
        timeout_graceful_shutdown=GRACE_SECONDS,
    )
    # uvicorn raises the signal again when it has stopped: to be asked to stop is no failure
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _done)
    _Server(config, started).run([listener])


def _done(_: int, __: FrameType | None) -> None:
    pass
