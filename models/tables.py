"""What is stored. The ORM classes are for reading and for the host's own code; the queries that move rows are in the
modules named by their verbs (claim, mark, settle, sweep …).

The tables are made by the migrations alone. Defaults are the database's, so that two plain INSERTs from any language
open a case; CHECKs forbid impossible states; rules that span rows, and append-only, are triggers
(models/migrations/triggers.py).
"""

from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from expunge.models.types import Identity, Json, UtcDateTime, Uuid

MAX_LOCATOR_BYTES = 1100
"""UTF-8 bytes of a locator."""
MAX_CASE_ID = 200
"""Characters of a case id."""
MAX_ACCOUNT = 64
"""Characters of an account's name."""

NAMING = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
    "pk": "pk_%(table_name)s",
}

_DEFAULT = sa.FetchedValue()


class Base(DeclarativeBase):
    """Expunge's own MetaData: everything in it is named erasure_…, and nothing else is ever touched."""

    metadata = sa.MetaData(naming_convention=NAMING)
    type_annotation_map = {  # noqa: RUF012  SQLAlchemy reads it off the class
        datetime: UtcDateTime(),
        str: sa.Text(),
        int: sa.Integer(),
        bool: sa.Boolean(),
        dict[str, Any]: Json,
    }


class ErasureCase(Base):
    """One erasure owed to one subject."""

    __tablename__ = "erasure_case"

    id: Mapped[str] = mapped_column(primary_key=True, server_default=_DEFAULT)
    tenant: Mapped[str | None]
    subject: Mapped[str]
    """The host's own opaque reference; not an e-mail address."""
    scope: Mapped[str] = mapped_column(server_default=_DEFAULT)
    conversation: Mapped[str | None]
    basis: Mapped[str] = mapped_column(server_default=_DEFAULT)
    """`request` has no clock; for the others see models/basis.py."""
    received_at: Mapped[datetime] = mapped_column(server_default=_DEFAULT)
    due_at: Mapped[datetime | None]
    """The statutory date; none for a basis without a clock."""
    opened_at: Mapped[datetime] = mapped_column(server_default=_DEFAULT)
    completed_at: Mapped[datetime | None]
    nothing_found: Mapped[bool] = mapped_column(server_default=_DEFAULT)
    """Somebody looked and found nothing to erase: the case is complete without a receipt."""
    extended_at: Mapped[datetime | None]
    """When the time was extended, and by whom and why; `due_at` is the later date then."""
    extended_by: Mapped[str | None]
    extended_why: Mapped[str | None]

    __table_args__ = (
        sa.Index("ix_erasure_case_tenant_subject", "tenant", "subject"),
        sa.Index(
            "ix_erasure_case_open",
            "due_at",
            postgresql_where=sa.text("completed_at IS NULL"),
            sqlite_where=sa.text("completed_at IS NULL"),
        ),
        sa.Index("ix_erasure_case_opened_at_id", "opened_at", "id"),
    )


