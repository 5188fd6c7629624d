"""In which order the tables of a conversation are gone through: children before parents, those of a cycle together."""

from collections.abc import Mapping

from expunge.models.graph import Rule
from expunge.models.graph_live import LiveGraph


def is_followed(live: LiveGraph, name: str) -> bool:
    """Whether a purge looks at this table's references at all."""
    return name == live.graph.root.table or live.tables[name].rule != Rule.KEEP


def groups_of(live: LiveGraph, *, with_root: bool) -> list[list[str]]:
    """The tables with the rule `delete`, children first; more than one in a group are in a cycle.

    `with_root`: what the root's row refers to counts as well. It does when rows are removed, since it is one of them;
    it does not when they are found, since nothing belongs to a conversation because the root's row refers to it.
    """
    root = live.graph.root.table
    parents = {
        name: {
            edge.parent
            for edge in table.edges
            if live.tables[edge.parent].rule == Rule.DELETE and (with_root or name != root)
        }
        for name, table in live.tables.items()
        if table.rule == Rule.DELETE
    }
    above = {name: _above(name, parents) for name in parents}
    groups: dict[frozenset[str], list[str]] = {}
    for name in parents:
        in_cycle = frozenset(other for other in above[name] if name in above[other])
        groups.setdefault(in_cycle | {name}, []).append(name)
    # a child has all the tables above its parent, and its parent
    return sorted(groups.values(), key=lambda group: (-len(above[group[0]].union(group)), group))


def _above(name: str, parents: Mapping[str, set[str]]) -> frozenset[str]:
    found: set[str] = set()
    ahead = [name]
    while ahead:
        for parent in parents[ahead.pop()] - found:
            found.add(parent)
            ahead.append(parent)
    return frozenset(found)
