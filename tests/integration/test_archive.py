"""The archive: every receipt, decision, tombstone and hold, exactly once by id, whoever dies on the way."""

import json
import threading
from collections import Counter
from pathlib import Path

import pytest
from doubles.running import Bench
from rows import add_receipts, receipt
from waiting import someone_waits, wait_for

from expunge.models.archive import begin_archive, count_owed, next_segment, read_archive
from expunge.models.decisions import pause
from expunge.models.holds import place_hold, release_hold
from expunge.models.journal import read
from expunge.models.list_receipts import read_receipts
from expunge.models.settle import write_receipts
from expunge.tasks import archive as archiving
from expunge.tasks.archive import append_to_archive
from expunge.tasks.archive_stores import ArchiveFailed, ArchivePlace, make_store


@pytest.fixture
def place(tmp_path) -> Path:
    return tmp_path / "archive"


@pytest.fixture
def bench(database, place) -> Bench:
    bench = Bench(database)
    bench.runtime.archive = make_store(ArchivePlace(place.as_uri()))
    return bench


def lines(place: Path):
    """What the archive holds, each file checked."""
    found = []
    for path in sorted(place.glob("*.jsonl")):
        with path.open("rb") as stream:
            found += list(read(stream, path.name))
    return found


def ids(place: Path, kind: str = "receipt") -> list[str]:
    return [line.row["id"] for line in lines(place) if line.kind == kind]


def stored(bench: Bench) -> list[str]:
    return [str(row.id) for row in bench.receipts()]


def owed(bench: Bench) -> int:
    with bench.database.read() as tx:
        return count_owed(tx)


def stone(bench: Bench, conversation: str) -> None:
    with bench.database.begin() as tx:
        tx.run(
            "INSERT INTO erasure_tombstone (graph, conversation, principal) VALUES ('g', :conversation, 'ann')",
            conversation=conversation,
        )


def test_what_was_there_and_what_comes_is_there_once_and_in_order(bench, place):
    add_receipts(bench.database, [receipt("old", f"b/{n}") for n in range(3)])
    stone(bench, "c-1")
    bench.store.put("b/x")
    bench.open("b/x")
    bench.sweep()
    bench.settle_all()
    with bench.database.begin() as tx:
        pause(tx, "mem", by="dana", why="because")
    stone(bench, 'c-"2"\u2028é')
    bench.sweep()
    bench.sweep()
    assert Counter(ids(place)) == Counter(stored(bench))
    assert len(ids(place)) == 4
    assert [line.row["conversation"] for line in lines(place) if line.kind == "tombstone"] == ["c-1", 'c-"2"\u2028é']
    assert [line.row["decision"] for line in lines(place) if line.kind == "decision"] == ["pause"]
    assert owed(bench) == 0
    names = [path.name for path in sorted(place.iterdir())]
    assert [int(name[:10]) for name in names] == list(range(1, len(names) + 1))


def test_a_line_holds_the_row_as_it_is(bench, place):
    add_receipts(bench.database, [receipt("c", "b/é\n", detail={"x": [1]}, request_id="r", version="v")])
    bench.sweep()
    (line,) = lines(place)
    with bench.database.read() as tx:
        (row,) = read_receipts(tx, [line.row["id"]])
    assert line.row == row


def test_without_an_archive_nothing_is_queued(bench):
    bench.runtime.archive = None
    add_receipts(bench.database, [receipt("c", "b/1")])
    bench.sweep()
    assert owed(bench) == 0


def test_a_hold_is_there_as_it_was_placed_and_as_it_was_released(bench, place):
    bench.sweep()
    with bench.database.begin() as tx:
        hold, _ = place_hold(tx, by="dana", why="suit", subject="s")
    with bench.database.begin() as tx:
        release_hold(tx, hold, by="dana", why="settled")
    bench.sweep()
    holds = [line.row for line in lines(place) if line.kind == "hold"]
    assert [row["released_by"] for row in holds] == [None, "dana"]
    assert [row["subject"] for row in holds] == ["s", "s"]


class Died(BaseException):
    pass


@pytest.mark.parametrize("step", ["archive_assigned", "archive_written"])
def test_a_beat_that_dies_is_followed_by_any_other(bench, place, monkeypatch, step):
    monkeypatch.setattr(archiving, "SEGMENT_ROWS", 4)
    add_receipts(bench.database, [receipt("c", f"b/{n}") for n in range(10)])

    def die(name: str) -> None:
        if name == step:
            raise Died

    dying = bench.another()
    dying.archive, dying.on_step = bench.runtime.archive, die
    with pytest.raises(Died):
        append_to_archive(dying)
    before = {path.name: path.read_bytes() for path in place.glob("*")}
    add_receipts(bench.database, [receipt("c", f"b/late{n}") for n in range(3)])
    bench.sweep()
    assert before.items() <= {path.name: path.read_bytes() for path in place.glob("*")}.items()
    assert Counter(ids(place)) == Counter(stored(bench))
    assert owed(bench) == 0


def test_a_lost_answer_is_one_segment(bench, place, monkeypatch):
    store = bench.runtime.archive
    write = store.write

    def lose(name: str, data: bytes) -> None:
        write(name, data)
        raise ArchiveFailed("the bucket cannot be reached: ReadTimeoutError")

    add_receipts(bench.database, [receipt("c", "b/1")])
    monkeypatch.setattr(store, "write", lose)
    bench.sweep()
    monkeypatch.setattr(store, "write", write)
    add_receipts(bench.database, [receipt("c", "b/2")])
    bench.later(1000)
    bench.sweep()
    assert Counter(ids(place)) == Counter(stored(bench))
    assert len(list(place.iterdir())) == 2


