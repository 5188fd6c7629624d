"""After a restore: what was erased since is erased again, and what the database has forgotten of it is put back.

A restore of the host's database takes receipts and tombstones back with it, and one of a bucket brings objects back
that receipts say are gone. The source is an export or an archive, read and believed whole before anything is written
(replay_spool.py). Then, in short transactions, each of which may be repeated: tombstones and holds first, so that
nothing slips past them; lost receipts and cases; then every target into the outbox of its own case, which is open
again; decisions last. Running it again finds all that there, and does the rest.

Nothing says that an object is still gone because a receipt said so once: whatever has no entry gets one, and the
workers look. Holds are theirs to respect, in the mark, as with every entry.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa

from expunge.models.archive import begin_archive, raise_segment, take_as_archived
from expunge.models.database import Database, Transaction
from expunge.models.errors import InvalidDecision, InvalidJournal
from expunge.models.keyset import listed
from expunge.models.plain_text import require_plain
from expunge.models.replay_rows import (
    insert_missing,
    put_back_cases,
    put_back_decisions,
    put_back_holds,
    put_back_receipts,
    put_back_tombstones,
    raise_sequence,
)
from expunge.models.replay_spool import Erased, Spool
from expunge.models.states import Decision
from expunge.models.tables import ErasureCase, OutboxEntry

_ENTRY: Any = OutboxEntry.__table__


@dataclass(slots=True)
class Replayed:
    """What a replay came to; of a dry run, what it would come to."""

    targets: int = 0
    """To be erased again: once for each case that named it."""
    added: int = 0
    """Entries put into the outbox."""
    again: int = 0
    """Entries that waited for a second look, and are to be erased again."""
    there: int = 0
    """Targets whose entry was in the outbox already."""
    in_flight: int = 0
    """Second looks under way at this moment: run it again."""
    cases: int = 0
    """Cases that had to be made anew."""
    tombstones: int = 0
    holds: int = 0
    receipts: int = 0
    decisions: int = 0
    """Rows put back."""
    purged: int = 0
    """Tombstones that the source has: rows of the host may have come back of each."""
    lanes: set[str] = field(default_factory=set)
    """Where something is due now: to be rung."""


class _DryRun(Exception):
    """Leaves the transaction, and so rolls it back."""


def replay(
    database: Database,
    spool: Spool,
    *,
    by: str,
    why: str | None = None,
    from_archive: str | None = None,
    last_segment: int = 0,
    dry_run: bool = False,
) -> Replayed:
    """Put everything back. `from_archive` is the address if the source is this database's own archive,
    which is owed nothing of it, and `last_segment` its highest number.

    Raises InvalidDecision before anything is written, and InvalidJournal if the database refuses a row; what was
    written before that stays, and it can be run again.
    """
    require_plain({"by": by, "why": why}, InvalidDecision)
    done = Replayed(purged=spool.counts["tombstone"])

    if from_archive is not None:
        with _short(database, "archive", dry_run) as tx:
            begin_archive(tx, from_archive)
            raise_segment(tx, last_segment)

    def pages(kind: str, put_back: Callable[[Transaction, Sequence[dict[str, Any]]], Sequence[Any]]) -> int:
        count = 0
        for page in spool.rows(kind):
            with _short(database, kind, dry_run) as tx:
                ids = put_back(tx, page)
                if from_archive is not None and kind in _ARCHIVED:
                    numbered = kind in ("decision", "hold")
                    take_as_archived(tx, kind, [row for row in page if not numbered or row["id"] in ids])
            count += len(ids)
        return count

    if spool.most_entry and not dry_run:
        with _short(database, "entry", dry_run) as tx:
            raise_sequence(tx, "erasure_outbox", spool.most_entry)
    done.tombstones = pages("tombstone", put_back_tombstones)
    done.holds = pages("hold", put_back_holds)
    done.receipts = pages("receipt", put_back_receipts)
    done.cases = pages("case", put_back_cases)
    _put_into_outbox(database, spool, done, dry_run)
    done.decisions = pages("decision", put_back_decisions)
    with _short(database, "decision", dry_run) as tx:
        tx.run(
            "INSERT INTO erasure_decision (decision, actor, why) VALUES (:decision, :by, :why)",
            decision=str(Decision.REPLAY),
            by=by,
            why=why or None,
        )
    return done


_ARCHIVED = ("receipt", "decision", "tombstone", "hold")


@contextmanager
def _short(database: Database, what: str, dry_run: bool) -> Iterator[Transaction]:
    try:
        with database.begin() as tx:
            yield tx
            if dry_run:
                raise _DryRun
    except _DryRun:
        pass
    except sa.exc.IntegrityError as error:
        constraint = getattr(getattr(error.orig, "diag", None), "constraint_name", None)
        said = constraint or type(error.orig).__name__
        raise InvalidJournal(
            f"the database refuses a {what} of it ({said}); run it again once that is mended"
        ) from None


def _put_into_outbox(database: Database, spool: Spool, done: Replayed, dry_run: bool) -> None:
    last_made = None
    for page in spool.targets():
        with _short(database, "target", dry_run) as tx:
            made = _make_cases(tx, spool, page)
            _add_entries(tx, page, done)
        # in a dry run the case that the page before would have made is not there
        done.cases += len(made) - (last_made in made)
        last_made = page[-1].case_id if page[-1].case_id in made else None


def _make_cases(tx: Transaction, spool: Spool, page: Sequence[Erased]) -> set[str]:
    """The cases of these targets that are missing: as the export has them, else as their receipts tell."""
    owners = {target.case_id: target for target in page}
    case: Any = ErasureCase.__table__
    known = set(tx.connection.execute(sa.select(case.c.id).where(case.c.id.in_(list(owners)))).scalars())
    missing = {id: owner for id, owner in owners.items() if id not in known}
    for owner in missing.values():
        row = spool.case_row(owner.case_id) or {
            "id": owner.case_id,
            "subject": owner.subject,
            "tenant": owner.tenant,
            "conversation": owner.conversation,
        }
        insert_missing(tx, case, [{**row, "completed_at": None, "nothing_found": False}])
    # those of the export were counted when they were put back
    return {id for id in missing if spool.case_row(id) is None}


def _add_entries(tx: Transaction, page: Sequence[Erased], done: Replayed) -> None:
    """An entry for each target without one; one that waits for a second look is to be erased again."""
    found = _entries_of(tx, page)
    done.targets += len(page)
    fresh = []
    for target in page:
        entry = found.get((target.case_id, target.account, target.kind, target.locator))
        if entry is None:
            fresh.append(target)
        elif not entry.settled:
            done.there += 1
        elif tx.run(
            "UPDATE erasure_outbox SET action = 'delete', settled = false, state = 'ready', due_at = {now}, tries = 0,"
            " refusals = 0, escalations = 0, reason = NULL"
            " WHERE id = :id AND settled AND state NOT IN ('leased', 'calling')",
            id=entry.id,
        ):
            tx.run(
                "UPDATE erasure_case SET completed_at = NULL WHERE id = :id AND completed_at IS NOT NULL",
                id=target.case_id,
            )
            done.again += 1
            done.lanes.add(target.account)
        else:
            done.in_flight += 1
    if fresh:
        insert_missing(
            tx,
            _ENTRY,
            [
                {
                    "case_id": target.case_id,
                    "account": target.account,
                    "kind": target.kind,
                    "locator": target.locator,
                    "conversation": target.conversation,
                }
                for target in fresh
            ],
        )
        done.added += len(fresh)
        done.lanes.update(target.account for target in fresh)


def _entries_of(tx: Transaction, page: Sequence[Erased]) -> dict[tuple[str, str, str, str], Any]:
    """The entries of these targets, locked: a settle that removes one meanwhile is waited for."""
    lock = " ORDER BY o.id FOR NO KEY UPDATE OF o" if tx.dialect == "postgresql" else ""
    keys = [(t.case_id, t.account, t.kind, t.locator) for t in page]
    rows = tx.rows(
        f"SELECT o.case_id, o.account, o.kind, o.locator, o.id, o.settled FROM {listed(tx.dialect, 4)}"
        " JOIN erasure_outbox o ON o.case_id = k0 AND o.account = k1 AND o.kind = k2 AND o.locator = k3" + lock,
        keys=json.dumps(keys),
    )
    return {(row.case_id, row.account, row.kind, row.locator): row for row in rows}
