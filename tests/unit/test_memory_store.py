"""The store in memory beyond the contract (tests/conformance/test_purge_contract.py), and the purge of any store."""

import threading

import pytest

from expunge.models.errors import ConversationNotFound, ConversationPurged, InvalidDecision, InvalidGraph, InvalidWrite
from expunge.models.graph import ActiveRun, Graph, Member, Reference, Root, Rule, TargetColumns
from expunge.models.memory import MemoryStore
from expunge.models.purged import Principal, Purged, PurgeStatus
from expunge.models.stores import purge_conversation
from expunge.models.targets import Target

ADA = Principal("ada", "acme")
GRAPH = Graph(
    "threads",
    Root("thread", tenant="tenant", owner="owner", version="version", active_run=ActiveRun("run", ("running",))),
    (
        Member("run", references=(Reference("thread_id", "thread"),)),
        Member(
            "part",
            references=(Reference("run_name", "run", "name"),),
            targets=(TargetColumns("=openai_eu", "=file", "file"),),
        ),
        Member("lesson", Rule.DETACH, references=(Reference("run_id", "run"),)),
    ),
)


@pytest.fixture
def store() -> MemoryStore:
    made = MemoryStore(GRAPH, keys={"part": ("run_name", "number"), "setting": "name"})
    with made.transaction() as tx:
        tx.insert("thread", {"id": 1, "tenant": "acme", "owner": "ada", "version": 3})
        tx.insert("run", {"id": "r", "name": "first", "thread_id": 1})
        tx.insert("part", {"run_name": "first", "number": 1, "file": "file-a"})
        tx.insert("lesson", {"id": "l", "run_id": "r"})
        tx.insert("setting", {"name": "colour", "value": ["green"]})
    return made


def test_keys_that_are_numbers_or_of_several_columns(store: MemoryStore) -> None:
    assert store.snapshot().get("part", ("first", 1)) == {"run_name": "first", "number": 1, "file": "file-a"}
    purged = store.purge_conversation(GRAPH, "1", principal=ADA, expected_version=3)
    assert purged.deleted == {"thread": 1, "run": 1, "part": 1}
    assert purged.detached == {"lesson": 1}
    assert [case.targets for case in store.snapshot().cases] == [(Target("openai_eu", "file", "file-a"),)]
    with pytest.raises(ConversationPurged), store.transaction() as tx:
        tx.insert("thread", {"id": 1, "tenant": "acme", "owner": "ada"})


def test_readers_see_the_last_state_and_do_not_wait(store: MemoryStore) -> None:
    before = store.snapshot()
    with store.transaction() as tx:
        tx.update("run", "r", {"name": "first", "thread_id": 1, "note": "new"})
        assert "note" not in (store.snapshot().get("run", "r") or {})
        assert (tx.get("run", "r") or {})["note"] == "new"
    assert "note" not in (before.get("run", "r") or {})
    assert store.snapshot().select("run", note="new")


def test_what_is_given_or_taken_is_a_copy(store: MemoryStore) -> None:
    value = ["red"]
    with store.transaction() as tx:
        tx.insert("setting", {"name": "other", "value": value})
    value.append("blue")
    (store.snapshot().get("setting", "colour") or {})["value"].append("blue")
    store.snapshot().select("setting")[0]["value"].append("blue")
    assert [row["value"] for row in store.snapshot().select("setting")] == [["green"], ["red"]]


