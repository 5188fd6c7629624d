"""The account says who it is, before the first delete of a process: one harmless read, whose headers are kept."""

from typing import TYPE_CHECKING

from expunge.models.entry import Entry
from expunge.models.states import Action
from expunge.tasks.erasers.contract import Answer
from expunge.tasks.erasers.openai_answers import to_answer
from expunge.tasks.erasers.openai_client import Client, Raw
from expunge.tasks.erasers.openai_errors import Problem, problem, unconfirmed
from expunge.tasks.erasers.openai_identity import Expected
from expunge.tasks.erasers.openai_reply import Reply
from expunge.tasks.outcomes import Outcome

if TYPE_CHECKING:
    import openai

OPERATION = "GET /files"

_PROVES_NOTHING_YET = frozenset(
    {
        Outcome.NO_ANSWER,
        Outcome.THROTTLED,
        Outcome.UNAVAILABLE,
        Outcome.REFUSED_SCOPE,
        Outcome.WRONG_IDENTITY,
        Outcome.UNCONFIRMED,
    }
)


def establish(client: Client, expected: Expected, entry: Entry) -> Answer | None:
    """Ask; None if deletes may begin. Else what stands for this one entry in place of its delete: a store that is down
    or throttles costs it no more than its delete would have. Raises NothingSent.

    A refusal of the listing itself is no obstacle: a key may be allowed to delete and not to list, and a server may
    have no such route. Every later answer that shows who it is from is compared all the same.
    """
    reply = client.send(_list_one)
    found = problem(reply, expected, "file-none")
    if found is None and (reply.json() or {}).get("object") != "list":
        found = unconfirmed("NotTheStore")
    if found is None or found.outcome not in _PROVES_NOTHING_YET or _has_no_route(reply, found):
        expected.established()
        return None
    return to_answer(entry, reply, found, operation=OPERATION, endpoint=client.base_url, action=Action.LOOK)


def _has_no_route(reply: Reply, found: Problem) -> bool:
    """The server's own error, in JSON, that it does not know this address."""
    return found.outcome is Outcome.UNCONFIRMED and reply.status in (404, 405) and reply.json() is not None


def _list_one(sdk: "openai.OpenAI") -> Raw:
    return sdk.files.with_raw_response.list(limit=1)
