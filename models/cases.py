"""Opening a case, in the host's own transaction."""

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import sqlalchemy as sa
from sqlalchemy.engine import Connection
from sqlalchemy.orm import Session

from expunge.models import bell
from expunge.models.basis import due_date
from expunge.models.database import Transaction
from expunge.models.errors import CaseConflict, InvalidCase
from expunge.models.holds import hold_new
from expunge.models.plain_text import require_text
from expunge.models.states import SETTLING_STATUSES, Scope
from expunge.models.tables import MAX_CASE_ID, ErasureCase, ErasureRecord, OutboxEntry
from expunge.models.take_tracked import Owner, Taken, exclude, has_tracked, take_all
from expunge.models.targets import Target, require_valid
from expunge.models.types import END_YEAR, FIRST_YEAR

_CHUNK = 1000
"""Rows of one INSERT: SQLite takes 32,766 bound values a statement."""


@dataclass(frozen=True, slots=True)
class Opened:
    """What `open_case` did."""

    case_id: str
    created: bool
    """False if the case existed already."""
    added: int
    """Entries put into the outbox."""
    known: int
    """Other targets of the call, which had an entry or a settling receipt in this case already, and tracked objects
    that had an entry. One that the call names twice is counted once."""
    shared: int = 0
    """Tracked objects that stay, since another living subject or conversation has them too."""
    accounts: frozenset[str] = frozenset()
    """The lanes of what was added."""


def open_case(
    where: Session | Connection,
    *,
    subject: str,
    targets: Iterable[Target] = (),
    tenant: str | None = None,
    case_id: str | None = None,
    basis: str | None = None,
    received_at: datetime | None = None,
    conversation: str | None = None,
    scope: str | None = None,
    nothing_found: bool = False,
    inventory: bool = False,
) -> Opened:
    """Put everything that must be gone into the outbox, inside the caller's own transaction.

    Nothing is written before everything has been checked, and the caller's rollback leaves nothing. With the id of a
    case that exists, only targets that it does not know yet are added, and the case is open again; what is said about
    the case itself must be what it says, and what is not said stays as it is. After the commit the doorbell rings by
    itself.

    `basis` and `scope` of a new case are `request` and `targets` unless they are given. `received_at` is aware; the
    statutory date counts from it. Default: now, by this machine's clock. `nothing_found` is for a case that has neither
    entries nor receipts; a target that is added later takes it back.

    With `inventory`, everything that was tracked goes into the outbox as well: of the conversation if one is given, of
    whomever it was; else of the subject. `scope` is then `conversation` or `subject` by default, and what is tracked
    later joins the open case of scope `subject`. What another living subject or conversation has too stays, and is
    counted in `shared`; a case of such objects alone is complete, as one for which nothing was found. `nothing_found`
    then means: if nothing is tracked, say so. Waits for transactions that track for the same subject or conversation:
    call it early, before you lock rows that they need.

    Raises InvalidTarget (with the number of the target, from 1), InvalidCase, or CaseConflict when the case exists
    with another subject, tenant, basis, date, scope or conversation, or something was found for it already.
    """
    wanted = _checked_targets(targets)
    new_scope = _scope_of_inventory(conversation) if inventory and scope is None else scope
    case = _checked_case(subject, tenant, case_id, basis, received_at, conversation, new_scope)
    if inventory and case["scope"] == Scope.SUBJECT and conversation is not None:
        raise InvalidCase("conversation: a case of scope subject takes all of the subject: leave one of the two out")
    if wanted and nothing_found and not inventory:
        raise InvalidCase("nothing_found: the case has targets, so something was found")
    if not wanted and not nothing_found and not inventory:
        raise InvalidCase("targets: there are none; if somebody looked and nothing is there, say nothing_found=True")

    if isinstance(where, Session):
        where.flush()
        connection = where.connection()
    else:
        connection = where
    tx = Transaction(connection)
    owner = Owner(tenant, subject, conversation) if inventory else None
    if owner is not None:
        exclude(tx, owner)  # before the case is locked, which a `track` that joins it needs too
        if not wanted and not nothing_found:
            _require_something(tx, case["id"], owner)
    created = _insert_case(connection, case)
    if not created:
        given = {"basis": basis, "received_at": received_at, "scope": scope, "conversation": conversation}
        said = [name for name, value in given.items() if value is not None or (inventory and name == "conversation")]
        _require_same(connection, case, said, nothing_found or inventory)
    fresh = wanted if created else _unknown_to_case(connection, case["id"], wanted)
    for start in range(0, len(fresh), _CHUNK):
        connection.execute(
            sa.insert(OutboxEntry.__table__),  # type: ignore[arg-type]
            [
                {"case_id": case["id"], "account": t.account, "kind": t.kind, "locator": t.locator}
                for t in fresh[start : start + _CHUNK]
            ],
        )
    taken = Taken() if owner is None else take_all(tx, str(case["id"]), owner)
    if owner is not None:
        if not wanted and (nothing_found or taken.shared):
            close_if_nothing_was_found(connection, case["id"])
    elif nothing_found:
        _close_as_nothing_found(connection, case["id"], created)
    if fresh or taken.added:
        hold_new(tx, str(case["id"]))
    accounts = taken.accounts.union(target.account for target in fresh)
    bell.announce(where, accounts)
    known = len(wanted) - len(fresh) + taken.known
    return Opened(str(case["id"]), created, len(fresh) + taken.added, known, taken.shared, accounts)


