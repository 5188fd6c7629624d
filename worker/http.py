"""The reference host: conversations over HTTP, with everything that Expunge offers to a host. Others may read it as the
example.

The routes are in http_sessions.py, who may use them in http_auth.py, what an error looks like in http_errors.py. All
that touches the database runs in the framework's threads.
"""

from importlib.metadata import version
from typing import Literal

from fastapi import FastAPI, Request
from pydantic import BaseModel

from expunge.models.database import Database
from expunge.models.session_store import answer_soon, ping
from expunge.worker import http_sessions
from expunge.worker.http_errors import Problem, handle_errors
from expunge.worker.http_requests import Requests

MAX_BODY_BYTES = 1024 * 1024
"""Of one request."""
LOCK_SECONDS = 5.0
"""How long a request waits for somebody else's lock before it answers 503."""


class Health(BaseModel):
    """All is well."""

    status: Literal["ok"] = "ok"


def create_app(database: Database) -> FastAPI:
    """The application over a database that has the tables of `expunge migrate --with-sessions`.

    Its connections wait LOCK_SECONDS for a lock at the most.
    """
    answer_soon(database.engine, LOCK_SECONDS)
    app = FastAPI(
        title="Expunge reference host",
        version=version("expunge"),
        description="Conversations that can be deleted for ever.",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.database = database
    app.add_middleware(Requests, max_body_bytes=MAX_BODY_BYTES)
    handle_errors(app)
    app.include_router(http_sessions.reading)
    app.include_router(http_sessions.writing)

    @app.get(
        "/healthz",
        response_model=Health,
        tags=["health"],
        responses={503: {"model": Problem, "description": "the database is busy or away"}},
    )
    def healthz(request: Request) -> Health:
        """Whether the database answers. Needs no token."""
        with database.read() as tx:
            ping(tx)
        return Health()

    return app
