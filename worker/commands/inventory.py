"""expunge inventory."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import click

from expunge.models.list_inventory import INVENTORY_COLUMNS, InventoryFilter, View, list_inventory
from expunge.worker import output
from expunge.worker.invocation import Invocation, pass_invocation
from expunge.worker.output import Column
from expunge.worker.parameters import TEXT, FiniteRange, json_option

TABLE = [
    Column("item", "id", right=True),
    Column("tenant", "tenant"),
    Column("subject", "subject"),
    Column("conversation", "conversation"),
    Column("account", "account"),
    Column("kind", "kind"),
    Column("locator", "locator"),
    Column("region", "region"),
    Column("created", "created_at"),
    Column("expires", "expires_at"),
    Column("from", "derived_from", right=True),
    Column("left by", "left_by"),
]
"""What people see of a row."""
_DAYS = 7


def _view_option(view: View, text: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    return click.option(f"--{view}", "views", flag_value=str(view), multiple=True, help=text)


@click.command()
@_view_option(View.EXPIRING, "What its provider drops by itself soon.")
@click.option(
    "--within",
    metavar="DAYS",
    type=FiniteRange(0, 36_600),
    help=f"With --expiring: from now on.  [default: {_DAYS}]",
)
@_view_option(View.ORPHANED, "What no case has, though its conversation is gone.")
@_view_option(View.SHARED, "What cases left, since another living subject or conversation has it too.")
@_view_option(View.AFTER_ERASURE, "What is there of subjects whose erasure is complete.")
@click.option("--subject", metavar="S", type=TEXT, help="Of this subject.")
@click.option("--tenant", metavar="T", type=TEXT, help="Of this tenant.")
@click.option("--conversation", metavar="C", type=TEXT, help="Of this conversation.")
@click.option("--account", metavar="A", type=TEXT, help="At this account.")
@click.option("--csv", "as_csv", is_flag=True, help="Comma-separated values, with a header.")
@json_option
@pass_invocation
def inventory(
    invocation: Invocation,
    /,
    views: tuple[str, ...],
    within: float | None,
    as_csv: bool,
    as_json: bool,
    **wanted: Any,
) -> None:
    """List what was created at stores and is in no case yet.

    The application tracks it (see the README); `expunge erase --tracked` takes it into a case. A conversation is gone
    if it has a tombstone, or if it is in no root table of the graphs in the settings.

    \b
    Examples:
      expunge inventory --subject u-88213 --tenant acme
      expunge inventory --expiring --within 3
      expunge inventory --orphaned --json
    """
    if as_csv and as_json:
        raise click.UsageError("--csv and --json: choose one")
    if len(set(views)) > 1:
        raise click.UsageError(f"{' and '.join(f'--{view}' for view in views)}: choose one")
    view = View(views[0]) if views else None
    if within is not None and view is not View.EXPIRING:
        raise click.UsageError("--within: needs --expiring")
    settings = invocation.settings
    graphs = [settings.graph(name) for name in settings.graphs] if view is View.ORPHANED else []
    narrowed = InventoryFilter(view=view, within=timedelta(days=_DAYS if within is None else within), **wanted)
    pages = list_inventory(invocation.database, narrowed, graphs)
    if as_json:
        output.print_json(pages)
    elif as_csv:
        output.print_csv(pages, INVENTORY_COLUMNS)
    else:
        output.say(output.plural(output.print_table(pages, TABLE), "object") + ".")
