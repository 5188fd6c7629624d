"""The conversation itself, looked up by its id as text: its tombstone, and its root row's tenant, owner and version."""

import re
import uuid
from dataclasses import dataclass
from typing import Any

from sqlalchemy import text
from sqlalchemy.engine import Connection

from expunge.models.graph_live import LiveGraph
from expunge.models.purge_rows import ConversationRows

_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,17}")
_TEXTS = ("text", "character varying", "name")
_INTEGERS = ("smallint", "integer", "bigint")
_NOBODY = "1 = 0"


@dataclass(frozen=True, slots=True)
class Found:
    """What is known of an id, as of one moment."""

    purged: bool
    exists: bool
    tenant: Any
    """The tombstone's if there is one, else the root row's."""
    owner: Any
    version: Any


class RootLookup:
    """How the root's row of an id is found by an index, whatever the type of its key."""

    def __init__(self, connection: Connection, live: LiveGraph, rows: ConversationRows, conversation: str) -> None:
        self._connection = connection
        self._live = live
        self._rows = rows
        key = rows.column(live.graph.root.key)
        self.parameters: dict[str, object] = {"conversation": conversation}
        if connection.dialect.name == "postgresql":
            self.condition = _postgresql(rows.type_of(live.graph.root.table, live.graph.root.key), key, conversation)
        else:
            self.condition = (
                f"{key} IN (:conversation, CAST(:conversation AS INTEGER))"
                f" AND CAST({key} AS BLOB) = CAST(:conversation AS BLOB)"  # whatever the column's collation
            )

    @property
    def may_exist(self) -> bool:
        """Whether the id is a value of the key's type at all."""
        return self.condition != _NOBODY

    def look(self) -> Found:
        """One statement, the same for an id that never was, one that was purged and one that is somebody else's."""
        root = self._live.graph.root
        columns = ", ".join(
            f"r.{self._rows.column(column)}" if column is not None else "NULL"
            for column in (root.key, root.tenant, root.owner, root.version)
        )
        row = self._connection.execute(
            text(
                f"SELECT t.principal, t.tenant, {columns} FROM (SELECT 1 AS one) AS one"
                " LEFT JOIN erasure_tombstone t ON t.graph = :graph AND t.conversation = :conversation"
                f" LEFT JOIN (SELECT * FROM {self._rows.name(root.table)} WHERE {self.condition}) r ON 1 = 1"
            ),
            {**self.parameters, "graph": self._live.graph.name},
        ).first()
        assert row is not None
        principal, tenant, key, root_tenant, owner, version = row
        if principal is not None:
            return Found(True, key is not None, tenant, principal, version)
        return Found(False, key is not None, root_tenant, owner, version)


def _postgresql(type_: str, key: str, conversation: str) -> str:
    """A text that is no value of the key's type is nobody's id: it must not become an error of the database's."""
    base = type_.partition("(")[0]
    if base in _TEXTS:
        return f"{key} = :conversation"
    if base in _INTEGERS:
        return f"{key} = CAST(:conversation AS bigint)" if _INTEGER.fullmatch(conversation) else _NOBODY
    if base == "uuid":
        return f"{key} = CAST(:conversation AS uuid)" if _is_uuid(conversation) else _NOBODY
    return f"CAST({key} AS text) = :conversation"


def _is_uuid(conversation: str) -> bool:
    try:
        return str(uuid.UUID(conversation)) == conversation
    except ValueError:
        return False
