"""Whether anything is left that can move by itself, for runs that end when nothing can."""

from collections.abc import Mapping
from dataclasses import dataclass

from expunge.models.database import Transaction
from expunge.models.lanes import in_bucket, paused
from expunge.models.states import EntryState

# a lane or bucket that no time alone lets go on: by an operator, or by a store that refuses everything or that nothing
# can be sent to (its hourly probe is not worth waiting for), or not soon enough
_STANDS_STILL = f"""
EXISTS (SELECT 1 FROM erasure_lane l
         WHERE l.account = o.account AND (l.scope = '' OR {in_bucket("l")})
           AND ({paused("l", until="{now+within}")} OR (l.paused_by IS NOT NULL AND l.refused)))
"""
_CAN_MOVE = (
    # somebody works on it, or its lease will end
    "SELECT 1 FROM erasure_outbox WHERE lease_until IS NOT NULL LIMIT 1",
    f"SELECT 1 FROM erasure_outbox o WHERE o.state = 'ready' AND o.due_at <= {{now+within}}"
    f" AND NOT {_STANDS_STILL} LIMIT 1",
    # its parts are gone: the sweep wakes it. With parts it moves when they do
    "SELECT 1 FROM erasure_outbox o WHERE o.state = 'waiting'"
    " AND NOT EXISTS (SELECT 1 FROM erasure_outbox part WHERE part.parent_id = o.id AND NOT part.settled) LIMIT 1",
)

_LEFT = "SELECT state, count(*) AS n FROM erasure_outbox WHERE NOT settled GROUP BY state"
"""What is erased and waits for its second look is nothing that is left."""


@dataclass(frozen=True, slots=True)
class Standing:
    """Where everything stands."""

    entries: Mapping[str, int]
    """By state."""
    open_cases: int

    @property
    def left(self) -> int:
        """Entries of any state."""
        return sum(self.entries.values())


def can_move(tx: Transaction, within_seconds: float) -> bool:
    """Whether an entry can move by itself within this time: it is leased, due by then in a lane that goes on, or
    waits for parts that are gone. Held and escalated entries cannot."""
    for statement in _CAN_MOVE:
        parameters = {"within": within_seconds} if "{now+within}" in statement else {}
        if tx.first(statement, **parameters):
            return True
    return False


def standing(tx: Transaction) -> Standing:
    """Counts all entries and open cases: for long outboxes not something to do often."""
    entries = {row.state: row.n for row in tx.rows(_LEFT)}
    cases = tx.first("SELECT count(*) AS n FROM erasure_case WHERE completed_at IS NULL")
    return Standing({str(s): entries[s] for s in EntryState if s in entries}, cases.n if cases else 0)
