"""expunge receipts."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import click

from expunge.models.list_cases import require_case
from expunge.models.list_receipts import RECEIPT_COLUMNS, ReceiptFilter, list_receipts
from expunge.models.states import ReceiptStatus
from expunge.worker import output
from expunge.worker.invocation import Invocation, pass_invocation
from expunge.worker.output import Column
from expunge.worker.parameters import MOMENT, TEXT, json_option


def _answer(row: Mapping[str, Any]) -> str:
    if row["status"] == ReceiptStatus.WAIVED:
        return f"{row['actor']}: {row['why']}"
    said = [row["operation"], row["http_status"], row["error"]]
    return " ".join(str(part) for part in said if part is not None)


def _what(row: Mapping[str, Any]) -> str:
    return row["locator"] if row["version"] is None else f"{row['locator']} (version {row['version']})"


TABLE = [
    Column("recorded", "recorded_at"),
    Column("case", "case_id"),
    Column("account", "account"),
    Column("kind", "kind"),
    Column("locator", _what),
    Column("status", "status"),
    Column("answer", _answer),
    Column("request id", "request_id"),
    Column("purged by", "purge_due_at"),
]
"""What people see of a receipt."""


def print_receipts(pages: Iterable[Sequence[Mapping[str, Any]]], *, title: str | None = None, case: bool = True) -> int:
    """Receipts as a table; gives how many."""
    return output.print_table(pages, [c for c in TABLE if case or c.title != "case"], title=title)


@click.command()
@click.option("--csv", "as_csv", is_flag=True, help="Comma-separated values, with a header.")
@json_option
@click.option("--case", metavar="ID", type=TEXT, help="Of this case.")
@click.option("--subject", metavar="S", type=TEXT, help="About this subject.")
@click.option("--tenant", metavar="T", type=TEXT, help="Of this tenant.")
@click.option("--account", metavar="A", type=TEXT, help="At this account.")
@click.option("--kind", metavar="KIND", type=TEXT, help="About targets of this kind.")
@click.option("--status", type=click.Choice([str(status) for status in ReceiptStatus]), help="With this status.")
@click.option("--locator", metavar="L", type=TEXT, help="About exactly this locator.")
@click.option("--since", metavar="TIME", type=MOMENT, help="Recorded at this time or later (ISO 8601).")
@click.option("--until", metavar="TIME", type=MOMENT, help="Recorded before this time (ISO 8601).")
@pass_invocation
def receipts(invocation: Invocation, /, as_csv: bool, as_json: bool, **wanted: Any) -> None:
    """List receipts, in the order in which they were recorded.

    --since and --until go by when the database recorded a receipt, not by when the store answered, so that an export
    that goes on where the last one ended misses no late one. A receipt is seen a moment after the time it carries: let
    exports overlap by some minutes and tell doubles by their id. A --case that does not exist is an error.

    \b
    Examples:
      expunge receipts --case 88213
      expunge receipts --csv --since 2026-10-01 --until 2026-11-01 > october.csv
      expunge receipts --json --status failed | jq -r .error | sort | uniq -c
    """
    if as_csv and as_json:
        raise click.UsageError("--csv and --json: choose one")
    _require_order(wanted["since"], wanted["until"])
    if wanted["case"] is not None:
        with invocation.database.read() as tx:
            require_case(tx, wanted["case"])
    pages = list_receipts(invocation.database, ReceiptFilter(**wanted))
    if as_json:
        output.print_json(pages)
    elif as_csv:
        output.print_csv(pages, RECEIPT_COLUMNS)
    else:
        printed = print_receipts(pages)
        output.say(output.plural(printed, "receipt") + ".")


def _require_order(since: datetime | None, until: datetime | None) -> None:
    if since is not None and until is not None and since >= until:
        raise click.UsageError("--since: must be earlier than --until")
