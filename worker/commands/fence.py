"""expunge fence."""

from collections.abc import Iterator, Mapping
from typing import Any

import click

from expunge.models import fence as fences
from expunge.models.errors import ConfigurationError, SchemaError
from expunge.models.fence_restored import restored
from expunge.models.graph import Graph
from expunge.models.graph_live import read_graph
from expunge.worker import output
from expunge.worker.invocation import Invocation, pass_invocation
from expunge.worker.parameters import json_option


@click.group()
def fence() -> None:
    """The triggers that keep purged conversations from coming back, whoever writes.

    \b
    Examples:
      expunge fence install
      expunge fence check sessions
      expunge fence sql sessions > migrations/0042_fence.sql
    """


@fence.command()
@click.argument("name", required=False)
@click.option(
    "--dialect",
    type=click.Choice(["postgresql", "sqlite"]),
    help="For which kind of database.  [default: that of database_url]",
)
@json_option
@pass_invocation
def sql(invocation: Invocation, /, name: str | None, dialect: str | None, as_json: bool) -> None:
    """Print the statements that build the fence, for the host's own migration. Changes nothing.

    They fit the tables as the database has them now: print them anew when the graph or its tables change. They can be
    run again; run them in one transaction, behind `expunge migrate`, and as the owner of the tables.

    \b
    Examples:
      expunge fence sql > fence.sql
      expunge fence sql sessions --dialect postgresql --json
    """
    database = invocation.any_database
    if database.missing_file is not None:
        raise SchemaError(f"the SQLite file {database.missing_file} does not exist: correct database_url")
    for graph in _graphs(invocation, name):
        with database.read() as tx:
            statements = fences.statements_for(tx.connection, read_graph(tx.connection, graph), dialect)
        if as_json:
            output.print_json([[{"graph": graph.name, "statement": statement} for statement in statements]])
            continue
        click.echo(f"-- The fence around graph {graph.name}. In one transaction, behind `expunge migrate`.\n")
        for statement in statements:
            click.echo(f"{statement};\n")


@fence.command()
@click.argument("name", required=False)
@json_option
@pass_invocation
def install(invocation: Invocation, /, name: str | None, as_json: bool) -> None:
    """Build the fence around a graph, or around all graphs of the settings. Nothing is done where it stands.

    On PostgreSQL the connection must own the tables. A table that has no trigger yet, or another one, is locked against
    writers until the command is done, which waits for those that are under way.

    \b
    Examples:
      expunge fence install
      expunge fence install sessions --json
    """
    for graph in _graphs(invocation, name):
        with invocation.database.begin() as tx:
            live = read_graph(tx.connection, graph)
            done = fences.install(tx.connection, live)
        if as_json:
            output.print_json([[{"graph": graph.name, "tables": len(live.tables), "installed": done}]])
        else:
            said = "is built" if done else "stands already"
            tables = output.plural(len(live.tables), "table")
            output.say(f"The fence around graph {output.shown(graph.name)} {said}: {tables}.")


@fence.command()
@click.argument("name", required=False)
@json_option
@click.pass_context
@pass_invocation
def check(invocation: Invocation, context: click.Context, /, name: str | None, as_json: bool) -> None:
    """Say whether the fence stands, and which purged conversations have rows again, as after a restore.

    Exit code 1 if anything is missing, disabled, changed or older than the graph, or if there are such rows: `expunge
    purge --again` removes them. It reads all rows of the graph's tables.

    With --json one object for each problem and for each such conversation.

    \b
    Examples:
      expunge fence check
      expunge fence check --json | jq -r 'select(.what == "restored") | .conversation'
    """
    wrong = 0
    for graph in _graphs(invocation, name):
        rows = list(_findings(invocation, graph))
        wrong += len(rows)
        if as_json:
            output.print_json([rows])
            continue
        for row in rows:
            output.say(output.shown(_line(row)))
        said = output.plural(len(rows), "problem") if rows else "it stands"
        output.say(f"Fence around graph {output.shown(graph.name)}: {said}.")
    if wrong:
        context.exit(1)


def _findings(invocation: Invocation, graph: Graph) -> Iterator[Mapping[str, Any]]:
    with invocation.database.read() as tx:
        live = read_graph(tx.connection, graph)
        for problem in fences.check(tx.connection, live):
            yield {"graph": graph.name, "what": "problem", "text": problem}
        for conversation, tables in restored(tx.connection, live).items():
            yield {"graph": graph.name, "what": "restored", "conversation": conversation, "rows": tables}


def _line(row: Mapping[str, Any]) -> str:
    if row["what"] == "problem":
        return f"WRONG {row['text']}"
    counts = ", ".join(f"{table} {count:,}" for table, count in row["rows"].items())
    return f"WRONG purged conversation {row['conversation']} has rows ({counts}): run expunge purge --again"


def _graphs(invocation: Invocation, name: str | None) -> list[Graph]:
    settings = invocation.settings
    if not settings.graphs:
        raise ConfigurationError("the settings have no graph: add [graphs.NAME], as in the README")
    return [settings.graph(one) for one in ([name] if name else settings.graphs)]
