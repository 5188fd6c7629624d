"""[graphs.NAME] of the settings: a graph that is written out, or where a Python host has declared it.

What there is to say is in models/graph.py alone: Pydantic reads those dataclasses, and knows of nothing else.
"""

import importlib
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, get_args, get_type_hints

from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config
from pydantic_core import ErrorDetails

from expunge.models.errors import ConfigurationError
from expunge.models.graph import ActiveRun, Graph, Member, Reference, Root, TargetColumns, Unrelated
from expunge.worker.complaints import must, suggestion

IMPORT = "import"
_PLACE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
_EXAMPLE = 'must be text like "package.module:GRAPH"'

for _part in (ActiveRun, Graph, Member, Reference, Root, TargetColumns, Unrelated):
    # models/ knows nothing of Pydantic, and a misspelt key must not be passed over
    with_config(ConfigDict(extra="forbid"))(_part)
_ADAPTER = TypeAdapter(Graph)


@dataclass(frozen=True, slots=True)
class ImportedGraph:
    """A graph that Python code of the host has declared. It is imported when it is asked for: a worker that purges
    nothing has no need of the host's code."""

    name: str
    place: str
    """`package.module:GRAPH`."""

    def load(self) -> Graph:
        """Raises ConfigurationError if there is no such graph, or if it has another name."""
        module, _, attribute = self.place.partition(":")
        where = f"graphs.{self.name}.{IMPORT}: {self.place}"
        if os.getcwd() not in sys.path:
            # a host that runs from its own folder, as with celery and uvicorn; what is installed comes first
            sys.path.append(os.getcwd())
        try:
            found = getattr(importlib.import_module(module), attribute)
        except Exception as error:
            raise ConfigurationError(f"{where} cannot be imported: {type(error).__name__}: {error}") from error
        if not isinstance(found, Graph):
            raise ConfigurationError(f"{where} is no Graph of expunge.models.graph, but of type {type(found).__name__}")
        if found.name != self.name:
            raise ConfigurationError(f"{where} has the name {found.name!r}: write [graphs.{found.name}]")
        return found


def read_graphs(tables: object, problems: list[str]) -> dict[str, Graph | ImportedGraph]:
    """The graphs of the settings, by name; what is wrong goes to `problems`."""
    if not isinstance(tables, dict):
        problems.append("graphs: must be tables: [graphs.NAME]")
        return {}
    found: dict[str, Graph | ImportedGraph] = {}
    for name, table in tables.items():
        dotted = f"graphs.{name}"
        if not isinstance(table, dict):
            problems.append(f"{dotted}: must be a table: [graphs.{name}]")
        elif IMPORT in table:
            place = table[IMPORT]
            if not isinstance(place, str) or not _PLACE.fullmatch(place):
                problems.append(f"{dotted}.{IMPORT}: {_EXAMPLE}")
            elif len(table) > 1:
                others = ", ".join(sorted(set(table) - {IMPORT}))
                problems.append(f"{dotted}: has {IMPORT} and also {others}: a graph is declared in one place")
            else:
                found[name] = ImportedGraph(name, place)
        elif "name" in table:
            problems.append(f"{dotted}.name: is not a setting: the table's own name is the graph's")
        else:
            try:
                found[name] = _ADAPTER.validate_python({**table, "name": name})
            except ValidationError as error:
                problems += [_line(dotted, table, detail) for detail in error.errors(include_url=False)]
    return found


def _line(dotted: str, table: Mapping[str, Any], detail: ErrorDetails) -> str:
    path = dotted + _path(table, detail["loc"])
    if detail["type"] == "unexpected_keyword_argument":
        return f"{path}: is not a setting{suggestion(str(detail['loc'][-1]), _known(detail['loc']))}"
    return f"{path}: is missing" if detail["type"] == "missing" else f"{path}: {must(detail)}"


def _path(value: Any, loc: tuple[int | str, ...]) -> str:
    """`.members[run].rule`: an item of a list by the table that it is about, or else by its number, from 1."""
    path = ""
    for part in loc:
        try:
            value = value[part]
        except (KeyError, IndexError, TypeError):
            value = None
        if isinstance(part, int):
            table = value.get("table") if isinstance(value, dict) else None
            path += f"[{table if isinstance(table, str) else part + 1}]"
        else:
            path += f".{part}"
    return path


def _known(loc: tuple[int | str, ...]) -> set[str]:
    """The keys of the table in which the last part of a path stands."""
    part: Any = Graph
    for key in loc[:-1]:
        if isinstance(key, str):
            part = _dataclass_in(get_type_hints(part)[key])
    names = {field.name for field in fields(part)}
    return names - {"name"} | {IMPORT} if part is Graph else names


def _dataclass_in(hint: Any) -> Any:
    if is_dataclass(hint):
        return hint
    return next((found for each in get_args(hint) if (found := _dataclass_in(each)) is not None), None)
