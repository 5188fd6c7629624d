"""Purges against every writer at once, on PostgreSQL: no row of a purged conversation is left or comes back, and nobody
deadlocks. The same with the writers' lock taken out brings rows back, so the test can see the fault.

CHAOS_PURGES=500 for the long round.
"""

import os
import random
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

import pytest
import sqlalchemy as sa
from chaos.conftest import ROUNDS, SEED
from sqlalchemy.exc import DBAPIError
from waiting import someone_waits, wait_for

from expunge.models.database import Database
from expunge.models.errors import ConversationBusy, ConversationPurged, RunActive, translate
from expunge.models.fence import fence_sql
from expunge.models.graph_live import read_graph
from expunge.models.purge import purge
from expunge.models.purge_again import came_back
from expunge.models.purge_rows import ConversationRows
from expunge.models.purged import Principal, PurgeStatus
from expunge.models.session_schema import create_sessions
from expunge.models.sessions import SESSIONS

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900)]

PURGES = int(os.environ.get("CHAOS_PURGES", str(30 if ROUNDS == 1 else 500)))
WRITERS = 7
ALIVE = 6
"""Conversations at a time."""
ADA = Principal("ada", "acme")

# {s}, {o}: two conversations; {n}: a fresh id. What a conversation begins with is run-S, event-S … (_BEGIN)
_BEGIN = (
    "INSERT INTO session (id, tenant_id, principal_id) VALUES ('{s}', 'acme', 'ada')",
    "INSERT INTO run (id, session_id, state) VALUES ('run-{s}', '{s}', 'succeeded')",
    "INSERT INTO event (id, session_id, run_id) VALUES ('event-{s}', '{s}', 'run-{s}')",
    "INSERT INTO tool_invocation (id, run_id) VALUES ('tool-{s}', 'run-{s}')",
    "INSERT INTO artifact (id, session_id, account, kind, locator)"
    " VALUES ('artifact-{s}', '{s}', 'files', 'object', 'bucket/{s}')",
    "INSERT INTO memory (id, source_session_id) VALUES ('memory-{s}', '{s}')",
    "INSERT INTO skill_revision (id, authoring_run_id) VALUES ('skill-{s}', 'run-{s}')",
)
_WRITES = (
    "INSERT INTO run (id, session_id, state) VALUES ('{n}', '{s}', 'succeeded')",
    "INSERT INTO run (id, session_id, parent_run_id, state) VALUES ('{n}', '{s}', 'run-{o}', 'failed')",
    "INSERT INTO event (id, session_id) SELECT '{n}-' || n, '{s}' FROM generate_series(1, 20) n",
    "INSERT INTO event (id, session_id, run_id) VALUES ('{n}', '{s}', 'run-{s}'), ('{n}o', '{o}', 'run-{o}')",
    "INSERT INTO checkpoint (id, run_id) VALUES ('{n}', 'run-{s}')",
    "INSERT INTO projection (id, session_id) VALUES ('{n}', '{s}')",
    "INSERT INTO tool_invocation (id, run_id) VALUES ('{n}', 'run-{s}')",
    "INSERT INTO approval (id, tool_invocation_id) VALUES ('{n}', 'tool-{s}')",
    "INSERT INTO artifact (id, session_id, run_id) VALUES ('{n}', '{s}', 'run-{o}')",
    "INSERT INTO memory (id, source_session_id, formed_session_id) VALUES ('{n}', '{s}', '{o}')",
    "INSERT INTO memory_rejection (id, session_id, memory_id) VALUES ('{n}', '{s}', 'memory-{o}')",
    "INSERT INTO recall_trace (id, session_id, memory_id) VALUES ('{n}', '{s}', 'memory-{s}')",
    "INSERT INTO consolidation (id, source_session_id) VALUES ('{n}', '{s}')",
    "INSERT INTO knowledge_document (id, artifact_id) VALUES ('{n}', 'artifact-{s}')",
    "INSERT INTO skill_revision (id, authoring_run_id) VALUES ('{n}', 'run-{s}')",
    "UPDATE session SET title = '{n}' WHERE id = '{s}'",
    "UPDATE session SET title = '{n}' WHERE id IN ('{s}', '{o}')",
    "UPDATE run SET parent_run_id = 'run-{o}' WHERE id = 'run-{s}'",
    "UPDATE event SET payload = '{{}}' WHERE session_id = '{s}'",
    "UPDATE event SET run_id = 'run-{o}' WHERE id = 'event-{s}'",
    "UPDATE tool_invocation SET result = '{n}' WHERE run_id = 'run-{s}'",
    "UPDATE tool_invocation SET run_id = 'run-{o}' WHERE id = 'tool-{s}'",
    "UPDATE artifact SET locator = 'bucket/{n}' WHERE session_id = '{s}'",
    "UPDATE memory SET formed_session_id = '{o}' WHERE id = 'memory-{s}'",
    "UPDATE memory SET text = '{n}' WHERE source_session_id IN ('{s}', '{o}')",
    "UPDATE skill_revision SET authoring_run_id = 'run-{o}' WHERE id = 'skill-{s}'",
    "UPDATE checkpoint SET state = '{{}}' WHERE run_id IN ('run-{s}', 'run-{o}')",
    # an upsert, and a row that leaves and is written anew
    "INSERT INTO projection (id, session_id) VALUES ('p-{s}', '{s}') ON CONFLICT (id) DO UPDATE SET state = '{{}}'",
    "DELETE FROM event WHERE id = 'event-{s}'",
    "INSERT INTO session (id, tenant_id, principal_id) VALUES ('{s}', 'acme', 'ada') ON CONFLICT (id) DO NOTHING",
)
_LOOSE = (
    "INSERT INTO recall_trace (id, session_id) VALUES ('{n}', '{s}')",
    "INSERT INTO memory (id, formed_session_id) VALUES ('{n}', '{s}'), ('{n}o', '{o}')",
    "INSERT INTO consolidation (id, source_session_id) VALUES ('{n}', '{s}')",
)
"""By references without a foreign key, which would fail many a purge if the fence did not hold writers off."""


