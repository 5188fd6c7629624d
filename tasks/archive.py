"""The archive: the sweep's last step, which copies receipts, decisions, tombstones and holds to where a restore of the
database does not reach. It never stops the erasing: whatever fails here waits, and is told."""

import io
import time

import structlog
from sqlalchemy.exc import SQLAlchemyError

from expunge.models.archive import (
    archive_failed,
    begin_archive,
    finish_segment,
    next_segment,
    read_archive,
    read_segment,
)
from expunge.models.journal import Writer
from expunge.models.notices import add_notice
from expunge.models.states import NoticeKind
from expunge.models.types import iso
from expunge.tasks.archive_stores import ArchiveFailed, segment_name
from expunge.tasks.backoff import backoff
from expunge.tasks.runtime import Runtime

log = structlog.get_logger()

SEGMENT_ROWS = 1000
"""Of one file or object."""
SWEEP_SECONDS = 10.0
"""One sweep writes for so long; the next one goes on."""
LONGEST_WAIT = 300.0
"""Seconds between two tries of an archive that fails."""


def append_to_archive(runtime: Runtime) -> int:
    """Write what is owed, segment after segment; gives how many rows. No transaction is open while the archive is
    written."""
    store = runtime.archive
    if store is None:
        return 0
    try:
        if not _is_due(runtime, store.url):
            return 0
    except SQLAlchemyError as error:
        # writers of receipts that take long: the erasing goes on, and the next sweep tries again
        log.warning("archive.not_begun", error=type(error).__name__)
        return 0
    written, ends = 0, time.monotonic() + SWEEP_SECONDS
    while time.monotonic() < ends and not runtime.stopping.is_set():
        with runtime.database.begin() as tx:
            number = next_segment(tx, SEGMENT_ROWS)
        if number is None:
            break
        with runtime.database.read() as tx:
            rows = read_segment(tx, number)
        runtime.on_step("archive_assigned")
        if rows:
            buffer = io.BytesIO()
            writer = Writer(buffer.write, content="archive", segment=number)
            for kind, row in rows:
                writer.add(kind, row)
            writer.end()
            data = buffer.getvalue()
            try:
                store.write(segment_name(number, data), data)
            except ArchiveFailed as error:
                _tell_failed(runtime, str(error))
                break
            runtime.on_step("archive_written")
        with runtime.database.begin() as tx:
            finish_segment(tx, number)
        written += len(rows)
    if written:
        log.info("archive.written", rows=written)
    return written


def _is_due(runtime: Runtime, url: str) -> bool:
    with runtime.database.read() as tx:
        state = read_archive(tx)
    if state is not None and state.url == url:
        return state.due
    with runtime.database.begin() as tx:
        if begin_archive(tx, url):
            log.info("archive.begun", anew=state is not None)
    return True


def _tell_failed(runtime: Runtime, reason: str) -> None:
    with runtime.database.begin() as tx:
        before = read_archive(tx)
        failures = before.failures if before is not None else 0
        state = archive_failed(tx, reason, backoff(failures + 1, base=runtime.policy.sweep_seconds, most=LONGEST_WAIT))
        if state is not None:
            add_notice(tx, NoticeKind.ARCHIVE_FAILED, str(iso(state.failing_since)), reason=reason)
    log.error("archive.failed", reason=reason, failures=failures + 1)
