"""What a process tells Prometheus: what its own calls came to, and at each scrape how the database stands.

No label holds a subject, a locator, or anything that a store or plain SQL could choose at will.
"""

import re
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime

import structlog
from prometheus_client import CollectorRegistry, Counter, Histogram, start_http_server
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from sqlalchemy.exc import SQLAlchemyError

from expunge.models.database import Database
from expunge.models.entry import Receipt
from expunge.models.errors import ConfigurationError
from expunge.models.gauges import Gauges, read_gauges, within
from expunge.models.states import EntryState, PausedBy, ReceiptStatus
from expunge.worker.settings import Settings

CACHE_SECONDS = 5.0
"""The database is not read more often, however many scrape."""
CACHE_SHARE = 10
"""A reading that takes long is used for longer, so that it takes a tenth of the time at the most."""
LANE_UNKNOWN = "(not in the settings)"
"""No account can be called so."""
OPERATION_UNKNOWN = "other"
COUNTED = [status for status in ReceiptStatus if status != ReceiptStatus.WAIVED]
"""What calls come to; a person's waiver is none."""
BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 100)
"""Seconds; a client gives up after a third of `lease_seconds`, 100 by default."""
_MOST_OPERATIONS = 100
_OPERATION = re.compile(r"[A-Za-z0-9_. -]{1,64}")

log = structlog.get_logger()


