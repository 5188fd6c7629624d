"""What the demo provider keeps: projects and the objects in them, in the shapes of the OpenAI API reference."""

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]

CREATED = 1_767_225_600
"""Creation times are of no interest to an erasure; a constant keeps dumps comparable."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Whose key it is."""

    organization: str
    project: str


class ApiError(Exception):
    """An error in the API's own shape."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        type: str = "invalid_request_error",
        param: str | None = None,
        code: str | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.body: Json = {"error": {"message": message, "type": type, "param": param, "code": code}}


@dataclass(slots=True)
class Request:
    """One request as it came; `path` has no query."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""

    def json(self) -> Json:
        try:
            value = json.loads(self.body or b"{}")
        except ValueError:
            raise ApiError(400, "We could not parse the JSON body of your request.") from None
        if not isinstance(value, dict):
            raise ApiError(400, "The JSON body of your request must be an object.")
        return value


@dataclass(frozen=True, slots=True)
class Modes:
    """Where providers differ, or were seen to misbehave."""

    attached: str = "detached"
    """A file that is deleted while a vector store has it: `detached` from it, as the reference says; `refused` with 409
    (a comment at VRSEN/agency-swarm#423); or deleted, but `counted` in the store for ever after (openai-dotnet#540)."""
    lingers: int = 0
    """For how many reads a file is still there after its deletion was confirmed; -1: for ever."""
    confirms: bool = True
    """False: a file's deletion answers `deleted: false`."""
    cancelling: int = 0
    """For how many reads a batch is still `cancelling` after it was cancelled; -1: for ever."""


@dataclass(slots=True)
class Project:
    """The data of one project; other projects' keys see none of it."""

    files: dict[str, Json] = field(default_factory=dict)
    vector_stores: dict[str, Json] = field(default_factory=dict)
    attached: dict[str, dict[str, Json]] = field(default_factory=dict)
    conversations: dict[str, Json] = field(default_factory=dict)
    items: dict[str, dict[str, Json]] = field(default_factory=dict)
    """By conversation; what stays here after its conversation is gone was left behind."""
    responses: dict[str, Json] = field(default_factory=dict)
    modes: Modes = field(default_factory=Modes)
    ghosts: dict[str, int] = field(default_factory=dict)
    """By vector store: files that it counts and does not list."""
    lingering: dict[str, int] = field(default_factory=dict)
    """Reads that are left to files which are deleted, and still there."""
    plain: dict[str, dict[str, Json]] = field(default_factory=dict)
    """The objects of demo_provider_more.py, by kind and locator."""
    uploads: dict[str, Json] = field(default_factory=dict)
    batches: dict[str, Json] = field(default_factory=dict)
    cancelling: dict[str, int] = field(default_factory=dict)
    """Reads that are left to batches until they are `cancelled`."""

    def dump(self) -> Json:
        """Ids only, and the status of what has no call to delete it."""
        cancelled = {"uploads": self.uploads, "batches": self.batches}
        return {
            "files": list(self.files),
            "vector_stores": {store: list(self.attached.get(store, {})) for store in self.vector_stores},
            "conversations": {conv: list(self.items.get(conv, {})) for conv in self.conversations},
            "left_behind_items": {
                conv: list(items) for conv, items in self.items.items() if items and conv not in self.conversations
            },
            "responses": list(self.responses),
            **{name: list(kept) for name, kept in self.plain.items() if kept},
            **{name: {id: each["status"] for id, each in kept.items()} for name, kept in cancelled.items() if kept},
        }

    def seed(self, wanted: Mapping[str, Any]) -> None:
        """Make objects with known ids: lists of ids, or for stores and conversations a mapping to their parts."""
        for file in wanted.get("files", ()):
            self.files[file] = file_object(file, "seed.txt", 0, "user_data")
        for store, files in _mapping(wanted.get("vector_stores", ())).items():
            self.vector_stores[store] = {"id": store, "object": "vector_store", "created_at": CREATED, "name": None}
            self.attached[store] = {file: attachment(store, file) for file in files}
        for conversation, items in _mapping(wanted.get("conversations", ())).items():
            self.conversations[conversation] = conversation_object(conversation)
            self.items[conversation] = {item: message(item, {"role": "user", "content": ""}) for item in items}
        for response in wanted.get("responses", ()):
            self.responses[response] = response_object(response, "demo-model", None)


def _mapping(wanted: Any) -> Mapping[str, Any]:
    return wanted if isinstance(wanted, Mapping) else dict.fromkeys(wanted, ())


def file_object(id: str, filename: str, size: int, purpose: str) -> Json:
    return {
        "id": id,
        "object": "file",
        "bytes": size,
        "created_at": CREATED,
        "filename": filename,
        "purpose": purpose,
        "status": "processed",
    }


def attachment(store: str, file: str) -> Json:
    return {
        "id": file,
        "object": "vector_store.file",
        "created_at": CREATED,
        "vector_store_id": store,
        "status": "completed",
        "usage_bytes": 0,
        "last_error": None,
    }


def conversation_object(id: str, metadata: Any = None) -> Json:
    return {"id": id, "object": "conversation", "created_at": CREATED, "metadata": metadata or {}}


def message(id: str, item: Mapping[str, Any]) -> Json:
    content = item.get("content", "")
    if isinstance(content, str):
        content = [{"type": "input_text", "text": content}]
    return {"type": "message", "status": "completed", **item, "id": id, "content": content}


def response_object(id: str, model: str, input: Any) -> Json:
    return {
        "id": id,
        "object": "response",
        "created_at": CREATED,
        "status": "completed",
        "model": model,
        "output": [],
        "input": input,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }


def new_id(prefix: str) -> str:
    return prefix + secrets.token_hex(16)
