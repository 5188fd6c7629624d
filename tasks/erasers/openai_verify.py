"""The second look: the read of the very object, where the first one was a delete."""

import time

from expunge.models.entry import Entry
from expunge.models.states import Action
from expunge.tasks.erasers.contract import Answer, NotSent
from expunge.tasks.erasers.openai_answers import to_answer
from expunge.tasks.erasers.openai_batch import KIND, verify_batch
from expunge.tasks.erasers.openai_client import Client
from expunge.tasks.erasers.openai_delete import DELETIONS, about
from expunge.tasks.erasers.openai_errors import Problem, unconfirmed
from expunge.tasks.erasers.openai_establish import establish
from expunge.tasks.erasers.openai_identity import Expected
from expunge.tasks.erasers.openai_reply import Reply
from expunge.tasks.outcomes import Outcome


def verify(client: Client, expected: Expected, entry: Entry) -> Answer | NotSent:
    """Ask for the object: its own 404, naming it, is ABSENT; its own body, with its id, is PRESENT. The account has
    said who it is before, so that no other account's 404 passes for an absence. Raises NothingSent."""
    how = DELETIONS[entry.kind]
    if how.look is None:
        return NotSent(entry.id, "NoSecondLook")
    client.require_usable()
    if not expected.is_established:
        refused = establish(client, expected, entry)
        if refused is not None:
            return refused
    if entry.kind == KIND:
        return verify_batch(client, expected, entry)
    ids = tuple(entry.locator.split("/"))
    reply = client.send(how.look(ids), before=time.monotonic() + client.timeout)
    found = about(reply, expected, ids) or _shown(reply, ids[-1])
    return to_answer(entry, reply, found, operation=how.look_name, endpoint=client.base_url, action=Action.VERIFY)


def _shown(reply: Reply, id: str) -> Problem:
    """A success: the object itself, or something that says nothing about it."""
    body = reply.json()
    if reply.status != 200 or body is None:
        return unconfirmed("NotTheStore")
    if body.get("id") != id:
        return unconfirmed("OtherId")
    if body.get("deleted") is True:
        return unconfirmed("NotConfirmed")
    return Problem(Outcome.PRESENT, None)
