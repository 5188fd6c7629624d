"""What a store in memory holds at one moment: rows, tombstones, the cases of purges, and holds."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from expunge.models.memory_graph import Tables
from expunge.models.targets import Target


@dataclass(frozen=True, slots=True)
class MemoryTombstone:
    """That a conversation was purged: as erasure_tombstone, without content."""

    graph: str
    conversation: str
    tenant: str | None
    principal: str
    purged_at: datetime


@dataclass(frozen=True, slots=True)
class MemoryCase:
    """What a purge leaves to be erased at stores; `targets` become fewer as they are confirmed to be gone."""

    id: str
    subject: str
    tenant: str | None
    conversation: str
    targets: tuple[Target, ...]
    opened_at: datetime


@dataclass(frozen=True, slots=True)
class MemoryHold:
    """A legal hold; what is None narrows it to nothing."""

    id: int
    subject: str | None
    tenant: str | None
    conversation: str | None

    def covers(self, *, subject: str, tenant: str | None, conversation: str) -> bool:
        """As models/holds.py has it: an unnamed tenant is every tenant."""
        pairs = ((self.subject, subject), (self.tenant, tenant), (self.conversation, conversation))
        return all(own is None or own == other for own, other in pairs)


@dataclass(frozen=True, slots=True)
class State:
    """Everything that is published at one moment. Nothing in it is ever changed."""

    tables: Tables
    tombstones: Mapping[tuple[str, str], MemoryTombstone] = field(default_factory=dict)
    cases: Mapping[str, MemoryCase] = field(default_factory=dict)
    holds: tuple[MemoryHold, ...] = ()
    last_hold: int = 0
