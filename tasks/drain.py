"""The drain: a lane's due entries, claim after claim, for a bounded time.

A doorbell starts it and names the lane and nothing else. A lost doorbell loses nothing, and a doubled one finds no free
place, or nothing due, and returns.
"""

import time
import uuid
from dataclasses import dataclass

import structlog
from structlog.contextvars import bound_contextvars

from expunge.models.claim import Claim, claim, count_due
from expunge.models.lanes import keep_place, leave_place, take_place
from expunge.tasks.batch import Batch
from expunge.tasks.erasers.contract import Eraser
from expunge.tasks.places import thread_of
from expunge.tasks.runtime import Runtime

log = structlog.get_logger()

PLACE_SHARE = 2
"""A place's lease is the entries' lease divided by this: longer than any call, which is a third of the lease."""


MOST_CLAIMED = 100
"""Entries of one claim, unless one call carries more."""


@dataclass(slots=True)
class DrainReport:
    """What a drain did."""

    lane: str
    ran: bool = False
    """False: no thread or place was free, or the lane is unknown here."""
    claims: int = 0
    claimed: int = 0
    calls: int = 0
    settled: int = 0
    more: bool = False
    """Due entries were left when its time was up; the bell was rung again."""


def drain(runtime: Runtime, lane: str) -> DrainReport:
    """Drive the due entries of a lane for `drain_seconds`."""
    report = DrainReport(lane)
    if lane not in runtime.accounts:
        log.warning("lane.unknown", lane=lane[:64])
        return report
    with bound_contextvars(lane=lane), thread_of(lane, runtime.policy.threads) as taken:
        if taken and not runtime.stopping.is_set():
            _with_place(runtime, lane, report)
    return report


def _with_place(runtime: Runtime, lane: str, report: DrainReport) -> None:
    token = str(uuid.uuid4())
    seconds = runtime.policy.lease_seconds / PLACE_SHARE
    with runtime.database.begin() as tx:
        slot = take_place(tx, lane, places=runtime.accounts[lane].concurrency, token=token, lease_seconds=seconds)
    if slot is None:
        return
    report.ran = True
    place = _Place(runtime, lane, slot, token, seconds)
    try:
        _claim_after_claim(runtime, lane, place, report)
    finally:
        with runtime.database.begin() as tx:
            leave_place(tx, lane, slot, token=token)
    if report.more:
        runtime.ring(lane)


class _Place:
    """The drain's place in the fleet, extended as it goes on."""

    def __init__(self, runtime: Runtime, lane: str, slot: int, token: str, seconds: float) -> None:
        self._runtime, self._lane, self._slot, self._token, self._seconds = runtime, lane, slot, token, seconds
        self._renew_at = time.monotonic() + seconds / 3

    def keep(self) -> bool:
        """False if it was lost: this process was stopped for longer than the lease."""
        now = time.monotonic()
        if now < self._renew_at:
            return True
        self._renew_at = now + self._seconds / 3
        with self._runtime.database.begin() as tx:
            return keep_place(tx, self._lane, self._slot, token=self._token, lease_seconds=self._seconds)


def claim_size(eraser: Eraser, lease_seconds: float) -> int:
    """As many entries as can be called within half a lease, even if every call takes its whole timeout; and no more
    than keep one drain busy for a while, so that the lane's other drains find some too."""
    calls = max(1, int(lease_seconds / 2 / eraser.timeout))
    return min(calls * eraser.batch, max(eraser.batch, MOST_CLAIMED))


def _claim_after_claim(runtime: Runtime, lane: str, place: _Place, report: DrainReport) -> None:
    eraser = runtime.eraser(lane)
    size = claim_size(eraser, runtime.policy.lease_seconds)
    ends = time.monotonic() + runtime.policy.drain_seconds
    while not runtime.stopping.is_set() and place.keep():
        if time.monotonic() >= ends:
            with runtime.database.read() as tx:
                report.more = count_due(tx, lane, 1) > 0
            return
        claimed_at = time.monotonic()
        claimed = _claim(runtime, lane, size)
        if not claimed.entries:
            return
        runtime.on_step("claimed")
        report.claims += 1
        report.claimed += len(claimed.entries)
        if report.claims == 1 and len(claimed.entries) == size:
            runtime.ring(lane)  # there is work for more than one
        batch = Batch(runtime, eraser, claimed, claimed_at=claimed_at)
        try:
            batch.run()
        finally:
            report.calls += batch.calls
            report.settled += batch.settled


def _claim(runtime: Runtime, lane: str, size: int) -> Claim:
    with runtime.database.begin() as tx:
        return claim(
            tx,
            lane,
            token=str(uuid.uuid4()),
            limit=size,
            lease_seconds=runtime.policy.lease_seconds,
        )
