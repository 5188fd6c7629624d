"""The store in memory as a World."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from conformance.purge_world import ADA, CHATS, TABLES, Case, Stone, metadata

from expunge.models.graph import Graph, Reference
from expunge.models.memory import MemoryReader, MemoryStore, MemoryTransaction
from expunge.models.memory_purge import purge_in_memory
from expunge.models.purged import Principal, Purged


def with_references(graph: Graph) -> Graph:
    """The same graph with a reference for every foreign key."""
    members = []
    for member in graph.members:
        foreign = [
            Reference(key.parent.name, key.column.table.name, key.column.name)
            for key in metadata.tables[member.table].foreign_keys
        ]
        members.append(replace(member, references=(*member.references, *foreign)))
    return replace(graph, members=tuple(members))


class MemoryTx:
    def __init__(self, world: "MemoryWorld", reader: MemoryReader) -> None:
        self.world = world
        self.reader = reader

    @property
    def tx(self) -> MemoryTransaction:
        assert isinstance(self.reader, MemoryTransaction)
        return self.reader

    def insert(self, table: str, row: Mapping[str, Any]) -> None:
        self.tx.insert(table, row)

    def update(self, table: str, key: str, changes: Mapping[str, Any]) -> None:
        self.tx.update(table, key, changes)

    def delete(self, table: str, key: str) -> None:
        self.tx.delete(table, key)

    def rows(self, table: str) -> dict[str, dict[str, Any]]:
        return {
            row["id"]: {column: value for column, value in row.items() if value is not None}
            for row in self.reader.select(table)
        }

    def is_purged(self, conversation: str) -> bool:
        return self.reader.is_purged(self.world.graph, conversation)

    def purge(self, conversation: str, *, principal: Principal = ADA, **how: Any) -> Purged:
        return purge_in_memory(self.tx, self.world.graph, conversation, principal=principal, **how)

    def place_hold(self, **whom: str) -> None:
        self.tx.place_hold(**whom)

    def cases(self) -> dict[str, Case]:
        return {
            case.id: Case(case.subject, case.tenant, case.conversation, frozenset(case.targets))
            for case in self.reader.cases
        }

    def tombstones(self) -> Sequence[Stone]:
        return [
            Stone(stone.graph, stone.conversation, stone.tenant, stone.principal) for stone in self.reader.tombstones
        ]


class MemoryWorld:
    def __init__(self) -> None:
        self.graph = with_references(CHATS)
        self.store = MemoryStore(self.graph)

    @contextmanager
    def begin(self) -> Iterator[MemoryTx]:
        with self.store.transaction() as tx:
            yield MemoryTx(self, tx)

    @contextmanager
    def read(self) -> Iterator[MemoryTx]:
        yield MemoryTx(self, self.store.snapshot())

    def remove_tombstone(self, conversation: str) -> None:
        with self.store.transaction() as tx:
            tx.delete("erasure_tombstone", ("chats", conversation))

    def open_fence(self) -> None:
        self.store.fenced = False

    def close(self) -> None:
        pass


assert set(TABLES) == set(metadata.tables)
