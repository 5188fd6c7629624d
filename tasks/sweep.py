"""The sweep: what time alone moves, and every bell that may have been lost. Any number may run at once.

Each step is a transaction of its own, in chunks, and skips what another sweep has locked.
"""

from collections.abc import Callable
from dataclasses import dataclass

import structlog

from expunge.models.claim import count_due
from expunge.models.completion import completable_cases, complete_cases, wake_parents
from expunge.models.database import Transaction
from expunge.models.entry import Receipt
from expunge.models.expire import (
    end_interrupted,
    escalate_account,
    lock_interrupted,
    parents_without_parts,
    ready_accounts,
    return_leased,
    revive_escalated,
)
from expunge.models.gauges import begin_sweep, end_sweep
from expunge.models.holds import return_released
from expunge.models.lanes import free_places, lanes_down, read_lanes
from expunge.models.notices import add_notice, fill_due_dates, owe_due_soon, owe_overdue
from expunge.models.second_look import drop_looks, lock_unlookable
from expunge.models.settle import write_receipts
from expunge.models.states import NoticeKind
from expunge.tasks.archive import append_to_archive
from expunge.tasks.erasers.contract import utc_now
from expunge.tasks.escalate import log_escalated, owe_escalated
from expunge.tasks.receipts import interrupted, unlookable
from expunge.tasks.runtime import Runtime
from expunge.tasks.webhook import send_notices

log = structlog.get_logger()

CHUNK = 500
"""Rows of one transaction."""
MOST_CHUNKS = 200
"""Of one step in one sweep; the next sweep goes on."""
DOWN_SECONDS = 3600.0
"""A breaker open for so long is told."""
DAY = 86_400.0


@dataclass(slots=True)
class SweepReport:
    """What a sweep moved."""

    returned: int = 0
    interrupted: int = 0
    revived: int = 0
    woken: int = 0
    released: int = 0
    completed: int = 0
    escalated: int = 0
    rung: int = 0
    notices: int = 0
    archived: int = 0

    def __bool__(self) -> bool:
        return any(getattr(self, name) for name in self.__slots__)


def sweep(runtime: Runtime) -> SweepReport:
    """Run every step once. Raises only what the database raises."""
    report = SweepReport()
    with runtime.database.begin() as tx:
        begin_sweep(tx)
    report.returned = _in_chunks(runtime, lambda tx: return_leased(tx, CHUNK))
    written: list[Receipt] = []
    report.interrupted = _in_chunks(runtime, lambda tx: _end_interrupted(tx, runtime, written))
    _tell_settled(runtime, written)
    report.released = _in_chunks(runtime, lambda tx: return_released(tx, CHUNK))
    report.revived = _in_chunks(runtime, lambda tx: len(revive_escalated(tx, CHUNK)))
    report.woken = _in_chunks(runtime, lambda tx: len(wake_parents(tx, parents_without_parts(tx, CHUNK))))
    report.completed = _in_chunks(runtime, _complete)
    _in_chunks(runtime, lambda tx: fill_due_dates(tx, CHUNK))
    _in_chunks(runtime, lambda tx: _tell_due_soon(tx, runtime))
    _in_chunks(runtime, _tell_overdue)
    _tell_lanes_down(runtime)
    report.escalated, report.rung = _ring(runtime)
    report.notices = send_notices(runtime)
    report.archived = append_to_archive(runtime)
    if not runtime.stopping.is_set():  # else steps were left out
        with runtime.database.begin() as tx:
            end_sweep(tx)
    if report:
        log.info("sweep.moved", **{name: getattr(report, name) for name in SweepReport.__slots__})
    return report


def _in_chunks(runtime: Runtime, step: Callable[[Transaction], int]) -> int:
    total = 0
    for _ in range(MOST_CHUNKS):
        if runtime.stopping.is_set():
            break
        with runtime.database.begin() as tx:
            moved = step(tx)
        total += moved
        if moved < CHUNK:
            break
    return total


def _tell_settled(runtime: Runtime, receipts: list[Receipt]) -> None:
    for account in {receipt.account for receipt in receipts}:
        runtime.tell_settled(account, [receipt for receipt in receipts if receipt.account == account])


