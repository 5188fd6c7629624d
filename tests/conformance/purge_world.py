"""What every store that purges conversations is judged with: a graph that has everything, and a World on it.

chat ◀─ turn ◀─ message ◀─ attachment      rows that name something to erase
  ▲      ▲ └─▶ turn (its parent)
  │      ├── step ◀──▶ result              a cycle of two tables
  │      ├── skill                         detached
  │      └── chat.pinned_turn_id           the root refers to a member
  ├── audit                                kept; no foreign key
  ├── attachment, note                     no foreign key
  └── chat.forked_from                     another conversation
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import sqlalchemy as sa

from expunge.models.graph import ActiveRun, Graph, Member, Reference, Root, Rule, TargetColumns
from expunge.models.purged import Principal, Purged
from expunge.models.targets import Target

ADA = Principal("ada", "acme")
BOB = Principal("bob", "acme")
ADA_ELSEWHERE = Principal("ada", "globex")

metadata = sa.MetaData()


def _table(name: str, *columns: sa.Column[Any]) -> sa.Table:
    return sa.Table(name, metadata, sa.Column("id", sa.Text, primary_key=True), *columns)


def _to(column: str, target: str, *, nullable: bool = True, cyclic: bool = False) -> sa.Column[Any]:
    name = f"fk_{column}_{target.partition('.')[0]}"
    key = sa.ForeignKey(target, name=name, use_alter=cyclic) if cyclic else sa.ForeignKey(target)
    return sa.Column(column, sa.Text, key, nullable=nullable)


def _text(column: str) -> sa.Column[Any]:
    return sa.Column(column, sa.Text)


_table(
    "chat",
    _text("tenant"),
    _text("owner"),
    sa.Column("version", sa.BigInteger),
    _to("pinned_turn_id", "turn.id", cyclic=True),
    _to("forked_from", "chat.id"),
)
_table("turn", _to("chat_id", "chat.id", nullable=False), _to("parent_id", "turn.id"), _text("state"))
_table("message", _to("turn_id", "turn.id", nullable=False), _text("body"))
_table("step", _to("turn_id", "turn.id"), _to("result_id", "result.id", cyclic=True))
_table("result", _to("step_id", "step.id"))
_table(
    "attachment",
    _to("message_id", "message.id"),
    *map(_text, ("chat_id", "account", "kind", "locator", "index_id")),
)
_table("note", _text("chat_id"), _text("turn_ref"), _text("body"))
_table("skill", _to("turn_id", "turn.id"), _text("body"))
_table("audit", _text("chat_id"), _text("what"))

CHATS = Graph(
    "chats",
    Root(
        "chat",
        tenant="tenant",
        owner="owner",
        version="version",
        active_run=ActiveRun("turn", ("queued", "running")),
    ),
    (
        Member("turn"),
        Member("message"),
        Member("step"),
        Member("result"),
        Member(
            "attachment",
            references=(Reference("chat_id", "chat"),),
            targets=(
                TargetColumns("account", "kind", "locator"),
                TargetColumns("=openai_eu", "=vector_store", "index_id"),
            ),
        ),
        Member("note", references=(Reference("chat_id", "chat"), Reference("turn_ref", "turn"))),
        Member("skill", Rule.DETACH),
        Member(
            "audit",
            Rule.KEEP,
            why="the auditors must see that it was there",
            references=(Reference("chat_id", "chat"),),
        ),
    ),
)

TABLES = ("chat", "turn", "message", "step", "result", "attachment", "note", "skill", "audit")


@dataclass(frozen=True, slots=True)
class Case:
    """A case that a purge opened, and what it has in the outbox."""

    subject: str
    tenant: str | None
    conversation: str | None
    targets: frozenset[Target]


@dataclass(frozen=True, slots=True)
class Stone:
    """A tombstone, all of it but the time."""

    graph: str
    conversation: str
    tenant: str | None
    principal: str


class Tx(Protocol):
    """One transaction of the host."""

    def insert(self, table: str, row: Mapping[str, Any]) -> None: ...
    def update(self, table: str, key: str, changes: Mapping[str, Any]) -> None:
        """Raises ConversationPurged, or InvalidWrite for what keys and foreign keys refuse; so do the others."""
        ...

    def delete(self, table: str, key: str) -> None: ...
    def rows(self, table: str) -> dict[str, dict[str, Any]]:
        """By id, without the columns that are NULL."""
        ...

    def is_purged(self, conversation: str) -> bool: ...
    def purge(self, conversation: str, *, principal: Principal = ADA, **how: Any) -> Purged:
        """`how`: expected_version, reserve_absent."""
        ...

    def place_hold(self, **whom: str) -> None: ...
    def cases(self) -> dict[str, Case]: ...
    def tombstones(self) -> Sequence[Stone]: ...


class World(Protocol):
    """One store with the fence around the graph."""

    def begin(self) -> AbstractContextManager[Tx]:
        """A transaction: committed if the block ends well, else rolled back."""
        ...

    def read(self) -> AbstractContextManager[Tx]:
        """What is committed, for a reader beside an open transaction."""
        ...

    def remove_tombstone(self, conversation: str) -> None:
        """By whatever the store has that comes nearest to it."""
        ...

    def open_fence(self) -> None:
        """Make the store one without the capability."""
        ...

    def close(self) -> None: ...
