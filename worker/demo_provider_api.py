"""How the demo provider's API answers: the part of OpenAI's API that holds data of people.

Paging and wording follow the OpenAI API reference (Files, Vector stores, Conversations, Responses). Two facts of that
reference matter most for erasure and are kept here: deleting a conversation does not delete its items, and deleting a
vector store leaves its files.
"""

import re
from collections.abc import Callable, Mapping
from email.parser import BytesParser
from email.policy import HTTP

from expunge.worker.demo_provider_cancel import CANCEL_ROUTES
from expunge.worker.demo_provider_more import PLAIN_ROUTES
from expunge.worker.demo_provider_objects import (
    CREATED,
    ApiError,
    Json,
    Project,
    Request,
    attachment,
    conversation_object,
    file_object,
    message,
    new_id,
    response_object,
)

MAX_PAGE = 100
DEFAULT_PAGE = 20


def _no_file(id: str) -> ApiError:
    return ApiError(404, f"No such File object: {id}", param="id")


def _no_store(id: str) -> ApiError:
    return ApiError(404, f"No vector store found with id '{id}'.")


def _no_attachment(store: str, id: str) -> ApiError:
    return ApiError(404, f"No file found with id '{id}' in vector store '{store}'.")


def _no_conversation(id: str) -> ApiError:
    return ApiError(404, f"Conversation with id '{id}' not found.")


def _no_item(id: str) -> ApiError:
    return ApiError(404, f"Conversation item with id '{id}' not found.")


def _no_response(id: str) -> ApiError:
    return ApiError(404, f"Response with id '{id}' not found.")


def _page(request: Request, objects: Mapping[str, Json], missing: Callable[[str], ApiError]) -> Json:
    """A page of a listing: `limit`, `after`, `order`; newest first unless asked otherwise."""
    try:
        limit = int(request.query.get("limit", DEFAULT_PAGE))
    except ValueError:
        raise ApiError(400, "Invalid type for 'limit'.", param="limit") from None
    if not 1 <= limit <= MAX_PAGE:
        raise ApiError(400, f"Invalid 'limit': between 1 and {MAX_PAGE}.", param="limit")
    ids = list(objects)
    if request.query.get("order", "desc") != "asc":
        ids.reverse()
    after = request.query.get("after")
    if after is not None:
        if after not in objects:
            raise missing(after)
        ids = ids[ids.index(after) + 1 :]
    page = ids[:limit]
    return {
        "object": "list",
        "data": [objects[id] for id in page],
        "first_id": page[0] if page else None,
        "last_id": page[-1] if page else None,
        "has_more": len(ids) > limit,
    }


def _deleted(id: str, object: str) -> Json:
    return {"id": id, "object": object, "deleted": True}


def _upload(request: Request) -> tuple[str, int, str]:
    """Filename, size and purpose, of a multipart form or of a simple JSON object. The content is not kept."""
    kind = request.headers.get("content-type", "")
    if not kind.startswith("multipart/form-data"):
        given = request.json()
        return given.get("filename", "file.txt"), len(given.get("content", "")), given.get("purpose", "user_data")
    form = BytesParser(policy=HTTP).parsebytes(b"Content-Type: " + kind.encode() + b"\r\n\r\n" + request.body)
    filename, size, purpose = "file", 0, "user_data"
    for part in form.iter_parts():
        value = part.get_payload(decode=True) or b""
        assert isinstance(value, bytes)
        if part.get_param("name", header="content-disposition") == "purpose":
            purpose = value.decode()
        elif part.get_filename():
            filename, size = part.get_filename() or "file", len(value)
    return filename, size, purpose


def list_models(project: Project, request: Request) -> Json:
    model = {"id": "demo-model", "object": "model", "created": CREATED, "owned_by": "demo"}
    return {"object": "list", "data": [model]}


def create_file(project: Project, request: Request) -> Json:
    id = new_id("file-")
    project.files[id] = file_object(id, *_upload(request))
    return project.files[id]


def list_files(project: Project, request: Request) -> Json:
    return _page(request, project.files, _no_file)


def get_file(project: Project, request: Request, id: str) -> Json:
    left = project.lingering.get(id)
    if left == 0:
        project.files.pop(id, None)
    elif left is not None:
        project.lingering[id] = left - 1 if left > 0 else left
    if id not in project.files:
        raise _no_file(id)
    return project.files[id]


def delete_file(project: Project, request: Request, id: str) -> Json:
    if id not in project.files:
        raise _no_file(id)
    modes = project.modes
    stores = [store for store, attached in project.attached.items() if id in attached]
    if modes.attached == "refused" and stores:
        raise ApiError(409, f"File {id} is in use by a vector store.", code="file_in_use")
    if not modes.confirms:
        return {**_deleted(id, "file"), "deleted": False}
    for store in stores:
        del project.attached[store][id]
        if modes.attached == "counted":
            project.ghosts[store] = project.ghosts.get(store, 0) + 1
    if modes.lingers:
        project.lingering.setdefault(id, modes.lingers)
    else:
        del project.files[id]
    return _deleted(id, "file")


def create_store(project: Project, request: Request) -> Json:
    given, id = request.json(), new_id("vs_")
    files = given.get("file_ids") or []
    for file in files:
        get_file(project, request, file)
    project.vector_stores[id] = {"id": id, "object": "vector_store", "created_at": CREATED, "name": given.get("name")}
    project.attached[id] = {file: attachment(id, file) for file in files}
    return get_store(project, request, id)


def list_stores(project: Project, request: Request) -> Json:
    return _page(request, project.vector_stores, _no_store)


