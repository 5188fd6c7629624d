"""expunge retry, waive, pause, resume: what a person decides."""

from collections.abc import Iterator, Sequence
from typing import Any

import click

from expunge.models import bell
from expunge.models.database import Database
from expunge.models.decisions import Retried, hurry_deferred
from expunge.models.decisions import pause as pause_lane
from expunge.models.decisions import resume as resume_lane
from expunge.models.decisions import retry as retry_entries
from expunge.models.decisions import waive as waive_entries
from expunge.models.errors import ConfigurationError
from expunge.models.lanes import Lane, read_lanes
from expunge.models.list_outbox import EntryFilter, list_entries, read_entries
from expunge.models.list_receipts import read_receipts
from expunge.worker import output
from expunge.worker.commands.outbox import describe_pause
from expunge.worker.invocation import Invocation, pass_invocation
from expunge.worker.parameters import ENTRY_ID, TEXT, json_option, who_and_why

_CHUNK = 1000


@click.command()
@click.argument("entries", metavar="[ENTRY]...", type=ENTRY_ID, nargs=-1)
@click.option("--case", metavar="ID", type=TEXT, help="All entries of this case.")
@click.option("--account", metavar="A", type=TEXT, help="All entries in the lane of this account.")
@who_and_why(required=False)
@json_option
@pass_invocation
def retry(
    invocation: Invocation,
    /,
    entries: tuple[int, ...],
    case: str | None,
    account: str | None,
    by: str,
    why: str | None,
    as_json: bool,
) -> None:
    """Try entries again at once.

    Escalated entries get all their tries back; entries that wait for their next try are due now. What is in a worker's
    hands, waits for its parts, or is held is left as it is. --json prints the entries as they stand then.

    \b
    Examples:
      expunge retry 17 18
      expunge retry --case 88213 --why "the bucket exists again"
      expunge retry --account artifacts --by dana --why "new credentials"
    """
    if [bool(entries), case is not None, account is not None].count(True) != 1:
        raise click.UsageError("give ENTRY numbers, --case or --account, and only one of them")
    database = invocation.database
    with database.begin() as tx:
        done = retry_entries(tx, ids=entries, case=case, account=account, by=by, why=why)
        rows = read_entries(tx, entries) if entries else []
        if account is not None and not (done.retried or done.hurried or done.left):
            # an account that left the settings may still have entries; one without either is a slip of the pen
            require_account(invocation, account)
    bell.ring(done.lanes)
    if as_json:
        output.print_json([rows] if entries else list_entries(database, EntryFilter(case=case, account=account)))
        return
    output.say(_told(done))


def _told(done: Retried) -> str:
    parts = []
    if done.retried:
        parts.append(f"{output.plural(done.retried, 'escalated entry', 'escalated entries')} ready again")
    if done.hurried:
        parts.append(f"{output.plural(done.hurried, 'waiting try', 'waiting tries')} due now")
    if not parts:
        parts.append("Nothing to retry")
    if done.left:
        parts.append("left as they are: " + ", ".join(f"{n:,} {state}" for state, n in sorted(done.left.items())))
    return "; ".join(parts) + "."


@click.command()
@click.argument("entries", metavar="ENTRY...", type=ENTRY_ID, nargs=-1, required=True)
@who_and_why(required=True)
@json_option
@pass_invocation
def waive(invocation: Invocation, /, entries: tuple[int, ...], by: str, why: str, as_json: bool) -> None:
    """Decide that entries will not be erased.

    Each gets a receipt with status `waived`, who and why, and leaves the outbox; with a composite target go its parts.
    An entry in a worker's hands cannot be waived: wait until it has been settled. One under a
    legal hold can: it leaves the outbox for good, and no release brings it back. If one of the entries cannot be
    waived, none is. --json prints the receipts.

    \b
    Example:
      expunge waive 17 --by dana --why "the bucket was deleted with the whole account, see TICKET-4711"
    """
    database = invocation.database
    with database.begin() as tx:
        done = waive_entries(tx, entries, by=by, why=why)
    if as_json:
        output.print_json(_receipts(database, done.receipts))
        return
    output.say(f"{output.plural(len(done.receipts), 'entry', 'entries')} waived.")
    for case in done.completed:
        output.say(f"Case {output.shown(case)} is complete.")


def _receipts(database: Database, ids: Sequence[str]) -> Iterator[list[dict[str, Any]]]:
    for start in range(0, len(ids), _CHUNK):
        with database.read() as tx:
            rows = read_receipts(tx, ids[start : start + _CHUNK])
        yield rows


@click.command()
@click.argument("account", type=TEXT)
@who_and_why(required=False)
@json_option
@pass_invocation
def pause(invocation: Invocation, /, account: str, by: str, why: str | None, as_json: bool) -> None:
    """Stop the calls of one account until `expunge resume`.

    Calls that are under way end and get their receipts; nothing new is called. --json prints the lane's rows.

    \b
    Example:
      expunge pause artifacts --why "maintenance of the bucket until Monday"
    """
    database = invocation.database
    require_account(invocation, account)
    with database.begin() as tx:
        pause_lane(tx, account, by=by, why=why)
        lanes = list(read_lanes(tx, account).values())
    if as_json:
        output.print_json([[_lane_row(lane) for lane in lanes]])
        return
    for lane in lanes:
        if not lane.scope:
            output.say(describe_pause(lane)[:1].upper() + describe_pause(lane)[1:] + ".")


@click.command()
@click.argument("account", type=TEXT)
@who_and_why(required=False)
@json_option
@pass_invocation
def resume(invocation: Invocation, /, account: str, by: str, why: str | None, as_json: bool) -> None:
    """Let a paused account go on.

    It lifts every pause of the account and its buckets, whoever made it: an operator, a throttle, the breaker. --json
    prints the lane's rows.

    \b
    Example:
      expunge resume artifacts --by dana --why "maintenance is over"
    """
    database = invocation.database
    require_account(invocation, account)
    with database.begin() as tx:
        done = resume_lane(tx, account, by=by, why=why)
    with database.begin() as tx:
        due = done.due + hurry_deferred(tx, account)
        lanes = list(read_lanes(tx, account).values())
    bell.ring({account})
    if as_json:
        output.print_json([[_lane_row(lane) for lane in lanes] or [_running(account)]])
        return
    if not done.lifted:
        output.say(f"Account {account} was not paused.")
        return
    output.say(f"Account {account} goes on" + (f"; {output.plural(due, 'entry', 'entries')} due now." if due else "."))


def require_account(invocation: Invocation, account: str) -> None:
    """Raises ConfigurationError, naming those that there are, unless the settings name this account."""
    known = invocation.settings.accounts
    if account not in known:
        named = ", ".join(sorted(known)) or "none"
        raise ConfigurationError(f"account {output.shown(account)} is not in the settings; there are: {named}")


def _lane_row(lane: Lane) -> dict[str, Any]:
    """The row's columns."""
    return {
        "account": lane.account,
        "scope": lane.scope,
        "paused_by": lane.paused_by,
        "paused_until": lane.paused_until,
        "paused_since": lane.paused_since,
        "reason": lane.reason,
        "refused": lane.refused,
        "failures": lane.failures,
        "failing": lane.failing or None,
    }


def _running(account: str) -> dict[str, Any]:
    """A lane that simply runs has no row."""
    return _lane_row(Lane(account, "", None, None, None, None, False, 0, {}, False))
