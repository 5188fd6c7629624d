"""Extending the statutory date of a case: once, with the reason, before the first date has passed."""

from datetime import datetime

import sqlalchemy as sa

from expunge.models.basis import EXTENSIONS, due_date, extended_date
from expunge.models.database import Transaction
from expunge.models.errors import CaseNotFound, InvalidDecision
from expunge.models.list_cases import database_clock
from expunge.models.plain_text import require_plain
from expunge.models.tables import ErasureCase
from expunge.models.types import UtcDateTime


def extend_case(tx: Transaction, case_id: str, by: str, why: str) -> datetime:
    """Take the further time that the basis allows; gives the new date, in UTC. The person must be told of it, and of
    the reason, before the first date: Regulation (EU) 2016/679, Article 12(3); California Civil Code
    § 1798.130(a)(2)(A); Code of Virginia § 59.1-577(B)(1). Telling is the caller's.

    Raises CaseNotFound, and InvalidDecision when it was extended before, is complete, the first date has passed, or the
    basis knows no extension.
    """
    require_plain({"case": case_id, "by": by, "why": why}, InvalidDecision)
    rows = tx.typed_rows(
        "SELECT basis, received_at, due_at, completed_at, extended_at FROM erasure_case WHERE id = :id {for update}",
        {name: UtcDateTime() for name in ("received_at", "due_at", "completed_at", "extended_at")},
        id=case_id,
    )
    if not rows:
        raise CaseNotFound(f"there is no case {case_id}")
    row = rows[0]
    if row.basis not in EXTENSIONS:
        raise InvalidDecision(f"case {case_id}: its basis {row.basis} knows no extension")
    if row.extended_at is not None:
        raise InvalidDecision(f"case {case_id} was extended already, on {row.extended_at:%Y-%m-%d}: only once")
    if row.completed_at is not None:
        raise InvalidDecision(f"case {case_id} is complete: there is nothing to extend")
    first = row.due_at or due_date(row.basis, row.received_at)
    assert first is not None
    if first < database_clock(tx):
        raise InvalidDecision(
            f"case {case_id} was due on {first:%Y-%m-%d}: the person had to be told of an extension before that"
        )
    later = extended_date(row.basis, first)
    tx.connection.execute(sa.update(ErasureCase).where(ErasureCase.id == case_id).values(due_at=later))
    tx.run(
        "UPDATE erasure_case SET extended_at = {now}, extended_by = :by, extended_why = :why WHERE id = :id",
        by=by,
        why=why,
        id=case_id,
    )
    tx.run(
        "INSERT INTO erasure_decision (decision, actor, why, case_id) VALUES ('extend', :by, :why, :id)",
        by=by,
        why=why,
        id=case_id,
    )
    return later
