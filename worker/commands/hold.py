"""expunge hold place, release, list: legal orders to keep."""

from collections.abc import Iterator, Mapping
from typing import Any

import click

from expunge.models import bell
from expunge.models.errors import InvalidDecision
from expunge.models.holds import accounts_held, place_hold, release_hold, return_released
from expunge.models.list_holds import expiring_objects, list_holds, read_hold
from expunge.worker import output
from expunge.worker.commands.decide import require_account
from expunge.worker.invocation import Invocation, pass_invocation
from expunge.worker.output import Column
from expunge.worker.parameters import HOLD_ID, TEXT, json_option, who_and_why

_CHUNK = 1000


def _covers(row: Mapping[str, Any]) -> str:
    said = [
        f"{title} {row[name]}"
        for title, name in (("subject", "subject"), ("conversation", "conversation"), ("case", "case_id"))
        if row[name] is not None
    ]
    if row["account"] is not None:
        said.append(f"{row['account']}: {row['locator_prefix']}…")
    return ", ".join(said)


def _drops(row: Mapping[str, Any]) -> str:
    if not row["expiring"]:
        return ""
    return f"{row['expiring']:,} from {row['expires_first']:%Y-%m-%d}"


TABLE = [
    Column("hold", "id", right=True),
    Column("covers", _covers),
    Column("tenant", "tenant"),
    Column("matter", "matter"),
    Column("since", "placed_at"),
    Column("by", "placed_by"),
    Column("why", "placed_why"),
    Column("released", "released_at"),
    Column("held", "entries", right=True),
    Column("provider drops", _drops),
]


@click.group()
def hold() -> None:
    """Legal orders to keep: what a hold covers is not erased while it stands.

    The rest of a case goes on. The statutory date of a held case stays, and still warns.

    \b
    Examples:
      expunge hold place --subject u-88213 --by dana --why "court order" --matter 2026-117
      expunge hold list
      expunge hold release 3 --by dana --why "the matter is closed"
    """


@hold.command()
@click.option("--subject", metavar="S", type=TEXT, help="Everything of this subject.")
@click.option("--conversation", metavar="C", type=TEXT, help="Everything of this conversation.")
@click.option("--case", "case_id", metavar="ID", type=TEXT, help="Everything of this case.")
@click.option("--account", metavar="A", type=TEXT, help="Objects of this account; with --locator-prefix.")
@click.option("--locator-prefix", metavar="P", type=TEXT, help="… whose locators begin with this text.")
@click.option("--tenant", metavar="T", type=TEXT, help="In this tenant only.  [default: in every tenant]")
@click.option("--matter", metavar="M", type=TEXT, help="What the order belongs to: a file number.")
@who_and_why(required=True)
@json_option
@pass_invocation
def place(invocation: Invocation, /, by: str, why: str, as_json: bool, **covers: str | None) -> None:
    """Place a hold. It is committed when this command ends, and no call begins after that.

    Calls that were marked before are under way and cannot be recalled, nor can an order that a store has accepted: they
    are named. --json prints the hold, with their entry numbers as `in_flight`.

    \b
    Examples:
      expunge hold place --subject u-88213 --tenant acme --by dana --why "court order" --matter 2026-117
      expunge hold place --account artifacts --locator-prefix chat-artifacts/tenants/acme/ --by dana --why "audit"
    """
    if sum(covers[name] is not None for name in ("subject", "conversation", "case_id", "account")) != 1:
        raise click.UsageError("give one of --subject, --conversation, --case, or --account with --locator-prefix")
    if (covers["account"] is None) != (covers["locator_prefix"] is None):
        raise click.UsageError("--account and --locator-prefix go together")
    database = invocation.database
    if covers["account"] is not None:
        require_account(invocation, covers["account"])  # a slip of the pen would keep nothing
    with database.begin() as tx:
        number, flying = place_hold(tx, by=by, why=why, **covers)
    with database.read() as tx:
        row = read_hold(tx, number)
    if as_json:
        output.print_json([[{**row, "in_flight": list(flying)}]])
        return
    output.say(f"Hold {number} stands; {output.plural(row['entries'], 'entry', 'entries')} held.")
    if flying:
        named = ", ".join(str(entry) for entry in flying[:20]) + (" …" if len(flying) > 20 else "")
        count = output.plural(len(flying), "entry", "entries")
        output.say(
            f"In flight, called or about to be, and not to be recalled: {count} ({named})."
            " Their receipts will tell what came of them."
        )
    _warn_of_expiring(invocation, row)


@hold.command()
@click.argument("number", metavar="ID", type=HOLD_ID)
@who_and_why(required=True)
@json_option
@pass_invocation
def release(invocation: Invocation, /, number: int, by: str, why: str, as_json: bool) -> None:
    """Release a hold. What no other hold covers is ready again, and is erased.

    \b
    Example:
      expunge hold release 3 --by dana --why "the matter is closed, see the order of 2026-11-03"
    """
    database = invocation.database
    with database.begin() as tx:
        released = release_hold(tx, number, by=by, why=why)
        row = read_hold(tx, number)
    if not released:
        raise InvalidDecision(f"hold {number} was released already, at {row['released_at']:%Y-%m-%d %H:%M:%SZ}")
    returned = 0
    with database.read() as tx:
        accounts = accounts_held(tx)
    while True:
        with database.begin() as tx:
            moved = return_released(tx, _CHUNK)
        returned += moved
        if moved < _CHUNK:
            break
    bell.ring(accounts if returned else ())
    if as_json:
        output.print_json([[row]])
        return
    output.say(f"Hold {number} is released; {output.plural(returned, 'entry', 'entries')} ready again.")


@hold.command(name="list")
@click.option("--all", "released", is_flag=True, help="Also those that were released.")
@json_option
@pass_invocation
def list_(invocation: Invocation, /, released: bool, as_json: bool) -> None:
    """List the holds that stand, with what they hold.

    A provider drops some objects by itself, whatever a hold says: where the inventory knows the date, this warns.
    Copy such objects before then. --json has `entries`, `expiring` and `expires_first` besides the columns.

    \b
    Examples:
      expunge hold list
      expunge hold list --all --json
    """
    pages = list_holds(invocation.database, released=released)
    if as_json:
        output.print_json(pages)
        return
    expiring: list[Mapping[str, Any]] = []

    def seen() -> Iterator[list[dict[str, Any]]]:
        for page in pages:
            expiring.extend(row for row in page if row["expiring"])
            yield page

    printed = output.print_table(seen(), TABLE)
    output.say(output.plural(printed, "hold") + ".")
    for row in expiring:
        _warn_of_expiring(invocation, row)


def _warn_of_expiring(invocation: Invocation, row: Mapping[str, Any]) -> None:
    if not row["expiring"]:
        return
    output.say(
        f"\nUnder hold {row['id']} the provider itself will drop {output.plural(row['expiring'], 'object')},"
        f" the first on {row['expires_first']:%Y-%m-%d}. No hold of ours stops that: copy them before."
    )
    with invocation.database.read() as tx:
        found = expiring_objects(tx, row["id"])
    columns = [Column(name, name) for name in ("account", "kind", "locator")] + [Column("dropped", "expires_at")]
    output.print_table([found], columns)
