"""Every state, status and reason word, declared once, each with its meaning.

The CHECK constraints of the tables, the diagram in docs/ARCHITECTURE.md and the code all take their
words from here; tests compare them.
"""

from dataclasses import dataclass
from enum import StrEnum


class EntryState(StrEnum):
    """Where an outbox entry stands. There is no state for success: the row is removed."""

    READY = "ready"
    """Waits to be claimed. A claim takes it once `due_at` has passed (the database's clock). New entries, retries
    and returned leases all wait here, so nothing is lost if every process dies: the next sweep rings the lane."""

    LEASED = "leased"
    """A drain holds it by `lease_token` until `lease_until` and looks at the store, but no call for it is under
    way. The mark moves it on. If the process dies, the sweep returns it to `ready` when the lease ends; nothing is
    counted, because nothing was called."""

    CALLING = "calling"
    """A call about it may be under way: the mark committed before the call. Only the settle of the same lease moves
    it on. If the process dies, the sweep writes an `unknown` receipt when the lease ends and puts it back to
    `ready`: the store may or may not have acted."""

    WAITING = "waiting"
    """A composite target whose parts are entries of their own. It becomes `ready` again when the last of them is
    gone, by the settle that removes it or by the sweep, and is then listed anew from the start."""

    HELD = "held"
    """A standing legal hold covers it. The sweep returns it to `ready` once no standing hold covers it any more."""

    ESCALATED = "escalated"
    """Needs a person: `expunge retry` or `expunge waive`. It is tried once more a day by itself, since an erasure is
    owed until it is done."""


class Mover(StrEnum):
    """Who makes a transition."""

    CLAIM = "claim"
    MARK = "mark"
    SETTLE = "settle"
    RELEASE = "release"
    SWEEP = "sweep"
    HOLD = "hold"
    PERSON = "person"


@dataclass(frozen=True, slots=True)
class Transition:
    """One permitted move of an entry; `target` None means that the row is removed."""

    source: EntryState
    target: EntryState | None
    by: Mover
    when: str


_S = EntryState
TRANSITIONS: tuple[Transition, ...] = (
    Transition(_S.READY, _S.LEASED, Mover.CLAIM, "it is due and its lane is not paused"),
    Transition(_S.READY, _S.ESCALATED, Mover.SWEEP, "its account is unknown: it cannot be tried"),
    Transition(_S.READY, _S.HELD, Mover.HOLD, "a hold that covers it is placed"),
    Transition(_S.READY, None, Mover.PERSON, "waived"),
    Transition(_S.READY, None, Mover.SWEEP, "its account is unknown, and only its second look is left"),
    Transition(_S.LEASED, _S.CALLING, Mover.MARK, "its call is next, and no hold or pause forbids it"),
    Transition(_S.LEASED, _S.HELD, Mover.MARK, "a standing hold covers it"),
    Transition(_S.LEASED, _S.HELD, Mover.HOLD, "a hold that covers it is placed"),
    Transition(_S.LEASED, _S.WAITING, Mover.SETTLE, "the look found parts, which are entries of their own now"),
    Transition(_S.LEASED, _S.ESCALATED, Mover.SETTLE, "it cannot be tried at all; there was no call"),
    Transition(
        _S.LEASED, _S.READY, Mover.RELEASE, "not called: paused, stopped, no time, no credentials, more to list"
    ),
    Transition(_S.LEASED, _S.READY, Mover.SWEEP, "its lease ended"),
    Transition(_S.CALLING, None, Mover.SETTLE, "the store confirmed that the target is gone"),
    Transition(_S.CALLING, _S.LEASED, Mover.SETTLE, "its parts are settled; the next look decides"),
    Transition(
        _S.CALLING,
        _S.READY,
        Mover.SETTLE,
        "no good answer: to be tried again at due_at; or it is due for, or after, a second look",
    ),
    Transition(_S.CALLING, _S.ESCALATED, Mover.SETTLE, "no good answer and no tries left, or it cannot be sent at all"),
    Transition(_S.CALLING, _S.READY, Mover.RELEASE, "marked, but nothing was sent"),
    Transition(_S.CALLING, _S.READY, Mover.SWEEP, "its lease ended: an unknown receipt"),
    Transition(_S.CALLING, _S.ESCALATED, Mover.SWEEP, "its lease ended while calling for the third time"),
    Transition(_S.WAITING, _S.READY, Mover.SETTLE, "its last part is gone"),
    Transition(_S.WAITING, _S.READY, Mover.SWEEP, "no part is left"),
    Transition(_S.WAITING, None, Mover.PERSON, "waived, with its parts"),
    Transition(_S.HELD, _S.READY, Mover.SWEEP, "no standing hold covers it any more"),
    Transition(_S.HELD, None, Mover.PERSON, "waived"),
    Transition(_S.ESCALATED, _S.READY, Mover.PERSON, "retried"),
    Transition(_S.ESCALATED, _S.READY, Mover.SWEEP, "a day has passed"),
    Transition(_S.ESCALATED, None, Mover.PERSON, "waived"),
    Transition(_S.READY, _S.READY, Mover.PERSON, "retried: due at once"),
)


