"""A graph, read against the live database: which tables belong to the conversation, how each is reached, in what order
they go (graph_edges.py), and what the declaration has forgotten (graph_problems.py).

Nothing is guessed at: if `find_problems` has a line, `read_graph` raises, and a purge touches nothing.
"""

import threading
from weakref import WeakKeyDictionary

from sqlalchemy.engine import Connection, Engine

from expunge.models.errors import InvalidGraph
from expunge.models.graph import Graph
from expunge.models.graph_edges import Edge, LiveGraph, LiveTable, lay_out
from expunge.models.graph_problems import problems_of
from expunge.models.graph_schema import read_schema, schema_mark

__all__ = ["Edge", "LiveGraph", "LiveTable", "examine", "find_problems", "lay_out", "read_graph"]

_read: "WeakKeyDictionary[Engine, dict[Graph, tuple[str, LiveGraph]]]" = WeakKeyDictionary()
_lock = threading.Lock()


def read_graph(connection: Connection, graph: Graph) -> LiveGraph:
    """The graph as the database has it now. What was read before is used again while no table has changed.

    Raises InvalidGraph with all problems.
    """
    mark = schema_mark(connection)
    with _lock:
        known_mark, known = _read.get(connection.engine, {}).get(graph, ("", None))
    if known is not None and known_mark == mark:
        return known
    live, problems = examine(connection, graph)
    if problems:
        raise InvalidGraph(problems)
    with _lock:
        _read.setdefault(connection.engine, {})[graph] = (mark, live)
    return live


def find_problems(connection: Connection, graph: Graph) -> list[str]:
    """What is wrong with the graph in this database, one line each; [] if nothing is."""
    return examine(connection, graph)[1]


def examine(connection: Connection, graph: Graph) -> tuple[LiveGraph, list[str]]:
    """The graph as far as the database has it, and all problems."""
    schema = read_schema(connection)
    live = lay_out(graph, schema)
    return live, problems_of(graph, live, schema)