class OutboxEntry(Base):
    """A target that waits to be gone. The row is removed once it is."""

    __tablename__ = "erasure_outbox"

    id: Mapped[int] = mapped_column(Identity, primary_key=True, autoincrement=True)
    """Never reused, so a receipt's `entry_id` names one entry for ever."""
    case_id: Mapped[str] = mapped_column(sa.ForeignKey("erasure_case.id"))
    account: Mapped[str]
    kind: Mapped[str]
    locator: Mapped[str]
    parent_id: Mapped[int | None] = mapped_column(Identity)
    state: Mapped[str] = mapped_column(server_default=_DEFAULT)
    due_at: Mapped[datetime] = mapped_column(server_default=_DEFAULT)
    attempt: Mapped[int] = mapped_column(server_default=_DEFAULT)
    """Marks so far; only grows."""
    tries: Mapped[int] = mapped_column(server_default=_DEFAULT)
    """Those that count towards escalation; a person's retry sets it back."""
    refusals: Mapped[int] = mapped_column(server_default=_DEFAULT)
    """Tries that the store refused."""
    lost_leases: Mapped[int] = mapped_column(server_default=_DEFAULT)
    """Leases that ended while calling, since the last answer."""
    escalations: Mapped[int] = mapped_column(server_default=_DEFAULT)
    """Since a person last decided; only the first is noticed."""
    rounds: Mapped[int] = mapped_column(server_default=_DEFAULT)
    """Complete listings of a composite target that found parts."""
    had_parts: Mapped[bool] = mapped_column(server_default=_DEFAULT)
    """Something inside it was found and put into the outbox."""
    cursor: Mapped[str | None]
    """Where the next claim's listing of a composite target goes on."""
    lease_token: Mapped[str | None] = mapped_column(Uuid)
    lease_until: Mapped[datetime | None]
    reason: Mapped[str | None]
    """Why it waits: the last error, or why it was escalated. Never a locator or content."""
    created_at: Mapped[datetime] = mapped_column(server_default=_DEFAULT)
    action: Mapped[str] = mapped_column(server_default=_DEFAULT)
    """`delete`, or `verify`: it waits for a second look."""
    settled: Mapped[bool] = mapped_column(server_default=_DEFAULT)
    """Its closing receipt exists, so that it keeps no case open: a second look is all that it waits for."""
    reappeared: Mapped[int] = mapped_column(server_default=_DEFAULT)
    """Second looks that found it there again, since a person decided."""
    conversation: Mapped[str | None]
    """Of an object that the inventory names as a conversation's, in a case of its subject: a hold may cover it."""
    expires_at: Mapped[datetime | None]
    """When the provider itself will drop it, as the inventory knew."""

    __table_args__ = (
        sa.UniqueConstraint("case_id", "account", "kind", "locator"),
        sa.Index(
            "ix_erasure_outbox_ready",
            "account",
            "due_at",
            "id",
            postgresql_where=sa.text("state = 'ready'"),
            sqlite_where=sa.text("state = 'ready'"),
        ),
        sa.Index(
            "ix_erasure_outbox_lease",
            "lease_until",
            postgresql_where=sa.text("lease_until IS NOT NULL"),
            sqlite_where=sa.text("lease_until IS NOT NULL"),
        ),
        sa.Index(
            "ix_erasure_outbox_parent_id",
            "parent_id",
            postgresql_where=sa.text("parent_id IS NOT NULL"),
            sqlite_where=sa.text("parent_id IS NOT NULL"),
        ),
        sa.Index(
            "ix_erasure_outbox_parked",
            "state",
            "due_at",
            postgresql_where=sa.text("state IN ('waiting', 'held', 'escalated')"),
            sqlite_where=sa.text("state IN ('waiting', 'held', 'escalated')"),
        ),
        {"sqlite_autoincrement": True},
    )


class ErasureRecord(Base):
    """A receipt: what one store answered about one object. Append-only; it outlives everything it names, so it has no
    foreign key."""

    __tablename__ = "erasure_record"

    id: Mapped[str] = mapped_column(Uuid, primary_key=True)
    """Made before the call, so that writing it twice is writing it once."""
    case_id: Mapped[str]
    entry_id: Mapped[int | None] = mapped_column(Identity)
    tenant: Mapped[str | None]
    subject: Mapped[str]
    conversation: Mapped[str | None]
    account: Mapped[str]
    store: Mapped[str | None]
    """Which kind of store: `s3`, `openai` …; null where none was ever known."""
    kind: Mapped[str]
    locator: Mapped[str]
    version: Mapped[str | None]
    """Of a version of the object: such a receipt is about the part and settles nothing."""
    attempt: Mapped[int]
    action: Mapped[str]
    operation: Mapped[str | None]
    """The API's own name of the call that decided."""
    status: Mapped[str]
    request_id: Mapped[str | None]
    """The provider's."""
    http_status: Mapped[int | None]
    error: Mapped[str | None]
    """A code or a class name; never a body."""
    detail: Mapped[dict[str, Any] | None]
    endpoint: Mapped[str | None]
    region: Mapped[str | None]
    """As the answer reported it."""
    called_at: Mapped[datetime | None]
    at: Mapped[datetime]
    """When it was answered, or given up: the worker's clock."""
    recorded_at: Mapped[datetime] = mapped_column(server_default=_DEFAULT)
    """The database's clock."""
    purge_due_at: Mapped[datetime | None]
    """By when the provider's documentation says that its last copies are purged."""
    actor: Mapped[str | None]
    why: Mapped[str | None]

    __table_args__ = (
        sa.Index("ix_erasure_record_case_id", "case_id"),
        sa.Index("ix_erasure_record_recorded_at_id", "recorded_at", "id"),
        sa.Index("ix_erasure_record_tenant_subject", "tenant", "subject"),
    )


