"""What is wrong with a graph in its database: one line each, with the table, the column and what to do."""

from expunge.models.graph import Graph
from expunge.models.graph_live import LiveGraph
from expunge.models.graph_schema import Schema


def problems_of(graph: Graph, live: LiveGraph, schema: Schema) -> list[str]:
    """All problems; [] if there is none."""
    problems: list[str] = []
    for name in (graph.root.table, *(member.table for member in graph.members)):
        if name not in schema.tables:
            problems.append(f"{name}: the database has no such table: correct the name, or run the host's migrations")
    return problems
