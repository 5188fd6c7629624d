"""Tracking while cases are opened, on PostgreSQL: nothing slips between, and no two cases leave it to each other."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import sqlalchemy as sa
from waiting import someone_waits, wait_for

from expunge.models import open_case, track
from expunge.models.database import Database
from expunge.models.errors import InvalidCase
from expunge.models.purge_tables import InventoryItem, Tombstone
from expunge.models.tables import OutboxEntry
from expunge.models.tombstones import case_id_of

WRITERS, EACH, CASES = 8, 15, 6


@pytest.fixture
def database(postgres_url):
    opened = Database.open(postgres_url, pool_size=WRITERS + 4)
    yield opened
    opened.close()


def _track(connection, locator, subject="s", conversation=None):
    return track(
        connection, account="mem", kind="object", locator=f"b/{locator}", subject=subject, conversation=conversation
    )


def _rows(database):
    with database.read() as tx:
        items = {row.locator: row.left_by for row in tx.connection.execute(sa.select(InventoryItem.__table__))}
        entries = [row.locator for row in tx.connection.execute(sa.select(OutboxEntry.__table__))]
    return items, entries


def _race(database, work, erase):
    """Eight threads of `work(number)`, and `erase(number)` beside them."""
    with ThreadPoolExecutor(WRITERS + 1) as pool:
        writers = [pool.submit(work, number) for number in range(WRITERS)]
        erasers = [pool.submit(erase, number) for number in range(CASES)]
        for future in [*writers, *erasers]:
            future.result()


@pytest.mark.parametrize("isolation", ["READ COMMITTED", "REPEATABLE READ"])
def test_no_object_slips_past_an_open_case(database, isolation):
    engine = database.engine.execution_options(isolation_level=isolation)
    retried = []

    def work(writer):
        for number in range(EACH):
            while True:
                try:
                    with engine.begin() as connection:
                        connection.exec_driver_sql("SELECT 1 FROM erasure_case LIMIT 1")  # the snapshot is taken here
                        _track(connection, f"{writer}-{number}")
                    break
                except sa.exc.OperationalError as error:
                    if error.orig.sqlstate != "40001":
                        raise
                    retried.append(error)

    def erase(number):
        with database.begin() as tx:
            open_case(tx.connection, case_id=f"c{number}", subject="s", inventory=True, nothing_found=True)
            # a case for which nothing was found would be complete, and take nothing more
            tx.run("UPDATE erasure_case SET completed_at = NULL, nothing_found = FALSE WHERE id = :c", c=f"c{number}")

    _race(database, work, erase)
    assert isolation != "READ COMMITTED" or retried == []
    items, entries = _rows(database)
    assert items == {}
    assert sorted(entries) == sorted(f"b/{writer}-{number}" for writer in range(WRITERS) for number in range(EACH))


def test_no_object_slips_past_a_purge(database):
    def work(writer):
        for number in range(EACH):
            with database.begin() as tx:
                _track(tx.connection, f"{writer}-{number}", f"s{writer}", f"c{number % CASES}")

    def erase(number):
        conversation = f"c{number}"
        with database.begin() as tx:
            open_case(
                tx.connection,
                case_id=case_id_of("chat", conversation),
                subject="owner",
                conversation=conversation,
                inventory=True,
                nothing_found=True,
            )
            tx.connection.execute(
                sa.insert(Tombstone.__table__).values(graph="chat", conversation=conversation, principal="owner")
            )

    _race(database, work, erase)
    items, entries = _rows(database)
    assert items == {}
    assert len(entries) == len(set(entries)) == WRITERS * EACH


def test_the_last_owner_is_the_last_even_if_all_go_at_once(database):
    objects = [f"o{number}" for number in range(20)]
    for subject in range(CASES):
        with database.begin() as tx:
            for name in objects:
                _track(tx.connection, name, f"s{subject}")
    together = threading.Barrier(CASES)

    def erase(number):
        together.wait()
        with database.begin() as tx:
            return open_case(tx.connection, subject=f"s{number}", inventory=True)

    with ThreadPoolExecutor(CASES) as pool:
        opened = list(pool.map(erase, range(CASES)))
    items, entries = _rows(database)
    assert items == {}
    assert sorted(entries) == sorted(f"b/{name}" for name in objects)
    assert sorted(case.shared for case in opened) == [0] + [20] * (CASES - 1)


def test_a_case_waits_for_whoever_tracks_and_takes_it(database):
    with ThreadPoolExecutor(1) as pool:
        with database.engine.begin() as connection:
            _track(connection, "1")

            def erase():
                with database.begin() as tx:
                    return open_case(tx.connection, subject="s", inventory=True)

            case = pool.submit(erase)
            wait_for(lambda: someone_waits(database), what="the case")
        assert case.result().added == 1


def test_a_track_waits_for_a_case_and_joins_it(database):
    with ThreadPoolExecutor(1) as pool:
        with database.engine.begin() as connection:
            _track(connection, "0")
            open_case(connection, case_id="c1", subject="s", inventory=True)

            def follow():
                with database.begin() as tx:
                    return _track(tx.connection, "1")

            later = pool.submit(follow)
            wait_for(lambda: someone_waits(database), what="the track")
            # those of other subjects do not wait
            with database.begin() as tx:
                _track(tx.connection, "2", "other")
        assert later.result().case_id == "c1"


@pytest.mark.parametrize("isolation", ["REPEATABLE READ", "SERIALIZABLE"])
def test_a_case_needs_read_committed(database, isolation):
    engine = database.engine.execution_options(isolation_level=isolation)
    with engine.begin() as connection, pytest.raises(InvalidCase, match=f"at {isolation} cannot see"):
        open_case(connection, subject="s", inventory=True, nothing_found=True)
    with database.read() as tx:
        assert tx.rows("SELECT id FROM erasure_case") == []


@pytest.mark.parametrize("isolation", ["REPEATABLE READ", "SERIALIZABLE"])
def test_an_older_snapshot_is_told_to_repeat(database, isolation):
    """With the row that the case touches taken out, the object would be in the inventory beside its open case."""
    engine = database.engine.execution_options(isolation_level=isolation)
    with engine.connect() as connection, connection.begin():
        connection.exec_driver_sql("SELECT 1 FROM erasure_case LIMIT 1")
        with database.begin() as tx:
            _track(tx.connection, "0")
            open_case(tx.connection, case_id="c1", subject="s", inventory=True)
        with pytest.raises(sa.exc.OperationalError) as raised:
            _track(connection, "1")
        assert raised.value.orig.sqlstate == "40001"