def _scope_of_inventory(conversation: str | None) -> Scope:
    return Scope.SUBJECT if conversation is None else Scope.CONVERSATION


def _require_something(tx: Transaction, case_id: object, owner: Owner) -> None:
    """Before anything is written: a new case must have something in it, or somebody's word that there is nothing."""
    if not has_tracked(tx, owner) and not tx.first("SELECT 1 FROM erasure_case WHERE id = :id", id=case_id):
        of = "subject" if owner.conversation is None else "conversation"
        raise InvalidCase(
            f"inventory: nothing is tracked of this {of} and tenant, and no targets are given;"
            " if nothing is there, say nothing_found=True"
        )


def _checked_targets(targets: Iterable[Target]) -> list[Target]:
    wanted: dict[Target, None] = {}
    for number, target in enumerate(targets, start=1):
        if not isinstance(target, Target):
            raise InvalidCase(f"target {number}: not a Target but {type(target).__name__}")
        try:
            require_valid(target)
        except ValueError as error:
            raise type(error)(f"target {number}: {error}") from None
        wanted[target] = None
    return list(wanted)


def _checked_case(
    subject: str,
    tenant: str | None,
    case_id: str | None,
    basis: str | None,
    received_at: datetime | None,
    conversation: str | None,
    scope: str | None,
) -> dict[str, object]:
    if subject is None:
        raise InvalidCase("subject: is required")
    require_text({"subject": subject, "tenant": tenant}, InvalidCase)
    require_text({"case id": case_id}, InvalidCase, MAX_CASE_ID)
    require_text({"conversation": conversation}, InvalidCase)
    basis = "request" if basis is None else basis
    scope = Scope.TARGETS if scope is None else scope
    if scope not in set(Scope):
        raise InvalidCase(f"scope: {scope!r} is not one of {', '.join(Scope)}")
    if scope == Scope.CONVERSATION and conversation is None:
        raise InvalidCase("conversation: a case of scope conversation names its conversation")
    if received_at is not None and received_at.tzinfo is None:
        raise InvalidCase("received_at: needs a time zone")
    if received_at is not None and not _can_be_kept(received_at):
        raise InvalidCase(f"received_at: {received_at.isoformat()} is not in the years {FIRST_YEAR} to {END_YEAR - 1}")
    received = received_at or datetime.now(UTC)
    return {
        "id": case_id or uuid.uuid4().hex,
        "tenant": tenant,
        "subject": subject,
        "scope": str(scope),
        "conversation": conversation,
        "basis": basis,
        "received_at": received,
        "due_at": due_date(basis, received),
    }


def _can_be_kept(moment: datetime) -> bool:
    try:
        return FIRST_YEAR <= moment.astimezone(UTC).year < END_YEAR
    except OverflowError:
        return False


