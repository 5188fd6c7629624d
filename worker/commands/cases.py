"""expunge cases."""

from collections.abc import Mapping
from typing import Any

import click

from expunge.models.database import Database
from expunge.models.list_cases import list_cases, read_case
from expunge.models.list_holds import holds_of_case
from expunge.models.list_outbox import EntryFilter, list_entries
from expunge.models.list_receipts import ReceiptFilter, list_receipts
from expunge.models.states import CaseState
from expunge.worker import output
from expunge.worker.commands.outbox import print_entries
from expunge.worker.commands.receipts import print_receipts
from expunge.worker.commands.two_dates import TwoDates
from expunge.worker.invocation import Invocation, pass_invocation
from expunge.worker.output import Column
from expunge.worker.parameters import TEXT, json_option


def _due(row: Mapping[str, Any]) -> str:
    if row["due_at"] is None:
        return ""
    return f"{row['due_at']:%Y-%m-%d}" + (" OVERDUE" if row["overdue"] else "")


def _left(row: Mapping[str, Any]) -> str:
    return ", ".join(f"{n:,} {state}" for state, n in row["entries"].items())


TABLE = [
    Column("case", "id"),
    Column("tenant", "tenant"),
    Column("subject", "subject"),
    Column("basis", "basis"),
    Column("received", lambda row: f"{row['received_at']:%Y-%m-%d}"),
    Column("due", _due),
    Column("state", "state"),
    Column("left", _left),
    Column("receipts", "receipts", right=True),
    Column("completed", "completed_at"),
]
"""What people see of a case."""


@click.command()
@json_option
@click.option("--overdue", is_flag=True, help="Only cases whose statutory date has passed.")
@click.argument("case", metavar="[CASE]", type=TEXT, required=False)
@pass_invocation
def cases(invocation: Invocation, /, as_json: bool, overdue: bool, case: str | None) -> None:
    """List the cases, or show one with its entries and receipts.

    A case's state is the first that applies of escalated (a person has to decide), held (a legal hold covers something
    of it), open, and complete. `overdue` is said besides: the statutory date has passed and the case is not complete.

    Of a case that is complete it says two dates of each kind: when it was removed, and by when the provider's
    documented purge of its last copies is over, with the page that says so if the settings name it.

    With --json a list has one case a line. One case has several lines: the case, its entries, its receipts; `row` says
    which.

    \b
    Examples:
      expunge cases
      expunge cases 88213
      expunge cases --overdue --json | jq -r .id
    """
    if case is not None:
        if overdue:
            raise click.UsageError("give CASE or --overdue, not both")
        _show(invocation.database, case, as_json)
    elif as_json:
        output.print_json(list_cases(invocation.database, overdue=overdue))
    else:
        printed = output.print_table(list_cases(invocation.database, overdue=overdue), TABLE)
        output.say(output.plural(printed, "case") + ".")


def _show(database: Database, case: str, as_json: bool) -> None:
    with database.read() as tx:
        found = read_case(tx, case)
        found["holds"] = holds_of_case(tx, case)
    entries = list_entries(database, EntryFilter(case=case))
    receipts = list_receipts(database, ReceiptFilter(case=case))
    if as_json:
        output.print_json([[{"row": "case", **found}]])
        output.print_json([{"row": "entry", **row} for row in page] for page in entries)
        output.print_json([{"row": "receipt", **row} for row in page] for page in receipts)
        return
    output.print_table([[found]], TABLE)
    if found["nothing_found"]:
        output.say("Somebody looked, and nothing was found.")
    for hold in found["holds"]:
        matter = "" if hold["matter"] is None else f", matter {hold['matter']}"
        held = output.plural(hold["entries"], "entry is", "entries are")
        output.say(f"Since {hold['since']:%Y-%m-%d} hold {hold['id']}{matter} stands: {held} held, and not erased.")
    if found["holds"] and found["due_at"] is not None:
        output.say(f"The person must be answered by {found['due_at']:%Y-%m-%d} all the same.")
    if found["extended_at"] is not None:
        output.say(f"Extended on {found['extended_at']:%Y-%m-%d} by {found['extended_by']}: {found['extended_why']}")
    left = ([row for row in page if not row["settled"]] for page in entries)
    print_entries((page for page in left if page), title="\nStill to be erased", case=False)
    dates = TwoDates()
    print_receipts(dates.reading(receipts), title="\nReceipts", case=False)
    if found["state"] == CaseState.COMPLETE:
        for line in dates.lines():
            output.say(line)