class Metrics(Collector):
    """Of one process. `accounts` are the lanes that may be named."""

    def __init__(
        self, database: Database, accounts: Collection[str], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.registry = CollectorRegistry()
        self._database, self._accounts, self._clock = database, frozenset(accounts), clock
        self._operations: set[str] = set()
        self._lock = threading.Lock()
        self._known: Gauges | None = None
        self._until: float | None = None
        self._receipts = Counter(
            "expunge_receipts",
            "Receipts that this process settled.",
            ["lane", "status"],
            registry=self.registry,
        )
        self._calls = Histogram(
            "expunge_call_seconds",
            "From before a call of this process to its answer.",
            ["lane", "operation"],
            buckets=BUCKETS,
            registry=self.registry,
        )
        # Prometheus sees no increase in a series that begins at 1: the first of its kind would alarm nobody
        for lane in sorted(self._accounts):
            for status in COUNTED:
                self._receipts.labels(lane, status)
        self.registry.register(self)

    def settled(self, account: str, receipts: Sequence[Receipt]) -> None:
        """Told of the receipts of one lane once their transaction is through. A call for many entries is one call."""
        lane = self._lane(account)
        calls: dict[tuple[str | None, datetime], datetime] = {}
        for receipt in receipts:
            self._receipts.labels(lane, receipt.status).inc()
            if receipt.called_at is not None:
                call = (receipt.operation, receipt.called_at)
                calls[call] = max(receipt.at, calls.get(call, receipt.at))
        for (operation, called_at), at in calls.items():
            # the worker's clock may have been set back meanwhile
            seconds = max(0.0, (at - called_at).total_seconds())
            self._calls.labels(lane, self._operation(operation)).observe(seconds)

    def describe(self) -> Iterable[Metric]:
        """Nothing, so that being registered reads no database."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Prometheus asks."""
        gauges = self._gauges()
        yield GaugeMetricFamily(
            "expunge_database_up", "Whether the database could be read within seconds.", float(gauges is not None)
        )
        if gauges is not None:
            yield from self._families(gauges)

    def _gauges(self) -> Gauges | None:
        with self._lock:
            began = self._clock()
            if self._until is None or began >= self._until:
                self._known = self._read()
                ended = self._clock()
                self._until = ended + max(CACHE_SECONDS, (ended - began) * CACHE_SHARE)
            return self._known

    def _read(self) -> Gauges | None:
        try:
            with self._database.read() as tx, within(tx):
                return read_gauges(tx, self._accounts)
        except SQLAlchemyError as error:
            log.warning("metrics.not_read", error=type(error).__name__)
        except Exception as error:
            log.error("metrics.not_read", error=type(error).__name__, exc_info=True)
        return None

    def _families(self, gauges: Gauges) -> Iterator[Metric]:
        entries = GaugeMetricFamily("expunge_entries", "Entries of the outbox.", labels=["lane", "state"])
        counts = {(lane, str(state)): 0 for lane in self._accounts for state in EntryState}
        for (account, state), n in gauges.entries.items():
            key = (self._lane(account), state)
            counts[key] = counts.get(key, 0) + n
        for key, n in sorted(counts.items()):
            entries.add_metric(key, n)
        yield entries
        due = GaugeMetricFamily(
            "expunge_oldest_due_seconds", "For so long the lane's oldest entry has been due.", labels=["lane"]
        )
        ages = dict.fromkeys(self._accounts, 0.0)
        for account, age in gauges.oldest_due_seconds.items():
            ages[self._lane(account)] = max(age, ages.get(self._lane(account), 0.0))
        for lane, age in sorted(ages.items()):
            due.add_metric([lane], age)
        yield due
        success = GaugeMetricFamily(
            "expunge_lane_last_success_seconds",
            "Since the last success of a lane with something to erase; 3600 is an hour or more.",
            labels=["lane"],
        )
        for lane, age in sorted(gauges.success_seconds.items()):
            success.add_metric([lane], age)
        yield success
        yield from self._pauses(gauges)
        swept = float("inf") if gauges.sweep_seconds is None else gauges.sweep_seconds
        yield GaugeMetricFamily("expunge_sweep_age_seconds", "Since a sweep last came to its end.", swept)
        yield GaugeMetricFamily("expunge_archive_queue_rows", "Rows that the archive lacks.", gauges.archive_queue)
        cases = GaugeMetricFamily("expunge_cases", "Cases that are not complete.", labels=["state"])
        cases.add_metric(["open"], gauges.cases_open)
        cases.add_metric(["overdue"], gauges.cases_overdue)
        cases.add_metric(["held"], gauges.cases_held)
        yield cases

    def _pauses(self, gauges: Gauges) -> Iterator[Metric]:
        lanes = GaugeMetricFamily("expunge_lane_paused", "Whether the whole lane is paused.", labels=["lane", "by"])
        buckets = GaugeMetricFamily("expunge_buckets_paused", "Buckets that are paused alone.", labels=["lane", "by"])
        # a breaker between two probes still lets one entry through at a time
        standing = [
            (lane.account, bool(lane.scope), lane.paused_by)
            for lane in gauges.lanes
            if lane.is_paused or lane.paused_by == PausedBy.BREAKER
        ]
        for account in sorted(self._accounts):
            for by in PausedBy:
                lanes.add_metric([account, by], float((account, False, by) in standing))
                buckets.add_metric([account, by], standing.count((account, True, by)))
        yield lanes
        yield buckets

    def _lane(self, account: str) -> str:
        return account if account in self._accounts else LANE_UNKNOWN

    def _operation(self, operation: str | None) -> str:
        """A foreign eraser's words are few and short, or they are no label."""
        if operation is None or not _OPERATION.fullmatch(operation):
            return OPERATION_UNKNOWN
        if operation not in self._operations and len(self._operations) >= _MOST_OPERATIONS:
            return OPERATION_UNKNOWN
        self._operations.add(operation)
        return operation


class MetricsServer:
    """Serves the metrics of this process from threads of its own, with a connection to the database of its own."""

    def __init__(self, settings: Settings) -> None:
        """Begin to listen, if the settings name a port; without one nothing is done. Raises ConfigurationError if the
        port cannot be had."""
        self.metrics: Metrics | None = None
        if settings.metrics_port is None:
            return
        self._database = Database.open(settings.database_url, pool_size=1)
        metrics = Metrics(self._database, settings.accounts)
        where = (settings.metrics_port, settings.metrics_host)
        try:
            self._server, self._thread = start_http_server(*where, registry=metrics.registry)
        except (OSError, OverflowError) as error:
            self._database.close()
            reason = error.strerror if isinstance(error, OSError) and error.strerror else type(error).__name__
            raise ConfigurationError(
                f"metrics_port: cannot listen on {settings.metrics_host}, port {settings.metrics_port}: {reason}; "
                "name another one, or end who has it"
            ) from None
        self.metrics = metrics
        log.info("metrics.listening", host=settings.metrics_host, port=self.port)

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self._server.server_port)

    def settled(self, account: str, receipts: Sequence[Receipt]) -> None:
        """For `Runtime.on_settled`."""
        if self.metrics is not None:
            self.metrics.settled(account, receipts)

    def close(self) -> None:
        """Stop listening. Doing it again does nothing."""
        if self.metrics is not None:
            self.metrics = None
            self._server.shutdown()
            self._server.server_close()
            self._thread.join()
            self._database.close()


@contextmanager
def serving_metrics(settings: Settings) -> Iterator[MetricsServer]:
    """The same, as a context."""
    server = MetricsServer(settings)
    try:
        yield server
    finally:
        server.close()
