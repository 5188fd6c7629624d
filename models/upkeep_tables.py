"""What is stored for the work itself: what is known of stores, when the sweep ran, and what is owed to the archive."""

from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Mapped, mapped_column

from expunge.models.tables import Base
from expunge.models.types import Identity, Json

_DEFAULT = sa.FetchedValue()


class Capability(Base):
    """One thing that was found out about a store: once, by whichever worker asked first, and with its age."""

    __tablename__ = "erasure_capability"

    account: Mapped[str] = mapped_column(primary_key=True)
    endpoint: Mapped[str] = mapped_column(primary_key=True)
    """Where it was asked, without credentials: another endpoint is another store."""
    scope: Mapped[str] = mapped_column(primary_key=True)
    """The bucket, or empty for the whole endpoint."""
    name: Mapped[str] = mapped_column(primary_key=True)
    value: Mapped[Any] = mapped_column(Json)
    found_at: Mapped[datetime] = mapped_column(server_default=_DEFAULT)


class Sweep(Base):
    """When the sweep last ran, so that one that does not run is seen. One row."""

    __tablename__ = "erasure_sweep"

    name: Mapped[str] = mapped_column(primary_key=True)
    started_at: Mapped[datetime]
    ended_at: Mapped[datetime | None]


class Archive(Base):
    """That there is an archive, and how far its segments are numbered. One row, or none without an archive."""

    __tablename__ = "erasure_archive"

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    url: Mapped[str]
    """Where, without credentials."""
    segment: Mapped[int] = mapped_column(sa.BigInteger(), server_default=_DEFAULT)
    started_at: Mapped[datetime] = mapped_column(server_default=_DEFAULT)
    failures: Mapped[int] = mapped_column(server_default=_DEFAULT)
    """In a row."""
    failing_since: Mapped[datetime | None]
    reason: Mapped[str | None]
    due_at: Mapped[datetime] = mapped_column(server_default=_DEFAULT)
    """Not written again before; it moves on with every failure."""


class ArchiveItem(Base):
    """A receipt, decision, tombstone or hold that is not in the archive yet. The row goes once it is."""

    __tablename__ = "erasure_archive_queue"

    id: Mapped[int] = mapped_column(Identity, primary_key=True, autoincrement=True)
    kind: Mapped[str]
    ref: Mapped[str]
    """The row's own id; of a tombstone graph and conversation as JSON; of a hold that was released, `ID/released`."""
    segment: Mapped[int | None] = mapped_column(sa.BigInteger())
    """The segment that it was put into, which is written again as it was if its writer died."""

    __table_args__ = (
        sa.Index(
            "ix_erasure_archive_queue_segment",
            "segment",
            postgresql_where=sa.text("segment IS NOT NULL"),
            sqlite_where=sa.text("segment IS NOT NULL"),
        ),
        {"sqlite_autoincrement": True},
    )
