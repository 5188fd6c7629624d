"""Reading the inventory: all of it, or what somebody should know about."""

import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import aliased

from expunge.models.database import Database, Transaction
from expunge.models.errors import InvalidGraph
from expunge.models.graph import Graph, Root
from expunge.models.keyset import PAGE, RowDict, columns_of, equals, pages
from expunge.models.list_cases import database_clock
from expunge.models.purge_tables import InventoryItem, Tombstone
from expunge.models.states import Scope
from expunge.models.tables import ErasureCase, OutboxEntry

INVENTORY_COLUMNS = columns_of(InventoryItem)


class View(StrEnum):
    """Which part of the inventory; the words are those of the command."""

    EXPIRING = "expiring"
    """What its provider drops by itself soon: to be copied before, if it must be kept."""
    ORPHANED = "orphaned"
    """Its conversation is gone, and no case has it: to be erased."""
    SHARED = "shared"
    """A case left it: another living subject or conversation has it too. Or what it was made from is erased, and it is
    a living owner's own."""
    AFTER_ERASURE = "after-erasure"
    """Its subject's erasure is complete, and it is there: tracked since, or by a case that did not take it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InventoryFilter:
    """What rows must have; None does not narrow."""

    view: View | None = None
    within: timedelta = timedelta(days=7)
    """Of `expiring`: from now on."""
    subject: str | None = None
    tenant: str | None = None
    conversation: str | None = None
    account: str | None = None


def list_inventory(
    database: Database, wanted: InventoryFilter, graphs: Sequence[Graph] = (), size: int = PAGE
) -> Iterator[list[RowDict]]:
    """Rows of the inventory in pages, by id; what expires by `expires_at`.

    With `graphs`, a conversation that is in none of their root tables is gone as well as one that has a tombstone.
    Raises InvalidGraph if a root table or its key is not there.
    """
    item = InventoryItem
    purged = sa.exists().where(
        Tombstone.conversation == item.conversation, sa.func.coalesce(Tombstone.tenant, "") == _tenant(item)
    )
    statement = sa.select(*item.__table__.columns)
    with database.read() as tx:
        now = database_clock(tx)
        for column, value in (
            (item.subject, wanted.subject),
            (item.conversation, wanted.conversation),
            (item.tenant, wanted.tenant),
            (item.account, wanted.account),
        ):
            if value is not None:
                statement = statement.where(equals(tx, column, value))
        finders = [_finder(tx, graph) for graph in graphs] if wanted.view is View.ORPHANED else []
    if wanted.view is View.EXPIRING:
        soon = statement.where(item.expires_at >= now, item.expires_at <= now + wanted.within)
        yield from pages(database, soon, [item.expires_at, item.id], size)
    elif wanted.view is View.SHARED:
        yield from pages(database, statement.where(_is_shared()), [item.id], size)
    elif wanted.view is View.AFTER_ERASURE:
        yield from pages(database, statement.where(_is_after_erasure()), [item.id], size)
    elif wanted.view is View.ORPHANED:
        uncovered = statement.where(item.conversation.is_not(None), item.left_by.is_(None), ~_has_entry())
        if finders:
            found = pages(database, uncovered.add_columns(purged.label("purged")), [item.id], size)
            yield from _without_root(database, finders, found)
        else:
            yield from pages(database, uncovered.where(purged), [item.id], size)
    else:
        yield from pages(database, statement, [item.id], size)


def _tenant(row: Any) -> sa.ColumnElement[str]:
    return sa.func.coalesce(row.tenant, "")


def _is_shared() -> sa.ColumnElement[bool]:
    item, origin = InventoryItem, aliased(InventoryItem)
    origin_is_gone = sa.and_(item.derived_from.is_not(None), ~sa.exists().where(origin.id == item.derived_from))
    return sa.or_(item.left_by.is_not(None), origin_is_gone)


def _is_after_erasure() -> sa.ColumnElement[bool]:
    item, case = InventoryItem, ErasureCase
    completed = sa.exists().where(
        case.subject == item.subject,
        sa.func.coalesce(case.tenant, "") == _tenant(item),
        case.scope == str(Scope.SUBJECT),
        case.completed_at.is_not(None),
    )
    return sa.and_(item.left_by.is_(None), completed)


def _has_entry() -> sa.ColumnElement[bool]:
    item, entry = InventoryItem, OutboxEntry
    return sa.exists().where(entry.account == item.account, entry.kind == item.kind, entry.locator == item.locator)


_Finder = Callable[[Transaction, Iterable[str]], set[str]]


def _without_root(
    database: Database, finders: Sequence[_Finder], found: Iterable[list[RowDict]]
) -> Iterator[list[RowDict]]:
    """Page by page: one look into each root table for the conversations of a page, by its key's index."""
    for page in found:
        asked = {row["conversation"] for row in page if not row["purged"]}
        with database.read() as tx:
            there = set().union(*(find(tx, asked) for find in finders)) if asked else set()
        gone = [row for row in page if row["purged"] or row["conversation"] not in there]
        if gone:
            yield [{name: row[name] for name in INVENTORY_COLUMNS} for row in gone]


def _finder(tx: Transaction, graph: Graph) -> _Finder:
    root: Root = graph.root
    schema, _, table = root.table.rpartition(".")
    try:
        columns = {c["name"]: c["type"] for c in sa.inspect(tx.connection).get_columns(table, schema or None)}
    except sa.exc.NoSuchTableError:
        columns = {}
    if root.key not in columns:
        raise InvalidGraph([f"graph {graph.name}: the database has no table {root.table} with the key {root.key}"])
    type_ = columns[root.key]
    key = sa.column(root.key, type_)
    source = sa.table(table, key, schema=schema or None)

    def find(tx: Transaction, conversations: Iterable[str]) -> set[str]:
        ids = _as_keys(type_, conversations)
        matches = sa.cast(key, sa.Text()).in_(list(conversations)) if ids is None else key.in_(ids)
        return {
            str(value) for value in tx.connection.execute(sa.select(key).select_from(source).where(matches)).scalars()
        }

    return find


def _as_keys(type_: Any, conversations: Iterable[str]) -> list[Any] | None:
    """The ids as the key's own type, so that its index finds them; None if that type is none of the usual ones. An id
    that cannot be one is no row's."""
    if isinstance(type_, sa.String):
        return list(conversations)
    if isinstance(type_, sa.Integer):
        return [int(text) for text in conversations if text.lstrip("-").isdecimal() and len(text) < 19]
    if isinstance(type_, sa.Uuid):
        return [key for text in conversations if (key := _as_uuid(text)) is not None]
    return None


def _as_uuid(text: str) -> uuid.UUID | None:
    try:
        return uuid.UUID(text)
    except ValueError:
        return None