@pytest.fixture
def host(postgres_url: str) -> Iterator[Database]:
    database = Database.open(postgres_url, pool_size=WRITERS + 6)
    create_sessions(database)
    yield database
    database.close()


class Talk:
    """What all threads share: the conversations there are, and what went wrong."""

    def __init__(self, database: Database, writes: Sequence[str] = _WRITES) -> None:
        self.database = database
        self.writes = writes
        self.stop = threading.Event()
        self.alive: list[str] = []
        self.purged: list[str] = []
        self.counts: Counter[str] = Counter()
        self.faults: list[str] = []
        self.purgers: set[str] = set()
        """The database's processes that purge."""
        self._made = 0
        for _ in range(ALIVE):
            self.begin_one()

    def begin_one(self) -> None:
        self._made += 1
        name = f"s{self._made}"
        with self.database.engine.begin() as connection:
            for statement in _BEGIN:
                connection.exec_driver_sql(statement.format(s=name))
        self.alive.append(name)

    def write(self, seed: int) -> None:
        """Transactions of one to four statements, each over two conversations; some are purged, or about to be."""
        draw, number = random.Random(seed), 0
        while not self.stop.is_set():
            names = [*self.alive, *self.purged[-2:]]
            with self._attempt("write"), self.database.engine.begin() as connection:
                for _ in range(draw.randint(1, 4)):
                    number += 1
                    names_here = {"s": draw.choice(names), "o": draw.choice(names), "n": f"w{seed}-{number}"}
                    connection.exec_driver_sql(draw.choice(self.writes).format(**names_here))

    def purge(self, seed: int, until: int) -> None:
        draw, own = random.Random(seed), Database(sa.create_engine(self.database.engine.url))
        while not self.stop.is_set() and len(self.purged) < until:
            name = draw.choice(self.alive)
            with self._attempt("purge"):
                with own.engine.begin() as connection:
                    self.purgers.add(str(connection.connection.dbapi_connection.info.backend_pid))
                    purged = purge(connection, SESSIONS, name, principal=ADA)
                if purged.status == PurgeStatus.PURGED:
                    self.purged.append(name)
                    self.begin_one()
                    self.alive.remove(name)
        own.close()

    @contextmanager
    def _attempt(self, what: str) -> Iterator[None]:
        try:
            yield
        except (ConversationBusy, ConversationPurged, RunActive) as error:
            if "deadlock" in str(error.__cause__):
                self.faults.append(f"{what}: {error.__cause__}")
            self.counts[f"{what} {type(error).__name__}"] += 1
        except DBAPIError as error:
            known, state = translate(error), getattr(error.orig, "sqlstate", None) or ""
            # what a key says of rows that came and went is the host's own, and so is a deadlock of writers alone:
            # these here take their rows in any order
            own = state.startswith("23") or (state == "40P01" and not self._names_a_purger(error))
            if known is None and not own:
                self.faults.append(f"{what}: {error.orig}")
            self.counts[f"{what} {type(known or error).__name__}"] += 1
        except BaseException as error:
            self.faults.append(f"{what}: {error!r}")
            raise
        else:
            self.counts[what] += 1

    def _names_a_purger(self, error: DBAPIError) -> bool:
        return not self.purgers.isdisjoint(re.findall(r"[Pp]rocess (\d+)", str(error.orig)))


