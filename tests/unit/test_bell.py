"""When the bell rings: after the commit of the host's transaction, and never otherwise."""

import os
import threading
import time
from collections.abc import Callable

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from expunge.models import Target, bell, open_case
from expunge.models.database import Database


class Ear:
    """A bell that remembers."""

    def __init__(self) -> None:
        self.heard: list[frozenset[str]] = []
        self._changed = threading.Condition()

    def __call__(self, lanes: frozenset[str]) -> None:
        with self._changed:
            self.heard.append(lanes)
            self._changed.notify_all()

    def wait(self, rings: int = 1) -> list[frozenset[str]]:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.heard) >= rings, timeout=10)
            return self.heard


@pytest.fixture
def ear():
    ear = Ear()
    bell.hang(ear)
    return ear


@pytest.fixture
def engine(sqlite_url):
    opened = Database.open(sqlite_url)
    yield opened.engine
    opened.close()


def put(where, case="c1", account="a") -> None:
    open_case(where, case_id=case, subject="s", targets=[Target(account, "file", f"file-{case}")])


def test_a_session_rings_after_its_commit(engine, ear) -> None:
    seen: list[int] = []

    def look(lanes: frozenset[str]) -> None:
        with engine.connect() as connection:
            seen.append(connection.execute(sa.text("SELECT count(*) FROM erasure_outbox")).scalar_one())
        ear(lanes)

    bell.hang(look)
    with Session(engine) as session:
        put(session)
        assert ear.heard == []
        session.commit()
        assert ear.heard == [frozenset({"a"})]
    assert seen == [1]


def test_a_rollback_rings_nothing_and_is_not_remembered(engine, ear) -> None:
    with Session(engine) as session:
        put(session)
        session.rollback()
        session.execute(sa.text("SELECT 1"))
        session.commit()
        put(session)
        session.close()
    assert ear.heard == []


def test_a_savepoint_does_not_ring_and_its_transaction_does(engine, ear) -> None:
    with Session(engine) as session, session.begin():
        with session.begin_nested():
            put(session)
        assert ear.heard == []
    assert ear.heard == [frozenset({"a"})]


def test_one_ring_names_all_lanes_and_every_transaction_rings_anew(engine, ear) -> None:
    with Session(engine) as session:
        put(session, "c1", "a")
        put(session, "c2", "b")
        session.commit()
        put(session, "c3", "c")
        session.commit()
    assert ear.heard == [frozenset({"a", "b"}), frozenset({"c"})]


def test_a_connection_rings_when_its_commit_is_through(engine, ear) -> None:
    with engine.connect() as connection:
        put(connection)
        connection.rollback()
        put(connection, account="b")
        began = time.monotonic()
        connection.commit()
    assert ear.wait() == [frozenset({"b"})]
    assert time.monotonic() - began >= bell.AFTER_COMMIT_SECONDS


def test_a_bell_that_fails_is_nobodys_trouble(engine) -> None:
    def broken(lanes: frozenset[str]) -> None:
        raise RuntimeError("no")

    bell.hang(broken)
    with Session(engine) as session, session.begin():
        put(session)


def test_without_a_bell_nothing_happens(engine, monkeypatch) -> None:
    bell.take_down()
    monkeypatch.setattr(bell, "entry_points", lambda **_: pytest.fail("looked for a bell"))
    with Session(engine) as session, session.begin():
        put(session)


class Point:
    """An entry point."""

    def __init__(self, load: Callable[[], object]) -> None:
        self.load = load


@pytest.fixture
def untouched(monkeypatch):
    """As in a process where nobody has hung or taken down a bell."""
    monkeypatch.setattr(bell, "_bell", None)
    monkeypatch.setattr(bell, "_may_look", True)


@pytest.mark.usefixtures("untouched")
def test_the_first_ring_finds_a_bell_by_its_entry_point(engine, monkeypatch) -> None:
    found, looks = Ear(), []

    def points(*, group: str):
        looks.append(threading.current_thread())
        assert group == "expunge.bell"
        return [Point(lambda: lambda: None), Point(lambda: lambda: found)]

    monkeypatch.setattr(bell, "entry_points", points)
    for number in range(3):
        with Session(engine) as session, session.begin():
            put(session, f"c{number}", f"lane{number}")
    found.wait()
    deadline = time.monotonic() + 10
    while frozenset().union(*found.heard) != {"lane0", "lane1", "lane2"}:
        assert time.monotonic() < deadline
    assert len(looks) == 1
    assert looks[0] is not threading.main_thread()


@pytest.mark.usefixtures("untouched")
def test_any_trouble_while_looking_means_no_bell(engine, monkeypatch) -> None:
    asked = threading.Event()

    def broken():
        asked.set()
        raise ImportError("no celery here")

    monkeypatch.setattr(bell, "entry_points", lambda **_: [Point(broken)])
    with Session(engine) as session, session.begin():
        put(session)
    assert asked.wait(10)
    with Session(engine) as session, session.begin():
        put(session, "c2")


def test_the_products_own_bell_needs_a_broker_that_others_hear(monkeypatch, tmp_path) -> None:
    from expunge.tasks.doorbell import Doorbell
    from expunge.worker.bell import default_bell

    monkeypatch.chdir(tmp_path)
    assert default_bell() is None
    monkeypatch.setenv("EXPUNGE_BROKER_URL", "redis://127.0.0.1:1/0")
    assert isinstance(default_bell(), Doorbell)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_rings_by_itself(engine, ear) -> None:
    with engine.connect() as connection:
        put(connection)
        connection.commit()
    ear.wait()
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        bell.hang(lambda lanes: os.write(write, b"rung") and None)
        bell._late.ring(frozenset({"a"}), 0.0)
        threading.Event().wait(10)
        os._exit(0)
    os.close(write)
    assert os.read(read, 4) == b"rung"
    os.kill(child, 9)
    os.waitpid(child, 0)
    os.close(read)
