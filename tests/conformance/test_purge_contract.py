"""What every store that purges conversations must hold: in memory, on SQLite and on PostgreSQL."""

from typing import Any

import pytest
from conformance.purge_world import ADA, ADA_ELSEWHERE, BOB, TABLES, Case, Stone, World

from expunge.models.errors import (
    ConversationNotFound,
    ConversationPurged,
    Held,
    InvalidCase,
    InvalidWrite,
    RecordImmutable,
    RunActive,
    VersionConflict,
)
from expunge.models.purged import Principal, PurgeStatus
from expunge.models.targets import Target

REFUSED = (ConversationPurged, InvalidWrite)
"""By the fence, or by the foreign key behind it."""
FILE = Target("openai_eu", "file", "file-abc")
INDEX = Target("openai_eu", "vector_store", "vs_abc")
OBJECT = Target("artifacts", "object", "chats/c1/a.png")


def insert(world: World, table: str, **row: Any) -> None:
    with world.begin() as tx:
        tx.insert(table, row)


def update(world: World, table: str, key: str, **changes: Any) -> None:
    with world.begin() as tx:
        tx.update(table, key, changes)


def purge(world: World, conversation: str, **how: Any) -> Any:
    with world.begin() as tx:
        return tx.purge(conversation, **how)


def everything(world: World) -> dict[str, Any]:
    with world.read() as tx:
        rows = {table: tx.rows(table) for table in TABLES}
        return {table: found for table, found in rows.items() if found} | {
            "cases": tx.cases(),
            "tombstones": sorted(tx.tombstones(), key=lambda stone: stone.conversation),
        }


def fill(world: World, chat: str, *, owner: Principal = ADA) -> None:
    """A conversation with a row in every table, two of most, and every kind of reference."""
    with world.begin() as tx:
        tx.insert("chat", {"id": chat, "tenant": owner.tenant, "owner": owner.id, "version": 7})
        tx.insert("turn", {"id": f"{chat}-t1", "chat_id": chat, "state": "succeeded"})
        tx.insert("turn", {"id": f"{chat}-t2", "chat_id": chat, "state": "failed", "parent_id": f"{chat}-t1"})
        # a turn that is its own parent, and two that are each other's
        tx.update("turn", f"{chat}-t1", {"parent_id": f"{chat}-t2"})
        tx.insert("turn", {"id": f"{chat}-t3", "chat_id": chat, "state": "failed", "parent_id": f"{chat}-t3"})
        tx.update("chat", chat, {"pinned_turn_id": f"{chat}-t2"})
        for number in (1, 2):
            tx.insert("message", {"id": f"{chat}-m{number}", "turn_id": f"{chat}-t{number}", "body": "secret"})
        tx.insert("step", {"id": f"{chat}-s1", "turn_id": f"{chat}-t1"})
        tx.insert("result", {"id": f"{chat}-r1", "step_id": f"{chat}-s1"})
        tx.insert("step", {"id": f"{chat}-s2", "result_id": f"{chat}-r1"})
        tx.insert("result", {"id": f"{chat}-r2", "step_id": f"{chat}-s2"})
        tx.update("step", f"{chat}-s1", {"result_id": f"{chat}-r2"})
        tx.insert("attachment", {"id": f"{chat}-a1", "message_id": f"{chat}-m1"})
        tx.insert("attachment", {"id": f"{chat}-a2", "chat_id": chat})
        tx.insert("note", {"id": f"{chat}-n1", "chat_id": chat, "body": "secret"})
        tx.insert("note", {"id": f"{chat}-n2", "turn_ref": f"{chat}-t2", "body": "secret"})
        tx.insert("skill", {"id": f"{chat}-k1", "turn_id": f"{chat}-t1", "body": "published"})
        tx.insert("audit", {"id": f"{chat}-w1", "chat_id": chat, "what": "opened"})


GONE = {"chat": 1, "turn": 3, "message": 2, "step": 2, "result": 2, "attachment": 2, "note": 2}


