"""Who sends a request, and what it may do: decided before anything else of the request is read."""

from collections.abc import Callable, Coroutine
from typing import Annotated, Any, ClassVar

from fastapi import Depends, Request, Response
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer
from starlette.concurrency import run_in_threadpool

from expunge.models.database import Database
from expunge.models.purged import Principal
from expunge.models.session_token import Bearer, TokenScope, find_bearer
from expunge.worker.http_errors import Refusal, problem, refusal_of

_REALM = 'Bearer realm="expunge"'

BEARER = HTTPBearer(auto_error=False, scheme_name="bearer", description="`expunge token create` prints one.")
"""For the OpenAPI document; the routes below do the work."""


class _Guarded(APIRoute):
    scope: ClassVar[TokenScope]

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        answer = super().get_route_handler()

        async def guarded(request: Request) -> Response:
            try:
                bearer = await run_in_threadpool(_bearer, request.app.state.database, request)
            except Exception as error:
                refusal = refusal_of(error)
                if refusal is None:
                    raise
                return problem(refusal)
            if self.scope not in bearer.scopes:
                challenge = f'{_REALM}, error="insufficient_scope", scope="{self.scope}"'
                raise Refusal(
                    403,
                    "forbidden",
                    f"the token lacks the scope {self.scope}",
                    {"scope": str(self.scope)},
                    {"WWW-Authenticate": challenge},
                )
            request.state.bearer = bearer
            return await answer(request)

        return guarded


class Reading(_Guarded):
    """A route that needs `session.read`."""

    scope = TokenScope.READ


class Writing(_Guarded):
    """A route that needs `session.write`."""

    scope = TokenScope.WRITE


def _bearer(database: Database, request: Request) -> Bearer:
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer":
        raise Refusal(
            401, "unauthenticated", "send a bearer token: expunge token create", headers={"WWW-Authenticate": _REALM}
        )
    with database.read() as tx:
        bearer = find_bearer(tx, token.strip())
    if bearer is None:
        challenge = f'{_REALM}, error="invalid_token"'
        raise Refusal(
            401, "unauthenticated", "the token is unknown, revoked or expired", headers={"WWW-Authenticate": challenge}
        )
    return bearer


def _principal(request: Request) -> Principal:
    bearer: Bearer = request.state.bearer
    return bearer.principal


Caller = Annotated[Principal, Depends(_principal)]
"""On whose behalf a route acts."""
