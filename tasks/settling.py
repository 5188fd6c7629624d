"""One settle: receipts in, entries moved, the next call marked, parents woken, cases completed, the lane's health kept.

It is one transaction, repeated while the process lives if the database cannot be reached: the call has been made, and
its receipt is owed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import structlog
from sqlalchemy.exc import DBAPIError
from tenacity import Retrying, retry_if_exception, wait_random_exponential

from expunge.models.completion import complete_cases, wake_parents
from expunge.models.database import Transaction, is_unreachable
from expunge.models.entry import Entry, Receipt
from expunge.models.lanes import Lane
from expunge.models.mark import Marked, mark, release
from expunge.models.settle import Move, escalated_among, move, remove, write_receipts
from expunge.models.states import EntryState, NoticeKind
from expunge.tasks.erasers.contract import Answer
from expunge.tasks.escalate import log_escalated, owe, owe_escalated
from expunge.tasks.health import LaneEvent, record
from expunge.tasks.receipts import bare, make_receipt
from expunge.tasks.runtime import Runtime
from expunge.tasks.verdict import judge

log = structlog.get_logger()
T = TypeVar("T")


@dataclass(slots=True)
class Settlement:
    """All that one settle writes; made once, so that repeating it repeats the same receipts."""

    account: str
    token: str
    entries: dict[int, Entry]
    answers: list[Answer]
    receipts: list[Receipt] = field(default_factory=list)
    gone: list[int] = field(default_factory=list)
    moves: list[Move] = field(default_factory=list)
    escalated: list[Move] = field(default_factory=list)
    retained: list[int] = field(default_factory=list)
    completed: list[str] = field(default_factory=list)
    events: list[LaneEvent] = field(default_factory=list)

    @property
    def again(self) -> list[int]:
        """Entries whose parts are settled: they are looked at again under the same lease."""
        return [moved.entry_id for moved in self.moves if moved.state is EntryState.LEASED]


def decide(
    runtime: Runtime,
    account: str,
    entries: dict[int, Entry],
    answers: Sequence[Answer],
    attempts: dict[int, int],
    *,
    probe: bool,
) -> Settlement:
    """From the answers of one call to what is written. `attempts` are the marked entries with their attempt."""
    options = runtime.accounts[account]
    token = next(iter(entries.values())).token
    settlement = Settlement(account, token, entries, list(answers))
    by_entry: dict[int, list[Answer]] = {entry_id: [] for entry_id in attempts}
    for answer in answers:
        by_entry[answer.entry_id].append(answer)
    for entry_id, its in by_entry.items():
        entry = entries[entry_id]
        for number, answer in enumerate(its):
            settlement.receipts.append(
                make_receipt(
                    entry,
                    answer,
                    attempts[entry_id],
                    store=options.store,
                    number=number,
                    purge_window_days=options.purge_window_days,
                )
            )
        verdict = judge(entry, its, runtime.policy, its[-1].at, probe=probe)
        if verdict.move is None:
            settlement.gone.append(entry_id)
        else:
            settlement.moves.append(verdict.move)
            if verdict.escalated and entry.escalations == 0:
                settlement.escalated.append(verdict.move)
        if verdict.retained:
            settlement.retained.append(entry_id)
    return settlement


def write(
    tx: Transaction, runtime: Runtime, settlement: Settlement, *, known: dict[str, Lane], scopes: frozenset[str]
) -> None:
    """Write a settlement; locks are taken in the order entries, case, lane."""
    lease = runtime.policy.lease_seconds
    write_receipts(tx, settlement.receipts)
    remove(tx, settlement.gone, token=settlement.token)
    move(tx, settlement.moves, token=settlement.token, lease_seconds=lease)
    if settlement.gone:
        gone = [settlement.entries[entry_id] for entry_id in settlement.gone]
        parents = {entry.parent_id for entry in gone if entry.parent_id is not None}
        if parents:
            wake_parents(tx, parents)
    for moved in _really_escalated(tx, settlement.escalated):
        owe_escalated(tx, settlement.entries[moved.entry_id], moved.reason)
    for entry_id in settlement.retained:
        owe(tx, NoticeKind.ENTRY_RETAINED, settlement.entries[entry_id], f"{entry_id}", "Retained")
    if settlement.gone:
        settlement.completed = complete_cases(tx, {settlement.entries[i].case_id for i in settlement.gone})
    settlement.events = record(tx, runtime.policy, settlement.account, settlement.answers, known=known, scopes=scopes)


def _really_escalated(tx: Transaction, moves: Sequence[Move]) -> list[Move]:
    """A late worker's entry is somebody else's: it was not moved, and nobody is told that it was."""
    if not moves:
        return []
    escalated = set(escalated_among(tx, [moved.entry_id for moved in moves]))
    return [moved for moved in moves if moved.entry_id in escalated]


def settle(
    runtime: Runtime,
    settlement: Settlement,
    *,
    known: dict[str, Lane],
    scopes: frozenset[str],
    next_ids: Sequence[int] = (),
    probe: bool = False,
) -> Marked | None:
    """Write it, and mark the next call's entries in the same transaction. Gives that mark; None if the settle had to be
    repeated, when the next call must be marked by itself."""

    def first() -> Marked | None:
        with runtime.database.begin() as tx:
            write(tx, runtime, settlement, known=known, scopes=scopes)
            marked = mark(
                tx,
                settlement.account,
                next_ids,
                token=settlement.token,
                lease_seconds=runtime.policy.lease_seconds,
                probe=probe,
            )
            runtime.on_step("settling")
        return marked

    def again() -> None:
        with runtime.database.begin() as tx:
            write(tx, runtime, settlement, known=known, scopes=scopes)
            # the failed commit may have come through, and with it the next mark: no call was begun for it
            release(tx, next_ids, token=settlement.token)
            runtime.on_step("settling")

    marked: Marked | None = None
    try:
        try:
            marked = first()
        except DBAPIError as error:
            if not is_unreachable(error):
                raise
            log.warning("settle.repeated", lane=settlement.account, error=type(error.orig).__name__)
            until_reachable(again)
    except Exception as error:
        # the database took the connection but not the rows: one sick row must not lose its neighbours' receipts
        log.error("settle.refused", lane=settlement.account, error=type(error).__name__)
        _settle_singly(runtime, settlement, known, scopes)
        marked = None
    runtime.on_step("settled")
    tell(settlement)
    return marked


def until_reachable(work: Callable[[], T]) -> T:
    """Do it, again and again while the database cannot be reached."""
    for attempt in Retrying(
        retry=retry_if_exception(is_unreachable), wait=wait_random_exponential(multiplier=0.1, max=10.0), reraise=True
    ):
        with attempt:
            result = work()
    return result


def _settle_singly(runtime: Runtime, whole: Settlement, known: dict[str, Lane], scopes: frozenset[str]) -> None:
    gone, moves = set(whole.gone), {moved.entry_id: moved for moved in whole.moves}
    for entry_id in dict.fromkeys(answer.entry_id for answer in whole.answers):
        part = Settlement(
            whole.account,
            whole.token,
            {entry_id: whole.entries[entry_id]},
            [answer for answer in whole.answers if answer.entry_id == entry_id],
            [receipt for receipt in whole.receipts if receipt.entry_id == entry_id],
            [entry_id] if entry_id in gone else [],
            [moves[entry_id]] if entry_id in moves else [],
            [moved for moved in whole.escalated if moved.entry_id == entry_id],
            [entry_id] if entry_id in whole.retained else [],
        )
        for receipts in (part.receipts, [bare(receipt) for receipt in part.receipts]):
            part.receipts = receipts

            def one(part: Settlement = part) -> None:
                with runtime.database.begin() as tx:
                    write(tx, runtime, part, known=known, scopes=scopes)

            try:
                until_reachable(one)
            except Exception as error:
                log.error("settle.refused", lane=whole.account, entry_id=entry_id, error=type(error).__name__)
            else:
                whole.completed += part.completed
                break


def tell(settlement: Settlement) -> None:
    """Log what was settled, once the transaction is through."""
    counts: dict[str, int] = {}
    for receipt in settlement.receipts:
        counts[receipt.status] = counts.get(receipt.status, 0) + 1
    log.info("call.settled", lane=settlement.account, entries=len(settlement.entries), **counts)
    for receipt in settlement.receipts:
        if receipt.error is not None:
            log.info(
                "entry.answered",
                lane=settlement.account,
                case_id=receipt.case_id,
                entry_id=receipt.entry_id,
                attempt=receipt.attempt,
                status=receipt.status,
                error=receipt.error,
            )
    for moved in settlement.escalated:
        log_escalated(settlement.entries[moved.entry_id], moved.reason)
    for case_id in settlement.completed:
        log.info("case.completed", case_id=case_id)
    tell_of_lane(settlement.account, settlement.events)


def tell_of_lane(account: str, events: Sequence[LaneEvent]) -> None:
    """Log what became of a lane, once the transaction is through."""
    for event in events:
        log.warning(event.name, lane=account, scope=event.scope or None, reason=event.reason)
