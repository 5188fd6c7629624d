"""What a purge must come to, said as simply as it can be: rows, who is above whom, and which conversations are gone."""

import copy
from dataclasses import dataclass, field
from typing import Any

from conformance.purge_world import CHATS, TABLES, metadata

from expunge.models.graph import Rule

Rows = dict[str, dict[str, dict[str, Any]]]
REFERENCES: dict[str, dict[str, str]] = {
    table: {key.parent.name: key.column.table.name for key in metadata.tables[table].foreign_keys} for table in TABLES
}
for _member in CHATS.members:
    REFERENCES[_member.table] |= {reference.column: reference.to for reference in _member.references}
RULES = {member.table: member.rule for member in CHATS.members}
NEEDED = {table: {c.name for c in metadata.tables[table].columns if not c.nullable} for table in TABLES}


class Refused(Exception):
    """The store must refuse it too."""


@dataclass
class Model:
    rows: Rows = field(default_factory=lambda: {table: {} for table in TABLES})
    purged: dict[str, str] = field(default_factory=dict)
    """Conversation to principal."""

    def copy(self) -> "Model":
        return copy.deepcopy(self)

    def write(self, table: str, key: str, changes: dict[str, Any], *, new: bool) -> None:
        old = self.rows[table].get(key)
        if new and old is not None:
            raise Refused("taken")
        if not new:
            if old is None:
                return
            self.require_open(table, old)
        row = {column: value for column, value in {**(old or {}), **changes}.items() if value is not None}
        if NEEDED[table] - row.keys():
            raise Refused("not null")
        self.rows[table][key] = row
        self.require_open(table, row)

    def require_open(self, table: str, row: dict[str, Any]) -> None:
        if self.above(table, row, set()) & self.purged.keys():
            raise Refused("purged")

    def above(self, table: str, row: dict[str, Any], seen: set[tuple[str, str]]) -> set[str]:
        """The conversations that a row belongs to."""
        found = {row["id"]} if table == "chat" else set()
        for column, parent in REFERENCES[table].items():
            value = row.get(column)
            if value is None or (parent, value) in seen:
                continue
            seen.add((parent, value))
            if parent == "chat":
                found.add(value)
            if value in self.rows[parent]:
                if table != "chat":
                    found |= self.above(parent, self.rows[parent][value], seen)
            elif value not in self.purged:
                raise Refused("no such parent")
        return found

    def below(self, table: str, key: str) -> list[tuple[str, str]]:
        """The rows that refer to this one."""
        return [
            (child, row["id"])
            for child in TABLES
            for row in self.rows[child].values()
            for column, parent in REFERENCES[child].items()
            if parent == table and row.get(column) == key and (child, row["id"]) != (table, key)
        ]

    def delete(self, table: str, key: str) -> None:
        if key in self.rows[table]:
            if self.below(table, key):
                raise Refused("others refer to it")
            del self.rows[table][key]

    def purge(self, chat: str, principal: str) -> str:
        """`purged`, `already_purged`, or what is raised."""
        if chat in self.purged:
            return "already_purged" if self.purged[chat] == principal else "ConversationNotFound"
        row = self.rows["chat"].get(chat)
        if row is not None and row["owner"] != principal:
            return "ConversationNotFound"
        doomed = {("chat", chat)}
        while True:
            more = {
                (table, key)
                for parent in doomed
                for table, key in self.below(*parent)
                if RULES.get(table) == Rule.DELETE
            }
            if more <= doomed:
                break
            doomed |= more
        if any(table == "turn" and self.rows[table][key].get("state") == "running" for table, key in doomed):
            return "RunActive"
        for table, key in doomed:
            self.rows[table].pop(key, None)
        for table in ("skill", "chat"):
            for kept in self.rows[table].values():
                for column, parent in REFERENCES[table].items():
                    if (parent, kept.get(column)) in doomed:
                        del kept[column]
        self.purged[chat] = principal
        return "purged"