def get_store(project: Project, request: Request, id: str) -> Json:
    if id not in project.vector_stores:
        raise _no_store(id)
    total = len(project.attached[id]) + project.ghosts.get(id, 0)
    counts = {"total": total, "completed": total, "in_progress": 0, "failed": 0, "cancelled": 0}
    return {**project.vector_stores[id], "status": "completed", "usage_bytes": 0, "file_counts": counts}


def delete_store(project: Project, request: Request, id: str) -> Json:
    get_store(project, request, id)
    del project.vector_stores[id], project.attached[id]
    return _deleted(id, "vector_store.deleted")


def attach_file(project: Project, request: Request, id: str) -> Json:
    get_store(project, request, id)
    file = str(request.json().get("file_id", ""))
    get_file(project, request, file)
    project.attached[id][file] = attachment(id, file)
    return project.attached[id][file]


def list_attached(project: Project, request: Request, id: str) -> Json:
    get_store(project, request, id)
    return _page(request, project.attached[id], lambda file: _no_attachment(id, file))


def get_attached(project: Project, request: Request, id: str, file: str) -> Json:
    get_store(project, request, id)
    if file not in project.attached[id]:
        raise _no_attachment(id, file)
    return project.attached[id][file]


def detach_file(project: Project, request: Request, id: str, file: str) -> Json:
    get_attached(project, request, id, file)
    del project.attached[id][file]
    return _deleted(file, "vector_store.file.deleted")


def create_conversation(project: Project, request: Request) -> Json:
    given, id = request.json(), new_id("conv_")
    project.conversations[id] = conversation_object(id, given.get("metadata"))
    project.items[id] = {}
    _add_items(project, id, given.get("items") or [])
    return project.conversations[id]


def get_conversation(project: Project, request: Request, id: str) -> Json:
    if id not in project.conversations:
        raise _no_conversation(id)
    return project.conversations[id]


def delete_conversation(project: Project, request: Request, id: str) -> Json:
    """Its items stay in `items`: the reference says so, and a test can see that they were left behind."""
    get_conversation(project, request, id)
    del project.conversations[id]
    return _deleted(id, "conversation.deleted")


def _add_items(project: Project, conversation: str, items: list[Json]) -> list[Json]:
    made = [message(new_id("msg_"), item) for item in items]
    project.items[conversation].update({item["id"]: item for item in made})
    return made


def create_items(project: Project, request: Request, id: str) -> Json:
    get_conversation(project, request, id)
    items = request.json().get("items") or []
    if len(items) > 20:
        raise ApiError(400, "Invalid 'items': array too long, at most 20.", param="items")
    made = _add_items(project, id, items)
    ids = [item["id"] for item in made] or [None]
    return {"object": "list", "data": made, "first_id": ids[0], "last_id": ids[-1], "has_more": False}


def list_items(project: Project, request: Request, id: str) -> Json:
    get_conversation(project, request, id)
    return _page(request, project.items[id], _no_item)


def get_item(project: Project, request: Request, id: str, item: str) -> Json:
    get_conversation(project, request, id)
    if item not in project.items[id]:
        raise _no_item(item)
    return project.items[id][item]


def delete_item(project: Project, request: Request, id: str, item: str) -> Json:
    """Answers the conversation, without any flag."""
    get_item(project, request, id, item)
    del project.items[id][item]
    return project.conversations[id]


def create_response(project: Project, request: Request) -> Json:
    given, id = request.json(), new_id("resp_")
    response = response_object(id, str(given.get("model", "demo-model")), given.get("input"))
    if given.get("store", True):
        project.responses[id] = response
    return response


def get_response(project: Project, request: Request, id: str) -> Json:
    if id not in project.responses:
        raise _no_response(id)
    return project.responses[id]


def delete_response(project: Project, request: Request, id: str) -> Json:
    get_response(project, request, id)
    del project.responses[id]
    return _deleted(id, "response")


_ROUTES: tuple[tuple[str, str, Callable[..., Json]], ...] = (
    ("GET", "/models", list_models),
    ("POST", "/files", create_file),
    ("GET", "/files", list_files),
    ("GET", "/files/{}", get_file),
    ("DELETE", "/files/{}", delete_file),
    ("POST", "/vector_stores", create_store),
    ("GET", "/vector_stores", list_stores),
    ("GET", "/vector_stores/{}", get_store),
    ("DELETE", "/vector_stores/{}", delete_store),
    ("POST", "/vector_stores/{}/files", attach_file),
    ("GET", "/vector_stores/{}/files", list_attached),
    ("GET", "/vector_stores/{}/files/{}", get_attached),
    ("DELETE", "/vector_stores/{}/files/{}", detach_file),
    ("POST", "/conversations", create_conversation),
    ("GET", "/conversations/{}", get_conversation),
    ("DELETE", "/conversations/{}", delete_conversation),
    ("POST", "/conversations/{}/items", create_items),
    ("GET", "/conversations/{}/items", list_items),
    ("GET", "/conversations/{}/items/{}", get_item),
    ("DELETE", "/conversations/{}/items/{}", delete_item),
    ("POST", "/responses", create_response),
    ("GET", "/responses/{}", get_response),
    ("DELETE", "/responses/{}", delete_response),
    *PLAIN_ROUTES,
    *CANCEL_ROUTES,
)
ROUTES = tuple((method, re.compile("/v1" + path.replace("{}", "([^/]+)")), run) for method, path, run in _ROUTES)


def answer(project: Project, request: Request) -> Json:
    """Carry a request out. Raises ApiError."""
    for method, path, run in ROUTES:
        found = path.fullmatch(request.path)
        if method == request.method and found is not None:
            return run(project, request, *found.groups())
    raise ApiError(404, f"Invalid URL ({request.method} {request.path})")
