"""What `expunge check` looks at. Each look is by itself: one that fails hides no other."""

import os
from collections.abc import Iterator
from pathlib import Path

from kombu import Connection
from sqlalchemy.exc import SQLAlchemyError

from expunge.models import schema
from expunge.models.archive import ArchiveState, count_owed, read_archive
from expunge.models.capabilities import list_capabilities
from expunge.models.database import Database, describe_trouble
from expunge.models.errors import ConfigurationError, SchemaError
from expunge.models.gauges import LastSweep, Stuck, last_sweep, oldest_due_entry, stuck_lanes
from expunge.models.health import Health, read_health
from expunge.models.lanes import Lane
from expunge.models.list_outbox import paused_lanes
from expunge.models.states import PausedBy
from expunge.models.types import iso
from expunge.tasks.capabilities import place_of
from expunge.tasks.doorbell import NETWORK_SECONDS, transport_options
from expunge.tasks.erasers.contract import Check as Line
from expunge.tasks.erasers.contract import prober
from expunge.tasks.runtime import Runtime
from expunge.worker.output import plural
from expunge.worker.runtime import make_runtime
from expunge.worker.settings import Settings
from expunge.worker.sources import DEFAULT_FILE, FILE_VARIABLE, load_settings

STALE_SECONDS = 300.0
"""Due for so long, with nobody draining: no worker runs, or none hears the broker."""
NOTICE_SECONDS = 3600.0
SWEEPS_MISSED = 12
"""A sweep may take long, or the broker be away for a moment."""

__all__ = ["Line", "check_all"]


def check_all(config: str | None, *, probe: bool = False) -> Iterator[Line]:
    """Every line, as it is found out. With `probe`, accounts are also asked what reads do not tell."""
    try:
        settings = load_settings(config)
    except ConfigurationError as error:
        yield Line("settings", False, str(error))
        return
    yield Line("settings", True, _where_from(config))
    try:
        settings.webhook()
    except ConfigurationError as error:
        yield Line("webhook", False, str(error))
        settings = settings.model_copy(update={"webhook_url": None})
    try:
        runtime = make_runtime(settings)
    except ConfigurationError as error:
        yield Line("database", False, str(error))
        return
    try:
        yield from _database(settings, runtime.database)
        yield _broker(settings)
        yield from _accounts(runtime, probe=probe)
    finally:
        runtime.close()


def _where_from(config: str | None) -> str:
    named = config or os.environ.get(FILE_VARIABLE)
    if named or Path(DEFAULT_FILE).exists():
        return f"read from {named or DEFAULT_FILE}"
    return f"defaults and the environment; there is no {DEFAULT_FILE} here"


def _database(settings: Settings, database: Database) -> Iterator[Line]:
    try:
        schema.require(database)
        with database.read() as tx:
            health = read_health(tx)
            archive, owed = read_archive(tx), count_owed(tx)
            swept, oldest, stuck = last_sweep(tx), oldest_due_entry(tx), stuck_lanes(tx, STALE_SECONDS)
        lanes = paused_lanes(database)
    except SchemaError as error:
        yield Line("database", False, str(error))
        return
    except SQLAlchemyError as error:
        yield Line("database", False, describe_trouble(error))
        return
    yield Line("database", True, f"{health.version}, tables of version {schema.HEAD}")
    yield _due(health, oldest)
    yield _sweep(settings, swept)
    if health.escalated:
        escalated = plural(health.escalated, "entry", "entries")
        yield Line("outbox", None, f"{escalated} escalated: see expunge outbox --state escalated")
    if health.overdue_cases:
        yield Line("cases", False, f"{plural(health.overdue_cases, 'case')} past the statutory date")
    yield from (_pause(lane) for lane in lanes)
    yield from (_stuck(lane) for lane in stuck)
    if health.notices:
        yield _notices(settings, health)
    yield from _archive(settings, archive, owed)


def _archive(settings: Settings, archive: ArchiveState | None, owed: int) -> Iterator[Line]:
    waiting = f"{plural(owed, 'row')} not in it yet"
    if settings.archive_url is None:
        if archive is not None:
            yield Line("archive", False, f"the settings name none, and the one that was begun misses: {waiting}")
    elif archive is None or archive.url != settings.archive_url:
        yield Line("archive", None, "not begun: the next sweep does")
    elif archive.failing_since is not None:
        since = iso(archive.failing_since)
        yield Line("archive", False, f"cannot be written since {since}: {archive.reason}; {waiting}")
    else:
        yield Line("archive", True, f"{plural(archive.segment, 'segment')}; {waiting}")