def test_a_purge_removes_detaches_and_keeps(world: World) -> None:
    fill(world, "c1")
    fill(world, "c2")
    with world.read() as tx:
        before = {table: tx.rows(table) for table in TABLES}
    purged = purge(world, "c1")
    assert (purged.status, purged.deleted, purged.detached) == (PurgeStatus.PURGED, GONE, {"skill": 1})
    with world.read() as tx:
        for table in TABLES:
            left = {key: row for key, row in before[table].items() if key.startswith("c2")}
            if table == "skill":
                left["c1-k1"] = {"id": "c1-k1", "body": "published"}
            if table == "audit":
                left["c1-w1"] = before[table]["c1-w1"]
            assert tx.rows(table) == left


def test_the_tombstone_has_no_content(world: World) -> None:
    fill(world, "c1")
    purge(world, "c1")
    with world.read() as tx:
        assert list(tx.tombstones()) == [Stone("chats", "c1", "acme", "ada")]
        assert tx.is_purged("c1")
        assert not tx.is_purged("c2")


def test_targets_go_into_the_outbox_of_one_case(world: World) -> None:
    fill(world, "c1")
    with world.begin() as tx:
        tx.update("attachment", "c1-a1", {"account": "artifacts", "kind": "object", "locator": OBJECT.locator})
        tx.update(
            "attachment",
            "c1-a2",
            {"account": "openai_eu", "kind": "file", "locator": FILE.locator, "index_id": INDEX.locator},
        )
        # a row in which one of them is NULL names nothing; the same twice is one
        tx.insert("attachment", {"id": "c1-a3", "chat_id": "c1", "account": "artifacts", "kind": "object"})
        tx.insert("attachment", {"id": "c1-a4", "chat_id": "c1", "index_id": INDEX.locator})
    purged = purge(world, "c1")
    with world.read() as tx:
        assert tx.cases() == {purged.case_id: Case("ada", "acme", "c1", frozenset({OBJECT, FILE, INDEX}))}


def test_a_purge_without_targets_has_a_case_too(world: World) -> None:
    fill(world, "c1")
    purged = purge(world, "c1")
    with world.read() as tx:
        assert tx.cases() == {purged.case_id: Case("ada", "acme", "c1", frozenset())}


def test_a_target_of_the_wrong_shape_is_not_lost(world: World) -> None:
    """A person must look at it; the purge is not what waits for that."""
    fill(world, "c1")
    update(world, "attachment", "c1-a1", account="artifacts", kind="object", locator="no-slash")
    update(world, "attachment", "c1-a2", account="artifacts", kind="object", locator="b/" + "x" * 1100)
    purged = purge(world, "c1")
    with world.read() as tx:
        assert tx.cases()[purged.case_id].targets == {
            Target("artifacts", "object", "no-slash"),
            Target("unusable", "unusable", "attachment.locator"),
        }


@pytest.mark.parametrize("how", ["", "a\x00b", "x" * 1001])
def test_an_id_that_is_no_plain_text_is_refused(world: World, how: str) -> None:
    before = everything(world)
    with pytest.raises(InvalidCase):
        purge(world, how)
    with pytest.raises(InvalidCase):
        purge(world, "c1", principal=Principal(how, "acme"))
    assert everything(world) == before


def test_an_absent_id_is_not_reserved_if_the_host_does_not_want_it(world: World) -> None:
    with pytest.raises(ConversationNotFound) as absent:
        purge(world, "c1", reserve_absent=False)
    fill(world, "c1")
    with pytest.raises(ConversationNotFound) as foreign:
        purge(world, "c1", principal=BOB, reserve_absent=False)
    assert str(absent.value) == str(foreign.value)
    assert purge(world, "c1", reserve_absent=False).status == PurgeStatus.PURGED
    assert purge(world, "c1", reserve_absent=False).status == PurgeStatus.ALREADY_PURGED