class ErasureLane(Base):
    """A lane that is not simply running. Written only when something changes."""

    __tablename__ = "erasure_lane"

    account: Mapped[str] = mapped_column(primary_key=True)
    scope: Mapped[str] = mapped_column(primary_key=True, server_default=_DEFAULT)
    """Empty for the whole lane, else the bucket that is paused by itself."""
    paused_by: Mapped[str | None]
    paused_until: Mapped[datetime | None]
    """None while paused by the operator: until `expunge resume`. For the breaker: when the next probe may go."""
    paused_since: Mapped[datetime | None]
    reason: Mapped[str | None]
    refused: Mapped[bool] = mapped_column(server_default=_DEFAULT)
    """The breaker is open because the store refuses everything or nothing can be sent, not because it is down."""
    failures: Mapped[int] = mapped_column(server_default=_DEFAULT)
    """In a row."""
    failing: Mapped[dict[str, Any] | None] = mapped_column(Json)
    """Up to three entries of those failures, and the refusal they share."""


class ErasureDrain(Base):
    """A place for one drain of a lane in the whole fleet; `lease_until` frees the place of a dead worker."""

    __tablename__ = "erasure_drain"

    account: Mapped[str] = mapped_column(primary_key=True)
    slot: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    token: Mapped[str] = mapped_column(Uuid)
    lease_until: Mapped[datetime]


class ErasureHold(Base):
    """A legal order to keep. What it covers is not erased while it stands. A null column does not narrow it."""

    __tablename__ = "erasure_hold"

    id: Mapped[int] = mapped_column(Identity, primary_key=True, autoincrement=True)
    tenant: Mapped[str | None]
    subject: Mapped[str | None]
    conversation: Mapped[str | None]
    case_id: Mapped[str | None]
    account: Mapped[str | None]
    locator_prefix: Mapped[str | None]
    """Of an account's locators, as text; needs the account."""
    matter: Mapped[str | None]
    placed_at: Mapped[datetime] = mapped_column(server_default=_DEFAULT)
    placed_by: Mapped[str]
    placed_why: Mapped[str]
    released_at: Mapped[datetime | None]
    released_by: Mapped[str | None]
    released_why: Mapped[str | None]

    __table_args__ = (
        sa.Index(
            "ix_erasure_hold_standing",
            "subject",
            postgresql_where=sa.text("released_at IS NULL"),
            sqlite_where=sa.text("released_at IS NULL"),
        ),
        {"sqlite_autoincrement": True},
    )


class ErasureNotice(Base):
    """A webhook that is owed: written with what it tells of, sent by the sweep."""

    __tablename__ = "erasure_notice"

    id: Mapped[int] = mapped_column(Identity, primary_key=True, autoincrement=True)
    kind: Mapped[str]
    dedupe: Mapped[str] = mapped_column(unique=True)
    """What happened once is told once."""
    case_id: Mapped[str | None]
    entry_id: Mapped[int | None] = mapped_column(Identity)
    account: Mapped[str | None]
    body: Mapped[dict[str, Any]]
    """Ids and codes; never a subject or a locator."""
    created_at: Mapped[datetime] = mapped_column(server_default=_DEFAULT)
    due_at: Mapped[datetime] = mapped_column(server_default=_DEFAULT)
    attempt: Mapped[int] = mapped_column(server_default=_DEFAULT)
    sent_at: Mapped[datetime | None]

    __table_args__ = (
        sa.Index(
            "ix_erasure_notice_owed",
            "due_at",
            postgresql_where=sa.text("sent_at IS NULL"),
            sqlite_where=sa.text("sent_at IS NULL"),
        ),
        {"sqlite_autoincrement": True},
    )


class ErasureDecision(Base):
    """Who retried, waived, paused, held and why. Append-only."""

    __tablename__ = "erasure_decision"

    id: Mapped[int] = mapped_column(Identity, primary_key=True, autoincrement=True)
    at: Mapped[datetime] = mapped_column(server_default=_DEFAULT)
    decision: Mapped[str]
    actor: Mapped[str]
    why: Mapped[str | None]
    account: Mapped[str | None]
    case_id: Mapped[str | None]
    entry_id: Mapped[int | None] = mapped_column(Identity)
    hold_id: Mapped[int | None] = mapped_column(Identity)

    __table_args__ = ({"sqlite_autoincrement": True},)
