"""expunge replay."""

from dataclasses import asdict
from datetime import datetime
from typing import Any

import click

from expunge.models import bell
from expunge.models.replay import Replayed
from expunge.models.replay import replay as replay_spool
from expunge.models.replay_spool import spooled
from expunge.tasks.archive_stores import ArchiveFailed, ArchivePlace
from expunge.tasks.replay_source import Source
from expunge.worker import output
from expunge.worker.cli import Failure
from expunge.worker.invocation import Invocation, pass_invocation
from expunge.worker.parameters import MOMENT, TEXT, json_option, who_and_why
from expunge.worker.settings import Settings


@click.command()
@click.option(
    "--from",
    "source",
    metavar="SOURCE",
    type=TEXT,
    required=True,
    help="An export (- is standard input), or a directory, file:///… or s3://… with an archive.",
)
@click.option("--since", metavar="TIME", type=MOMENT, required=True, help="Erased at this time or later (ISO 8601).")
@click.option("--dry-run", is_flag=True, help="Check everything and say what would be done; write nothing.")
@who_and_why(required=False)
@json_option
@pass_invocation
def replay(
    invocation: Invocation,
    /,
    source: str,
    since: datetime,
    dry_run: bool,
    by: str,
    why: str | None,
    as_json: bool,
) -> None:
    """After a restore: erase again what was erased since, and put back what the database has forgotten of it.

    TIME is the moment of the backup, or a little earlier. Each target that a receipt since then names goes into the
    outbox of its own case again, which is made anew if it is missing, and is open again; one that has an entry keeps
    it, and waived ones stay waived. Missing receipts, decisions, tombstones and holds are put back as they were,
    whatever their age. What a hold covers is not erased.

    SOURCE is read to its end first: if a line is wrong or missing, nothing at all is written. A run that was
    interrupted can be repeated.

    \b
    Examples:
      expunge replay --from /mnt/witness/expunge.jsonl --since 2026-10-17T02:00:00Z --dry-run
      expunge replay --from s3://witness/expunge --since 2026-10-17T02:00:00Z --by dana --why "restore, TICKET-4711"
    """
    database = invocation.database
    settings = invocation.settings
    read = Source(source, _place(settings))
    try:
        with spooled(since) as spool:
            read.read_into(spool)
            own = settings.archive_url if _same(read.address, settings.archive_url) else None
            done = replay_spool(
                database, spool, by=by, why=why, from_archive=own, last_segment=read.last_segment, dry_run=dry_run
            )
    except ArchiveFailed as error:
        raise Failure(output.shown(f"{error}; nothing was written")) from None
    if not dry_run:
        bell.ring(done.lanes)
    if as_json:
        output.print_json([[_row(done, dry_run)]])
        return
    output.say(_told(done, dry_run))
    if done.in_flight:
        looks = output.plural(done.in_flight, "second look")
        output.say(f"{looks} under way at this moment: run it again in some minutes.")
    if done.purged:
        stones = output.plural(done.purged, "purged conversation")
        output.say(f"Rows of {stones} may have come back: run expunge purge --again --all --yes for every graph.")


def _same(address: str | None, archive: str | None) -> bool:
    return address is not None and archive is not None and address.rstrip("/") == archive.rstrip("/")


def _place(settings: Settings) -> ArchivePlace:
    return ArchivePlace("", settings.archive_endpoint_url, settings.archive_region, settings.archive_profile)


def _row(done: Replayed, dry_run: bool) -> dict[str, Any]:
    row = asdict(done)
    del row["lanes"]
    return {**row, "dry_run": True} if dry_run else row


def _told(done: Replayed, dry_run: bool) -> str:
    def be(count: int, what: str) -> str:
        return f"{output.plural(count, what)} {'would be' if dry_run else 'is' if count == 1 else 'are'}"

    parts = [f"{be(done.added + done.again, 'target')} in the outbox again"]
    if done.there:
        parts.append(f"{output.plural(done.there, 'target')} had an entry already")
    if done.cases:
        parts.append(f"{be(done.cases, 'missing case')} there again")
    counted = {"receipt": done.receipts, "decision": done.decisions, "tombstone": done.tombstones, "hold": done.holds}
    told = [output.plural(count, name) for name, count in counted.items() if count]
    if told:
        parts.append(f"put back: {', '.join(told)}")
    return "; ".join(parts) + "." + (" Nothing was written." if dry_run else "")
