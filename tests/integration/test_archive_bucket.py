"""An archive in a bucket, on each S3 server; and what is told when the bucket says no."""

import json
from datetime import UTC, datetime

import pytest
from doubles.running import Bench
from rows import add_receipts, receipt

from expunge.models import schema
from expunge.models.archive import read_archive
from expunge.models.database import Database
from expunge.models.journal import read
from expunge.models.replay import replay
from expunge.models.replay_spool import spooled
from expunge.tasks.archive_stores import ArchiveFailed, ArchivePlace, ArchiveStore, make_store
from expunge.tasks.replay_source import Source

SINCE = datetime(2020, 1, 1, tzinfo=UTC)


@pytest.fixture(params=["moto", "weed"])
def bucket(request, monkeypatch):
    """Where, and the server."""
    server = request.getfixturevalue(request.param)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", server.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", server.secret_key)
    return ArchivePlace(f"s3://{server.new_bucket()}/a b/expunge", server.url, "us-east-1"), server


@pytest.fixture
def bench(sqlite_url):
    database = Database.open(sqlite_url)
    yield Bench(database)
    database.close()


def _lines(store: ArchiveStore):
    for name in store.names():
        with store.open(name) as stream:
            yield from read(stream, name)


def test_what_is_written_is_read_and_replayed(bench, bucket, tmp_path):
    place, server = bucket
    bench.runtime.archive = make_store(place)
    add_receipts(bench.database, [receipt("c1", f"b/{n}") for n in range(3)])
    bench.sweep()
    add_receipts(bench.database, [receipt("c1", "b/é\u2028")])
    bench.sweep()
    locators = [line.row["locator"] for line in _lines(bench.runtime.archive)]
    assert sorted(locators[:3]) == ["b/0", "b/1", "b/2"]  # recorded at one moment
    assert locators[3:] == ["b/é\u2028"]
    name = place.url.removeprefix("s3://").partition("/")[0]
    assert [key.rpartition("/")[0] for key in server.keys(name)] == ["a b/expunge"] * 2

    other = Database.open(f"sqlite:///{tmp_path}/other.db")
    schema.migrate(other)
    source = Source(place.url, place)
    with spooled(SINCE) as spool:
        source.read_into(spool)
        done = replay(other, spool, by="dana", last_segment=source.last_segment)
    assert (done.added, done.receipts, source.last_segment) == (4, 4, 2)
    other.close()


def test_a_repeated_write_is_the_same_object(bench, bucket, monkeypatch):
    place, server = bucket
    store = make_store(place)
    bench.runtime.archive = store
    add_receipts(bench.database, [receipt("c1", "b/1")])
    write = store.write

    def lose(name: str, data: bytes) -> None:
        write(name, data)
        raise ArchiveFailed("the bucket cannot be reached: ReadTimeoutError")

    monkeypatch.setattr(store, "write", lose)
    bench.sweep()
    monkeypatch.setattr(store, "write", write)
    bench.later(1000)
    bench.sweep()
    assert len(list(_lines(store))) == 1
    assert len(server.keys(place.url.removeprefix("s3://").partition("/")[0])) == 1


def test_a_bucket_with_object_lock_takes_it(bench, moto, monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", moto.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", moto.secret_key)
    store = make_store(ArchivePlace(f"s3://{moto.new_bucket(lock=True)}", moto.url, "us-east-1"))
    bench.runtime.archive = store
    add_receipts(bench.database, [receipt("c1", "b/1")])
    bench.sweep()
    assert len(list(_lines(store))) == 1


def test_a_bucket_that_is_not_there_is_told_without_its_name(bench, moto, monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", moto.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", moto.secret_key)
    bench.runtime.archive = make_store(ArchivePlace("s3://no-such-bucket-4711/x", moto.url, "us-east-1"))
    add_receipts(bench.database, [receipt("c1", "b/1")])
    bench.sweep()
    with bench.database.read() as tx:
        state = read_archive(tx)
    assert state is not None
    assert state.reason == "the bucket refused put_object: NoSuchBucket"
    (notice,) = bench.notices(kind="archive.failed")
    assert json.loads(notice.body)["reason"] == state.reason


def test_a_server_that_is_away_is_told(bench, monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    bench.runtime.archive = make_store(ArchivePlace("s3://b/x", "http://127.0.0.1:9", "us-east-1"))
    add_receipts(bench.database, [receipt("c1", "b/1")])
    bench.sweep()
    with bench.database.read() as tx:
        state = read_archive(tx)
    assert state is not None
    assert state.reason == "the bucket cannot be reached: EndpointConnectionError"
