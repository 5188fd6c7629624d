"""One second look at some entries, whatever the eraser makes of it."""

from collections.abc import Sequence
from dataclasses import replace

import structlog

from expunge.models.entry import Entry
from expunge.models.states import Action
from expunge.tasks.erasers.contract import Answer, Eraser, NotSent, utc_now, verifier
from expunge.tasks.outcomes import Outcome
from expunge.tasks.receipts import raised

log = structlog.get_logger()

OPERATION = "verify"
NO_SECOND_LOOK = "NoSecondLook"
"""The eraser has none."""
CANNOT_LOOK = "CannotLook"
"""No request can be sent about this one: the settings or the locator forbid it."""


def second_look(eraser: Eraser, entries: Sequence[Entry], until: float) -> tuple[list[Answer], list[NotSent]]:
    """Answers about these entries and no others; NotSent only where nothing can be sent for the whole account. An entry
    in neither was not got to."""
    verifies = verifier(eraser)
    if verifies is None:
        return [cannot_look(entry, NO_SECOND_LOOK) for entry in entries], []
    began = utc_now()
    by_id = {entry.id: entry for entry in entries}
    try:
        came = verifies.verify(entries, until)
    except Exception as error:
        log.warning("verify.raised", lane=eraser.account, error=type(error).__name__)
        now = utc_now()
        return [raised(entry, error, began, now, OPERATION, Action.VERIFY) for entry in entries], []
    known = [each for each in came if each.entry_id in by_id]
    if len(known) < len(came):
        log.error("verify.answered_others", lane=eraser.account, answers=len(came) - len(known))
    answers = [replace(each, action=Action.VERIFY) for each in known if isinstance(each, Answer)]
    answered = {answer.entry_id for answer in answers}
    unsent = [each for each in known if isinstance(each, NotSent) and each.entry_id not in answered]
    answers += [cannot_look(by_id[each.entry_id], each.reason) for each in unsent if not each.whole_account]
    return answers, [each for each in unsent if each.whole_account]


def cannot_look(entry: Entry, why: str = CANNOT_LOOK) -> Answer:
    """Nothing is asked about it, and it is said so: a second look that was owed ends with a receipt in any case."""
    now = utc_now()
    return Answer(entry.id, Outcome.REFUSED, OPERATION, now, now, action=Action.VERIFY, error=why)
