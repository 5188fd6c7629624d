"""How a conversation hangs together in the host's database: what a purge removes, what it keeps, and why.

A host declares the root table and one rule for every table that belongs to it. What foreign keys say is read from the
live database (graph_live.py); only references without a foreign key are declared here. A table that the foreign keys
reach, or a column that looks like a reference, and that nobody declared, is an error: a migration that forgot the graph
is found by `expunge graph` before a purge forgets the table.
"""

from dataclasses import dataclass
from enum import StrEnum


class Rule(StrEnum):
    """What a purge does with a member's rows."""

    DELETE = "delete"
    """Remove them."""
    DETACH = "detach"
    """Set their references NULL and keep the rows: they outlive the conversation that formed them."""
    KEEP = "keep"
    """Leave them as they are, for a declared reason."""


@dataclass(frozen=True, slots=True)
class Reference:
    """A reference that has no foreign key: `column` of the member holds what `to_column` of the table `to` holds."""

    column: str
    to: str
    to_column: str | None = None
    """None: its key."""


@dataclass(frozen=True, slots=True)
class TargetColumns:
    """Which columns of a row name something to erase at a store. A text that begins with `=` is itself the value:
    `=openai_eu`. Rows in which one of them is NULL name nothing."""

    account: str
    kind: str
    locator: str


@dataclass(frozen=True, slots=True)
class Member:
    """A table that belongs to the conversation."""

    table: str
    rule: Rule = Rule.DELETE
    why: str | None = None
    """Required with `keep`."""
    references: tuple[Reference, ...] = ()
    targets: tuple[TargetColumns, ...] = ()


@dataclass(frozen=True, slots=True)
class ActiveRun:
    """How to see that somebody works on the conversation: rows of `table` whose `state` is one of `states`."""

    table: str
    states: tuple[str, ...]
    key: str = "id"
    state: str = "state"


@dataclass(frozen=True, slots=True)
class Root:
    """The conversation's own table."""

    table: str
    key: str = "id"
    tenant: str | None = None
    """The column that says whose tenant it is; None if the host has one tenant only."""
    owner: str | None = None
    """The column that says which principal owns it; None if every principal of the tenant does."""
    version: str | None = None
    """The column that a purge's `expected_version` is compared with."""
    active_run: ActiveRun | None = None
    targets: tuple[TargetColumns, ...] = ()


@dataclass(frozen=True, slots=True)
class Unrelated:
    """A column that looks like a reference to the root, and is none."""

    table: str
    column: str
    why: str


@dataclass(frozen=True, slots=True)
class Graph:
    """One kind of conversation."""

    name: str
    """`[a-z][a-z0-9_]*`, at most 64 characters; part of every tombstone, so it never changes."""
    root: Root
    members: tuple[Member, ...] = ()
    unrelated: tuple[Unrelated, ...] = ()
