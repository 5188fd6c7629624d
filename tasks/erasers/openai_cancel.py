"""Uploads and batches: what OpenAI's API can cancel, and has no call to delete.

    kind      the one call                  what may be read of it afterwards
    upload    POST /uploads/{id}/cancel     nothing: there is no GET of an upload
    batch     POST /batches/{id}/cancel     GET /batches/{id}: its status, and the files that it names

Both statements are those of OpenAI's own OpenAPI document ("OpenAI API", version 2.3.0, openai/openai-openapi), and so
are the words of a status. So no receipt of these says `deleted`. What they come to is `ended`: an upload that nothing
can be added to, and that no file is made of; a batch that nothing comes of any more, and whose files are gone.

A batch that is cancelled is `cancelling` "for up to 10 minutes, before changing to `cancelled`, where it will have
partial results (if any) available in the output file" (the same document): its files are known only then. Cancelling
one that was cancelled before answers with it as it is (BerriAI/litellm#36034); one that is completed is refused with
409, "Cannot cancel a batch with status 'completed'" (the tests of BerriAI/litellm). What an upload answers that is no
longer pending is told nowhere.
"""

import re
from dataclasses import replace
from typing import Any, Final

from expunge.models.targets import find_kind, locator_complaint
from expunge.tasks.erasers.openai_errors import Problem, unconfirmed
from expunge.tasks.erasers.openai_reply import Reply
from expunge.tasks.outcomes import Outcome

CANCELLING: Final = "cancelling"
ENDED: Final = frozenset({"completed", "failed", "expired", "cancelled"})
"""Statuses of a batch that changes no more."""
RUNNING: Final = frozenset({"validating", "in_progress", "finalizing"})
"""Statuses of a batch that can be cancelled."""
FILES: Final = ("input_file_id", "output_file_id", "error_file_id")

NOT_CANCELLED: Final = "NotCancelled"
UPLOAD_COMPLETED: Final = "UploadCompleted"
HINT: Final = (
    "An upload that is completed cannot be cancelled, and no call tells which file it became: erase that file"
    " (kind file), then waive this entry."
)

_STATUS = re.compile(r"\bstatus\W{1,4}(?:is\W{1,2})?(pending|completed|cancelled|expired)\b", re.IGNORECASE)


def upload_answer(reply: Reply, id: str) -> Problem:
    """What the answer to an upload's cancellation comes to: the upload object with this id, and its status."""
    body = _object(reply, id, "upload", needs_object=False)
    if isinstance(body, Problem):
        return body
    state = body.get("status")
    if state in ("cancelled", "expired"):
        return Problem(Outcome.ENDED, detail={"state": state})
    if state == "completed":
        return Problem(Outcome.REFUSED, UPLOAD_COMPLETED, detail={"state": state, "hint": HINT})
    return unconfirmed(NOT_CANCELLED)


def upload_refused(reply: Reply, found: Problem) -> Problem:
    """A refusal of an upload's cancellation, with what a person needs. Nothing says in which status an upload cannot be
    cancelled, and none can be looked up, so that a refusal stays one; a status that its words name goes into the
    detail. Its 409 is no matter of order: nothing that could be waited for changes it."""
    if found.outcome is Outcome.ERROR:
        found = Problem(Outcome.REFUSED, found.error)
    if found.outcome is not Outcome.REFUSED or reply.status not in (400, 409, 422):
        return found
    detail: dict[str, Any] = {"hint": HINT}
    told = _STATUS.search(str((reply.error() or {}).get("message")))
    if told is not None:
        detail["state"] = told[1].lower()
    error = NOT_CANCELLED if found.error in (f"HTTP{reply.status}", "Conflict", None) else found.error
    return replace(found, error=error, detail=detail)


def batch_answer(reply: Reply, id: str) -> Problem:
    """What the answer to a batch's cancellation comes to: an order that was taken, never its end. What has ended by
    then is seen by the next look, which also finds its files."""
    state = batch_state(reply, id)
    if isinstance(state, Problem):
        return state
    if state in RUNNING:
        return unconfirmed(NOT_CANCELLED)
    return Problem(Outcome.ACCEPTED, detail={"state": state})


def batch_state(reply: Reply, id: str) -> str | Problem:
    """The status in an answer that is the batch of this id."""
    body = _object(reply, id, "batch")
    if isinstance(body, Problem):
        return body
    state = body.get("status")
    if isinstance(state, str) and (state == CANCELLING or state in ENDED or state in RUNNING):
        return state
    return unconfirmed("UnknownStatus")


def batch_files(reply: Reply) -> list[str] | Problem:
    """The files that a batch names: its input, and its output and errors where it has some. For an answer that
    `batch_state` has taken for the batch."""
    body = reply.json() or {}
    kind = find_kind("file")
    assert kind is not None
    if not body.get(FILES[0]):
        return unconfirmed("MalformedObject")  # a batch always has one
    named = [body[name] for name in FILES if body.get(name)]
    if not all(isinstance(file, str) and locator_complaint(kind, file) is None for file in named):
        return unconfirmed("MalformedObject")
    return list(dict.fromkeys(named))


def _object(reply: Reply, id: str, name: str, *, needs_object: bool = True) -> dict[str, Any] | Problem:
    body = reply.json()
    if reply.status != 200:
        return unconfirmed("NotConfirmed")
    if reply.is_empty:
        return unconfirmed("EmptyBody")
    if body is None:
        return unconfirmed("NotTheStore")
    if body.get("id") != id:
        return unconfirmed("OtherId" if "id" in body else "NotConfirmed")
    if body.get("object", None if needs_object else name) != name:
        return unconfirmed("MalformedObject")
    return body
