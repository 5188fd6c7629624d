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
from expunge.models.second_look import turn
from expunge.models.settle import Move, escalated_among, move, remove, write_receipts
from expunge.models.states import EntryState, NoticeKind
from expunge.tasks.erasers.contract import Answer
from expunge.tasks.escalate import log_escalated, owe, owe_escalated
from expunge.tasks.grouping import in_scope
from expunge.tasks.health import LaneEvent, record
from expunge.tasks.receipts import bare, make_receipt, purge_window
from expunge.tasks.runtime import Runtime
from expunge.tasks.verdict import believable, judge

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
    reappeared: list[int] = field(default_factory=list)
    completed: list[str] = field(default_factory=list)
    events: list[LaneEvent] = field(default_factory=list)

    @property
    def again(self) -> list[int]:
        """Entries whose parts are settled: they are looked at again under the same lease."""
        return [moved.entry_id for moved in self.moves if moved.state is EntryState.LEASED]

    def of(self, entry_id: int, *, is_bare: bool) -> "Settlement":
        """What it writes about one of the entries; bare: without what the store said but the outcome."""
        receipts = [receipt for receipt in self.receipts if receipt.entry_id == entry_id]
        return Settlement(
            self.account,
            self.token,
            {entry_id: self.entries[entry_id]},
            [answer for answer in self.answers if answer.entry_id == entry_id],
            [bare(receipt) for receipt in receipts] if is_bare else receipts,
            [gone for gone in self.gone if gone == entry_id],
            [moved for moved in self.moves if moved.entry_id == entry_id],
            [moved for moved in self.escalated if moved.entry_id == entry_id],
            [retained for retained in self.retained if retained == entry_id],
            [back for back in self.reappeared if back == entry_id],
        )


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
        its = [believable(entry, answer) for answer in its]
        for number, answer in enumerate(its):
            settlement.receipts.append(
                make_receipt(
                    entry,
                    answer,
                    attempts[entry_id],
                    store=options.store,
                    number=number,
                    window=purge_window(options, entry.kind),
                )
            )
        verdict = judge(entry, its, runtime.policy, its[-1].at, probe=probe, verify_after=options.verify_after)
        if verdict.move is None:
            settlement.gone.append(entry_id)
        else:
            settlement.moves.append(verdict.move)
            if verdict.escalated and entry.escalations == 0:
                settlement.escalated.append(verdict.move)
        if verdict.retained:
            settlement.retained.append(entry_id)
        if verdict.reappeared:
            settlement.reappeared.append(entry_id)
    return settlement


def write(tx: Transaction, runtime: Runtime, settlement: Settlement, *, known: dict[str, Lane]) -> None:
    """Write a settlement; locks are taken in the order entries, case, lane."""
    lease = runtime.policy.lease_seconds
    write_receipts(tx, settlement.receipts)
    remove(tx, settlement.gone, token=settlement.token)
    plain = [moved for moved in settlement.moves if moved.action is None]
    move(tx, plain, token=settlement.token, lease_seconds=lease)
    turned = turn(tx, [moved for moved in settlement.moves if moved.action is not None], token=settlement.token)
    if settlement.gone:
        gone = [settlement.entries[entry_id] for entry_id in settlement.gone]
        parents = {entry.parent_id for entry in gone if entry.parent_id is not None}
        if parents:
            wake_parents(tx, parents)
    for moved in _really_escalated(tx, settlement.escalated):
        owe_escalated(tx, settlement.entries[moved.entry_id], moved.reason)
    for entry_id in settlement.retained:
        owe(tx, NoticeKind.ENTRY_RETAINED, settlement.entries[entry_id], f"{entry_id}", "Retained")
    for entry_id in set(settlement.reappeared).intersection(turned):
        entry = settlement.entries[entry_id]
        owe(tx, NoticeKind.ENTRY_REAPPEARED, entry, f"{entry_id}/{entry.attempt}", "Reappeared")
    settled = [moved.entry_id for moved in settlement.moves if moved.settled]
    if settlement.gone or settled:
        settlement.completed = complete_cases(tx, {settlement.entries[i].case_id for i in (*settlement.gone, *settled)})
    locators = [entry.locator for entry in settlement.entries.values()]
    scopes = frozenset(scope for scope in known if scope and any(in_scope(locator, scope) for locator in locators))
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
    next_ids: Sequence[int] = (),
    probe: bool = False,
) -> Marked | None:
    """Write it, and mark the next call's entries in the same transaction. Gives that mark; None if the settle had to be
    repeated, when the next call must be marked by itself."""

    def first() -> Marked | None:
        with runtime.database.begin() as tx:
            write(tx, runtime, settlement, known=known)
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
            write(tx, runtime, settlement, known=known)
            # the failed commit may have come through, and with it the next mark: no call was begun for it
            release(tx, next_ids, token=settlement.token)
            runtime.on_step("settling")

    def together() -> _Written:
        try:
            return _Written(settlement, first())
        except DBAPIError as error:
            if not is_unreachable(error):
                raise
            log.warning("settle.repeated", lane=settlement.account, error=type(error.orig).__name__)
        until_reachable(again)
        return _Written(settlement)

    def alone(entry_id: int, is_bare: bool) -> _Written:
        part = settlement.of(entry_id, is_bare=is_bare)

        def one() -> None:
            with runtime.database.begin() as tx:
                write(tx, runtime, part, known=known)

        until_reachable(one)
        return _Written(part)

    written, _ = _together_or_alone(settlement.account, list(settlement.entries), together, alone)
    runtime.on_step("settled")
    for each in written:
        tell(runtime, each.settlement)
    return written[0].marked if written else None


