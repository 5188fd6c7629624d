"""The inventory: what the host created at stores, told in the transaction in which the host learns of it.

No provider can be asked what belongs to a person, so an object that no row names cannot be erased. See take_tracked.py
for how rows leave the inventory.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection
from sqlalchemy.orm import Session

from expunge.models import bell
from expunge.models.cases import close_if_nothing_was_found, ensure_case
from expunge.models.database import Transaction
from expunge.models.errors import InvalidTarget
from expunge.models.plain_text import require_text
from expunge.models.purge_tables import InventoryItem
from expunge.models.states import Scope
from expunge.models.take_tracked import Owner, exclude_sharing, share, take_one, tenant_is
from expunge.models.targets import Target, require_valid
from expunge.models.tombstones import case_id_of

_YEARS = (1900, 9000)
"""What the columns take."""


@dataclass(frozen=True, slots=True)
class Tracked:
    """What `track` did."""

    id: int
    """For `derived_from` of what is made from this object. Never used again for another."""
    case_id: str | None = None
    """The case whose outbox the object went into at once: it will be erased. None: it is in the inventory."""


def track(
    where: Session | Connection,
    *,
    account: str,
    kind: str,
    locator: str,
    subject: str,
    tenant: str | None = None,
    conversation: str | None = None,
    region: str | None = None,
    created_at: datetime | None = None,
    expires_at: datetime | None = None,
    derived_from: int | None = None,
) -> Tracked:
    """Record an object that the host created at a store, inside the caller's own transaction.

    The same object again for the same tenant, subject and conversation is no error: a `region` (as the store reported
    it), `expires_at` (when the provider drops it by itself) or `derived_from` (the id of what it was made from) that is
    given replaces the old one. `created_at` is the database's clock by default. Times are aware.

    An object of a subject whose case of scope `subject` is open, or of a conversation that has a tombstone, goes into
    that case's outbox at once, which opens the case again; `case_id` says so. A completed case of a subject takes
    nothing more. Waits for a case of this subject or conversation that is just being opened; on PostgreSQL at another
    isolation than READ COMMITTED the transaction fails then (SQLSTATE 40001) and is to be repeated.

    Raises InvalidTarget, before anything is written, with the field and the reason.
    """
    target = Target(account, kind, locator)
    require_valid(target)
    _require_owner(subject, tenant, conversation, region)
    _require_times(created_at, expires_at)
    if derived_from is not None and (type(derived_from) is not int or not 0 < derived_from < 2**63):
        raise InvalidTarget("derived_from: the id of a tracked object")

    connection = where.connection() if isinstance(where, Session) else where
    tx = Transaction(connection)
    owners = [Owner(tenant, subject)]
    if conversation is not None:
        owners.append(Owner(tenant, conversation=conversation))
    share(tx, *owners)
    case, opened = _open_case_of_subject(tx, tenant, subject), False
    if case is None and conversation is not None:
        case, opened = _case_of_tombstone(tx, tenant, conversation)
    if case is not None:
        exclude_sharing(tx)
    item = _write(
        connection,
        {
            "account": account,
            "kind": kind,
            "locator": locator,
            "subject": subject,
            "tenant": tenant,
            "conversation": conversation,
            "region": region,
            "expires_at": expires_at,
            "derived_from": derived_from,
        },
        created_at,
    )
    if case is None:
        return Tracked(item)
    taken = take_one(tx, case, item)
    bell.announce(where, taken.accounts)
    if opened and not taken.added:
        close_if_nothing_was_found(connection, case)
    gone = tx.first("SELECT 1 FROM erasure_inventory WHERE id = :id", id=item) is None
    return Tracked(item, case if gone else None)


def _require_owner(subject: str, tenant: str | None, conversation: str | None, region: str | None) -> None:
    if subject is None:
        raise InvalidTarget("subject: is required")
    fields = {"subject": subject, "tenant": tenant, "conversation": conversation, "region": region}
    require_text(fields, InvalidTarget)


def _require_times(created_at: datetime | None, expires_at: datetime | None) -> None:
    for name, value in (("created_at", created_at), ("expires_at", expires_at)):
        if value is None:
            continue
        if not isinstance(value, datetime) or value.tzinfo is None:
            raise InvalidTarget(f"{name}: a time with a time zone")
        if not _YEARS[0] < value.year < _YEARS[1] - 1:
            raise InvalidTarget(f"{name}: a year between {_YEARS[0]} and {_YEARS[1]}")


def _open_case_of_subject(tx: Transaction, tenant: str | None, subject: str) -> str | None:
    row = tx.first(
        f"SELECT id FROM erasure_case WHERE {tenant_is(tenant)} AND subject = :subject AND scope = 'subject'"
        " AND completed_at IS NULL ORDER BY opened_at, id LIMIT 1",
        subject=subject,
        **_given(tenant),
    )
    return None if row is None else str(row.id)


def _case_of_tombstone(tx: Transaction, tenant: str | None, conversation: str) -> tuple[str | None, bool]:
    """The case that purged the conversation, and whether it had to be opened anew."""
    row = tx.first(
        f"SELECT graph, principal FROM erasure_tombstone WHERE conversation = :conversation AND {tenant_is(tenant)}"
        " ORDER BY graph LIMIT 1",
        conversation=conversation,
        **_given(tenant),
    )
    if row is None:
        return None, False
    case_id = case_id_of(row.graph, conversation)
    return case_id, ensure_case(tx.connection, case_id, row.principal, tenant, Scope.CONVERSATION, conversation)


def _given(tenant: str | None) -> dict[str, str]:
    return {} if tenant is None else {"tenant": tenant}


def _write(connection: Connection, values: dict[str, Any], created_at: datetime | None) -> int:
    if connection.dialect.name == "postgresql":
        from sqlalchemy.dialects.postgresql import insert
    else:
        from sqlalchemy.dialects.sqlite import insert  # type: ignore[assignment]
    table = InventoryItem.__table__
    if created_at is not None:
        values = {**values, "created_at": created_at}
    statement = insert(table).values(**values)  # type: ignore[arg-type]
    given, old = statement.excluded, table.c
    statement = statement.on_conflict_do_update(
        index_elements=[
            old.account,
            old.kind,
            old.locator,
            sa.text("coalesce(tenant, '')"),
            old.subject,
            sa.text("coalesce(conversation, '')"),
        ],
        set_={
            **{name: sa.func.coalesce(given[name], old[name]) for name in ("region", "expires_at", "derived_from")},
            "left_by": None,  # who gave it up has it again
        },
        where=sa.or_(given.derived_from.is_(None), given.derived_from != old.id),
    )
    row = connection.execute(statement.returning(old.id)).first()
    if row is None:
        raise InvalidTarget("derived_from: is the id of this very object")
    return int(row.id)
