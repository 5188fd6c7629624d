"""expunge erase."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, BinaryIO

import click

from expunge.models import bell
from expunge.models.basis import BASES
from expunge.models.cases import Opened, open_case
from expunge.models.database import Database
from expunge.models.errors import InvalidCase
from expunge.models.list_cases import read_case
from expunge.models.targets import Target
from expunge.worker import output
from expunge.worker.cli import Failure
from expunge.worker.invocation import Invocation, pass_invocation
from expunge.worker.parameters import RECEIVED, TEXT, json_option
from expunge.worker.settings import Settings
from expunge.worker.target_lines import Accounts, Parsed, parse

_CLOCKS_DIFFER = timedelta(days=1)


class _DryRun(Exception):
    """Leaves the transaction, and so rolls it back."""


@click.command()
@click.option("--subject", metavar="S", type=TEXT, required=True, help="Whom it is about: your own opaque reference.")
@click.option("--tenant", metavar="T", type=TEXT, help="The tenant that the subject belongs to.")
@click.option("--case", metavar="ID", type=TEXT, help="The case's id.  [default: a new one]")
@click.option(
    "--basis",
    type=click.Choice(list(BASES)),
    help="The legal basis, which sets the statutory date.  [default: request]",
)
@click.option("--received-at", metavar="TIME", type=RECEIVED, help="When it was asked for (ISO 8601).  [default: now]")
@click.option("--dry-run", is_flag=True, help="Check everything and say what would be done; write nothing.")
@click.option("--tracked", is_flag=True, help="Everything in the inventory of the subject, or of --conversation.")
@click.option("--conversation", metavar="C", type=TEXT, help="With --tracked: of this conversation alone.")
@click.option("--nothing-found", is_flag=True, help="Somebody looked, and there is nothing to erase.")
@json_option
@click.argument("file", type=click.File("rb"), required=False)
@pass_invocation
def erase(
    invocation: Invocation,
    /,
    subject: str,
    tenant: str | None,
    case: str | None,
    basis: str | None,
    received_at: datetime | None,
    dry_run: bool,
    tracked: bool,
    conversation: str | None,
    nothing_found: bool,
    as_json: bool,
    file: BinaryIO | None,
) -> None:
    """Open a case, or add to one: everything in FILE must be gone.

    FILE (- is standard input) has one target a line:

    \b
      {"account": "artifacts", "kind": "object", "locator": "bucket/key"}
      {"account": "openai_eu", "kind": "conversation", "locator": "conv_abc"}

    A wrong line is told with its number and reason, and then nothing at all is written. With the id of a case that
    exists, targets that it knows already are left out and it is open again for new ones; another subject, basis or date
    than it has is an error, and so is --nothing-found if it has entries or receipts. --json prints the case's row.

    With --tracked, with FILE or without, what the application tracked of the subject and tenant goes into the outbox
    too, or what it tracked of one conversation. What another living subject or conversation has as well stays, and is
    counted as shared, also in the row of --json. --nothing-found then means: if nothing is tracked, say so.

    \b
    Examples:
      expunge erase --subject u-88213 --basis gdpr targets.jsonl
      my-inventory u-88213 | expunge erase --subject u-88213 --tenant acme --case 88213 -
      expunge erase --subject u-88213 --tenant acme --basis gdpr --tracked
      expunge erase --subject u-88214 --basis ccpa --received-at 2026-10-18 --nothing-found
    """
    if conversation is not None and not tracked:
        raise click.UsageError("--conversation: needs --tracked")
    if (file is None) != nothing_found and not tracked:
        raise click.UsageError("give FILE (- is standard input), --tracked or --nothing-found")
    if received_at is not None and received_at > datetime.now(UTC) + _CLOCKS_DIFFER:
        raise click.BadParameter(f"{received_at:%Y-%m-%d} is in the future", param_hint="'--received-at'")
    database = invocation.database
    targets = [] if file is None else _read(file, invocation.settings)
    opened, row = _open(
        database,
        dry_run,
        subject=subject,
        tenant=tenant,
        case_id=case,
        basis=basis,
        received_at=received_at,
        targets=targets,
        conversation=conversation,
        nothing_found=nothing_found,
        inventory=tracked,
    )
    if opened.added and not dry_run:
        # the ring that open_case has announced comes a moment after the commit, and this process may be gone by then
        bell.ring(set(opened.accounts))
    if dry_run and case is None:
        row["id"] = None  # it was made up for this run only
    if tracked:
        row["shared"] = opened.shared
    if as_json:
        output.print_json([[{**row, "dry_run": True} if dry_run else row]])
    else:
        output.say(_told(opened, row, len(targets) - len(set(targets)), dry_run))


def _read(file: BinaryIO, settings: Settings) -> list[Target]:
    accounts = Accounts(settings.accounts, settings.lease_seconds)
    try:
        parsed = parse(file, accounts.complaint)
    finally:
        accounts.close()
    if parsed.wrong_count:
        _tell_wrong(parsed)
        raise Failure(f"{output.plural(parsed.wrong_count, 'wrong line')}; nothing was written")
    if not parsed.targets:
        raise InvalidCase("FILE has no targets; if somebody looked and there is nothing to erase, say --nothing-found")
    return parsed.targets


def _tell_wrong(parsed: Parsed) -> None:
    for number, reason in parsed.wrong:
        output.warn(f"line {number}: {output.shown(reason)}")
    more = parsed.wrong_count - len(parsed.wrong)
    if more:
        output.warn(f"and {more:,} more")


def _open(
    database: Database, dry_run: bool, *, targets: Sequence[Target], **case: Any
) -> tuple[Opened, dict[str, Any]]:
    """A dry run does the very same and rolls it back, so that it finds what the real one would."""
    opened: Opened | None = None
    row: dict[str, Any] = {}
    try:
        with database.begin() as tx:
            opened = open_case(tx.connection, targets=targets, **case)
            row = read_case(tx, opened.case_id)
            if dry_run:
                raise _DryRun
    except _DryRun:
        pass
    assert opened is not None
    return opened, row


def _told(opened: Opened, row: dict[str, Any], repeated: int, dry_run: bool) -> str:
    would = "would be " if dry_run else ""
    case = "The case" if row["id"] is None else f"Case {output.shown(row['id'])}"
    parts = [f"{case} {would}opened" if opened.created else f"{case} exists"]
    if opened.added:
        parts.append(f"{output.plural(opened.added, 'target')} {would}added to the outbox")
    if opened.known:
        known = output.plural(opened.known, "target")
        parts.append(f"{known} not added: in this case's outbox already, or closed by a receipt of it")
    if repeated:
        parts.append(f"{output.plural(repeated, 'line')} not added: the same target as an earlier line")
    if opened.shared:
        left = output.plural(opened.shared, "tracked object")
        parts.append(f"{left} left, since another subject or conversation has it too: expunge inventory --shared")
    if row["nothing_found"]:
        found = "nothing else was found" if opened.shared else "nothing was found"
        parts.append(f"{found}, so it is complete")
    if row["due_at"] is not None:
        parts.append(f"due by {row['due_at']:%Y-%m-%d}")
    return "; ".join(parts) + "." + (" Nothing was written." if dry_run else "")
