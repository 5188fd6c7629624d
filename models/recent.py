"""Following receipts as they are committed.

A receipt may become visible later than one with a later `recorded_at`, so who follows looks back a while each time and
knows what it has seen.
"""

from expunge.models.database import Transaction


def recent_receipts(tx: Transaction, seconds: float) -> list[str]:
    """Ids of the receipts recorded in the last so many seconds, by the database's clock, in order."""
    rows = tx.rows(
        "SELECT id FROM erasure_record WHERE recorded_at >= {now+back} ORDER BY recorded_at, id", back=-seconds
    )
    return [str(row.id) for row in rows]