def test_again_is_already_purged_also_with_the_old_version(world: World) -> None:
    fill(world, "c1")
    first = purge(world, "c1", expected_version=7)
    after = everything(world)
    for how in ({}, {"expected_version": 7}, {"expected_version": 8}):
        again = purge(world, "c1", **how)
        assert (again.status, again.case_id) == (PurgeStatus.ALREADY_PURGED, first.case_id)
        assert (again.deleted, again.detached) == ({}, {})
    assert everything(world) == after


def test_an_id_that_never_existed_is_reserved(world: World) -> None:
    purged = purge(world, "never")
    assert (purged.status, purged.deleted, purged.detached) == (PurgeStatus.PURGED, {}, {})
    assert purge(world, "never").status == PurgeStatus.ALREADY_PURGED
    with pytest.raises(ConversationPurged):
        insert(world, "chat", id="never", tenant="acme", owner="ada")
    with pytest.raises(ConversationNotFound):
        purge(world, "never", principal=BOB)


@pytest.mark.parametrize("stranger", [BOB, ADA_ELSEWHERE, Principal("ada", None)])
def test_strangers_find_nothing(world: World, stranger: Principal) -> None:
    fill(world, "c1")
    before = everything(world)
    with pytest.raises(ConversationNotFound) as foreign:
        purge(world, "c1", principal=stranger)
    assert everything(world) == before
    purge(world, "c1")
    after = everything(world)
    with pytest.raises(ConversationNotFound) as buried:
        purge(world, "c1", principal=stranger)
    assert everything(world) == after
    assert str(foreign.value) == str(buried.value)


def test_a_stranger_learns_nothing_of_runs_versions_and_holds(world: World) -> None:
    fill(world, "c1")
    with world.begin() as tx:
        tx.update("turn", "c1-t1", {"state": "running"})
        tx.place_hold(subject="ada")
    with pytest.raises(ConversationNotFound):
        purge(world, "c1", principal=BOB, expected_version=1)


@pytest.mark.parametrize("state", ["queued", "running"])
def test_an_active_run_refuses(world: World, state: str) -> None:
    fill(world, "c1")
    fill(world, "c2")
    update(world, "turn", "c1-t2", state=state)
    before = everything(world)
    with pytest.raises(RunActive) as refused:
        purge(world, "c1")
    assert refused.value.run_id == "c1-t2"
    assert everything(world) == before
    assert purge(world, "c2").status == PurgeStatus.PURGED
    update(world, "turn", "c1-t2", state="cancelled")
    assert purge(world, "c1").status == PurgeStatus.PURGED


def test_another_version_refuses(world: World) -> None:
    fill(world, "c1")
    update(world, "chat", "c1", version=8)
    before = everything(world)
    with pytest.raises(VersionConflict):
        purge(world, "c1", expected_version=7)
    assert everything(world) == before
    assert purge(world, "c1", expected_version=8).status == PurgeStatus.PURGED


@pytest.mark.parametrize(
    ("whom", "held"),
    [
        ({"subject": "ada"}, True),
        ({"subject": "ada", "tenant": "acme"}, True),
        ({"conversation": "c1"}, True),
        ({"subject": "bob"}, False),
        ({"subject": "ada", "tenant": "globex"}, False),
        ({"subject": "ada", "conversation": "c2"}, False),
    ],
)
def test_a_hold_refuses_what_it_covers(world: World, whom: dict[str, str], held: bool) -> None:
    fill(world, "c1")
    with world.begin() as tx:
        tx.place_hold(**whom)
    before = everything(world)
    if held:
        with pytest.raises(Held):
            purge(world, "c1")
        assert everything(world) == before
    else:
        assert purge(world, "c1").status == PurgeStatus.PURGED


def test_a_store_without_the_capability_says_so_and_touches_nothing(world: World) -> None:
    fill(world, "c1")
    before = everything(world)
    world.open_fence()
    purged = purge(world, "c1")
    assert purged.status == PurgeStatus.UNSUPPORTED
    assert purged.reason
    assert everything(world) == before