def test_several_beats_at_once_write_each_row_once(bench, place, monkeypatch):
    monkeypatch.setattr(archiving, "SEGMENT_ROWS", 7)
    bench.sweep()
    runtimes = [bench.another() for _ in range(3)]
    for runtime in runtimes:
        runtime.archive = bench.runtime.archive
    going = threading.Event()
    going.set()

    def beat(runtime) -> None:
        while going.is_set():
            append_to_archive(runtime)
        append_to_archive(runtime)

    beats = [threading.Thread(target=beat, args=(runtime,)) for runtime in runtimes]
    for thread in beats:
        thread.start()
    for n in range(40):
        add_receipts(bench.database, [receipt("c", f"b/{n}/{m}") for m in range(5)])
    going.clear()
    for thread in beats:
        thread.join()
    assert Counter(ids(place)) == Counter(stored(bench))
    assert len(stored(bench)) == 200
    assert owed(bench) == 0


def test_a_row_in_flight_while_the_archive_begins_is_not_missed(bench, place):
    """It was inserted before, and commits after: beginning waits for it."""
    if bench.database.dialect == "sqlite":
        pytest.skip("one writer at a time")
    inserted, go_on = threading.Event(), threading.Event()

    def insert() -> None:
        with bench.database.begin() as tx:
            write_receipts(tx, [receipt("c", "b/flying")])
            inserted.set()
            go_on.wait(20)

    writer = threading.Thread(target=insert)
    writer.start()
    inserted.wait(20)
    began = threading.Thread(target=lambda: append_to_archive(bench.runtime))
    began.start()
    try:
        wait_for(lambda: someone_waits(bench.database), seconds=4, what="the one that begins")
    finally:
        go_on.set()
    writer.join()
    began.join()
    assert ids(place) == stored(bench)


def test_a_row_that_commits_late_is_not_passed_over(bench, place):
    """Its place in the queue is before what is in the archive already."""
    if bench.database.dialect == "sqlite":
        pytest.skip("one writer at a time")
    bench.sweep()
    with bench.database.begin() as late:
        write_receipts(late, [receipt("c", "b/late")])
        add_receipts(bench.database, [receipt("c", "b/early")])
        bench.sweep()
        assert len(ids(place)) == 1
    bench.sweep()
    assert sorted(line.row["locator"] for line in lines(place)) == ["b/early", "b/late"]


def test_an_archive_that_fails_stops_nothing_and_is_told_once(bench, place):
    bench.store.put("b/1")
    bench.open("b/1")
    bench.sweep()
    place.write_text("in the way")
    bench.settle_all()
    for _ in range(3):
        bench.sweep()
        bench.later(1000)
    bench.sweep()
    assert bench.statuses() == ["deleted"]
    (notice,) = bench.notices(kind="archive.failed")
    body = notice.body if isinstance(notice.body, dict) else json.loads(notice.body)
    assert body["reason"].startswith("the directory cannot be written")
    with bench.database.read() as tx:
        state = read_archive(tx)
    assert state is not None
    assert state.failures >= 2
    place.unlink()
    bench.later(1000)
    bench.sweep()
    assert ids(place) == stored(bench)
    with bench.database.read() as tx:
        state = read_archive(tx)
    assert (state.failures, state.failing_since, state.reason) == (0, None, None)


def test_an_archive_that_fails_is_not_tried_at_every_sweep(bench, place, monkeypatch):
    tried = []

    def refuse(name: str, data: bytes) -> None:
        tried.append(name)
        raise ArchiveFailed("no")

    monkeypatch.setattr(bench.runtime.archive, "write", refuse)
    add_receipts(bench.database, [receipt("c", "b/1")])
    for _ in range(5):
        bench.sweep()
    assert len(tried) == 1


def test_a_database_that_was_put_back_overwrites_nothing(bench, place):
    add_receipts(bench.database, [receipt("c", "b/1")])
    bench.sweep()
    (before,) = lines(place)
    with bench.database.begin() as tx:
        tx.run("UPDATE erasure_archive SET segment = 0")
    add_receipts(bench.database, [receipt("c", "b/2")])
    bench.sweep()
    assert len(list(place.iterdir())) == 2
    assert before.row["id"] in ids(place)


def test_another_address_is_a_new_archive_with_everything(bench, tmp_path):
    add_receipts(bench.database, [receipt("c", "b/1")])
    bench.sweep()
    other = tmp_path / "other"
    bench.runtime.archive = make_store(ArchivePlace(other.as_uri()))
    bench.sweep()
    assert ids(other) == stored(bench)


def test_no_transaction_is_open_while_the_archive_is_written(bench, monkeypatch):
    seen = []
    monkeypatch.setattr(bench.runtime.archive, "write", lambda name, data: seen.append(bench.database.in_transaction))
    add_receipts(bench.database, [receipt("c", "b/1")])
    bench.sweep()
    assert seen == [False]


def test_a_numbered_batch_is_finished_before_another_begins(bench):
    with bench.database.begin() as tx:
        begin_archive(tx, "file:///x")
    add_receipts(bench.database, [receipt("c", f"b/{n}") for n in range(5)])
    for _ in range(2):
        with bench.database.begin() as tx:
            assert next_segment(tx, 2) == 1
