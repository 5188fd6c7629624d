"""What a store's answer comes to, in one word. Erasers give the word; verdict.py decides what follows from it."""

from enum import StrEnum


class Outcome(StrEnum):
    """An answer about one entry, or about one part of it."""

    DELETED = "deleted"
    """The store confirmed the deletion of that very object (or part)."""
    ABSENT = "absent"
    """The store's own object-level not-found, or its listing that passed the object's place."""
    THROTTLED = "throttled"
    """Too much at the moment: 429, SlowDown, 503 with Retry-After. `retry_after` in seconds if it said so."""
    UNAVAILABLE = "unavailable"
    """A 5xx of the store."""
    NO_ANSWER = "no_answer"
    """Timeout or lost connection: it may have happened."""
    REFUSED = "refused"
    """The store understood and refused this one: 403 on a key, malformed …"""
    PARENT_ABSENT = "parent_absent"
    """By the store's word the whole that this part belongs to is gone, and the part cannot be asked for any more; that
    says nothing about the part. What another case of the subject was told about that part decides, else a person."""
    REFUSED_SCOPE = "refused_scope"
    """It refuses the whole account, or the whole bucket named in `scope`: 401, wrong project or owner, no such bucket,
    a redirect, a quota that is used up for good."""
    WRONG_IDENTITY = "wrong_identity"
    """The answer came from another organization or project than the settings name: nothing it says counts. The lane
    pauses at once."""
    UNCONFIRMED = "unconfirmed"
    """Not the store's own answer, or one that confirms nothing: a page, another shape, `deleted: false`, another id."""
    LEFT_OUT = "left_out"
    """A batch answer of the right shape that does not mention this one."""
    RETAINED = "retained"
    """Kept under the store's own retention lock or legal hold; `retain_until` if it has a date."""
    PRESENT = "present"
    """A second look found it."""
    ENDED = "ended"
    """For what a store can only end: it has, by the store's word, and what it had made is gone; its record stays. Of a
    second look at an order that was only accepted: it has ended, and what it has made is still to be looked for."""
    ACCEPTED = "accepted"
    """The store took the order and will erase it later: it is looked at until it is gone."""
    ERROR = "error"
    """Any other exception, whatever its class."""
