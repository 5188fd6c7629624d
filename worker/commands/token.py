"""expunge token."""

import json
from datetime import datetime

import click

from expunge.models.database import Database
from expunge.models.session_schema import require_sessions
from expunge.models.session_token import TokenScope, create_token, list_tokens, revoke_token
from expunge.models.types import iso
from expunge.worker import output
from expunge.worker.invocation import Invocation, pass_invocation
from expunge.worker.output import Column
from expunge.worker.parameters import MOMENT, TEXT, json_option

TABLE = [
    Column("token", "id"),
    Column("tenant", "tenant"),
    Column("principal", "principal"),
    Column("scopes", lambda row: " ".join(row["scopes"])),
    Column("created", "created_at"),
    Column("expires", "expires_at"),
    Column("revoked", "revoked_at"),
]
"""What people see of a token."""


@click.group()
def token() -> None:
    """Bearer tokens for `expunge serve`.

    \b
    Examples:
      expunge token create --tenant acme --principal u-88213 --scope session.read --scope session.write
      expunge token list
      expunge token revoke 3f1c2b7d9a0e4c58
    """


@token.command()
@click.option("--tenant", type=TEXT, required=True, metavar="T", help="Whose host it is.")
@click.option("--principal", type=TEXT, required=True, metavar="P", help="Whose conversations they are.")
@click.option(
    "--scope",
    "scopes",
    type=click.Choice([str(scope) for scope in TokenScope]),
    multiple=True,
    required=True,
    help="What it may do; several times for several.",
)
@click.option("--expires-at", type=MOMENT, metavar="TIME", help="From then on it is worth nothing.  [default: never]")
@json_option
@pass_invocation
def create(
    invocation: Invocation,
    /,
    tenant: str,
    principal: str,
    scopes: tuple[str, ...],
    expires_at: datetime | None,
    as_json: bool,
) -> None:
    """Make a token and print it: this once, since only its hash is kept.

    \b
    Examples:
      expunge token create --tenant acme --principal u-88213 --scope session.read --scope session.write
      expunge token create --tenant acme --principal u-88213 --scope session.read --expires-at 2027-01-01 --json
    """
    database = _database(invocation)
    with database.begin() as tx:
        token_id, made = create_token(tx, tenant=tenant, principal=principal, scopes=scopes, expires_at=expires_at)
    if as_json:
        told = {"token": made, "id": token_id, "scopes": sorted(set(scopes)), "expires_at": iso(expires_at)}
        click.echo(json.dumps(told))
    else:
        output.say(made)
        output.warn(f"Token {token_id}: it is shown this once.")


@token.command("list")
@json_option
@pass_invocation
def list_(invocation: Invocation, /, as_json: bool) -> None:
    """List the tokens, without what they are.

    \b
    Examples:
      expunge token list
    """
    database = _database(invocation)
    with database.read() as tx:
        rows = list_tokens(tx)
    if as_json:
        output.print_json([rows])
    else:
        output.say(output.plural(output.print_table([rows] if rows else [], TABLE), "token") + ".")


@token.command()
@click.argument("token_id", metavar="ID", type=TEXT)
@pass_invocation
def revoke(invocation: Invocation, /, token_id: str) -> None:
    """Revoke a token: at once, and for ever.

    \b
    Examples:
      expunge token revoke 3f1c2b7d9a0e4c58
    """
    database = _database(invocation)
    with database.begin() as tx:
        revoke_token(tx, token_id)
    output.say(f"Token {token_id} is revoked.")


def _database(invocation: Invocation) -> Database:
    database = invocation.database
    require_sessions(database)
    return database
