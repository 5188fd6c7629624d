"""A store in memory that keeps the contract of the purge: for tests, and for hosts so small that they need no database.

Transactions are serialized: one writes at a time. Each works on copies of the tables that it changes, and publishes
them whole when it ends well; an exception leaves nothing. Readers see what was published last and wait for nobody.

What foreign keys are to a database, a graph's `references` are to this store: the row that another refers to is there,
and is not removed before it. The fence stands inside the writing transaction, where no write passes it by: the values
that a row had and those that it gets are both looked at. Nothing removes a tombstone.
"""

import copy
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

from expunge.models.errors import ConversationPurged, InvalidDecision, InvalidWrite
from expunge.models.graph import Graph
from expunge.models.memory_graph import Key, MemoryGraph, Row, lay_out_in_memory
from expunge.models.memory_purge import purge_in_memory
from expunge.models.memory_state import MemoryCase, MemoryHold, MemoryTombstone, State
from expunge.models.purged import Principal, Purged
from expunge.models.targets import Target


class MemoryReader:
    """Rows as they are in one state. What is given is a copy."""

    _state: State

    def get(self, table: str, key: Any) -> dict[str, Any] | None:
        """The row with this primary key (of several columns: a tuple), or None."""
        row = self._rows(table).get(_as_key(key))
        return None if row is None else copy.deepcopy(dict(row))

    def select(self, table: str, **equal: Any) -> list[dict[str, Any]]:
        """The rows whose columns are equal to these, in the order in which they came."""
        return [
            copy.deepcopy(dict(row))
            for row in self._rows(table).values()
            if all(row.get(column) == value for column, value in equal.items())
        ]

    def tombstone(self, graph: Graph, conversation: str) -> MemoryTombstone | None:
        """The conversation's tombstone, or None."""
        return self._state.tombstones.get((graph.name, str(conversation)))

    def is_purged(self, graph: Graph, conversation: str) -> bool:
        """Whether the conversation was purged, or its id reserved."""
        return self.tombstone(graph, conversation) is not None

    @property
    def tombstones(self) -> list[MemoryTombstone]:
        """All of them, in the order in which they came."""
        return list(self._state.tombstones.values())

    @property
    def cases(self) -> list[MemoryCase]:
        """The cases that purges opened: the outbox."""
        return list(self._state.cases.values())

    @property
    def holds(self) -> Sequence[MemoryHold]:
        """The holds that stand."""
        return self._state.holds

    def _rows(self, table: str) -> Mapping[Key, Row]:
        try:
            return self._state.tables[table]
        except KeyError:
            raise InvalidWrite(f"table {table}: the store has none of this name") from None


class MemorySnapshot(MemoryReader):
    """What was published at one moment, for readers that look more than once."""

    def __init__(self, state: State) -> None:
        self._state = state


