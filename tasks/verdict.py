"""What follows from an answer: the table "Failing", in one place.

An eraser says what the store's answer comes to (`Outcome`). Here that word becomes a receipt's status and error, and
the entry's next move. What it means for the lane is in health.py.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from expunge.models.entry import Entry
from expunge.models.settle import Move
from expunge.models.states import Action, EntryAction, EntryState, ReceiptStatus
from expunge.tasks.backoff import backoff
from expunge.tasks.erasers.contract import Answer
from expunge.tasks.outcomes import Outcome
from expunge.tasks.policy import Policy


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
    Outcome.ENDED: Rule(ReceiptStatus.ENDED, tries=0, store_is_well=True),
    Outcome.ACCEPTED: Rule(ReceiptStatus.ACCEPTED, tries=0, store_is_well=True),
    Outcome.ERROR: Rule(ReceiptStatus.FAILED, "Error"),
}

GOOD = frozenset({Outcome.DELETED, Outcome.ABSENT, Outcome.ENDED})

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
    Outcome.PRESENT,
    Outcome.ENDED,
    Outcome.ACCEPTED,
)
"""Of several parts that failed, the one that decides about the entry: what may pass comes before what will stay."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What happens to an entry. `move` None: it is gone."""

    move: Move | None
    escalated: bool = False
    retained: bool = False
    reappeared: bool = False


_OF_A_LOOK = frozenset({Outcome.ABSENT, Outcome.PRESENT})
_ENDS_A_LOOK = frozenset({Outcome.REFUSED, Outcome.RETAINED, Outcome.PARENT_ABSENT})
"""The store will say no more however often it is asked."""
MOST_REAPPEARED = 2
"""Times that a second look may find it before a person is asked: somebody still writes there."""


def believable(entry: Entry, answer: Answer) -> Answer:
    """The answer as it may be believed: only a second look finds something present, and it deletes nothing; whatever
    else an eraser says confirms nothing."""
    if entry.action == EntryAction.VERIFY:
        told = RULES[answer.outcome].status
        if told in (ReceiptStatus.DELETED, ReceiptStatus.ACCEPTED) or answer.version is not None:
            answer = replace(answer, outcome=Outcome.UNCONFIRMED, error=None)
        if answer.outcome is Outcome.ENDED and entry.settled:
            answer = replace(answer, outcome=Outcome.PRESENT)
        return replace(answer, action=Action.VERIFY, version=None)
    if answer.outcome is Outcome.PRESENT:
        answer = replace(answer, outcome=Outcome.UNCONFIRMED, error=None)
    return replace(answer, action=Action.LOOK) if answer.action is Action.VERIFY else answer


def status_of(entry: Entry, outcome: Outcome) -> ReceiptStatus:
    """What the receipt says."""
    if entry.action != EntryAction.VERIFY:
        return RULES[outcome].status
    if outcome is Outcome.ABSENT:
        return ReceiptStatus.ABSENT
    # what has ended is there: its record, and perhaps what it has made
    found = outcome in (Outcome.PRESENT, Outcome.ENDED)
    return ReceiptStatus.PRESENT if found else ReceiptStatus.UNVERIFIABLE


def judge(
    entry: Entry,
    answers: Sequence[Answer],
    policy: Policy,
    now: datetime,
    *,
    probe: bool = False,
    verify_after: float | None = None,
) -> Verdict:
    """Decide about one entry from all answers about it in one call. A probe uses no try. With `verify_after`, in
    seconds, a target that is gone is looked at again by then; its parts are not, nor is what has ended: its record
    stays, and a look would find it."""
    if entry.action == EntryAction.VERIFY:
        return _judge_look(entry, answers, policy, probe=probe)
    own = [answer for answer in answers if answer.version is None]
    bad = [answer for answer in answers if answer.outcome not in GOOD]
    if bad and all(answer.outcome is Outcome.PARENT_ABSENT for answer in bad):
        # what an earlier receipt says about the part comes beside the answer of the call
        bad = [] if any(answer.outcome in GOOD for answer in own) else bad
    if not bad:
        is_gone = all(answer.outcome is not Outcome.ENDED for answer in own)
        if own and is_gone and verify_after is not None and entry.parent_id is None:
            look = Move(entry.id, EntryState.READY, verify_after, action=EntryAction.VERIFY, settled=True)
            return Verdict(look)
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
    if worst.outcome is Outcome.ACCEPTED:
        delay = backoff(1, base=policy.retry_base_seconds, most=policy.retry_max_seconds)
        return Verdict(Move(entry.id, EntryState.READY, delay, reason="Accepted", action=EntryAction.VERIFY))
    tries, refusals = (0, 0) if probe else (rule.tries, rule.refusals)
    no_tries_left = tries > 0 and entry.tries + tries >= policy.attempts_before_escalation
    refused_enough = refusals > 0 and entry.refusals + refusals >= policy.refusals_before_escalation
    if no_tries_left or refused_enough:
        return Verdict(Move(entry.id, EntryState.ESCALATED, tries=tries, refusals=refusals, reason=reason), True)
    delay = backoff(entry.tries + 1, base=policy.retry_base_seconds, most=policy.retry_max_seconds)
    return Verdict(Move(entry.id, EntryState.READY, delay_seconds=delay, tries=tries, refusals=refusals, reason=reason))


def _judge_look(entry: Entry, answers: Sequence[Answer], policy: Policy, *, probe: bool) -> Verdict:
    """Decide after a second look. What is settled and there again is erased again; what cannot be told after its tries
    stays so, and the look ends. What was only accepted must become absent, or end and have what it made erased, or a
    person is asked."""
    outcomes = {answer.outcome for answer in answers}
    if outcomes == {Outcome.ABSENT}:
        return Verdict(None)
    if outcomes == {Outcome.ENDED}:
        return Verdict(Move(entry.id, EntryState.READY, reason="Ended", action=EntryAction.DELETE))
    if Outcome.PRESENT in outcomes and entry.settled:
        again = entry.reappeared + 1 >= MOST_REAPPEARED
        state = EntryState.ESCALATED if again else EntryState.READY
        back = Move(entry.id, state, reason="Reappeared", action=EntryAction.DELETE, reappeared=1)
        return Verdict(back, escalated=again, reappeared=True)
    worst = min((a for a in answers if a.outcome is not Outcome.ABSENT), key=lambda a: _SOONEST_FIRST.index(a.outcome))
    rule, reason = RULES[worst.outcome], error_of(worst) or "StillPresent"
    waits = worst.outcome is Outcome.THROTTLED or probe
    tries, refusals = (0, 0) if waits else (max(1, rule.tries), rule.refusals)
    spent = tries > 0 and entry.tries + tries >= policy.attempts_before_escalation
    if entry.settled:
        if spent or (worst.outcome in _ENDS_A_LOOK and not probe):
            return Verdict(None)
        refusals = 0  # of a whole account or bucket: its lane pauses, and the look waits with it
    elif spent or (refusals > 0 and entry.refusals + refusals >= policy.refusals_before_escalation):
        return Verdict(Move(entry.id, EntryState.ESCALATED, reason=reason, action=EntryAction.DELETE), escalated=True)
    delay = backoff(entry.tries + 1, base=policy.retry_base_seconds, most=policy.retry_max_seconds)
    return Verdict(Move(entry.id, EntryState.READY, delay, tries=tries, refusals=refusals, reason=reason))


def error_of(answer: Answer) -> str | None:
    """The receipt's error: a word of ours or the store's own code."""
    rule = RULES[answer.outcome]
    if rule.fixed_error or rule.error is None:
        return rule.error
    return answer.error or rule.error
