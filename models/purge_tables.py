"""What is stored beside the outbox: what was created at stores, and which identities were purged for ever.

See models/tables.py, whose rules hold here as well.
"""

from datetime import datetime

import sqlalchemy as sa
from sqlalchemy.orm import Mapped, mapped_column

from expunge.models.tables import Base
from expunge.models.types import Identity

_DEFAULT = sa.FetchedValue()


class InventoryItem(Base):
    """An object that the host created at a store. The row goes into the outbox when it is to be erased."""

    __tablename__ = "erasure_inventory"

    id: Mapped[int] = mapped_column(Identity, primary_key=True, autoincrement=True)
    tenant: Mapped[str | None]
    subject: Mapped[str]
    conversation: Mapped[str | None]
    account: Mapped[str]
    kind: Mapped[str]
    locator: Mapped[str]
    region: Mapped[str | None]
    """As the store reported it."""
    created_at: Mapped[datetime] = mapped_column(server_default=_DEFAULT)
    """At the store, as the host says."""
    tracked_at: Mapped[datetime] = mapped_column(server_default=_DEFAULT)
    """The database's clock."""
    expires_at: Mapped[datetime | None]
    """When the provider drops it by itself."""
    derived_from: Mapped[int | None] = mapped_column(Identity)
    """The item that it was made from: an index of a file, a summary of a conversation."""
    left_by: Mapped[str | None]
    """The case that would have erased it, but for another living subject or conversation that has it too."""

    __table_args__ = (
        sa.Index(
            "uq_erasure_inventory_object",
            "account",
            "kind",
            "locator",
            sa.text("coalesce(tenant, '')"),
            "subject",
            sa.text("coalesce(conversation, '')"),
            unique=True,
        ),
        sa.Index("ix_erasure_inventory_subject", "subject"),
        sa.Index(
            "ix_erasure_inventory_conversation",
            "conversation",
            postgresql_where=sa.text("conversation IS NOT NULL"),
            sqlite_where=sa.text("conversation IS NOT NULL"),
        ),
        sa.Index(
            "ix_erasure_inventory_derived_from",
            "derived_from",
            postgresql_where=sa.text("derived_from IS NOT NULL"),
            sqlite_where=sa.text("derived_from IS NOT NULL"),
        ),
        sa.Index(
            "ix_erasure_inventory_expires_at",
            "expires_at",
            postgresql_where=sa.text("expires_at IS NOT NULL"),
            sqlite_where=sa.text("expires_at IS NOT NULL"),
        ),
        sa.Index(
            "ix_erasure_inventory_left_by",
            "left_by",
            postgresql_where=sa.text("left_by IS NOT NULL"),
            sqlite_where=sa.text("left_by IS NOT NULL"),
        ),
        {"sqlite_autoincrement": True},
    )


class InventoryBucket(Base):
    """What a case that takes from the inventory updates, and a `track` with an older snapshot locks, so that the
    database sees the conflict. PostgreSQL only, empty elsewhere; a row is made by the first case of its bucket."""

    __tablename__ = "erasure_inventory_bucket"

    bucket: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    cases: Mapped[int] = mapped_column(server_default=_DEFAULT)


class Tombstone(Base):
    """The content-free mark that a conversation was purged and its identity may never be used again. Append-only."""

    __tablename__ = "erasure_tombstone"

    graph: Mapped[str] = mapped_column(primary_key=True)
    conversation: Mapped[str] = mapped_column(primary_key=True)
    """The root's key, as text."""
    tenant: Mapped[str | None]
    principal: Mapped[str]
    purged_at: Mapped[datetime] = mapped_column(server_default=_DEFAULT)

    __table_args__ = (sa.Index("ix_erasure_tombstone_conversation", "conversation"),)


class Fence(Base):
    """Which fence stands around a graph: the triggers that keep purged conversations from coming back."""

    __tablename__ = "erasure_fence"

    graph: Mapped[str] = mapped_column(primary_key=True)
    fingerprint: Mapped[str]
    """Of the statements that were installed; another one than the graph's needs the fence anew."""
    installed_at: Mapped[datetime] = mapped_column(server_default=_DEFAULT)


class FenceBucket(Base):
    """What a purge updates and a writer with an older snapshot locks, so that the database sees the conflict. As many
    rows as there are advisory locks; PostgreSQL only, empty elsewhere."""

    __tablename__ = "erasure_fence_bucket"

    bucket: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    purges: Mapped[int] = mapped_column(server_default=_DEFAULT)