class MemoryTransaction(MemoryReader):
    """The one open transaction: it sees its own writes, and nobody else does before it ends well."""

    def __init__(self, store: "MemoryStore", state: State) -> None:
        self.store = store
        self._state = state
        self._open = True

    @property
    def state(self) -> State:
        """As this transaction has it so far."""
        return self._state

    def change(self, **changes: Any) -> None:
        """Replace parts of the state. For the purge; hosts insert, update and delete."""
        if not self._open:
            raise InvalidWrite("the transaction has ended")
        self._state = replace(self._state, **changes)

    def insert(self, table: str, row: Row) -> None:
        """Raises InvalidWrite for a key that is taken or not whole, and ConversationPurged for a row of a purged
        conversation, or with a parent that is not there."""
        key = self._key(table, row)
        if key in self._rows(table):
            raise InvalidWrite(f"table {table}: the key is taken")
        self._write(table, key, row)

    def update(self, table: str, key: Any, changes: Row) -> None:
        """Change columns of one row; its key never changes.

        Raises InvalidWrite if there is no such row or others refer to what is changed, and ConversationPurged if the
        row belongs to a purged conversation before or after, or gets a parent that is not there.
        """
        key = _as_key(key)
        old = self._rows(table).get(key)
        if old is None:
            raise InvalidWrite(f"table {table}: no row has this key")
        new = {**old, **changes}
        if self._key(table, new) != key:
            raise InvalidWrite(f"table {table}: a key cannot be changed; insert another row")
        self._require_open(table, old)
        self._require_unreferenced(table, old, {column for column in changes if old.get(column) != new[column]})
        self._write(table, key, new)

    def delete(self, table: str, key: Any) -> bool:
        """Remove one row; False if there is none. Raises InvalidWrite if another row refers to it."""
        key = _as_key(key)
        rows = dict(self._rows(table))
        row = rows.pop(key, None)
        if row is None:
            return False
        self._require_unreferenced(table, row, None)
        self.change(tables={**self._state.tables, table: rows})
        return True

    def place_hold(
        self, *, subject: str | None = None, tenant: str | None = None, conversation: str | None = None
    ) -> int:
        """Forbid every purge that it covers; gives the hold's id. Raises InvalidDecision if it names nobody."""
        if subject is None and conversation is None:
            raise InvalidDecision("a hold names a subject or a conversation")
        hold = MemoryHold(self._state.last_hold + 1, subject, tenant, conversation)
        self.change(holds=(*self._state.holds, hold), last_hold=hold.id)
        return hold.id

    def release_hold(self, hold_id: int) -> bool:
        """False if it does not stand."""
        standing = tuple(hold for hold in self._state.holds if hold.id != hold_id)
        released = len(standing) < len(self._state.holds)
        self.change(holds=standing)
        return released

    def confirm(self, case_id: str, target: Target) -> None:
        """The store has confirmed that the target is gone: it leaves the outbox. The case stays."""
        case = self._state.cases[case_id]
        left = tuple(other for other in case.targets if other != target)
        self.change(cases={**self._state.cases, case_id: replace(case, targets=left)})

    def purge_conversation(
        self,
        graph: Graph,
        conversation: str,
        *,
        principal: Principal,
        expected_version: Any = None,
        reserve_absent: bool = True,
    ) -> Purged:
        """Purge in this transaction; what it gives and raises is as in memory_purge.py."""
        return purge_in_memory(
            self,
            graph,
            conversation,
            principal=principal,
            expected_version=expected_version,
            reserve_absent=reserve_absent,
        )

    def _key(self, table: str, row: Row) -> Key:
        self._rows(table)
        key = tuple(row.get(column) for column in self.store.keys[table])
        if None in key:
            raise InvalidWrite(f"table {table}: a row needs its key, {', '.join(self.store.keys[table])}")
        return key

    def _write(self, table: str, key: Key, row: Row) -> None:
        before = self._state
        written = MappingProxyType(copy.deepcopy(dict(row)))
        self.change(tables={**before.tables, table: {**before.tables[table], key: written}})
        try:
            # with the row in its place, since it may refer to itself
            self._require_open(table, written)
        except ConversationPurged:
            self._state = before
            raise

    def _require_open(self, table: str, row: Row) -> None:
        for graph in self.store.graphs_of(table):
            for conversation in graph.conversations_of(self._state.tables, table, row):
                if (graph.graph.name, conversation) in self._state.tombstones:
                    raise ConversationPurged("the conversation was purged: its identity may never be used again")

    def _require_unreferenced(self, table: str, row: Row, columns: set[str] | None) -> None:
        for graph in self.store.graphs_of(table):
            for reference in graph.referring(self._state.tables, table, row, columns):
                raise InvalidWrite(f"table {table}: a row refers to this one by {reference}; remove that first")

    def _end(self) -> None:
        self._open = False


class MemoryStore:
    """Tables of rows by primary key, and the conversations in them."""

    def __init__(
        self,
        *graphs: Graph,
        keys: Mapping[str, str | Sequence[str]] | None = None,
        fenced: bool = True,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """`keys` names the primary key of tables whose key is not `id`, and tables that belong to no graph.

        A store that is not `fenced` takes every write, and so cannot purge: its purges answer `unsupported`. It is
        there for hosts that never purge, and keeps their code the same. `clock` gives aware times.

        Raises InvalidGraph.
        """
        self.keys: dict[str, tuple[str, ...]] = {}
        for graph in graphs:
            self.keys[graph.root.table] = (graph.root.key,)
            for member in graph.members:
                self.keys.setdefault(member.table, ("id",))
        for table, key in (keys or {}).items():
            self.keys[table] = (key,) if isinstance(key, str) else tuple(key)
        self.graphs = {graph.name: MemoryGraph(lay_out_in_memory(graph, self.keys)) for graph in graphs}
        self.fenced = fenced
        self.clock = clock
        self._state = State({table: {} for table in self.keys})
        self._writing = threading.Lock()
        self._writer: int | None = None

    @contextmanager
    def transaction(self) -> Iterator[MemoryTransaction]:
        """Wait for the transaction that is open in another thread, then be the only one.

        Raises InvalidWrite if this thread has one open already: it would wait for itself.
        """
        if self._writer == threading.get_ident():
            raise InvalidWrite("this thread has a transaction open already: use that one")
        with self._writing:
            self._writer = threading.get_ident()
            tx = MemoryTransaction(self, self._state)
            try:
                yield tx
                self._state = tx.state
            finally:
                tx._end()
                self._writer = None

    def snapshot(self) -> MemorySnapshot:
        """What was published last. Does not wait, and does not change any more."""
        return MemorySnapshot(self._state)

    def purge_conversation(
        self,
        graph: Graph,
        conversation: str,
        *,
        principal: Principal,
        expected_version: Any = None,
        reserve_absent: bool = True,
    ) -> Purged:
        """Purge in a transaction of its own; what it gives and raises is as in memory_purge.py."""
        with self.transaction() as tx:
            return tx.purge_conversation(
                graph,
                conversation,
                principal=principal,
                expected_version=expected_version,
                reserve_absent=reserve_absent,
            )

    def graphs_of(self, table: str) -> list[MemoryGraph]:
        """The graphs whose fence a write to this table meets."""
        return [graph for graph in self.graphs.values() if table in graph.live.tables] if self.fenced else []


def _as_key(key: Any) -> Key:
    return key if isinstance(key, tuple) else (key,)