def _insert_case(connection: Connection, case: dict[str, object]) -> bool:
    """First a write: on SQLite a transaction that reads first may not be able to write later."""
    if connection.dialect.name == "postgresql":
        from sqlalchemy.dialects.postgresql import insert
    else:
        from sqlalchemy.dialects.sqlite import insert  # type: ignore[assignment]
    statement = insert(ErasureCase.__table__).values(**case).on_conflict_do_nothing(index_elements=["id"])  # type: ignore[arg-type]
    return connection.execute(statement.returning(ErasureCase.__table__.c.id)).first() is not None


def ensure_case(
    connection: Connection, case_id: str, subject: str, tenant: str | None, scope: Scope, conversation: str | None
) -> bool:
    """Open a case without targets, for what is about to be put into it; False if there is one of this id."""
    return _insert_case(connection, _checked_case(subject, tenant, case_id, None, None, conversation, scope))


def _require_same(connection: Connection, case: dict[str, object], given: Sequence[str], may_close: bool) -> None:
    """Whose case it is, and what the caller has `given` about it, must be what it says.

    Locks the case as well, so that two calls for one case do not both add the same target. Whoever says that nothing
    was found waits for INSERTs in flight too: their foreign key holds the case.
    """
    table = ErasureCase.__table__
    found = connection.execute(
        sa.select(table).where(table.c.id == case["id"]).with_for_update(key_share=not may_close)
    ).one()
    if (found.tenant, found.subject) != (case["tenant"], case["subject"]):
        raise CaseConflict(f"case {case['id']} exists with another subject or tenant; nothing was written")
    different = [_difference(name, getattr(found, name), case[name]) for name in given]
    told = [difference for difference in different if difference is not None]
    if told:
        raise CaseConflict(f"case {case['id']} exists with {', and '.join(told)}; nothing was written")


def _difference(name: str, is_so: object, asked: object) -> str | None:
    if is_so == asked:
        return None
    if name == "conversation":
        return "another conversation"  # which may name somebody
    return f"{name} {_said(is_so)}, not {_said(asked)}"


def _said(value: object) -> str:
    return value.astimezone(UTC).isoformat() if isinstance(value, datetime) else str(value)


def _unknown_to_case(connection: Connection, case_id: object, wanted: Sequence[Target]) -> list[Target]:
    """Those without an entry and without a settling receipt of this case."""
    entry, record = OutboxEntry, ErasureRecord
    known = {
        (row.account, row.kind, row.locator)
        for row in connection.execute(
            sa.union(
                sa.select(entry.account, entry.kind, entry.locator).where(entry.case_id == case_id),
                sa.select(record.account, record.kind, record.locator).where(
                    record.case_id == case_id,
                    record.version.is_(None),
                    record.status.in_([str(status) for status in SETTLING_STATUSES]),
                ),
            )
        )
    }
    return [t for t in wanted if (t.account, t.kind, t.locator) not in known]


def _close_as_nothing_found(connection: Connection, case_id: object, created: bool) -> None:
    what = close_if_nothing_was_found(connection, case_id)
    if what is not None:
        if created:
            connection.execute(sa.delete(ErasureCase).where(ErasureCase.id == case_id))
        raise CaseConflict(f"case {case_id} has {what}, so something was found; nothing was written")


def close_if_nothing_was_found(connection: Connection, case_id: object) -> str | None:
    """Complete a case that has neither entries nor receipts; else say which it has. The case row is locked, and this
    second statement sees whatever was inserted before."""
    case, entry, record = ErasureCase, OutboxEntry, ErasureRecord
    found = connection.execute(
        sa.select(
            sa.exists().where(entry.case_id == case_id).label("entries"),
            # receipts outlive their case: a new one may have an old one's id
            sa.exists().where(record.case_id == case_id).label("receipts"),
        )
    ).one()
    if found.entries or found.receipts:
        return "entries" if found.entries else "receipts"
    connection.execute(
        sa.update(case)
        .where(case.id == case_id)
        .values(nothing_found=True, completed_at=sa.func.coalesce(case.completed_at, datetime.now(UTC)))
    )
    return None
