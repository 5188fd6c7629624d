"""The demo provider's plainer objects: each kind is one declaration, and can be made, read and deleted.

Paths, ids and bodies follow the OpenAI API reference (Containers, Container files, Chat completions, and the deprecated
Assistants and Threads, which want a header of their own). Of "Delete a container" and "Delete a container file"
OpenAI's OpenAPI document ("OpenAI API", version 2.3.0) gives no content, and an example with a body
(`container.deleted`); the body is left out here, so that a client has to look.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

from expunge.worker.demo_provider_objects import CREATED, ApiError, Json, Project, Request, new_id

Route = tuple[str, str, Callable[..., Json]]


@dataclass(frozen=True, slots=True)
class Plain:
    """One kind. In `path`, `{}` stands for the id of what it is inside."""

    name: str
    """As `seed` and `state` have it."""
    path: str
    prefix: str
    object: str
    deleted: str | None
    """What a deletion's body calls itself; None: an empty body."""
    missing: str
    beta: bool = False
    within: str | None = None
    """The name of the kind that it is inside."""

    def make(self, id: str) -> Json:
        """An object of this kind; `id` alone, without what it is inside."""
        return {"id": id, "object": self.object, "created_at": CREATED}

    def routes(self) -> tuple[Route, ...]:
        one = self.path + "/{}"
        return (
            ("POST", self.path, self._create),
            ("GET", one, self._get),
            ("DELETE", one, self._delete),
        )

    def _require(self, project: Project, request: Request, ids: tuple[str, ...]) -> None:
        if self.beta and request.headers.get("openai-beta") != "assistants=v2":
            message = "You must provide the 'OpenAI-Beta' header to access the Assistants API."
            raise ApiError(400, message, code="invalid_beta")
        if self.within is not None and ids[0] not in project.plain.get(self.within, {}):
            raise ApiError(404, BY_NAME[self.within].missing.format(ids[0]))

    def _create(self, project: Project, request: Request, *ids: str) -> Json:
        id = new_id(self.prefix)
        self._require(project, request, (*ids, id))
        made = self.make(id)
        if self.name != "chat_completions" or request.json().get("store"):
            project.plain.setdefault(self.name, {})["/".join((*ids, id))] = made
        return made

    def _get(self, project: Project, request: Request, *ids: str) -> Json:
        self._require(project, request, ids)
        found = project.plain.get(self.name, {}).get("/".join(ids))
        if found is None:
            raise ApiError(404, self.missing.format(ids[-1]))
        return found

    def _delete(self, project: Project, request: Request, *ids: str) -> Json:
        self._get(project, request, *ids)
        del project.plain[self.name]["/".join(ids)]
        for inside in (kind for kind in PLAIN if kind.within == self.name):
            kept = project.plain.get(inside.name, {})
            for locator in [each for each in kept if each.startswith(ids[-1] + "/")]:
                del kept[locator]
        return {} if self.deleted is None else {"id": ids[-1], "object": self.deleted, "deleted": True}


PLAIN = (
    Plain("containers", "/containers", "cntr_", "container", None, "Container with id '{}' not found."),
    Plain(
        "container_files",
        "/containers/{}/files",
        "cfile_",
        "container.file",
        None,
        "Container file with id '{}' not found.",
        within="containers",
    ),
    Plain("threads", "/threads", "thread_", "thread", "thread.deleted", "No thread found with id '{}'.", beta=True),
    Plain(
        "assistants",
        "/assistants",
        "asst_",
        "assistant",
        "assistant.deleted",
        "No assistant found with id '{}'.",
        beta=True,
    ),
    Plain(
        "chat_completions",
        "/chat/completions",
        "chatcmpl-",
        "chat.completion",
        "chat.completion.deleted",
        "Chat completion with id '{}' not found.",
    ),
)
BY_NAME = {kind.name: kind for kind in PLAIN}
PLAIN_ROUTES: tuple[Route, ...] = tuple(route for kind in PLAIN for route in kind.routes())

NO_BODY = re.compile(r"/v1/containers/[^/]+(?:/files/[^/]+)?")
"""Paths whose successful DELETE answers without a body."""


def seed_plain(project: Project, name: str, locators: list[str]) -> None:
    """Make objects of a kind with known ids."""
    kind = BY_NAME[name]
    project.plain.setdefault(name, {}).update({each: kind.make(each.rpartition("/")[2]) for each in locators})