def _run(talk: Talk, purges: int) -> None:
    writers = [threading.Thread(target=talk.write, args=(SEED * 1000 + n,)) for n in range(WRITERS)]
    purgers = [threading.Thread(target=talk.purge, args=(SEED * 1000 + 500 + n, purges)) for n in range(2)]
    for thread in (*writers, *purgers):
        thread.start()
    for thread in purgers:
        thread.join(800)
    talk.stop.set()
    for thread in writers:
        thread.join(60)


def _left(database: Database) -> list[str]:
    with database.read() as tx:
        return list(came_back(tx.connection, SESSIONS))


def test_nothing_is_left_or_comes_back(host):
    talk = Talk(host)
    _run(talk, PURGES)
    assert talk.faults == []
    assert len(talk.purged) >= PURGES, talk.counts
    assert talk.counts["write"] > PURGES, talk.counts
    assert _left(host) == []
    with host.read() as tx:
        # what is reached through a run or an artifact only
        for table, column, parent in (
            ("checkpoint", "run_id", "run"),
            ("tool_invocation", "run_id", "run"),
            ("event", "run_id", "run"),
            ("approval", "tool_invocation_id", "tool_invocation"),
            ("knowledge_document", "artifact_id", "artifact"),
        ):
            assert not tx.rows(
                f"SELECT 1 FROM {table} t WHERE {column} IS NOT NULL"
                f" AND NOT EXISTS (SELECT 1 FROM {parent} p WHERE p.id = t.{column})"
            ), table


# -- the same step by step, with the lock and without


def _without_lock(database: Database) -> None:
    with database.engine.begin() as connection:
        live = read_graph(connection, SESSIONS)
        for statement in fence_sql(live, "postgresql", lock=False):
            connection.exec_driver_sql(statement.replace("%", "%%"))


def _write_then_purge(database: Database, finish: Callable[[sa.Connection], None]) -> None:
    """A writer has inserted an event and not committed; the purge begins; then the writer goes on."""
    Talk(database)
    done = threading.Event()

    def run() -> None:
        with suppress(ConversationBusy), database.engine.begin() as connection:
            purge(connection, SESSIONS, "s1", principal=ADA)
        done.set()

    with database.engine.connect() as writer:
        transaction = writer.begin()
        # a reference without a foreign key: nothing of the database's own holds the purge up
        writer.exec_driver_sql("INSERT INTO recall_trace (id, session_id) VALUES ('late', 's1')")
        purger = threading.Thread(target=run)
        purger.start()
        finish(writer)
        if transaction.is_active:
            transaction.commit()
    purger.join(30)
    assert done.is_set()


def test_a_writer_that_was_first_is_waited_for(host):
    _write_then_purge(host, lambda writer: wait_for(lambda: someone_waits(host), what="the purge"))
    with host.read() as tx:
        assert tx.rows("SELECT id FROM recall_trace WHERE session_id = 's1'") == []
        assert len(tx.rows("SELECT 1 FROM erasure_tombstone")) == 1


def test_without_the_lock_its_row_is_left(host):
    """So the tests above can see the fault."""
    _without_lock(host)

    def purged() -> bool:
        with host.read() as tx:
            return bool(tx.rows("SELECT 1 FROM erasure_tombstone"))

    _write_then_purge(host, lambda writer: wait_for(purged, what="the purge"))
    assert _left(host) == ["s1"]


def test_without_the_lock_rows_come_back_in_the_random_run_too(host, monkeypatch):
    _without_lock(host)
    # a purge that looks at what it has left notices some of it, and is rolled back
    monkeypatch.setattr(ConversationRows, "left", lambda rows: [])
    talk = Talk(host, _LOOSE)
    for purges in range(10, 310, 10):  # a quiet machine may need more of them until two meet
        talk.stop.clear()
        _run(talk, purges)
        if _left(host):
            break
    assert _left(host) != []