class EntryAction(StrEnum):
    """What an outbox entry waits for."""

    DELETE = "delete"
    """To be erased."""
    VERIFY = "verify"
    """For a second look, by another call than the delete."""


class ReceiptStatus(StrEnum):
    """What a store answered about one object. No status says more than the answer did."""

    DELETED = "deleted"
    """The store confirmed the deletion of that very object."""
    ALREADY_ABSENT = "already_absent"
    """The store's own object-level not-found, or its own listing that passed the object's place. It is success:
    the obligation is that the data is not there."""
    ENDED = "ended"
    """The store says that it has ended: nothing can be added to it any more, nothing comes of it any more, and what it
    had made is erased, with receipts of its own. It is no deletion: no call removes the store's record of it."""
    ACCEPTED = "accepted"
    """The store took the order and will erase later. It settles nothing: the object is looked at until it is gone."""
    FAILED = "failed"
    """The store, or something that answered in its place, did not confirm; `error` says what it was."""
    UNKNOWN = "unknown"
    """No answer: a timeout, a lost connection, a dead worker. The object may be gone or not."""
    RETAINED = "retained"
    """The store keeps it under a retention lock or legal hold of its own."""
    WAIVED = "waived"
    """A person decided that it will not be erased; `actor` and `why` say who and why."""
    ABSENT = "absent"
    """A later second look, by another call than the delete, did not find it."""
    PRESENT = "present"
    """A later second look found it: it is erased again."""
    UNVERIFIABLE = "unverifiable"
    """A later second look could not tell; `error` says why."""


SETTLING_STATUSES = (
    ReceiptStatus.DELETED,
    ReceiptStatus.ALREADY_ABSENT,
    ReceiptStatus.ENDED,
    ReceiptStatus.WAIVED,
    ReceiptStatus.ABSENT,
)
"""A receipt of the target itself with one of these closes the target."""


class Action(StrEnum):
    """What kind of step decided a receipt."""

    DELETE = "delete"
    """A delete call."""
    LOOK = "look"
    """A listing or a read."""
    VERIFY = "verify"
    """A later second look."""
    DECISION = "decision"
    """A person."""


class CaseState(StrEnum):
    """Derived, never stored: the first of these that applies."""

    ESCALATED = "escalated"
    """At least one entry waits for a person."""
    HELD = "held"
    """At least one entry is under a legal hold."""
    OPEN = "open"
    """Not complete; it moves by itself."""
    COMPLETE = "complete"
    """No entry is left, and a receipt exists or nothing was found."""


class Scope(StrEnum):
    """What a case covers."""

    TARGETS = "targets"
    """The targets as listed."""
    CONVERSATION = "conversation"
    """A conversation that was purged."""
    SUBJECT = "subject"
    """Everything of a subject."""


class PausedBy(StrEnum):
    """Who paused a lane."""

    OPERATOR = "operator"
    """A person; only `expunge resume` lifts it."""
    THROTTLE = "throttle"
    """The store asked for less; ends by itself at `paused_until`."""
    BREAKER = "breaker"
    """The store is down, or refuses everything, or nothing can be sent to it; single entries probe it from
    `paused_until` on."""


class Decision(StrEnum):
    """What a person decided, kept for ever in erasure_decision."""

    RETRY = "retry"
    WAIVE = "waive"
    PAUSE = "pause"
    RESUME = "resume"
    HOLD = "hold"
    RELEASE = "release"
    EXTEND = "extend"
    REPLAY = "replay"


class NoticeKind(StrEnum):
    """What a webhook is told."""

    ENTRY_ESCALATED = "entry.escalated"
    ENTRY_RETAINED = "entry.retained"
    LANE_PAUSED = "lane.paused"
    LANE_DOWN = "lane.down"
    CASE_DUE_SOON = "case.due_soon"
    CASE_OVERDUE = "case.overdue"
    ENTRY_REAPPEARED = "entry.reappeared"
    ARCHIVE_FAILED = "archive.failed"


def words(enum: type[StrEnum]) -> str:
    """The values as a SQL list, for CHECK constraints."""
    return ", ".join(f"'{member.value}'" for member in enum)
