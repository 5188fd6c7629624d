"""What every task needs: the database, the accounts with their erasers, the policy, and a way to ring."""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import structlog
from sqlalchemy.exc import SQLAlchemyError

from expunge.models.database import Database
from expunge.models.entry import Receipt
from expunge.models.mark import release_leased
from expunge.tasks.archive_stores import ArchiveStore
from expunge.tasks.capabilities import SharedKnown, place_of
from expunge.tasks.erasers.contract import AccountOptions, Eraser, user_of_known
from expunge.tasks.erasers.registry import make_eraser
from expunge.tasks.policy import Policy, Webhook

log = structlog.get_logger()

Ring = Callable[[str], None]
"""Rings the doorbell of one lane. Never raises: a bell that is lost is rung again by the sweep."""


def _no_ring(lane: str) -> None:
    return None


def _no_step(name: str) -> None:
    return None


OnSettled = Callable[[str, Sequence[Receipt]], None]
"""Told of the receipts of one account once their transaction is through."""


def _no_settled(account: str, receipts: Sequence[Receipt]) -> None:
    return None


@dataclass(slots=True)
class Runtime:
    """One per process."""

    database: Database
    policy: Policy
    accounts: Mapping[str, AccountOptions]
    ring: Ring = _no_ring
    webhook: Webhook | None = None
    archive: ArchiveStore | None = None
    stopping: threading.Event = field(default_factory=threading.Event)
    """Set when the process was asked to stop: what has not been called goes back at once."""
    on_step: Callable[[str], None] = _no_step
    """Told of every named step of a drain: `claimed`, `looked`, `marked`, `called`, `settling`, `settled`. Tests stop
    or kill the process there."""
    on_settled: OnSettled = _no_settled
    """For metrics; see `tell_settled`."""
    leases: set[str] = field(default_factory=set)
    """The tokens of the claims that drains of this process work on."""
    _erasers: dict[str, Eraser] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def eraser(self, account: str) -> Eraser:
        """The eraser of an account, made on first use. Raises KeyError for an account that the settings do not name."""
        with self._lock:
            if account not in self._erasers:
                options = self.accounts[account]
                eraser = make_eraser(account, options, lease_seconds=self.policy.lease_seconds)
                user = user_of_known(eraser)
                if user is not None:
                    age = self.policy.capabilities_max_age_seconds
                    user.use(SharedKnown(self.database, account, place_of(options), max_age_seconds=age))
                self._erasers[account] = eraser
            return self._erasers[account]

    def tell_settled(self, account: str, receipts: Sequence[Receipt]) -> None:
        """Tell whoever counts. What goes wrong there is not the work's trouble."""
        try:
            self.on_settled(account, receipts)
        except Exception as error:
            log.warning("metrics.not_counted", error=type(error).__name__)

    def stop(self) -> None:
        """Begin no further call, and give back at once what has not been called, even while another call hangs. Returns
        at once: it may be called from a signal handler."""
        if not self.stopping.is_set():
            self.stopping.set()
            threading.Thread(target=self._give_back, name="expunge-give-back", daemon=True).start()

    def _give_back(self) -> None:
        try:
            with self.database.begin() as tx:
                release_leased(tx, list(self.leases))
        except SQLAlchemyError as error:
            # the drains give back as well, and the sweep ends every lease
            log.warning("stop.gave_nothing_back", error=type(error).__name__)

    def close(self) -> None:
        """Close clients and connections."""
        with self._lock:
            for eraser in self._erasers.values():
                eraser.close()
            self._erasers.clear()
        self.database.close()
