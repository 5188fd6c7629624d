"""One delete call for each kind of object, and what confirms it.

    kind                 success in the OpenAI API reference        confirmed by
    file, vector_store,
    conversation         {"id": …, "deleted": true}                 that body
    vector_store_file    the same, with the file's id               that body
    thread, assistant,
    chat_completion      {"id": …, "deleted": true}                 that body
    response             the same, or no body at all                that body, else a look that finds it gone
    container,
    container_file       the same, or no body at all                that body, else a look that finds it gone
    conversation_item    the conversation, without a flag           a look that finds the item gone
    upload, batch        have no deletion: openai_cancel.py

So says OpenAI's own OpenAPI document ("OpenAI API", version 2.3.0, openai/openai-openapi). Of a response, a container
and a container's file it gives no content in the 200, and an example with the body. The only deletion that it tells a
404 of is that of a response.

"Delete a conversation" says that its items are not deleted with it. So when the API answers for an item that the
whole conversation is not found, the item may be left behind where no call reaches it. That is not "already absent": it
is `PARENT_ABSENT`, few tries and then a person, and no reason to hold up the lane.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from expunge.models.entry import Entry
from expunge.tasks.erasers.contract import Answer, NothingSent
from expunge.tasks.erasers.openai_answers import to_answer
from expunge.tasks.erasers.openai_cancel import batch_answer, upload_answer, upload_refused
from expunge.tasks.erasers.openai_client import Client, Request
from expunge.tasks.erasers.openai_errors import Problem, problem, unconfirmed
from expunge.tasks.erasers.openai_identity import Expected
from expunge.tasks.erasers.openai_naming import says_absent
from expunge.tasks.erasers.openai_reply import Reply
from expunge.tasks.outcomes import Outcome

if TYPE_CHECKING:
    import openai

PARENT_ABSENT = "ParentAbsent"

RAW_RESPONSE_HEADER: Final = "X-Stainless-Raw-Response"
"""What the SDK's `with_raw_response` sets, to give the answer as it came."""

Ids = tuple[str, ...]
"""A locator's path: `("conv_1", "msg_2")`; the last one is the object's own."""

_INCONCLUSIVE = frozenset(
    {Outcome.NO_ANSWER, Outcome.THROTTLED, Outcome.UNAVAILABLE, Outcome.REFUSED_SCOPE, Outcome.WRONG_IDENTITY}
)
"""Outcomes of a confirming look that say more about the store than about the object, and are kept."""


@dataclass(frozen=True, slots=True)
class Deletion:
    """How one kind is deleted."""

    operation: str
    delete: Callable[[Ids], Request]
    look: Callable[[Ids], Request] | None = None
    """The read that confirms, where the success does not."""
    look_name: str = ""
    needs_look: Callable[[Reply, Ids], bool] = lambda reply, ids: False
    says: Callable[[Reply, str], Problem | None] | None = None
    """What a 2xx comes to, where it is not the documented confirmation of a deletion."""
    refused: Callable[[Reply, Problem], Problem] = lambda reply, found: found
    """What else comes to, where that is not what it always does."""


def _returns_conversation(reply: Reply, ids: Ids) -> bool:
    body = reply.json() or {}
    return body.get("object") == "conversation" and body.get("id") == ids[0]


def _beta(method: Literal["DELETE", "GET"], path: str) -> Request:
    """A request of the deprecated Assistants API, by the SDK's own way for requests that it has no method for: its
    methods for these warn at every call, and an SDK without them is to come."""
    headers = {"OpenAI-Beta": "assistants=v2", RAW_RESPONSE_HEADER: "true"}

    def request(sdk: "openai.OpenAI") -> Any:
        call = sdk.delete if method == "DELETE" else sdk.get
        return call(path, cast_to=object, options={"headers": headers})

    return request


