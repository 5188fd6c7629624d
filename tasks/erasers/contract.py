"""What an eraser is: the one interface between the drain and a store.

The drain claims entries and calls `look`, with no transaction open. The eraser reads what it needs (listings,
versions) and says, for every entry it got to, one of four things:

- an Answer: the look alone decided (absent, refused …);
- it is in a Call: what to send, and which entries it is about. The drain marks exactly those entries, and only then
  runs `send` with the ids that the database let it mark;
- Parts: the entry is composite, and these are the parts that become entries of their own;
- NotSent: nothing can be sent about it, so that no store was asked.

A second look (`verify`) is a method that an eraser may have: it reads, by another call than the delete, and answers
ABSENT or PRESENT, or why it cannot be told. Without it every second look is unverifiable.

An entry that got none of them (the deadline passed) goes back to the outbox uncounted. After its calls, an entry whose
answers were only about parts (versions) is looked at again, until an Answer about the entry itself closes it.

A receipt is of a request. Where none left the process there is none: `look` and `send` say NotSent then, and only if
that is certain. A connection that could not be made is a call that got no answer.

Erasers are made once per account and process, and used by several threads at once. They never retry by themselves,
never follow a redirect, and never store or log a body. Exceptions that leave `look` or `send` are recorded as failed
answers; nothing is lost by raising, but a precise Outcome is better.
"""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, ClassVar, Protocol, cast

from pydantic import BaseModel, ConfigDict, Field

from expunge.models.entry import Entry
from expunge.models.states import Action
from expunge.models.targets import Kind, Target
from expunge.tasks.outcomes import Outcome


class PurgeWindow(BaseModel):
    """The documented purge of one kind."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    days: int = Field(ge=0, le=3660)
    """After the deletion."""
    source: str = Field(pattern=r"^https?://[^\s\x00-\x1f\x7f]+$", max_length=500)
    """The address of the provider's page that says so."""


class AccountOptions(BaseModel):
    """One `[accounts.NAME]` table of the settings. A store's own options are a subclass; unknown ones are an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    store: str
    concurrency: int = Field(default=4, ge=1, le=256)
    """Drains of this lane in the whole fleet."""
    purge_window_days: int | None = Field(default=None, ge=0, le=3660)
    """The provider's documented purge, in days after the deletion."""
    purge_windows: dict[str, PurgeWindow] = Field(default_factory=dict)
    """The same for single kinds, each with the page that says so; it goes before `purge_window_days`."""
    verify_after: float | None = Field(default=None, ge=0, le=3660 * 86_400)
    """Seconds after a success until a second look, by another call than the delete; None: there is none."""
    timeout_seconds: float = Field(default=30.0, gt=0)
    """Of one request; a third of the lease at most, whatever is set here."""

    def copies_of(self, kind: str, locator: str) -> Sequence[Target]:
        """Copies of this target at other accounts, which its case owes as well. No network."""
        return ()

    def complaints(self, name: str, accounts: Mapping[str, "AccountOptions"]) -> Sequence[str]:
        """What is wrong with these options, those of the account `name`, beside all the others: the option's name and
        a sentence."""
        return ()


@dataclass(slots=True)
class Answer:
    """What came of one entry, or of one part of it (`version`). No field holds content or a body."""

    entry_id: int
    outcome: Outcome
    operation: str
    """The API's own name of the call that decided: `DeleteObjects`, `ListObjectVersions`, `DELETE /files` …"""
    called_at: datetime
    at: datetime
    """When it was answered, or given up."""
    action: Action = Action.DELETE
    """`LOOK` when a listing or a read decided."""
    version: str | None = None
    """The answer is about this version of the object and settles nothing by itself."""
    request_id: str | None = None
    http_status: int | None = None
    error: str | None = None
    """A code (`AccessDenied`) or class name; required for everything but DELETED and ABSENT, else the outcome's own
    name stands in."""
    detail: dict[str, Any] | None = None
    endpoint: str | None = None
    region: str | None = None
    retry_after: float | None = None
    """Seconds, for THROTTLED."""
    retain_until: datetime | None = None
    """For RETAINED, if the store names a date."""
    scope: str = ""
    """For REFUSED_SCOPE: the bucket; empty for the whole account."""


@dataclass(frozen=True, slots=True)
class NotSent:
    """No request about this entry left the process, and why not. It has no receipt, and no try is used up."""

    entry_id: int
    reason: str
    """A code, or a sentence that does not repeat the locator."""
    whole_account: bool = False
    """It holds for all that the account could send (no credentials …): the lane pauses, and the entry waits until it
    goes on. One is enough, and a look that meets it may end there. Else it is the entry that cannot be sent, and a
    person is asked."""


class NothingSent(Exception):
    """For use inside an eraser: a request could not be sent. Its `look` and `send` make NotSent of it."""

    def __init__(self, reason: str, *, whole_account: bool) -> None:
        super().__init__(reason)
        self.reason = reason
        self.whole_account = whole_account

    def about(self, entry_id: int) -> NotSent:
        """What it comes to for an entry that the request was to be about."""
        return NotSent(entry_id, self.reason, self.whole_account)


@dataclass(slots=True)
class Call:
    """One delete call to the store (with, where the documented success confirms nothing, the look that confirms it).

    `send` gets the ids of the entries that could be marked and must be about no others. It gives at least one Answer,
    or a NotSent, for each of them; the drain records a missing one as LEFT_OUT.
    """

    entry_ids: tuple[int, ...]
    send: Callable[[Collection[int]], Sequence[Answer | NotSent]]
    operation: str


