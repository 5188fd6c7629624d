"""A claimed outbox entry as the drain and the erasers see it, and a receipt before it is written."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True)
class Entry:
    """A claimed entry with what its receipts need of the case. It is what the worker knows: receipts come from here,
    never from rows that may be gone. A claim makes it of its rows by position: the fields are in the order of the
    query's columns. `action` says whether it is to be erased, or looked at a second time."""

    id: int
    case_id: str
    tenant: str | None
    subject: str
    conversation: str | None
    account: str
    kind: str
    locator: str
    parent_id: int | None = None
    attempt: int = 0
    tries: int = 0
    refusals: int = 0
    lost_leases: int = 0
    escalations: int = 0
    rounds: int = 0
    had_parts: bool = False
    cursor: str | None = None
    action: str = "delete"
    settled: bool = False
    reappeared: int = 0
    token: str = ""


@dataclass(slots=True)
class Receipt:
    """One row of erasure_record; the fields are its columns. `recorded_at` is the database's."""

    id: str
    case_id: str
    entry_id: int | None
    tenant: str | None
    subject: str
    conversation: str | None
    account: str
    store: str | None
    kind: str
    locator: str
    attempt: int
    action: str
    status: str
    at: datetime
    called_at: datetime | None = None
    version: str | None = None
    operation: str | None = None
    request_id: str | None = None
    http_status: int | None = None
    error: str | None = None
    detail: dict[str, Any] | None = field(default=None)
    endpoint: str | None = None
    region: str | None = None
    purge_due_at: datetime | None = None
    actor: str | None = None
    why: str | None = None


def receipt_about(entry: Entry, store: str | None, **facts: Any) -> Receipt:
    """A receipt with all that it takes from its entry; `facts` are its other fields."""
    return Receipt(
        case_id=entry.case_id,
        entry_id=entry.id,
        tenant=entry.tenant,
        subject=entry.subject,
        conversation=entry.conversation,
        account=entry.account,
        store=store,
        kind=entry.kind,
        locator=entry.locator,
        **facts,
    )
