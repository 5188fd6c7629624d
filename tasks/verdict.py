"""What follows from an answer: the table "Failing", in one place.

An eraser says what the store's answer comes to (`Outcome`). Here that word becomes a receipt's status and error, and
the entry's next move. What it means for the lane is in health.py.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from expunge.models.entry import Entry
from expunge.models.settle import Move
from expunge.models.states import EntryState, ReceiptStatus
from expunge.tasks.backoff import backoff
from expunge.tasks.erasers.contract import Answer
from expunge.tasks.outcomes import Outcome
from expunge.tasks.runtime import Policy


@dataclass(frozen=True, slots=True)
class Rule:
    """One row of the table."""

    status: ReceiptStatus
    error: str | None = None
    """The receipt's error when the answer brings none."""
    fixed_error: bool = False
    """The receipt's error is this word always; the store's own code goes into the detail."""
    tries: int = 1
    refusals: int = 0
    store_is_down: bool = False
    """Counts towards the breaker."""
    store_is_well: bool = False
    """The store does its work: failures in a row are over."""


RULES: dict[Outcome, Rule] = {
    Outcome.DELETED: Rule(ReceiptStatus.DELETED, tries=0, store_is_well=True),
    Outcome.ABSENT: Rule(ReceiptStatus.ALREADY_ABSENT, tries=0, store_is_well=True),
    Outcome.THROTTLED: Rule(ReceiptStatus.FAILED, "Throttled", fixed_error=True, tries=0),
    Outcome.UNAVAILABLE: Rule(ReceiptStatus.FAILED, "Unavailable", store_is_down=True),
    Outcome.NO_ANSWER: Rule(ReceiptStatus.UNKNOWN, "NoAnswer", store_is_down=True),
    Outcome.REFUSED: Rule(ReceiptStatus.FAILED, "Refused", refusals=1, store_is_well=True),
    Outcome.PARENT_ABSENT: Rule(ReceiptStatus.FAILED, "ParentAbsent", fixed_error=True, refusals=1, store_is_well=True),
    Outcome.REFUSED_SCOPE: Rule(ReceiptStatus.FAILED, "Refused", refusals=1),
    Outcome.WRONG_IDENTITY: Rule(ReceiptStatus.FAILED, "WrongIdentity", refusals=1),
    Outcome.UNCONFIRMED: Rule(ReceiptStatus.FAILED, "Unconfirmed", fixed_error=True, store_is_down=True),
    Outcome.LEFT_OUT: Rule(ReceiptStatus.UNKNOWN, "LeftOut", store_is_well=True),
    Outcome.RETAINED: Rule(ReceiptStatus.RETAINED, "Retained", tries=0, store_is_well=True),
    Outcome.PRESENT: Rule(ReceiptStatus.PRESENT, tries=0, store_is_well=True),
    Outcome.ACCEPTED: Rule(ReceiptStatus.ACCEPTED, tries=0, store_is_well=True),
    Outcome.ERROR: Rule(ReceiptStatus.FAILED, "Error"),
}

GOOD = frozenset({Outcome.DELETED, Outcome.ABSENT})

_SOONEST_FIRST = (
    Outcome.WRONG_IDENTITY,
    Outcome.REFUSED_SCOPE,
    Outcome.THROTTLED,
    Outcome.UNAVAILABLE,
    Outcome.NO_ANSWER,
    Outcome.LEFT_OUT,
    Outcome.UNCONFIRMED,
    Outcome.ERROR,
    Outcome.PARENT_ABSENT,
    Outcome.REFUSED,
    Outcome.RETAINED,
)
"""Of several parts that failed, the one that decides about the entry: what may pass comes before what will stay."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What happens to an entry. `move` None: it is gone."""

    move: Move | None
    escalated: bool = False
    retained: bool = False


def judge(entry: Entry, answers: Sequence[Answer], policy: Policy, now: datetime, *, probe: bool = False) -> Verdict:
    """Decide about one entry from all answers about it in one call. A probe uses no try."""
    own = [answer for answer in answers if answer.version is None]
    bad = [answer for answer in answers if answer.outcome not in GOOD]
    if bad and all(answer.outcome is Outcome.PARENT_ABSENT for answer in bad):
        # what an earlier receipt says about the part comes beside the answer of the call
        bad = [] if any(answer.outcome in GOOD for answer in own) else bad
    if not bad:
        if own:
            return Verdict(None)
        return Verdict(Move(entry.id, EntryState.LEASED))
    worst = min(bad, key=lambda answer: _SOONEST_FIRST.index(answer.outcome))
    rule = RULES[worst.outcome]
    reason = error_of(worst)
    if worst.outcome is Outcome.RETAINED:
        if worst.retain_until is not None:
            delay = max(0.0, (worst.retain_until - now).total_seconds())
            return Verdict(Move(entry.id, EntryState.READY, delay_seconds=delay, reason="Retained"), retained=True)
        return Verdict(Move(entry.id, EntryState.ESCALATED, reason="Retained"), escalated=True, retained=True)
    tries, refusals = (0, 0) if probe else (rule.tries, rule.refusals)
    no_tries_left = tries > 0 and entry.tries + tries >= policy.attempts_before_escalation
    refused_enough = refusals > 0 and entry.refusals + refusals >= policy.refusals_before_escalation
    if no_tries_left or refused_enough:
        return Verdict(Move(entry.id, EntryState.ESCALATED, tries=tries, refusals=refusals, reason=reason), True)
    delay = backoff(entry.tries + 1, base=policy.retry_base_seconds, most=policy.retry_max_seconds)
    return Verdict(Move(entry.id, EntryState.READY, delay_seconds=delay, tries=tries, refusals=refusals, reason=reason))


def error_of(answer: Answer) -> str | None:
    """The receipt's error: a word of ours or the store's own code."""
    rule = RULES[answer.outcome]
    if rule.fixed_error or rule.error is None:
        return rule.error
    return answer.error or rule.error
