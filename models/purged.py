"""What a purge is asked by, and what it says."""

from dataclasses import dataclass, field
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class Principal:
    """On whose behalf: the host has authenticated it; whether it may is decided by the root row's tenant and owner."""

    id: str
    tenant: str | None = None


class PurgeStatus(StrEnum):
    """How a purge ended, if it raised nothing."""

    PURGED = "purged"
    """The rows are gone, the targets are in the outbox, the identity is reserved for ever; once the caller commits."""
    ALREADY_PURGED = "already_purged"
    """It was done before, by the same principal."""
    UNSUPPORTED = "unsupported"
    """This store cannot keep the promise; nothing was touched. `reason` says what is missing."""


@dataclass(frozen=True, slots=True)
class Purged:
    """The result of one purge."""

    status: PurgeStatus
    case_id: str | None = None
    deleted: dict[str, int] = field(default_factory=dict)
    """Rows removed, by table; only tables that had some."""
    detached: dict[str, int] = field(default_factory=dict)
    """Rows that were kept without their reference, by table."""
    reason: str | None = None