def _end_interrupted(tx: Transaction, runtime: Runtime, written: list[Receipt]) -> int:
    entries = lock_interrupted(tx, CHUNK)
    if not entries:
        return 0
    now = utc_now()
    stores = {name: options.store for name, options in runtime.accounts.items()}
    receipts = [interrupted(entry, stores.get(entry.account), now) for entry in entries]
    write_receipts(tx, receipts)
    written += receipts
    escalated = set(end_interrupted(tx, [entry.id for entry in entries]))
    for entry in entries:
        log.warning(
            "entry.interrupted",
            lane=entry.account,
            case_id=entry.case_id,
            entry_id=entry.id,
            attempt=entry.attempt,
        )
        if entry.id in escalated:
            owe_escalated(tx, entry, "Interrupted")
            log_escalated(entry, "Interrupted")
    return len(entries)


def _complete(tx: Transaction) -> int:
    completed = complete_cases(tx, completable_cases(tx, CHUNK))
    for case_id in completed:
        log.info("case.completed", case_id=case_id)
    return len(completed)


def _tell_due_soon(tx: Transaction, runtime: Runtime) -> int:
    owed = owe_due_soon(tx, [days * DAY for days in runtime.policy.due_soon_days], CHUNK)
    for case_id in owed:
        log.warning("case.due_soon", case_id=case_id)
    return len(owed)


def _tell_overdue(tx: Transaction) -> int:
    owed = owe_overdue(tx, CHUNK)
    for case_id in owed:
        log.error("case.overdue", case_id=case_id)
    return len(owed)


def _tell_lanes_down(runtime: Runtime) -> None:
    with runtime.database.begin() as tx:
        for lane in lanes_down(tx, DOWN_SECONDS):
            if add_notice(
                tx,
                NoticeKind.LANE_DOWN,
                f"{lane.account}/{lane.scope}/{lane.paused_since}",
                account=lane.account,
                scope=lane.scope,
                reason=lane.reason,
            ):
                log.error("lane.down", lane=lane.account, scope=lane.scope or None, reason=lane.reason)


def _ring(runtime: Runtime) -> tuple[int, int]:
    """Ring every lane with due entries, once for each drain that may still start; escalate the due entries of accounts
    that the settings do not name."""
    rung = escalated = 0
    written: list[Receipt] = []
    with runtime.database.read() as tx:
        accounts = ready_accounts(tx)
    for account in accounts:
        if account not in runtime.accounts:
            _in_chunks(runtime, lambda tx, account=account: _end_looks(tx, account, written))  # type: ignore[misc]
            escalated += _in_chunks(runtime, lambda tx, account=account: _escalate_unknown(tx, account))  # type: ignore[misc]
            continue
        places = runtime.accounts[account].concurrency
        with runtime.database.read() as tx:
            lane = read_lanes(tx, account).get("")
            if lane is not None and lane.is_paused:
                continue
            bells = min(free_places(tx, account, places), count_due(tx, account, places))
        for _ in range(bells):
            runtime.ring(account)
        rung += bells
    _tell_settled(runtime, written)
    return escalated, rung


def _end_looks(tx: Transaction, account: str, written: list[Receipt]) -> int:
    """What is erased needs no person: that nobody can look there again is said, and the look ends."""
    entries = lock_unlookable(tx, account, CHUNK)
    if entries:
        now = utc_now()
        receipts = [unlookable(entry, None, now) for entry in entries]
        write_receipts(tx, receipts)
        written += receipts
        drop_looks(tx, [entry.id for entry in entries])
    return len(entries)


def _escalate_unknown(tx: Transaction, account: str) -> int:
    reason = "account: the settings do not name it"
    moved = escalate_account(tx, account, reason, CHUNK)
    for entry_id, case_id, attempt in moved:
        add_notice(
            tx,
            NoticeKind.ENTRY_ESCALATED,
            f"{entry_id}/{attempt}",
            case_id=case_id,
            entry_id=entry_id,
            account=account[:64],
            reason=reason,
        )
        log.warning("entry.escalated", case_id=case_id, entry_id=entry_id, reason=reason)
    return len(moved)
