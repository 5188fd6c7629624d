"""What was found out about stores (`erasure_capability`): written by whichever process asked first, read by all.

None of it is evidence. It chooses the way that an eraser takes; what a receipt says comes from an answer.
"""

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from expunge.models.database import Transaction
from expunge.models.types import Json, UtcDateTime


@dataclass(frozen=True, slots=True)
class Found:
    """One thing that is known, and for how long."""

    scope: str
    """The bucket, or empty for the whole endpoint."""
    name: str
    value: Any
    found_at: datetime


def list_capabilities(tx: Transaction, account: str, endpoint: str, *, max_age_seconds: float) -> list[Found]:
    """What is known of one account's endpoint and is not older than this many seconds."""
    rows = tx.typed_rows(
        """
        SELECT scope, name, value, found_at FROM erasure_capability
        WHERE account = :account AND endpoint = :endpoint AND found_at > {now+since} ORDER BY scope, name
        """,
        {"value": Json, "found_at": UtcDateTime()},
        account=account,
        endpoint=endpoint,
        since=-max_age_seconds,
    )
    return [Found(row.scope, row.name, row.value, row.found_at) for row in rows]


def learn_capability(tx: Transaction, account: str, endpoint: str, scope: str, name: str, value: Any) -> None:
    """Keep it, found out now. `value` is anything that JSON can carry."""
    tx.run(
        """
        INSERT INTO erasure_capability (account, endpoint, scope, name, value, found_at)
        VALUES (:account, :endpoint, :scope, :name, :value, {now})
        ON CONFLICT (account, endpoint, scope, name) DO UPDATE SET value = excluded.value, found_at = excluded.found_at
        """,
        account=account,
        endpoint=endpoint,
        scope=scope,
        name=name,
        value=json.dumps(value),
    )


def forget_capability(tx: Transaction, account: str, endpoint: str, scope: str, name: str) -> None:
    """It was wrong: the next who needs it asks again."""
    tx.run(
        """
        DELETE FROM erasure_capability
        WHERE account = :account AND endpoint = :endpoint AND scope = :scope AND name = :name
        """,
        account=account,
        endpoint=endpoint,
        scope=scope,
        name=name,
    )
