"""What earlier receipts say: a store's own word about an object, given to another case of the same subject."""

from collections.abc import Iterable
from dataclasses import dataclass

from expunge.models.database import Transaction
from expunge.models.entry import Entry


@dataclass(frozen=True, slots=True)
class Evidence:
    """An earlier receipt about the same object."""

    receipt_id: str
    operation: str | None
    request_id: str | None


def known_gone(tx: Transaction, entries: Iterable[Entry]) -> dict[int, Evidence]:
    """Of these entries, those whose very object a store has confirmed to be gone before, with that receipt; not if a
    second look of the same subject has found it there since."""
    found = {}
    for entry in entries:
        row = tx.first(
            "SELECT id, operation, request_id FROM erasure_record r WHERE subject = :subject AND"
            " (tenant = :tenant OR (tenant IS NULL AND CAST(:tenant AS text) IS NULL))"
            " AND account = :account AND kind = :kind AND locator = :locator AND version IS NULL"
            " AND status IN ('deleted', 'already_absent')"
            # of the same moment: in doubt it is there
            " AND NOT EXISTS (SELECT 1 FROM erasure_record p WHERE p.subject = r.subject AND p.account = r.account"
            " AND p.kind = r.kind AND p.locator = r.locator AND p.status = 'present'"
            " AND p.recorded_at >= r.recorded_at)"
            " ORDER BY recorded_at DESC LIMIT 1",
            subject=entry.subject,
            tenant=entry.tenant,
            account=entry.account,
            kind=entry.kind,
            locator=entry.locator,
        )
        if row is not None:
            found[entry.id] = Evidence(str(row.id), row.operation, row.request_id)
    return found
