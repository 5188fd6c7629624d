"""expunge migrate."""

import json

import click

from expunge.models import schema
from expunge.worker.invocation import Invocation, pass_invocation


@click.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON object: the version, and the one before.")
@pass_invocation
def migrate(invocation: Invocation, as_json: bool) -> None:
    """Create or upgrade the tables, beside those of the host.

    Safe to run again, and from several machines at once.

    \b
    Examples:
      expunge migrate
      EXPUNGE_DATABASE_URL=postgresql+psycopg://app@db/app expunge migrate
    """
    database = invocation.any_database
    before = schema.current(database)
    schema.migrate(database)
    after = schema.current(database)
    if as_json:
        click.echo(json.dumps({"version": after, "before": before}))
    elif before == after:
        click.echo(f"The tables are up to date: version {after}.")
    else:
        click.echo(f"The tables are version {after} now" + (f"; they were {before}." if before else "."))