@dataclass(slots=True)
class SettledLook:
    """What became of the entries that a look alone decided about."""

    settlements: list[Settlement] = field(default_factory=list)
    held: list[int] = field(default_factory=list)
    refused: list[int] = field(default_factory=list)
    """The database takes nothing about them; they keep their lease, so that they are not tried again at once."""


def settle_looked(
    runtime: Runtime,
    account: str,
    entries: dict[int, Entry],
    answers: Sequence[Answer],
    *,
    known: dict[str, Lane],
    probe: bool,
) -> SettledLook:
    """Mark and settle in one transaction what the look alone decided: the attempt is counted, and a hold or a pause
    that stands is respected, as with a call. There was no delete call, so a lost lease loses nothing."""
    token = next(iter(entries.values())).token

    def work(ids: Sequence[int], *, is_bare: bool = False) -> tuple[Marked, Settlement | None]:
        with runtime.database.begin() as tx:
            marked = mark(tx, account, ids, token=token, lease_seconds=runtime.policy.lease_seconds, probe=probe)
            settlement = None
            if marked.attempts:
                kept = [answer for answer in answers if answer.entry_id in marked.attempts]
                ours = {entry_id: entries[entry_id] for entry_id in marked.attempts}
                settlement = decide(runtime, account, ours, kept, marked.attempts, probe=probe)
                if is_bare:
                    settlement.receipts = [bare(receipt) for receipt in settlement.receipts]
                write(tx, runtime, settlement, known=known)
            runtime.on_step("settling")
        return marked, settlement

    done, refused = _together_or_alone(
        account,
        list(entries),
        lambda: until_reachable(lambda: work(list(entries))),
        lambda entry_id, is_bare: until_reachable(lambda: work([entry_id], is_bare=is_bare)),
    )
    settlements = [settlement for _, settlement in done if settlement is not None]
    for settlement in settlements:
        tell(runtime, settlement)
    return SettledLook(settlements, [entry_id for marked, _ in done for entry_id in marked.held], refused)


@dataclass(frozen=True, slots=True)
class _Written:
    settlement: Settlement
    marked: Marked | None = None
    """The next call's entries."""


def _together_or_alone(
    account: str, ids: Sequence[int], together: Callable[[], T], alone: Callable[[int, bool], T]
) -> tuple[list[T], list[int]]:
    """One sick row must not lose its neighbours' receipts: when the database takes the connection but not the rows,
    each entry is settled by itself, and at last without what the store said of it. Gives what was done, and the entries
    that nothing could be written about."""
    try:
        return [together()], []
    except Exception as error:
        log.error("settle.refused", lane=account, error=type(error).__name__)
    done: list[T] = []
    refused: list[int] = []
    for entry_id in ids:
        for is_bare in (False, True):
            try:
                done.append(alone(entry_id, is_bare))
            except Exception as error:
                log.error("settle.refused", lane=account, entry_id=entry_id, error=type(error).__name__)
            else:
                break
        else:
            refused.append(entry_id)
    return done, refused


def until_reachable(work: Callable[[], T]) -> T:
    """Do it, again and again while the database cannot be reached."""
    for attempt in Retrying(
        retry=retry_if_exception(is_unreachable), wait=wait_random_exponential(multiplier=0.1, max=10.0), reraise=True
    ):
        with attempt:
            result = work()
    return result


def tell(runtime: Runtime, settlement: Settlement) -> None:
    """Log and count what was settled, once the transaction is through."""
    runtime.tell_settled(settlement.account, settlement.receipts)
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
    for entry_id in settlement.reappeared:
        entry = settlement.entries[entry_id]
        log.warning("entry.reappeared", lane=settlement.account, case_id=entry.case_id, entry_id=entry_id)
    for moved in settlement.escalated:
        log_escalated(settlement.entries[moved.entry_id], moved.reason)
    for case_id in settlement.completed:
        log.info("case.completed", case_id=case_id)
    tell_of_lane(settlement.account, settlement.events)


def tell_of_lane(account: str, events: Sequence[LaneEvent]) -> None:
    """Log what became of a lane, once the transaction is through."""
    for event in events:
        log.warning(event.name, lane=account, scope=event.scope or None, reason=event.reason)
