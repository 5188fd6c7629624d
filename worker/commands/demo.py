"""expunge demo."""

from datetime import datetime
from typing import Any

import click

from expunge.models.database import Database
from expunge.models.errors import ExpungeError
from expunge.worker.demo import CASE, Story
from expunge.worker.demo import demo as tell
from expunge.worker.demo_stores import SLOW_DOCUMENT, TARGETS, Stores
from expunge.worker.follow import ReceiptFollower
from expunge.worker.logging import configure_logging
from expunge.worker.output import Column, plural, print_json, print_table, say
from expunge.worker.progress import Bar, Tally
from expunge.worker.signals import StopSignals

_COLUMNS = [
    Column("kind", "kind"),
    Column("what", lambda row: _name(dict(row))),
    Column("try", "attempt", right=True),
    Column("operation", "operation"),
    Column("status", "status"),
    Column("purged by", lambda row: row["purge_due_at"].date().isoformat() if row["purge_due_at"] else ""),
]
_NAME = 40


@click.command()
@click.option("--json", "as_json", is_flag=True, help="The receipts only, one JSON object a line.")
def demo(as_json: bool) -> None:
    """The whole story on one machine: a case over object storage and an AI provider, with its receipts.

    Nothing to configure: an S3 server, a provider and a database are started here, and are gone afterwards. Needs
    pip install 'expunge[demo]'.

    \b
    Examples:
      expunge demo
      expunge demo --json | jq .status
    """
    configure_logging("error")
    tally = Tally()
    followers: list[ReceiptFollower] = []

    def look(database: Database, last: bool) -> None:
        if not followers:
            followers.append(ReceiptFollower(database))
        for rows in followers[0].look(last=last):
            tally.add(rows)
        bar.update(database)

    with StopSignals() as signals, Bar(tally, shown=False if as_json else None) as bar:

        def ready(stores: Stores) -> None:
            if not as_json:
                _introduce(stores)

        with tell(signals, on_ready=ready, on_look=look) as story:
            pass
    if as_json:
        print_json([story.receipts])
    elif story.receipts:
        _show(story)
    if not story.complete:
        raise ExpungeError("the demo was stopped before the case was complete")


def _introduce(stores: Stores) -> None:
    say(f"A versioned bucket at {stores.s3_url}, an AI provider at {stores.provider.base_url}, a SQLite file.")
    say(f"Case {CASE}: in the host's transaction, {len(TARGETS)} targets go into the outbox.")
    say(f"The provider will answer 503 for {SLOW_DOCUMENT} at first.\n")


def _show(story: Story) -> None:
    by_target = sorted(story.receipts, key=lambda row: (row["account"], row["locator"], row["recorded_at"]))
    print_table([by_target], _COLUMNS, title=f"Receipts of case {CASE}")
    say(f"{plural(len(story.receipts), 'receipt')}; case {CASE} is {story.case['state']}.")
    say(f"Still in the bucket, since they are other people's: {', '.join(story.keys_left)}.")
    if story.complete:
        say(f"\nTo the subject:\n  {letter(story)}")


def letter(story: Story) -> str:
    """The line that a person would send, with its two dates."""
    line = f"We deleted the data that we held about you (case {CASE}) on {_day(story.deleted_on)}"
    if story.purged_by is None:
        return f"{line}."
    return f"{line}; our AI provider's documented purge of its last copies completes by {_day(story.purged_by)}."


def _day(moment: datetime) -> str:
    return f"{moment.day} {moment:%B %Y}"


def _name(row: dict[str, Any]) -> str:
    """The end of the locator, and of the version if the receipt is about one."""
    version = f" @{row['version'][-6:]}" if row["version"] else ""
    text = f"{row['locator']}{version}"
    return text if len(text) <= _NAME else f"…{text[-_NAME + 1 :]}"
