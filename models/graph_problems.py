"""What is wrong with a graph in its database: one line each, with the table, the column and what to do."""

import difflib
import re
from collections import Counter
from collections.abc import Iterable, Iterator

from expunge.models.graph import Graph, Reference, Rule, TargetColumns
from expunge.models.graph_edges import Edge, LiveGraph, referred_column
from expunge.models.graph_forgotten import forgotten
from expunge.models.graph_schema import Schema, SchemaTable
from expunge.models.tables import MAX_ACCOUNT, Base
from expunge.models.targets import find_kind, is_account

_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")


def problems_of(graph: Graph, live: LiveGraph, schema: Schema) -> list[str]:
    """All problems; [] if there is none."""
    return list(
        dict.fromkeys(
            [
                *_of_the_declaration(graph),
                *_of_names(graph, schema),
                *_of_the_key(graph, schema),
                *_of_paths(graph, live),
                *_of_rules(live),
                *forgotten(graph, live, schema),
            ]
        )
    )


def _of_the_declaration(graph: Graph) -> Iterator[str]:
    """What is wrong whatever the database has."""
    if not _NAME.fullmatch(graph.name):
        yield (
            f"graph {graph.name!r}: its name must be a lower-case letter, then lower-case letters, digits or "
            "underscores; 64 at the most"
        )
    for table, times in Counter(member.table for member in graph.members).items():
        if times > 1:
            yield f"{table}: is declared {times} times: give each table one rule"
    for member in graph.members:
        if member.table == graph.root.table:
            yield f"{member.table}: is the root, and its rows are deleted last: take it out of the members"
        if member.rule not in list(Rule):
            yield f"{member.table}: its rule must be one of {', '.join(Rule)}"
        if member.rule == Rule.KEEP and not (member.why or "").strip():
            yield f"{member.table}: is kept without a reason: say in `why` what allows it"
    for unrelated in graph.unrelated:
        if not unrelated.why.strip():
            yield f"{unrelated.table}.{unrelated.column}: is called unrelated without a reason: say it in `why`"
    active = graph.root.active_run
    if active is not None and not active.states:
        yield f"{active.table}: active_run names no states: list those in which a run is active"
    for table, targets in ((graph.root.table, graph.root.targets), *((m.table, m.targets) for m in graph.members)):
        for target in targets:
            yield from _of_literals(table, target)


def _of_literals(table: str, target: TargetColumns) -> Iterator[str]:
    account, kind, locator = (_literal(value) for value in (target.account, target.kind, target.locator))
    if account is not None and not is_account(account):
        yield (
            f"{table}: its targets name the account {account!r}: an account's name is a lower-case letter, then "
            f"lower-case letters, digits or underscores; at most {MAX_ACCOUNT}"
        )
    if kind is not None and find_kind(kind) is None:
        yield f"{table}: its targets name the kind {kind!r}, which no eraser has"
    if locator is not None and not locator:
        yield f"{table}: its targets have an empty locator: name the column that holds it"


def _literal(value: str) -> str | None:
    return value[1:] if value.startswith("=") else None


def _of_names(graph: Graph, schema: Schema) -> Iterator[str]:
    """Tables and columns that are not there."""
    root, active = graph.root, graph.root.active_run
    declared = {root.table, *(member.table for member in graph.members)}
    used = [root.key, root.tenant, root.owner, root.version, *_target_columns(root.targets)]
    yield from _missing(schema, root.table, used)
    for member in graph.members:
        used = [*(reference.column for reference in member.references), *_target_columns(member.targets)]
        yield from _missing(schema, member.table, used)
        for reference in member.references:
            yield from _of_reference(graph, schema, member.table, reference, declared)
    for unrelated in graph.unrelated:
        yield from _missing(schema, unrelated.table, [unrelated.column])
    if active is not None:
        yield from _missing(schema, active.table, [active.key, active.state])
        if active.table in schema.tables and active.table not in declared:
            yield f"{active.table}: active_run looks there, and it is neither the root nor a member: declare it"


def _target_columns(targets: tuple[TargetColumns, ...]) -> list[str]:
    return [
        value
        for target in targets
        for value in (target.account, target.kind, target.locator)
        if _literal(value) is None
    ]


