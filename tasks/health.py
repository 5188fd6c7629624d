"""What answers mean for their lane: throttle, breaker, refusals of a whole account or bucket.

Everything here runs in the settling transaction, after the entries and the case (locks: entries, case, lane).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from expunge.models.database import Transaction
from expunge.models.lanes import (
    Lane,
    clear_lane,
    ensure_lane,
    lock_lanes,
    merge_failing,
    pause_lane,
    read_lanes,
    set_failures,
)
from expunge.models.notices import add_notice
from expunge.models.states import NoticeKind, PausedBy
from expunge.tasks.backoff import backoff
from expunge.tasks.erasers.contract import Answer
from expunge.tasks.outcomes import Outcome
from expunge.tasks.policy import Policy
from expunge.tasks.verdict import RULES

FAILURES_TO_OPEN = 5
"""Calls in a row that failed before the breaker opens …"""
ENTRIES_TO_OPEN = 3
"""… from at least so many entries: else it may be the entry that is sick. As many entries with the same refusal pause
the account or bucket that refuses."""
LONGEST_THROTTLE = 3600.0
"""Seconds; a store that asks for more is asked again after an hour."""
LONGEST_PROBE_WAIT = 60.0
"""Seconds between probes of a store that is down."""
REFUSED_PROBE_SECONDS = 3600.0
"""Between probes of an account or bucket that refuses everything, or that nothing can be sent for."""


@dataclass(frozen=True, slots=True)
class LaneEvent:
    """Something to log once the transaction is through."""

    name: str
    scope: str
    reason: str


def record(
    tx: Transaction,
    policy: Policy,
    account: str,
    answers: Sequence[Answer],
    *,
    known: dict[str, Lane],
    scopes: frozenset[str] = frozenset(),
) -> list[LaneEvent]:
    """Take the answers of one call, or of one look, into the lane's state. `known` are the lane's rows as the claim saw
    them; `scopes` are the buckets that the entries are in."""
    if not answers:
        return []
    events: list[LaneEvent] = []
    outcomes = {answer.outcome for answer in answers}
    if Outcome.REFUSED_SCOPE in outcomes:
        # a bucket's row is written before it is known whether the lane's own is
        lock_lanes(tx, account)
    if Outcome.WRONG_IDENTITY in outcomes:
        events += _wrong_identity(tx, account, next(a for a in answers if a.outcome is Outcome.WRONG_IDENTITY))
    if Outcome.THROTTLED in outcomes:
        events += _throttle(tx, policy, account, [a for a in answers if a.outcome is Outcome.THROTTLED])
    if Outcome.REFUSED_SCOPE in outcomes:
        events += _refused(tx, account, [a for a in answers if a.outcome is Outcome.REFUSED_SCOPE])
    if all(RULES[outcome].store_is_down for outcome in outcomes):
        events += _failed(tx, policy, account, answers)
    elif any(RULES[outcome].store_is_well for outcome in outcomes):
        for scope in ("", *sorted(scopes)):
            if scope in known and Outcome.THROTTLED not in outcomes and clear_lane(tx, account, scope):
                events.append(LaneEvent("lane.recovered", scope, "the store answers again"))
    return events


def _error(answer: Answer) -> str:
    return answer.error or str(answer.outcome)


def _wrong_identity(tx: Transaction, account: str, answer: Answer) -> list[LaneEvent]:
    ensure_lane(tx, account)
    return _pause_refused(tx, account, "", _error(answer))


def pause_unsendable(tx: Transaction, account: str, code: str) -> list[LaneEvent]:
    """Nothing can be sent for this account, whatever the entry: its lane pauses at once."""
    ensure_lane(tx, account)
    return _pause_refused(tx, account, "", code, "nothing can be sent")


def _pause_refused(tx: Transaction, account: str, scope: str, code: str, what: str = "refused") -> list[LaneEvent]:
    was = read_lanes(tx, account)[scope]
    reason = f"{what}: {code}"
    if not pause_lane(
        tx,
        account,
        scope,
        by=PausedBy.BREAKER,
        seconds=REFUSED_PROBE_SECONDS,
        reason=reason,
        refused=True,
    ):
        return []
    if was.paused_by == PausedBy.BREAKER and was.refused:
        return []
    since = read_lanes(tx, account)[scope].paused_since
    add_notice(tx, NoticeKind.LANE_PAUSED, f"{account}/{scope}/{since}", account=account, scope=scope, reason=code)
    return [LaneEvent("lane.paused", scope, reason)]


def _refused(tx: Transaction, account: str, answers: Sequence[Answer]) -> list[LaneEvent]:
    events: list[LaneEvent] = []
    by_scope: dict[tuple[str, str], list[int]] = {}
    for answer in answers:
        by_scope.setdefault((answer.scope, _error(answer)), []).append(answer.entry_id)
    for (scope, code), entries in sorted(by_scope.items()):
        lane = ensure_lane(tx, account, scope)
        before = lane.failing.get("entries", []) if lane.failing.get("refusal") == code else []
        failing = merge_failing(before, entries)
        set_failures(tx, account, scope, lane.failures + 1, {"refusal": code, "entries": failing})
        if len(failing) >= ENTRIES_TO_OPEN or lane.refused:
            events += _pause_refused(tx, account, scope, code)
    return events


def _throttle(tx: Transaction, policy: Policy, account: str, answers: Sequence[Answer]) -> list[LaneEvent]:
    lane = ensure_lane(tx, account)
    # nobody is called while the lane is paused: this call was under way then, and says nothing new. Else the calls of
    # one burst, however short, would double the wait as often as there are drains
    was_under_way = lane.is_paused and lane.paused_by in (PausedBy.THROTTLE, PausedBy.BREAKER)
    asked = max((a.retry_after for a in answers if a.retry_after is not None), default=None)
    if asked is None and was_under_way:
        return []
    if not was_under_way:
        times = int(lane.failing.get("throttles", 0)) + 1
        set_failures(tx, account, "", lane.failures, {**lane.failing, "throttles": times})
    if asked is None:
        asked = backoff(times, base=policy.retry_base_seconds, most=LONGEST_PROBE_WAIT)
    stays_broken = was_under_way and lane.paused_by == PausedBy.BREAKER
    paused = pause_lane(
        tx,
        account,
        by=PausedBy.BREAKER if stays_broken else PausedBy.THROTTLE,
        seconds=max(0.0, min(LONGEST_THROTTLE, asked)),
        reason=lane.reason or "" if stays_broken else "the store asked for less",
        refused=stays_broken and lane.refused,
    )
    return [LaneEvent("lane.throttled", "", "the store asked for less")] if paused else []


def _failed(tx: Transaction, policy: Policy, account: str, answers: Sequence[Answer]) -> list[LaneEvent]:
    lane = ensure_lane(tx, account)
    is_open = lane.paused_by == PausedBy.BREAKER
    if is_open and lane.is_paused:
        return []  # no probe: it was under way when the breaker opened, and says nothing new
    failures = lane.failures + 1
    failing = merge_failing(lane.failing.get("down", []), [answer.entry_id for answer in answers])
    set_failures(tx, account, "", failures, {**lane.failing, "down": failing})
    if not is_open and (failures < FAILURES_TO_OPEN or len(failing) < ENTRIES_TO_OPEN):
        return []
    wait = backoff(max(1, failures - FAILURES_TO_OPEN + 1), base=policy.retry_base_seconds, most=LONGEST_PROBE_WAIT)
    reason = f"no good answers: {_error(answers[-1])}"
    if not pause_lane(tx, account, by=PausedBy.BREAKER, seconds=wait, reason=reason, refused=lane.refused and is_open):
        return []
    return [] if is_open else [LaneEvent("lane.broke", "", reason)]
