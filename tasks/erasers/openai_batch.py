"""A batch: cancelled if it runs, then its files erased one by one as entries of their own, then seen to be gone.

The batch names its files also when they are deleted, so its own record cannot say that they are gone: each is asked
for. A batch that has ended is read again after its files, since it may name another one by then.
"""

import time
from dataclasses import dataclass

from expunge.models.entry import Entry
from expunge.models.states import Action
from expunge.tasks.erasers.contract import Answer, Parts
from expunge.tasks.erasers.openai_answers import to_answer
from expunge.tasks.erasers.openai_cancel import CANCELLING, RUNNING, batch_files, batch_state
from expunge.tasks.erasers.openai_client import Client
from expunge.tasks.erasers.openai_errors import Problem, problem, unconfirmed
from expunge.tasks.erasers.openai_identity import Expected
from expunge.tasks.erasers.openai_reply import Reply
from expunge.tasks.outcomes import Outcome

KIND = "batch"
OPERATION = "GET /batches/{id}"
FILE_OPERATION = "GET /files/{id}"
FILES_UNKNOWN = "FilesUnknown"
"""A batch that was told to end is not found any more, and with it what it would have said of its files."""


@dataclass(slots=True)
class Running:
    """It runs: the call is to cancel it."""


def look_at_batch(client: Client, expected: Expected, entry: Entry, until: float) -> Running | Parts | Answer | None:
    """What is to be done about a batch. None if there was no time to find out. Raises NothingSent."""
    if time.monotonic() >= until:
        return None
    reply = _read(client, entry.locator)
    state = problem(reply, expected, entry.locator) or batch_state(reply, entry.locator)
    if isinstance(state, Problem):
        return _answer(client, entry, reply, state)
    if state in RUNNING:
        return Running()
    if state == CANCELLING:  # ordered before, by a call whose answer was lost or by somebody else
        return _answer(client, entry, reply, Problem(Outcome.ACCEPTED, detail={"state": state}))
    files = batch_files(reply)
    if isinstance(files, Problem):
        return _answer(client, entry, reply, files)
    if not entry.had_parts:
        return Parts(entry.id, [("file", file) for file in files])
    left = []
    seen = reply
    for file in files:
        if time.monotonic() >= until:
            return None
        seen = client.send(lambda sdk, file=file: sdk.files.with_raw_response.retrieve(file))  # type: ignore[misc]
        found = problem(seen, expected, file)
        if found is None and (seen.status != 200 or (seen.json() or {}).get("id") != file):
            found = unconfirmed("NotTheStore")
        if found is None:
            left.append(("file", file))
        elif found.outcome is not Outcome.ABSENT:
            return _answer(client, entry, seen, found, operation=FILE_OPERATION)
    if left:
        return Parts(entry.id, left)
    ended = Problem(Outcome.ENDED, detail={"state": state, "remains": "its record", "files_gone": len(files)})
    return _answer(client, entry, reply, ended, last=seen)


def verify_batch(client: Client, expected: Expected, entry: Entry) -> Answer:
    """Whether a batch that was told to end has ended. One that is not found any more has not been seen to end, and its
    files are not known: that is for a person. Raises NothingSent."""
    reply = _read(client, entry.locator)
    state = problem(reply, expected, entry.locator) or batch_state(reply, entry.locator)
    if isinstance(state, Problem):
        found = state
        if found.outcome is Outcome.ABSENT and not entry.settled:
            found = Problem(Outcome.REFUSED, FILES_UNKNOWN)
    else:
        is_over = state not in RUNNING and state != CANCELLING
        found = Problem(Outcome.ENDED if is_over else Outcome.PRESENT, detail={"state": state})
    return _answer(client, entry, reply, found, action=Action.VERIFY)


def _read(client: Client, id: str) -> Reply:
    return client.send(lambda sdk: sdk.batches.with_raw_response.retrieve(id))


def _answer(
    client: Client,
    entry: Entry,
    reply: Reply,
    found: Problem,
    *,
    operation: str = OPERATION,
    action: Action = Action.LOOK,
    last: Reply | None = None,
) -> Answer:
    return to_answer(entry, reply, found, operation=operation, endpoint=client.base_url, action=action, confirmed=last)
