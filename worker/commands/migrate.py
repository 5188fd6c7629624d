"""expunge migrate."""

import json

import click

from expunge.models import schema
from expunge.models.session_schema import create_sessions
from expunge.worker.invocation import Invocation, pass_invocation
from expunge.worker.output import plural


@click.command()
@click.option("--with-sessions", is_flag=True, help="Also create the tables of the reference host, and their fence.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object: the version, and the one before.")
@pass_invocation
def migrate(invocation: Invocation, with_sessions: bool, as_json: bool) -> None:
    """Create or upgrade the tables, beside those of the host.

    Safe to run again, and from several machines at once. With --with-sessions it also creates the host's tables that
    `expunge serve` works on; without it, it never touches them.

    \b
    Examples:
      expunge migrate
      EXPUNGE_DATABASE_URL=postgresql+psycopg://app@db/app expunge migrate
      expunge migrate --with-sessions
    """
    database = invocation.any_database
    before = schema.current(database)
    schema.migrate(database)
    after = schema.current(database)
    created = create_sessions(database) if with_sessions else []
    if as_json:
        told = {"version": after, "before": before}
        click.echo(json.dumps({**told, "sessions": created} if with_sessions else told))
        return
    if before == after:
        click.echo(f"The tables are up to date: version {after}.")
    else:
        click.echo(f"The tables are version {after} now" + (f"; they were {before}." if before else "."))
    if with_sessions:
        new = f"{plural(len(created), 'new table')}." if created else "up to date."
        click.echo(f"The reference host's tables: {new}")
