"""expunge graph."""

from collections.abc import Iterator, Mapping
from typing import Any

import click

from expunge.models.errors import ConfigurationError, SchemaError
from expunge.models.graph import Graph, Rule, TargetColumns
from expunge.models.graph_live import Edge, LiveGraph, examine
from expunge.worker.invocation import Invocation, pass_invocation
from expunge.worker.output import on_terminal, plural, print_json, say, shown
from expunge.worker.parameters import json_option

_COLOURS = {Rule.DELETE: "red", Rule.DETACH: "yellow", Rule.KEEP: "green"}


@click.command()
@click.argument("name", required=False)
@json_option
@click.pass_context
@pass_invocation
def graph(invocation: Invocation, context: click.Context, name: str | None, as_json: bool) -> None:
    """Draw how a conversation hangs together: each table with its rule, how it is reached, and what it names at stores.

    Below the tree is what is wrong, above all tables and columns that nobody declared. Exit code 1 if anything is, or
    if the settings have no graph: a host's CI catches the migration that forgot it. Changes nothing, and needs none of
    Expunge's tables.

    With --json one object for the root, each member and each problem.

    \b
    Examples:
      expunge graph
      expunge graph sessions --json | jq -r 'select(.what == "problem") | .text'
    """
    settings = invocation.settings
    if not settings.graphs:
        raise ConfigurationError("the settings have no graph: add [graphs.NAME], as in the README")
    graphs = [settings.graph(one) for one in ([name] if name else settings.graphs)]
    database = invocation.any_database
    if database.missing_file is not None:
        raise SchemaError(f"the SQLite file {database.missing_file} does not exist: correct database_url")
    problems = 0
    for declared in graphs:
        with database.read() as tx:
            live, wrong = examine(tx.connection, declared)
        problems += len(wrong)
        if as_json:
            print_json([_objects(live, wrong)])
        else:
            _draw(declared, live)
            for line in wrong:
                say(f"WRONG {shown(line)}")
            say(_verdict(declared, live, wrong))
    if problems:
        context.exit(1)


def _verdict(declared: Graph, live: LiveGraph, wrong: list[str]) -> str:
    tables = plural(len(live.tables), "table")
    return (
        f"Graph {shown(declared.name)}: {tables}, " + (plural(len(wrong), "problem") if wrong else "all is well") + "."
    )


def _objects(live: LiveGraph, wrong: list[str]) -> list[Mapping[str, Any]]:
    root = live.graph.root
    why = {member.table: member.why for member in live.graph.members}
    declared = [root.table, *why]
    rows: list[Mapping[str, Any]] = [
        {
            "graph": live.graph.name,
            "what": "root" if name == root.table else "member",
            "table": name,
            "rule": live.tables[name].rule,
            "why": why.get(name),
            "references": [_reference(edge) for edge in live.tables[name].edges],
            "targets": [_target(target) for target in live.tables[name].targets],
        }
        for name in dict.fromkeys(declared)
        if name in live.tables
    ]
    return rows + [{"graph": live.graph.name, "what": "problem", "text": text} for text in wrong]


def _reference(edge: Edge) -> Mapping[str, Any]:
    return {
        "columns": edge.columns,
        "to": edge.parent,
        "to_columns": edge.parent_columns,
        "foreign_key": edge.foreign_key is not None,
        "on_delete": edge.on_delete,
    }


def _target(target: TargetColumns) -> Mapping[str, str]:
    return {"account": target.account, "kind": target.kind, "locator": target.locator}


def _draw(declared: Graph, live: LiveGraph) -> None:
    """A tree that has every table once, under the first parent that leads to the root the shortest way."""
    import sys

    from rich.console import Console
    from rich.text import Text
    from rich.tree import Tree

    root = declared.root.table
    if root not in live.tables:
        return
    why = {member.table: member.why for member in declared.members}

    def label(name: str) -> Text:
        table = live.tables[name]
        text = Text(shown(name), style="bold")
        text.append("  ")
        text.append("root" if name == root else str(table.rule), style=_COLOURS.get(table.rule, ""))
        for part in _notes(live, name, why.get(name)):
            text.append(f"\n{shown(part)}", style="not bold")
        return text

    tree = Tree(label(root))
    branches = {root: tree}
    ahead = [root]
    while ahead:
        parent = ahead.pop(0)
        for name, table in live.tables.items():
            if name not in branches and any(edge.parent == parent for edge in table.edges):
                branches[name] = branches[parent].add(label(name))
                ahead.append(name)
    # wide enough for any line where nobody looks at a window
    console = Console(file=sys.stdout) if on_terminal() else Console(file=sys.stdout, width=10_000)
    console.print(tree, soft_wrap=not on_terminal())


def _notes(live: LiveGraph, name: str, why: str | None) -> Iterator[str]:
    root = live.graph.root
    if name == root.table:
        named = {"key": root.key, "tenant": root.tenant, "owner": root.owner, "version": root.version}
        yield ", ".join(f"{what} {column}" for what, column in named.items() if column)
        if root.active_run is not None:
            active = root.active_run
            yield f"active while {active.table}.{active.state} is {', '.join(active.states)}"
    if why:
        yield f"because {why}"
    for edge in live.tables[name].edges:
        how = "declared" if edge.foreign_key is None else "foreign key"
        action = f" on delete {edge.on_delete.lower()}" if edge.on_delete else ""
        yield f"{', '.join(edge.columns)} → {edge.parent}.{', '.join(edge.parent_columns)} ({how}{action})"
    for target in live.tables[name].targets:
        yield f"erases {target.kind} {target.locator} at {target.account}"
