"""What servers do differently that speak OpenAI's API. An account's settings name the dialect; it is never guessed.

openai   the API itself, and servers that answer exactly as it does
azure    Azure OpenAI: `api-key` and `api-version`; request ids of its own; deleting a file may answer 204 without a
         body (REST reference, "Files - Delete"); "Resource not found" and `DeploymentNotFound` are about the
         resource, its path or its API version, and prove nothing about an object
ogx      OGX (Llama Stack): no request ids; errors may be `{"detail": "…"}`; 400 for an absent vector store, with the
         words that its 404s have elsewhere (its server.py); an unknown route is `{"detail": "Not Found"}`, and names
         nothing; a connection on which it answered an error may be closed under the next request
"""

from dataclasses import dataclass
from typing import Literal

DialectName = Literal["openai", "azure", "ogx"]


@dataclass(frozen=True, slots=True)
class Dialect:
    """What is different."""

    name: DialectName
    request_id_headers: tuple[str, ...] = ("x-request-id",)
    """The first that an answer has is the one that the provider's support asks for."""
    shows_identity: bool = True
    """Whether answers can name an organization and project."""
    deleted_without_body: frozenset[int] = frozenset()
    """Documented successes of a file's deletion that confirm nothing: a look afterwards has to."""
    route_messages: frozenset[str] = frozenset()
    """Messages (lower case) of a 404 about the path, the API version or the resource."""
    route_codes: frozenset[str] = frozenset()
    absent_statuses: frozenset[int] = frozenset({404})
    """Statuses of an answer that may say that an object is absent."""
    detail_is_message: bool = False
    """`{"detail": "…"}` is an error of its own."""
    reuses_connections: bool = True
    """Otherwise each request has a connection of its own: one that is lost with the connection is an unknown."""


OPENAI = Dialect("openai")

DIALECTS: dict[str, Dialect] = {
    "openai": OPENAI,
    "azure": Dialect(
        "azure",
        request_id_headers=("apim-request-id", "x-ms-request-id", "x-request-id"),
        shows_identity=False,
        deleted_without_body=frozenset({204}),
        route_messages=frozenset({"resource not found"}),
        route_codes=frozenset({"DeploymentNotFound", "ResourceNotFound"}),
    ),
    "ogx": Dialect(
        "ogx",
        shows_identity=False,
        absent_statuses=frozenset({400, 404}),
        detail_is_message=True,
        reuses_connections=False,
    ),
}
