"""Copies of a target at other accounts: each an entry of its own, in the same case, before the target can settle.

Version deletes are not replicated (Amazon S3 User Guide, "What does Amazon S3 replicate?"), so whatever is owed at a
bucket is owed at its replicas as well.
"""

import json
from collections.abc import Mapping, Sequence

from expunge.models.database import Transaction
from expunge.models.entry import Entry
from expunge.models.holds import hold_new
from expunge.models.states import SETTLING_STATUSES
from expunge.models.targets import Target

_COLUMNS = ("case_id", "account", "kind", "locator")
_WANTED = {
    "postgresql": "(SELECT w.r->>0 AS case_id, w.r->>1 AS account, w.r->>2 AS kind, w.r->>3 AS locator"
    " FROM jsonb_array_elements(CAST(:wanted AS jsonb)) AS w(r)) wanted",
    "sqlite": "(SELECT json_extract(value, '$[0]') AS case_id, json_extract(value, '$[1]') AS account,"
    " json_extract(value, '$[2]') AS kind, json_extract(value, '$[3]') AS locator FROM json_each(:wanted)) wanted",
}
_Row = tuple[str, str, str, str]


def add_copies(
    tx: Transaction, entries: Sequence[Entry], copies: Mapping[int, Sequence[Target]], *, token: str
) -> frozenset[str]:
    """Put the copies of leased entries, by entry id, into the outbox of their cases; gives the lanes that got some.

    Only for entries whose lease is still ours. A copy that has an entry in the case, or a receipt that settled it, is
    left as it is: so it may run twice, and two accounts may be each other's replica. What a standing hold covers is
    held.
    """
    locked = tx.rows(
        "SELECT id FROM erasure_outbox WHERE id {in ids} AND state = 'leased' AND lease_token = :token"
        " ORDER BY id {for update}",
        ids=sorted(copies),
        token=token,
    )
    ours = {row.id for row in locked}
    wanted = {
        (entry.case_id, copy.account, copy.kind, copy.locator)
        for entry in entries
        if entry.id in ours
        for copy in copies.get(entry.id, ())
    }
    # entries first: one that settles in between has left its receipt when those are looked for
    wanted -= _with_entry(tx, wanted)
    wanted -= _settled(tx, wanted)
    if not wanted:
        return frozenset()
    # one statement: it holds no lock on a case while it may have to wait for somebody who inserts the same
    added = tx.rows(
        f"INSERT INTO erasure_outbox ({', '.join(_COLUMNS)})"
        f" SELECT {', '.join(_COLUMNS)} FROM {_WANTED[tx.dialect]} WHERE true ORDER BY {', '.join(_COLUMNS)}"
        " ON CONFLICT (case_id, account, kind, locator) DO NOTHING RETURNING case_id, account",
        wanted=json.dumps(sorted(wanted)),
    )
    if tx.first("SELECT 1 FROM erasure_hold WHERE released_at IS NULL LIMIT 1"):
        for case_id in sorted({row.case_id for row in added}):
            hold_new(tx, case_id)
    return frozenset(row.account for row in added)


def _with_entry(tx: Transaction, wanted: set[_Row]) -> set[_Row]:
    if not wanted:
        return set()
    rows = tx.rows(
        f"SELECT {', '.join('o.' + name for name in _COLUMNS)} FROM {_WANTED[tx.dialect]} JOIN erasure_outbox o"
        f" ON {' AND '.join(f'o.{name} = wanted.{name}' for name in _COLUMNS)}",
        wanted=json.dumps(sorted(wanted)),
    )
    return {(row.case_id, row.account, row.kind, row.locator) for row in rows}


def _settled(tx: Transaction, wanted: set[_Row]) -> set[_Row]:
    """One pass over the receipts of these cases: there is no index by locator, and a case may have a million."""
    if not wanted:
        return set()
    rows = tx.rows(
        f"SELECT {', '.join(_COLUMNS)} FROM erasure_record WHERE case_id {{in text cases}}"
        " AND account {in text accounts} AND locator {in text locators} AND status {in text statuses}"
        " AND version IS NULL",
        cases=sorted({row[0] for row in wanted}),
        accounts=sorted({row[1] for row in wanted}),
        locators=sorted({row[3] for row in wanted}),
        statuses=[str(status) for status in SETTLING_STATUSES],
    )
    return wanted & {(row.case_id, row.account, row.kind, row.locator) for row in rows}
