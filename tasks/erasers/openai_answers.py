"""Makes the drain's Answers from what OpenAI's API replied."""

from typing import Any

from expunge.models.entry import Entry
from expunge.models.states import Action
from expunge.tasks.erasers.contract import Answer
from expunge.tasks.erasers.openai_errors import Problem
from expunge.tasks.erasers.openai_identity import reported
from expunge.tasks.erasers.openai_reply import Reply
from expunge.tasks.outcomes import Outcome


def to_answer(
    entry: Entry,
    reply: Reply,
    problem: Problem | None,
    *,
    operation: str,
    endpoint: str,
    action: Action = Action.DELETE,
    detail: dict[str, Any] | None = None,
    confirmed: Reply | None = None,
) -> Answer:
    """An answer about an entry; without a problem it is deleted. `confirmed` is the look that followed."""
    of_problem = {} if problem is None else problem.detail or {}
    told: dict[str, Any] = {**reported(reply), **of_problem, **(detail or {})}
    return Answer(
        entry.id,
        Outcome.DELETED if problem is None else problem.outcome,
        operation,
        reply.called_at,
        (confirmed or reply).at,
        action=action,
        request_id=reply.request_id,
        http_status=reply.status,
        error=None if problem is None else problem.error,
        detail=told or None,
        endpoint=endpoint,
        retry_after=None if problem is None else problem.retry_after,
    )
