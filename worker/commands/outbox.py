"""expunge outbox."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import click

from expunge.models.lanes import Lane
from expunge.models.list_cases import require_case
from expunge.models.list_outbox import EntryFilter, list_entries, pause_of, paused_lanes
from expunge.models.states import EntryState, PausedBy
from expunge.worker import output
from expunge.worker.invocation import Invocation, pass_invocation
from expunge.worker.output import Column
from expunge.worker.parameters import TEXT, json_option

TABLE = [
    Column("entry", "id", right=True),
    Column("case", "case_id"),
    Column("account", "account"),
    Column("kind", "kind"),
    Column("locator", "locator"),
    Column("state", "state"),
    Column("due", "due_at"),
    Column("attempts", "attempt", right=True),
    Column("reason", "reason"),
]
"""What people see of an entry."""


def print_entries(pages: Iterable[Sequence[Mapping[str, Any]]], *, title: str | None = None, case: bool = True) -> int:
    """Entries as a table; gives how many."""
    return output.print_table(pages, [c for c in TABLE if case or c.title != "case"], title=title)


def describe_pause(lane: Lane) -> str:
    """One line about a pause, for people."""
    account = output.shown(lane.account)
    what = f"account {account}" + (f", bucket {output.shown(lane.scope)}" if lane.scope else "")
    since = f"since {output.shown(lane.paused_since)}"
    reason = f": {output.shown(lane.reason)}" if lane.reason else ""
    if lane.paused_by == PausedBy.OPERATOR:
        return f"{what} is paused by an operator {since}, until `expunge resume {account}`{reason}"
    if lane.paused_by == PausedBy.BREAKER:
        why = "stands still" if lane.refused else "fails"
        return f"{what} {why} {since}; next probe {output.shown(lane.paused_until)}{reason}"
    return f"{what} is throttled {since}, until {output.shown(lane.paused_until)}{reason}"


@click.command()
@json_option
@click.option("--case", metavar="ID", type=TEXT, help="Of this case.")
@click.option("--account", metavar="A", type=TEXT, help="In the lane of this account.")
@click.option("--state", type=click.Choice([str(state) for state in EntryState]), help="In this state.")
@pass_invocation
def outbox(invocation: Invocation, /, as_json: bool, **wanted: Any) -> None:
    """List what waits to be erased, and the accounts that are paused.

    With --json every entry also says in paused_by, paused_until and paused_reason whether its account is paused. A
    --case that does not exist is an error.

    \b
    Examples:
      expunge outbox --case 88213
      expunge outbox --state escalated
      expunge outbox --account openai_eu --json
    """
    if wanted["case"] is not None:
        with invocation.database.read() as tx:
            require_case(tx, wanted["case"])
    paused = paused_lanes(invocation.database, wanted["account"])
    pages = list_entries(invocation.database, EntryFilter(**wanted))
    if as_json:
        output.print_json(_with_pauses(pages, paused))
        return
    for lane in paused:
        output.say(describe_pause(lane))
    printed = print_entries(pages)
    output.say(output.plural(printed, "entry", "entries") + ".")


def _with_pauses(
    pages: Iterable[Sequence[Mapping[str, Any]]], paused: Sequence[Lane]
) -> Iterator[Sequence[Mapping[str, Any]]]:
    for page in pages:
        yield [_with_pause(row, pause_of(row, paused)) for row in page]


def _with_pause(row: Mapping[str, Any], lane: Lane | None) -> Mapping[str, Any]:
    return {
        **row,
        "paused_by": lane and lane.paused_by,
        "paused_until": lane and lane.paused_until,
        "paused_reason": lane and lane.reason,
    }