WRITES: list[tuple[str, dict[str, Any]]] = [
    ("chat", {"id": "c1", "tenant": "acme", "owner": "ada"}),
    ("chat", {"id": "c1", "tenant": "globex", "owner": "eve"}),
    ("turn", {"id": "new", "chat_id": "c1"}),
    ("turn", {"id": "new", "chat_id": "c2", "parent_id": "c1-t1"}),
    ("message", {"id": "new", "turn_id": "c1-t1"}),
    ("step", {"id": "new", "turn_id": "c1-t1"}),
    ("step", {"id": "new", "result_id": "c1-r1"}),
    ("result", {"id": "new", "step_id": "c1-s1"}),
    ("attachment", {"id": "new", "chat_id": "c1"}),
    ("attachment", {"id": "new", "chat_id": "c1", "message_id": "c2-m1"}),
    ("attachment", {"id": "new", "message_id": "c1-m1"}),
    ("note", {"id": "new", "chat_id": "c1"}),
    ("note", {"id": "new", "turn_ref": "c1-t1"}),
    ("note", {"id": "new", "chat_id": "c2", "turn_ref": "c1-t1"}),
    ("skill", {"id": "new", "turn_id": "c1-t1"}),
    ("audit", {"id": "new", "chat_id": "c1"}),
]


@pytest.mark.parametrize(("table", "row"), WRITES)
def test_nothing_is_inserted_into_a_purged_conversation(world: World, table: str, row: dict[str, Any]) -> None:
    fill(world, "c1")
    fill(world, "c2")
    purge(world, "c1")
    after = everything(world)
    with pytest.raises(REFUSED):
        insert(world, table, **row)
    assert everything(world) == after


def test_the_fence_says_that_it_was_purged(world: World) -> None:
    """And not just that a foreign key is missing: these have none."""
    fill(world, "c1")
    purge(world, "c1")
    for table, row in (("chat", {"id": "c1"}), ("note", {"id": "new", "chat_id": "c1"})):
        with pytest.raises(ConversationPurged):
            insert(world, table, **row)


@pytest.mark.parametrize(
    ("table", "key", "changes"),
    [
        ("turn", "c2-t3", {"chat_id": "c1"}),
        ("turn", "c2-t3", {"parent_id": "c1-t1"}),
        ("message", "c2-m1", {"turn_id": "c1-t1"}),
        ("step", "c2-s1", {"result_id": "c1-r1"}),
        ("attachment", "c2-a1", {"chat_id": "c1"}),
        ("attachment", "c2-a1", {"message_id": "c1-m1"}),
        ("note", "c2-n1", {"chat_id": "c1"}),
        ("note", "c2-n1", {"turn_ref": "c1-t1"}),
        ("skill", "c1-k1", {"turn_id": "c1-t1"}),
        ("audit", "c2-w1", {"chat_id": "c1"}),
        ("chat", "c2", {"id": "c1"}),
    ],
)
def test_nothing_is_moved_into_a_purged_conversation(
    world: World, table: str, key: str, changes: dict[str, Any]
) -> None:
    fill(world, "c1")
    fill(world, "c2")
    purge(world, "c1")
    after = everything(world)
    with pytest.raises(REFUSED):
        update(world, table, key, **changes)
    assert everything(world) == after


def test_a_kept_row_is_not_written_any_more(world: World) -> None:
    """Its old values name the purged conversation, whatever the new ones do."""
    fill(world, "c1")
    fill(world, "c2")
    purge(world, "c1")
    for changes in ({"what": "changed"}, {"chat_id": "c2"}, {"chat_id": None}):
        with pytest.raises(ConversationPurged):
            update(world, "audit", "c1-w1", **changes)