def _due(health: Health, oldest: int | None) -> Line:
    if not health.due:
        return Line("outbox", True, "nothing is due")
    text = (
        f"{plural(health.due, 'entry', 'entries')} due, the oldest for {health.oldest_waits_seconds:,.0f} s; "
        f"{plural(health.drains, 'drain')} running"
    )
    if oldest is not None:
        text += f"; the oldest is entry {oldest}"
    if health.oldest_waits_seconds > STALE_SECONDS and not health.drains:
        return Line("outbox", False, f"{text}: is there a worker, and a beat?")
    return Line("outbox", True, text)


def _sweep(settings: Settings, swept: LastSweep) -> Line:
    late = max(60.0, SWEEPS_MISSED * settings.sweep_interval())
    waits = (swept.entry_waits_seconds or 0.0) > late  # without entries there is nothing to sweep for
    if swept.ended_at is None or swept.age_seconds is None:
        return Line("sweep", False if waits else None, "has never run: is there a worker, and a beat?")
    text = f"last ran at {iso(swept.ended_at)}, {swept.age_seconds:,.0f} s ago"
    if swept.age_seconds > late:
        return Line("sweep", False if waits else None, f"{text}: is there a worker, and a beat?")
    return Line("sweep", True, text)


def _stuck(lane: Stuck) -> Line:
    return Line(
        f"lane {lane.account}",
        False,
        f"nothing is ever erased: {plural(lane.calls, 'answer')} within an hour, none of them a success, and its "
        f"oldest entry waits for {lane.oldest_seconds:,.0f} s; see expunge receipts --status failed",
    )


def _pause(lane: Lane) -> Line:
    name = f"lane {lane.account}" + (f" ({lane.scope})" if lane.scope else "")
    why = f": {lane.reason}" if lane.reason else ""
    if lane.paused_by == PausedBy.OPERATOR:
        text = f"paused by an operator until expunge resume{why}"
    elif lane.is_paused:
        text = f"paused by the {lane.paused_by} until {iso(lane.paused_until)}{why}"
    else:
        text = f"its breaker lets one entry through at a time{why}"
    # an operator's pause is meant, a throttle ends by itself; a store that is down or refuses needs somebody
    return Line(name, False if lane.paused_by == PausedBy.BREAKER else None, text)


def _notices(settings: Settings, health: Health) -> Line:
    text = f"{plural(health.notices, 'notice')} to send, the oldest for {health.oldest_notice_seconds:,.0f} s"
    if settings.webhook_url is None:
        return Line("webhook", None, f"{text}; they wait, since there is no webhook_url")
    return Line("webhook", health.oldest_notice_seconds < NOTICE_SECONDS, text)


def _broker(settings: Settings) -> Line:
    if settings.in_memory:
        return Line("broker", True, "in memory: for expunge up, in one process")
    try:
        with Connection(
            settings.broker_url,
            connect_timeout=NETWORK_SECONDS,
            transport_options=transport_options(settings.broker_url),
        ) as connection:
            where = f"{settings.broker_scheme}, {connection.hostname}:{connection.port}"
            connection.ensure_connection(max_retries=1, interval_start=0, timeout=int(NETWORK_SECONDS))
    except Exception as error:
        # every transport has errors of its own
        lines = str(error).strip().splitlines()
        return Line("broker", False, f"cannot be reached: {lines[0] if lines else type(error).__name__}")
    return Line("broker", True, f"reachable: {where}")


def _accounts(runtime: Runtime, *, probe: bool = False) -> Iterator[Line]:
    if not runtime.accounts:
        yield Line("accounts", None, "there are none: add [accounts.NAME] to the settings")
    for account, options in runtime.accounts.items():
        try:
            eraser = runtime.eraser(account)
            probes = prober(eraser) if probe else None
            lines = eraser.check() if probes is None else probes.probe()
        except Exception as error:
            # an eraser that cannot even be made, or has a bug, is this account's trouble only
            lines = [Line(options.store, False, f"cannot be checked: {type(error).__name__}")]
        for line in [*lines, *_known(runtime, account)]:
            yield Line(f"account {account}: {line.name}", line.ok, line.text)


def _known(runtime: Runtime, account: str) -> Iterator[Line]:
    """What the workers found out about its endpoint and buckets. The lines before are of now; these have an age."""
    if runtime.database.missing_file is not None:
        return  # looking would create it
    age, endpoint = runtime.policy.capabilities_max_age_seconds, place_of(runtime.accounts[account])
    try:
        with runtime.database.read() as tx:
            found = list_capabilities(tx, account, endpoint, max_age_seconds=age)
    except SQLAlchemyError:
        return  # the database has a line of its own
    for each in found:
        name = f"known of {each.scope or 'the endpoint'}"
        yield Line(name, True, f"{each.name} {each.value}, found out at {iso(each.found_at)}")