def _missing(schema: Schema, table: str, columns: list[str | None]) -> Iterator[str]:
    if table in Base.metadata.tables:
        yield f"{table}: is Expunge's own table, and belongs to no conversation: take it out"
    elif table in schema.partitions:
        yield f"{table}: is a partition: declare {schema.partitions[table]}, the table that it is a part of"
    elif table not in schema.tables:
        yield f"{table}: the database has no such table: {_mend(table, schema.tables)}"
    else:
        known = schema.tables[table].columns
        for column in columns:
            if column is not None and column not in known:
                yield f"{table}.{column}: the table has no such column: {_mend(column, known)}"


def _mend(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"did you mean {close[0]}?" if close else "correct the name, or run the host's migrations"


def _of_reference(graph: Graph, schema: Schema, table: str, reference: Reference, declared: set[str]) -> Iterator[str]:
    place = f"{table}.{reference.column}"
    if reference.to not in declared:
        yield f"{place}: refers to {reference.to}, which is neither the root nor a member: declare {reference.to} too"
        return
    to = schema.tables.get(reference.to)
    if to is None:
        return
    if reference.to_column is not None:
        yield from _missing(schema, to.name, [reference.to_column])
    elif referred_column(graph, to) is None:
        what = "has no primary key" if not to.key else f"has the primary key ({', '.join(to.key)})"
        yield f"{place}: refers to {to.name}, which {what}: say in `to_column` which column of it is meant"


def _of_the_key(graph: Graph, schema: Schema) -> Iterator[str]:
    table: SchemaTable | None = schema.tables.get(graph.root.table)
    key = graph.root.key
    if table is not None and key in table.columns and (key,) not in {table.key, *table.unique}:
        yield f"{table.name}.{key}: is not unique by itself, and must name one conversation: add a unique constraint"


def _of_paths(graph: Graph, live: LiveGraph) -> Iterator[str]:
    """Members that a purge could not find the rows of: it goes from the root through what it deletes."""
    reached: set[str] = set()
    ahead = {graph.root.table} & set(live.tables)
    while ahead:
        reached |= ahead
        through = {name for name in reached if live.tables[name].rule == Rule.DELETE}
        ahead = {n for n, table in live.tables.items() if any(edge.parent in through for edge in table.edges)} - reached
    for name, table in live.tables.items():
        if name in reached:
            continue
        staying = sorted({edge.parent for edge in table.edges if live.tables[edge.parent].rule != Rule.DELETE} - {name})
        if staying:
            yield (
                f"{name}: is reached only through {', '.join(staying)}, whose rows stay, so nothing tells which of its "
                f"rows belong to a conversation: declare a reference to {graph.root.table}, or take it out"
            )
        else:
            yield (
                f"{name}: no foreign key and no declared reference leads from it to {graph.root.table}: declare the "
                "column that does, or take it out"
            )


def _of_rules(live: LiveGraph) -> Iterator[str]:
    """Members whose rule the database would not allow, or not keep."""
    for table in live.tables.values():
        deleted = [edge for edge in table.edges if live.tables[edge.parent].rule == Rule.DELETE]
        if table.name == live.graph.root.table:
            for edge in deleted:
                if edge.on_delete == "CASCADE" and not edge.nullable:
                    yield (
                        f"{place(edge)}: refers to {edge.parent} with ON DELETE CASCADE and cannot be NULL, so the "
                        "purge of one conversation could delete another: let it be NULL, or take the CASCADE away"
                    )
        elif table.rule == Rule.DETACH:
            for edge in deleted:
                if not edge.nullable:
                    yield (
                        f"{place(edge)}: is to be detached from {edge.parent}, and cannot be NULL (NOT NULL, a part "
                        "of the primary key, or generated): let it be NULL, or declare delete"
                    )
        elif table.rule == Rule.KEEP:
            for edge in deleted:
                if edge.foreign_key is not None:
                    yield f"{place(edge)}: is to be kept, but {_against_keeping(edge)}"


def _against_keeping(edge: Edge) -> str:
    action = edge.on_delete or "NO ACTION"
    if action == "CASCADE":
        return (
            f"its foreign key to {edge.parent} is ON DELETE CASCADE, so the database would delete it: drop the "
            "foreign key and declare the reference, or declare delete"
        )
    if action.startswith("SET"):
        return (
            f"its foreign key to {edge.parent} is ON DELETE {action}, so the database would change it: declare detach"
        )
    return (
        f"its foreign key to {edge.parent} is ON DELETE {action}, so the purge would fail: drop the foreign key and "
        "declare the reference, or declare detach"
    )


def place(edge: Edge) -> str:
    """`table.column`, or `table.(column, column)`."""
    columns = ", ".join(edge.columns)
    return f"{edge.child}.{columns}" if len(edge.columns) == 1 else f"{edge.child}.({columns})"