def test_a_detached_row_lives_on(world: World) -> None:
    fill(world, "c1")
    fill(world, "c2")
    purge(world, "c1")
    update(world, "skill", "c1-k1", body="revised")
    update(world, "skill", "c1-k1", turn_id="c2-t1")
    assert purge(world, "c2").detached == {"skill": 2}


def test_a_parent_that_cannot_be_resolved_is_refused(world: World) -> None:
    fill(world, "c1")
    before = everything(world)
    for table, row in (
        ("note", {"id": "new", "turn_ref": "nobody"}),
        ("message", {"id": "new", "turn_id": "nobody"}),
        ("note", {"id": "new", "chat_id": "c1", "turn_ref": "nobody"}),
    ):
        with pytest.raises(REFUSED):
            insert(world, table, **row)
    with pytest.raises(REFUSED):
        update(world, "note", "c1-n2", turn_ref="nobody")
    assert everything(world) == before


def test_rows_of_several_conversations_go_with_the_first(world: World) -> None:
    fill(world, "c1")
    fill(world, "c2")
    insert(world, "note", id="both", chat_id="c2", turn_ref="c1-t1")
    assert purge(world, "c1").deleted == {**GONE, "note": 3}
    assert purge(world, "c2").deleted == GONE


def test_a_fork_outlives_its_origin(world: World) -> None:
    fill(world, "c1")
    fill(world, "c2")
    update(world, "chat", "c2", forked_from="c1")
    purge(world, "c1")
    with world.read() as tx:
        assert list(tx.rows("chat")) == ["c2"]
        assert len(tx.rows("message")) == 2
    assert purge(world, "c2").deleted == GONE


def test_a_rollback_leaves_nothing(world: World) -> None:
    fill(world, "c1")
    update(world, "attachment", "c1-a1", account="artifacts", kind="object", locator=OBJECT.locator)
    before = everything(world)

    class Stop(Exception):
        pass

    with pytest.raises(Stop), world.begin() as tx:
        assert tx.purge("c1").status == PurgeStatus.PURGED
        assert tx.is_purged("c1")
        assert not tx.rows("chat")
        raise Stop
    assert everything(world) == before
    update(world, "note", "c1-n1", body="goes on")
    assert purge(world, "c1").deleted == GONE


def test_writes_of_the_same_transaction_are_purged_too(world: World) -> None:
    with world.begin() as tx:
        tx.insert("chat", {"id": "c1", "tenant": "acme", "owner": "ada"})
        tx.insert("note", {"id": "n1", "chat_id": "c1"})
        assert tx.purge("c1").deleted == {"chat": 1, "note": 1}
    with world.read() as reader:
        assert not reader.rows("note")


def test_the_fence_stands_in_the_purging_transaction(world: World) -> None:
    fill(world, "c1")
    with pytest.raises(ConversationPurged), world.begin() as tx:
        tx.purge("c1")
        tx.insert("note", {"id": "new", "chat_id": "c1"})
    with world.read() as reader:
        assert not reader.is_purged("c1")


def test_rows_of_a_purged_conversation_may_be_removed(world: World) -> None:
    """What is kept is the host's to delete when its reason is over."""
    fill(world, "c1")
    purge(world, "c1")
    with world.begin() as tx:
        tx.delete("audit", "c1-w1")
    with world.read() as reader:
        assert not reader.rows("audit")


def test_a_tombstone_cannot_be_removed(world: World) -> None:
    purge(world, "c1")
    with pytest.raises((RecordImmutable, InvalidWrite)):
        world.remove_tombstone("c1")
    with world.read() as reader:
        assert reader.is_purged("c1")


def test_readers_see_all_of_it_or_nothing(committed: World) -> None:
    fill(committed, "read")
    before = everything(committed)
    with committed.begin() as tx:
        tx.purge("read")
        assert everything(committed) == before
    with committed.read() as reader:
        assert [table for table in TABLES if reader.rows(table)] == ["skill", "audit"]
        assert reader.is_purged("read")
    again = purge(committed, "read")
    assert again.status == PurgeStatus.ALREADY_PURGED