def test_one_transaction_at_a_time(store: MemoryStore) -> None:
    """Forty threads read, then write: none of what they add is lost."""
    with store.transaction() as tx:
        tx.insert("setting", {"name": "count", "value": 0})

    def add() -> None:
        with store.transaction() as tx:
            seen = (tx.get("setting", "count") or {})["value"]
            tx.update("setting", "count", {"value": seen + 1})

    threads = [threading.Thread(target=add) for _ in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.snapshot().get("setting", "count") == {"name": "count", "value": 40}


def test_a_writer_that_waited_for_the_purge_is_refused(store: MemoryStore) -> None:
    inside, waited, refused = threading.Event(), threading.Event(), []

    def write() -> None:
        inside.wait()
        waited.set()
        try:
            with store.transaction() as tx:
                tx.insert("run", {"id": "late", "name": "late", "thread_id": 1})
        except ConversationPurged as error:
            refused.append(error)

    thread = threading.Thread(target=write)
    thread.start()
    with store.transaction() as tx:
        inside.set()
        waited.wait()
        tx.purge_conversation(GRAPH, "1", principal=ADA)
    thread.join()
    assert refused
    assert not store.snapshot().select("run")


def test_a_second_transaction_of_the_same_thread_is_refused(store: MemoryStore) -> None:
    with store.transaction() as tx, pytest.raises(InvalidWrite, match="open already"), store.transaction():
        pass
    with pytest.raises(InvalidWrite, match="has ended"):
        tx.insert("setting", {"name": "late"})
    with store.transaction() as tx:
        tx.insert("setting", {"name": "in time"})


def test_a_refused_write_leaves_the_transaction_usable(store: MemoryStore) -> None:
    store.purge_conversation(GRAPH, "2", principal=ADA)
    with store.transaction() as tx:
        with pytest.raises(ConversationPurged):
            tx.insert("thread", {"id": 2})
        assert tx.get("thread", 2) is None
        tx.insert("thread", {"id": 3})
    assert store.snapshot().get("thread", 3)


@pytest.mark.parametrize(
    "write",
    [
        lambda tx: tx.insert("run", {"id": "r", "name": "again", "thread_id": 1}),
        lambda tx: tx.insert("part", {"run_name": "first"}),
        lambda tx: tx.insert("nothing", {"id": 1}),
        lambda tx: tx.update("run", "nobody", {"name": "x"}),
        lambda tx: tx.update("run", "r", {"id": "s"}),
        lambda tx: tx.update("run", "r", {"name": "second"}),  # a part refers to it
        lambda tx: tx.delete("run", "r"),
    ],
)
def test_what_keys_and_references_refuse(store: MemoryStore, write: object) -> None:
    before = store.snapshot()
    with pytest.raises(InvalidWrite), store.transaction() as tx:
        write(tx)  # type: ignore[operator]
    for table in store.keys:
        assert store.snapshot().select(table) == before.select(table)


def test_a_confirmed_target_leaves_the_outbox_and_the_tombstone_stays(store: MemoryStore) -> None:
    purged = store.purge_conversation(GRAPH, "1", principal=ADA)
    assert purged.case_id is not None
    with store.transaction() as tx:
        tx.confirm(purged.case_id, Target("openai_eu", "file", "file-a"))
    assert [case.targets for case in store.snapshot().cases] == [()]
    assert store.snapshot().is_purged(GRAPH, "1")


def test_a_hold_that_is_released_holds_no_more(store: MemoryStore) -> None:
    with store.transaction() as tx:
        with pytest.raises(InvalidDecision):
            tx.place_hold(tenant="acme")
        hold = tx.place_hold(conversation="1")
    with store.transaction() as tx:
        assert tx.release_hold(hold)
        assert not tx.release_hold(hold)
    assert store.purge_conversation(GRAPH, "1", principal=ADA).status == PurgeStatus.PURGED


@pytest.mark.parametrize(
    "members",
    [
        (Member("run"),),
        (Member("run", references=(Reference("x", "nowhere"),)),),
        (Member("run", Rule.KEEP, references=(Reference("thread_id", "thread"),)),),
        (Member("run", Rule.DETACH, references=(Reference("id", "thread"),)),),
        (Member("run", references=(Reference("thread_id", "thread"),)),) * 2,
    ],
)
def test_a_graph_that_says_too_little_is_refused(members: tuple[Member, ...]) -> None:
    with pytest.raises(InvalidGraph):
        MemoryStore(Graph("threads", Root("thread"), members))


class _Custom:
    """A store of a host's own, from before there was a purge."""


class _Purging(_Custom):
    def purge_conversation(self, graph: Graph, conversation: str, **how: object) -> Purged:
        return Purged(PurgeStatus.PURGED, case_id=f"{graph.name}/{conversation}/{how['expected_version']}")


def test_the_purge_of_any_store(store: MemoryStore) -> None:
    assert purge_conversation(store, GRAPH, "1", principal=ADA).status == PurgeStatus.PURGED
    with store.transaction() as tx:
        assert purge_conversation(tx, GRAPH, "1", principal=ADA).status == PurgeStatus.ALREADY_PURGED
    assert purge_conversation(_Purging(), GRAPH, "1", principal=ADA, expected_version=3).case_id == "threads/1/3"
    with pytest.raises(ConversationNotFound):
        purge_conversation(store, GRAPH, "2", principal=ADA, reserve_absent=False)
    for other, why in (
        (_Custom(), "has no purge_conversation"),
        (MemoryStore(GRAPH, fenced=False), "not fenced"),
        (MemoryStore(), "not made with this graph"),
    ):
        answer = purge_conversation(other, GRAPH, "1", principal=ADA)
        assert answer.status == PurgeStatus.UNSUPPORTED
        assert why in (answer.reason or "")


def test_a_store_that_is_not_fenced_takes_every_write() -> None:
    store = MemoryStore(GRAPH, fenced=False)
    with store.transaction() as tx:
        tx.insert("run", {"id": "r", "thread_id": "nobody"})
    assert store.snapshot().get("run", "r")
