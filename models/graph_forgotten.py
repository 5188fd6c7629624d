"""What the declaration of a graph forgot: tables that the foreign keys reach, and columns that look like a reference.

A host adds a table in a migration, and nobody thinks of the purge. Then `expunge graph` fails in the host's CI, and a
purge refuses to begin, rather than leave behind what the new table holds.
"""

import re
from collections.abc import Iterator

from expunge.models.graph import Graph, Root, Rule
from expunge.models.graph_edges import LiveGraph
from expunge.models.graph_schema import ForeignKey, Schema

_WOULD = {
    "CASCADE": "the database would delete its rows unseen, with what they name at stores",
    "SET NULL": "the database would change its rows unseen",
    "SET DEFAULT": "the database would change its rows unseen",
}
_ELSE = "a purge would fail on its rows"


def forgotten(graph: Graph, live: LiveGraph, schema: Schema) -> Iterator[str]:
    """One line for each table and column."""
    declared = {graph.root.table, *(member.table for member in graph.members)}
    # rows that are kept or detached stay, and so may all that refers to them
    within = {name for name, table in live.tables.items() if table.rule == Rule.DELETE}
    reached: dict[str, ForeignKey] = {}
    while True:
        more = {
            name: key
            for name, table in schema.tables.items()
            if name not in declared and name not in reached
            for key in reversed(table.foreign_keys)
            if key.parent in within
        }
        if not more:
            break
        reached |= more
        within |= set(more)
    for name, key in reached.items():
        yield (
            f"{name}: its foreign key ({', '.join(key.columns)}) leads to {key.parent}, and nobody declared it; "
            f"{_would(key)}: add it to the members, with the rule delete, detach or keep"
        )
    yield from _columns(graph, live, schema, set(reached))


def _would(key: ForeignKey) -> str:
    action = key.on_delete or ""
    return next((text for begins, text in _WOULD.items() if action.startswith(begins)), _ELSE)


def _columns(graph: Graph, live: LiveGraph, schema: Schema, reached: set[str]) -> Iterator[str]:
    looks = re.compile(rf"(.+_)?({'|'.join(map(re.escape, sorted(reference_names(graph.root))))})")
    inside = set(live.tables) | reached
    said = {(edge.child, column) for table in live.tables.values() for edge in table.edges for column in edge.columns}
    said |= {(member.table, reference.column) for member in graph.members for reference in member.references}
    unrelated = {(each.table, each.column) for each in graph.unrelated}
    for name, table in schema.tables.items():
        keyed = {column for key in table.foreign_keys if key.parent in inside for column in key.columns}
        for column in table.columns:
            place = (name, column)
            if place in unrelated:
                if place in said or column in keyed:
                    yield f"{name}.{column}: is called unrelated, and is a reference: take it out of `unrelated`"
            elif place == (graph.root.table, graph.root.key) or place in said or column in keyed:
                continue
            elif looks.fullmatch(_snake(column)):
                # the root's row is the conversation, and has no references to declare
                declare = "" if name == graph.root.table else " or declare the reference"
                yield (
                    f"{name}.{column}: looks like a reference to {graph.root.table}, and nobody declared it: make it a "
                    f"foreign key{declare}, or list it as `unrelated` with the reason"
                )


def reference_names(root: Root) -> set[str]:
    """How columns that refer to the root are usually called, in lower case: `session_id` and `sessionid` for a root
    `session`, `sessions`, `chat_sessions` or `ChatSession`, and the same with the name of its key."""
    table, key = _snake(root.table.rpartition(".")[2]), _snake(root.key)
    forms = {form for name in (table, table.rpartition("_")[2]) for form in (name, _singular(name))}
    names = {f"{form}{joint}{end}" for form in forms for joint in ("_", "") for end in ("id", key)}
    # a key with a name of its own keeps it in the tables that refer to it
    return names | {key} if "_" in key else names


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def _singular(name: str) -> str:
    for plural, singular in (("ies", "y"), ("sses", "ss"), ("xes", "x"), ("ches", "ch"), ("shes", "sh"), ("ss", "ss")):
        if name.endswith(plural):
            return name.removesuffix(plural) + singular
    return name.removesuffix("s")
