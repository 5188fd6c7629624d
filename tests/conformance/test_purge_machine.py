"""Every order of inserts, updates, deletes, purges and rollbacks, against a simple model (purge_model.py): on every
store the same."""

from itertools import count
from typing import Any, ClassVar

import pytest
from conformance.purge_model import NEEDED, REFERENCES, Model, Refused
from conformance.purge_world import ADA, BOB, TABLES, Tx, World
from doubles.machines import ROUNDS, run_machine
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from expunge.models.errors import ConversationNotFound, ConversationPurged, InvalidWrite, RunActive

IDS = st.sampled_from(["1", "2", "3"])
CHATS = st.sampled_from(["c1", "c1", "c2", "c3"])
MEMBERS = st.sampled_from([table for table in TABLES if table != "chat"])


@st.composite
def writes(draw: st.DrawFn) -> tuple[str, str, dict[str, Any]]:
    """Table, key and some of its columns."""
    table = draw(MEMBERS)
    changes: dict[str, Any] = {}
    for column, parent in REFERENCES[table].items():
        if column in NEEDED[table] or draw(st.booleans()):
            needed = column in NEEDED[table]
            value = draw(CHATS if parent == "chat" else IDS if needed else st.one_of(st.none(), IDS))
            changes[column] = value
    if table == "turn":
        changes["state"] = draw(st.sampled_from(["succeeded", "succeeded", "failed", "running"]))
    return table, draw(IDS), changes


STEPS = st.one_of(
    st.tuples(st.just("insert"), writes()),
    st.tuples(st.just("insert"), writes()),
    st.tuples(st.just("update"), writes()),
    st.tuples(st.just("delete"), st.tuples(MEMBERS, IDS)),
    st.tuples(st.just("purge"), st.tuples(CHATS, st.sampled_from([ADA, ADA, ADA, BOB]))),
    st.tuples(st.just("open"), st.tuples(CHATS, st.sampled_from([ADA, ADA, BOB]))),
    st.tuples(st.just("pin"), st.tuples(CHATS, IDS)),
)


class _Stop(Exception):
    pass


class Machine(RuleBasedStateMachine):
    """Each example in a corner of its own of one store: ids cannot be used again."""

    world: ClassVar[World]
    numbers: ClassVar[Any]

    def __init__(self) -> None:
        super().__init__()
        self.corner = f"{next(self.numbers)}-"
        self.model = Model()

    def mine(self, changes: dict[str, Any], table: str) -> dict[str, Any]:
        return {
            column: f"{self.corner}{value}" if column in REFERENCES[table] and value is not None else value
            for column, value in changes.items()
        }

    @rule(steps=st.lists(STEPS, min_size=1, max_size=4), stop=st.sampled_from([False, False, False, True]))
    def transaction(self, steps: list[Any], stop: bool) -> None:
        """Some steps; the first that is refused ends it, and then nothing of it is left."""
        after = self.model.copy()
        refused = False
        try:
            with self.world.begin() as tx:
                for name, arguments in steps:
                    if not getattr(self, f"do_{name}")(tx, after, *arguments):
                        refused = True
                        raise _Stop
                if stop:
                    raise _Stop
        except _Stop:
            pass
        if not refused and not stop:
            self.model = after

    def expect(self, model_does: Any, store_does: Any) -> bool:
        """Both refuse or neither; whether it was done."""
        try:
            model_does()
        except Refused:
            with pytest.raises((ConversationPurged, InvalidWrite)):
                store_does()
            return False
        store_does()
        return True

    def do_insert(self, tx: Tx, model: Model, table: str, key: str, changes: dict[str, Any]) -> bool:
        key, changes = f"{self.corner}{key}", self.mine(changes, table)
        if not self.are_known(model, table, changes):
            return True
        row = {"id": key, **changes}
        return self.expect(lambda: model.write(table, key, row, new=True), lambda: tx.insert(table, row))

    def do_update(self, tx: Tx, model: Model, table: str, key: str, changes: dict[str, Any]) -> bool:
        key, changes = f"{self.corner}{key}", self.mine(changes, table)
        if not self.are_known(model, table, changes) or key not in model.rows[table] or not changes:
            return True
        return self.expect(lambda: model.write(table, key, changes, new=False), lambda: tx.update(table, key, changes))

    def are_known(self, model: Model, table: str, changes: dict[str, Any]) -> bool:
        """A conversation that never was is refused by foreign keys only, and not every store has them."""
        named = [
            changes[column] for column, parent in REFERENCES[table].items() if parent == "chat" and column in changes
        ]
        return all(chat in model.rows["chat"] or chat in model.purged for chat in named)

    def do_delete(self, tx: Tx, model: Model, table: str, key: str) -> bool:
        key = f"{self.corner}{key}"
        if key not in model.rows[table] or any(child == "note" for child, _ in model.below(table, key)):
            return True  # a note has no foreign key that would keep its turn
        return self.expect(lambda: model.delete(table, key), lambda: tx.delete(table, key))

    def do_open(self, tx: Tx, model: Model, chat: str, owner: Any) -> bool:
        chat = f"{self.corner}{chat}"
        row = {"id": chat, "tenant": owner.tenant, "owner": owner.id}
        return self.expect(lambda: model.write("chat", chat, row, new=True), lambda: tx.insert("chat", row))

    def do_pin(self, tx: Tx, model: Model, chat: str, turn: str) -> bool:
        chat, changes = f"{self.corner}{chat}", {"pinned_turn_id": f"{self.corner}{turn}"}
        if changes["pinned_turn_id"] not in model.rows["turn"] or chat not in model.rows["chat"]:
            return True
        return self.expect(
            lambda: model.write("chat", chat, changes, new=False), lambda: tx.update("chat", chat, changes)
        )

    def do_purge(self, tx: Tx, model: Model, chat: str, principal: Any) -> bool:
        chat = f"{self.corner}{chat}"
        expected = model.purge(chat, principal.id)
        try:
            said = str(tx.purge(chat, principal=principal).status)
        except (ConversationNotFound, RunActive) as error:
            said = type(error).__name__
        assert said == expected
        return said in ("purged", "already_purged")

    @invariant()
    def the_same(self) -> None:
        with self.world.read() as tx:
            for table in TABLES:
                found = {key: row for key, row in tx.rows(table).items() if key.startswith(self.corner)}
                assert found == self.model.rows[table], table
            stones = [stone for stone in tx.tombstones() if stone.conversation.startswith(self.corner)]
            assert {stone.conversation: stone.principal for stone in stones} == self.model.purged


@pytest.mark.timeout(180 * (1 + ROUNDS))
def test_every_order(committed: World, request: pytest.FixtureRequest) -> None:
    examples, steps = (30, 25) if request.node.callspec.params["committed"] == "memory" else (8, 20)
    run_machine(type("Machine", (Machine,), {"world": committed, "numbers": count()}), examples=examples, steps=steps)