@dataclass(slots=True)
class Parts:
    """What a page or more of a composite target's listing found.

    `cursor` is where the next claim goes on; None when this listing came to its end. An empty list with no cursor is
    given only for an entry whose listing went on from a cursor: it waits for the parts found before, and is then listed
    from the start. A listing from the start that finds nothing is the end, and the eraser answers or calls.
    """

    entry_id: int
    children: list[tuple[str, str]]
    """(kind, locator), of the same account."""
    cursor: str | None = None


@dataclass(slots=True)
class Looked:
    """What a look came to."""

    answers: list[Answer] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    parts: list[Parts] = field(default_factory=list)
    not_sent: list[NotSent] = field(default_factory=list)


@dataclass(slots=True)
class Check:
    """One line of `expunge check` about an account."""

    name: str
    ok: bool | None
    """None: could not be told, which is not an error."""
    text: str


class Eraser(Protocol):
    """The adapter that knows how one store deletes."""

    store: ClassVar[str]
    """Its name in the settings: `store = "s3"`."""
    kinds: ClassVar[tuple[Kind, ...]]
    """What it can erase; registered with models/targets.py when the eraser is loaded."""
    options: ClassVar[type[AccountOptions]]

    account: str
    batch: int
    """The most entries one call can carry."""
    timeout: float
    """Seconds that one call may take at the most, its confirming look included."""

    def __init__(self, account: str, options: Any, *, lease_seconds: float) -> None: ...

    def refuse(self, kind: str, locator: str) -> str | None:
        """Why this target can never be tried on this account (outside `allow` …), for people and without repeating the
        locator; None if it can. No network."""
        ...

    def look(self, entries: Sequence[Entry], until: float) -> Looked:
        """See what is there. `until` is a `time.monotonic()` moment after which no further request is begun."""
        ...

    def check(self) -> list[Check]:
        """Who are we there, and what may we do: harmless reads only. Never raises for what a store answers."""
        ...

    def close(self) -> None:
        """Close connections."""
        ...


class Verifies(Protocol):
    """What an eraser that can look a second time has besides."""

    def verify(self, entries: Sequence[Entry], until: float) -> Sequence[Answer | NotSent]:
        """Whether each of these, which the store has erased or will, is still there: reads only, by another call than
        the delete, with `action=Action.VERIFY`. ABSENT and PRESENT need the store's own word about that very object
        under the right account; everything else is an outcome that says why it cannot be told. No request is begun
        after `until`, a `time.monotonic()` moment; an entry without an answer goes back uncounted."""
        ...


class Probes(Protocol):
    """What an eraser has besides that can find out more than reads tell."""

    def probe(self) -> list[Check]:
        """The check, and what only calls tell that would change something if the store were not as it says. For an
        operator's explicit order, and nothing that is anybody's is named in them. Never raises for what a store
        answers."""
        ...


class Known(Protocol):
    """What is known of the store, with an age after which it is forgotten. It chooses the way and is no evidence: a
    value that is wrong may cost a call, but never make a receipt say more than an answer did."""

    def recall(self, scope: str, name: str) -> Any | None:
        """The value, or None. `scope` is a bucket, or empty for the whole endpoint."""
        ...

    def learn(self, scope: str, name: str, value: Any) -> None:
        """Keep it; anything that JSON can carry. Never raises."""
        ...

    def forget(self, scope: str, name: str) -> None:
        """It was wrong. Never raises."""
        ...


class Uses(Protocol):
    """What an eraser that keeps what it finds out has besides."""

    def use(self, known: Known) -> None:
        """Called once, before anything else is asked of it. Without that call it must work as well."""
        ...


def user_of_known(eraser: Eraser) -> Uses | None:
    """The eraser as one that keeps what it finds out, if it does."""
    return cast("Uses", eraser) if callable(getattr(eraser, "use", None)) else None


class MemoryKnown:
    """Known in this process only, for a day: for an eraser that nobody gave another one."""

    def __init__(self, max_age_seconds: float = 86_400.0) -> None:
        self._max_age = max_age_seconds
        self._values: dict[tuple[str, str], tuple[Any, float]] = {}

    def recall(self, scope: str, name: str) -> Any | None:
        value, until = self._values.get((scope, name), (None, 0.0))
        return value if time.monotonic() < until else None

    def learn(self, scope: str, name: str, value: Any) -> None:
        self._values[scope, name] = (value, time.monotonic() + self._max_age)

    def forget(self, scope: str, name: str) -> None:
        self._values.pop((scope, name), None)


def verifier(eraser: Eraser) -> Verifies | None:
    """The eraser's second look, if it has one."""
    return cast("Verifies", eraser) if callable(getattr(eraser, "verify", None)) else None


def prober(eraser: Eraser) -> Probes | None:
    """The eraser's probes, if it has any."""
    return cast("Probes", eraser) if callable(getattr(eraser, "probe", None)) else None


def utc_now() -> datetime:
    """The worker's clock: what a receipt says of when it called and was answered."""
    return datetime.now(UTC)


def call_timeout(options: AccountOptions, lease_seconds: float) -> float:
    """Seconds of one request: as set, but a third of the lease at the most."""
    return min(options.timeout_seconds, lease_seconds / 3)
