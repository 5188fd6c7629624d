"""How other servers speak OpenAI's API, for the demo provider: the same objects behind another door.

azure   key in `api-key`, paths below `/openai/v1` or (with `api-version`) `/openai`; request ids of its own, no
        identity; an unknown path, version or resource is "Resource not found"; with an `api-version` of the older
        kind a file's deletion is 204 without a body
ogx     no request ids and no identity; 400 for an absent vector store; other errors are `{"detail": …}`, as for a
        route that does not exist; the connection is closed after an error
"""

import re
from collections.abc import Mapping
from dataclasses import replace

from expunge.worker.demo_provider_objects import Json, Request

AZURE_VERSIONS = frozenset({"2024-10-21", "preview"})
_AZURE_NOT_FOUND: Json = {"error": {"code": "404", "message": "Resource not found"}}


def incoming(dialect: str, request: Request) -> Request | None:
    """The request as the API itself would have it; None if this server knows no such address."""
    if dialect != "azure":
        return request
    version = request.query.get("api-version")
    if version is not None and version not in AZURE_VERSIONS:
        return None
    if request.path.startswith("/openai/v1/"):
        path = request.path.removeprefix("/openai")
    elif request.path.startswith("/openai/") and version is not None:
        path = "/v1" + request.path.removeprefix("/openai")
    else:
        return None
    key = request.headers.get("api-key", "")
    return replace(request, path=path, headers={**request.headers, "authorization": f"Bearer {key}"})


def outgoing(dialect: str, request: Request, status: int, body: Json) -> tuple[int, Json | None]:
    """Status and body as this server gives them; None for no body at all."""
    error = body.get("error") if status >= 400 else None
    unknown_route = error is not None and str(error["message"]).startswith("Invalid URL")
    if dialect == "azure":
        if unknown_route:
            return 404, _AZURE_NOT_FOUND
        dated = not request.path.startswith("/openai/v1/")
        if status == 200 and dated and request.method == "DELETE" and request.path.startswith("/openai/files/"):
            return 204, None
    if dialect == "ogx" and error is not None:
        if unknown_route:
            return 404, {"detail": "Not Found"}
        message = str(error["message"])
        if status == 404 and request.path.startswith("/v1/vector_stores"):
            return 400, {"error": {"message": _in_ogx_words(message)}}
        return status, {"detail": message}
    return status, body


def _in_ogx_words(message: str) -> str:
    file, store = re.search(r"No file found with id '(.+?)'", message), re.search(r"vector store.* '(.+?)'", message)
    named = store.group(1) if store else ""
    if file:
        return f"File '{file.group(1)}' not found in vector store '{named}'."
    return f"Vector Store '{named}' not found. Use 'client.vector_dbs.list()' to list available Vector Stores."


def azure_not_found() -> tuple[int, Json]:
    """A wrong resource, path or version."""
    return 404, _AZURE_NOT_FOUND


def headers(dialect: str, request_id: str, usual: Mapping[str, str]) -> Mapping[str, str]:
    """The headers in place of the API's own."""
    if dialect == "openai":
        return usual
    kept = {name: value for name, value in usual.items() if not name.startswith(("openai-", "x-request-id"))}
    return {**kept, "apim-request-id": request_id, "x-ms-region": "Sweden Central"} if dialect == "azure" else kept