DELETIONS: dict[str, Deletion] = {
    "file": Deletion(
        "DELETE /files",
        lambda ids: lambda sdk: sdk.files.with_raw_response.delete(ids[0]),
        lambda ids: lambda sdk: sdk.files.with_raw_response.retrieve(ids[0]),
        "GET /files/{id}",
        lambda reply, ids: reply.is_empty and reply.status in reply.dialect.deleted_without_body,
    ),
    "vector_store": Deletion(
        "DELETE /vector_stores",
        lambda ids: lambda sdk: sdk.vector_stores.with_raw_response.delete(ids[0]),
        lambda ids: lambda sdk: sdk.vector_stores.with_raw_response.retrieve(ids[0]),
        "GET /vector_stores/{id}",
    ),
    "vector_store_file": Deletion(
        "DELETE /vector_stores/files",
        lambda ids: lambda sdk: sdk.vector_stores.files.with_raw_response.delete(ids[1], vector_store_id=ids[0]),
        lambda ids: lambda sdk: sdk.vector_stores.files.with_raw_response.retrieve(ids[1], vector_store_id=ids[0]),
        "GET /vector_stores/{id}/files/{file_id}",
    ),
    "conversation": Deletion(
        "DELETE /conversations",
        lambda ids: lambda sdk: sdk.conversations.with_raw_response.delete(ids[0]),
        lambda ids: lambda sdk: sdk.conversations.with_raw_response.retrieve(ids[0]),
        "GET /conversations/{id}",
    ),
    "response": Deletion(
        "DELETE /responses",
        lambda ids: lambda sdk: sdk.responses.with_raw_response.delete(ids[0]),
        lambda ids: lambda sdk: sdk.responses.with_raw_response.retrieve(ids[0]),
        "GET /responses/{id}",
        lambda reply, ids: reply.is_empty,
    ),
    "conversation_item": Deletion(
        "DELETE /conversations/items",
        lambda ids: lambda sdk: sdk.conversations.items.with_raw_response.delete(ids[1], conversation_id=ids[0]),
        lambda ids: lambda sdk: sdk.conversations.items.with_raw_response.retrieve(ids[1], conversation_id=ids[0]),
        "GET /conversations/{id}/items/{item_id}",
        _returns_conversation,
    ),
    "container": Deletion(
        "DELETE /containers",
        lambda ids: lambda sdk: sdk.containers.with_raw_response.delete(ids[0]),
        lambda ids: lambda sdk: sdk.containers.with_raw_response.retrieve(ids[0]),
        "GET /containers/{id}",
        lambda reply, ids: reply.is_empty,
    ),
    "container_file": Deletion(
        "DELETE /containers/files",
        lambda ids: lambda sdk: sdk.containers.files.with_raw_response.delete(ids[1], container_id=ids[0]),
        lambda ids: lambda sdk: sdk.containers.files.with_raw_response.retrieve(ids[1], container_id=ids[0]),
        "GET /containers/{id}/files/{file_id}",
        lambda reply, ids: reply.is_empty,
    ),
    "thread": Deletion(
        "DELETE /threads",
        lambda ids: _beta("DELETE", f"/threads/{ids[0]}"),
        lambda ids: _beta("GET", f"/threads/{ids[0]}"),
        "GET /threads/{id}",
    ),
    "assistant": Deletion(
        "DELETE /assistants",
        lambda ids: _beta("DELETE", f"/assistants/{ids[0]}"),
        lambda ids: _beta("GET", f"/assistants/{ids[0]}"),
        "GET /assistants/{id}",
    ),
    "chat_completion": Deletion(
        "DELETE /chat/completions",
        lambda ids: lambda sdk: sdk.chat.completions.with_raw_response.delete(ids[0]),
        lambda ids: lambda sdk: sdk.chat.completions.with_raw_response.retrieve(ids[0]),
        "GET /chat/completions/{id}",
    ),
    "upload": Deletion(
        "POST /uploads/cancel",
        lambda ids: lambda sdk: sdk.uploads.with_raw_response.cancel(ids[0]),
        says=upload_answer,
        refused=upload_refused,
    ),
    "batch": Deletion(
        "POST /batches/cancel",
        lambda ids: lambda sdk: sdk.batches.with_raw_response.cancel(ids[0]),
        lambda ids: lambda sdk: sdk.batches.with_raw_response.retrieve(ids[0]),
        "GET /batches/{id}",
        says=batch_answer,
    ),
}


def delete(client: Client, expected: Expected, entry: Entry) -> Answer:
    """Delete an entry's object, and look afterwards where the success confirms nothing; both within the client's
    timeout. Raises NothingSent if the delete itself could not be sent."""
    how = DELETIONS[entry.kind]
    ids = tuple(entry.locator.split("/"))
    before = time.monotonic() + client.timeout
    reply = client.send(how.delete(ids), before=before)
    found = about(reply, expected, ids)
    detail: dict[str, object] | None = None
    looked: Reply | None = None
    if found is not None:
        found = how.refused(reply, found)
    elif how.says is not None:
        found = how.says(reply, ids[-1])
    elif how.look is not None and how.needs_look(reply, ids):
        try:
            looked = client.send(how.look(ids), before=before)
        except NothingSent as nothing:  # the deletion was sent, and nothing confirms it
            found, detail = Problem(Outcome.NO_ANSWER, nothing.reason), {"confirm": how.look_name}
        else:
            found = _confirmation(about(looked, expected, ids))
            detail = _of_look(looked, how.look_name, confirmed=found is None)
    else:
        found = _by_body(reply, ids[-1])
    return to_answer(
        entry, reply, found, operation=how.operation, endpoint=client.base_url, detail=detail, confirmed=looked
    )


def about(reply: Reply, expected: Expected, ids: Ids) -> Problem | None:
    """As `problem`, but knowing that an item can be asked for inside a conversation that is gone."""
    found = problem(reply, expected, ids[-1])
    if found is not None and found.outcome is Outcome.UNCONFIRMED and len(ids) > 1:
        error = reply.error()
        if reply.status == 404 and error is not None and says_absent(error, ids[0]):
            return Problem(Outcome.PARENT_ABSENT, PARENT_ABSENT)
    return found


def _by_body(reply: Reply, id: str) -> Problem | None:
    """The documented confirmation: this id, and `deleted` is true. Accepted (202) is not deleted."""
    if reply.status != 200:
        return unconfirmed("NotConfirmed")
    if reply.is_empty:
        return unconfirmed("EmptyBody")
    body = reply.json()
    if body is None:
        return unconfirmed("NotTheStore")
    if body.get("id") != id:
        return unconfirmed("OtherId" if "id" in body else "NotConfirmed")
    return None if body.get("deleted") is True else unconfirmed("NotDeleted")


def _confirmation(found: Problem | None) -> Problem | None:
    """What the confirming look makes of the deletion: gone confirms it, and nothing else does."""
    if found is None:
        return unconfirmed("StillThere")
    if found.outcome is Outcome.ABSENT:
        return None
    if found.outcome in _INCONCLUSIVE or found.error == PARENT_ABSENT:
        return found
    return unconfirmed(found.error or "NotConfirmed")


def _of_look(looked: Reply, name: str, *, confirmed: bool) -> dict[str, object]:
    detail: dict[str, object] = {"confirmed_by" if confirmed else "confirm": name}
    if looked.request_id is not None:
        detail["confirm_request_id"] = looked.request_id
    if looked.status is not None and not confirmed:
        detail["confirm_status"] = looked.status
    return detail
