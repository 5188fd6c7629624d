"""P22: a restore brings back what was erased. Symptoms are public reports, and what is right is shown to happen.

The restored database is a copy that was made before: what happened since is in none of its tables.
"""

import json
import sqlite3
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa
from click.testing import CliRunner
from doubles import talks
from doubles.running import Bench
from doubles.talks import ADA, TALKS

from expunge.models import Target, open_case
from expunge.models.database import Database
from expunge.models.errors import ConversationPurged, translate
from expunge.models.holds import place_hold, release_hold
from expunge.models.purge import purge
from expunge.tasks.archive_stores import ArchivePlace, make_store
from expunge.worker.cli import main


class World:
    """A host's database and its store; both can be put back to how they were when `backup` was called."""

    def __init__(self, database: Database, tmp_path: Path, postgres=None) -> None:
        self.tmp_path = tmp_path
        self.postgres = postgres
        self.copies = 0
        self.made: list[str] = []
        self.archive = tmp_path / "archive"
        self._use(database)

    def _use(self, database: Database) -> None:
        self.database = database
        stores = self.bench.stores if hasattr(self, "bench") else None
        self.bench = Bench(database)
        if stores is not None:
            self.bench.stores = stores
            self.bench.runtime = self.bench.another()
        self.bench.runtime.archive = make_store(ArchivePlace(self.archive.as_uri()))
        url = database.engine.url.render_as_string(hide_password=False)
        self.config = self.tmp_path / "expunge.toml"
        self.config.write_text(
            f'database_url = "{url}"\narchive_url = "{self.archive.as_uri()}"\n'
            '[graphs.talks]\nimport = "doubles.talks:TALKS"\n'
        )

    def backup(self):
        """A copy of the database and of what is in the store, and the moment."""
        self.copies += 1
        url = self.database.engine.url
        self.database.close()
        if self.database.dialect == "sqlite":
            copy = self.tmp_path / f"backup{self.copies}.db"
            with sqlite3.connect(url.database) as connection:
                connection.execute("VACUUM INTO ?", (str(copy),))
            connection.close()
            where = f"sqlite:///{copy}"
        else:
            self.made.append(self.postgres.create(url.database))
            where = self.postgres.url(self.made[-1])
        return where, set(self.bench.store.objects), datetime.now(UTC)

    def restore(self, backup) -> None:
        where, objects, _ = backup
        self.database.close()
        self._use(Database.open(where))
        self.bench.store.objects = set(objects)
        self.bench.store.log.clear()

    def run(self, *arguments: str, code: int = 0):
        result = CliRunner().invoke(main, [*arguments, "--config", str(self.config)])
        assert result.exit_code == code, (result.output, result.exception)
        return result

    def export(self, *arguments: str) -> Path:
        path = self.tmp_path / "export.jsonl"
        self.run("export", "--output", str(path), *arguments)
        return path

    def replay(self, source: Path, since: datetime, *arguments: str):
        result = self.run("replay", "--from", str(source), "--since", since.isoformat(), "--json", *arguments)
        return json.loads(result.stdout)

    def erase(self, *locators: str, case: str = "c1", **more) -> None:
        self.bench.store.put(*locators)
        self.bench.open(*locators, case=case, **more)
        self.bench.settle_all(step=0)
        self.bench.sweep()

    def sql(self, statement: str, **parameters):
        with self.database.engine.begin() as connection:
            result = connection.execute(sa.text(statement), parameters)
            return [tuple(row) for row in result] if result.returns_rows else []


@pytest.fixture
def world(database, tmp_path, request):
    postgres = request.getfixturevalue("postgres") if database.dialect == "postgresql" else None
    made = World(database, tmp_path, postgres)
    yield made
    made.database.close()
    for name in made.made:
        postgres.drop(name)


@pytest.mark.parametrize("source", ["export", "archive"])
def test_p22_what_was_erased_since_the_backup_is_erased_again(world, source):
    """Symptom: objects that were erased are there again after a restore of database and bucket, and nothing remembers.

    OpenTranscribe#442, chatto#219, saas-factory#203, decidim#3315, kafka-backup#170.
    """
    world.erase("b/before", case="old")
    world.bench.store.put("b/1", "b/2", "b/stays")
    backup = world.backup()
    world.erase("b/1", "b/2")
    before = {str(row.id): row for row in world.bench.receipts()}
    where = world.export() if source == "export" else world.archive
    world.restore(backup)
    assert world.bench.store.objects == {"b/1", "b/2", "b/stays"}

    told = world.replay(where, backup[2])
    assert (told["added"], told["cases"], told["receipts"]) == (2, 1, 2)
    assert {row.locator for row in world.bench.entries()} == {"b/1", "b/2"}
    assert world.bench.case("c1").completed_at is None
    world.bench.settle_all()
    assert world.bench.store.objects == {"b/stays"}
    after = {str(row.id): row for row in world.bench.receipts()}
    assert before.items() <= after.items()
    assert len(after) == len(before) + 2
    assert world.bench.case("c1").completed_at is not None
    assert world.sql("SELECT count(*) FROM erasure_decision WHERE decision = 'replay'") == [(1,)]


def test_p22_only_the_bucket_was_restored(world):
    """Symptom: the case is complete, its receipts are there, and so are the objects: a closed case adds no target.

    kafka-backup#170.
    """
    world.bench.store.put("b/1")
    backup = world.backup()
    world.erase("b/1")
    export = world.export()
    world.bench.store.objects = set(backup[1])
    assert world.replay(export, backup[2])["added"] == 1
    world.bench.settle_all()
    assert world.bench.store.objects == set()
    assert world.bench.statuses() == ["deleted", "deleted"]


def test_p22_a_purged_conversation_stays_purged(world):
    """Symptom: a purge is undone by a restore, and a write, or a sign-in, makes the conversation anew.

    ovumcy PR#644, samograph#220 (re-created by sign-in), pagecord PR#1215.
    """
    talks.create(world.database)
    backup = world.backup()
    with world.database.engine.begin() as connection:
        purge(connection, TALKS, "t1", principal=ADA)
    export = world.export()
    world.restore(backup)
    assert world.sql("SELECT count(*) FROM erasure_tombstone") == [(0,)]
    result = world.run("replay", "--from", str(export), "--since", backup[2].isoformat())
    assert "expunge purge --again --all --yes" in result.stdout
    world.run("purge", "--again", "--all", "--yes")
    assert world.sql("SELECT id FROM talk") == [("t2",)]
    with pytest.raises(sa.exc.DBAPIError) as caught:
        world.sql("INSERT INTO talk (id, tenant, owner) VALUES ('t1', 'acme', 'ada')")
    assert isinstance(translate(caught.value), ConversationPurged)
    assert {row[0] for row in world.sql("SELECT locator FROM erasure_outbox")} == {"file-1"}


def test_p22_a_tombstone_of_400_days_still_replays(world):
    """Symptom: the request leaves the look-back window of nine weeks, and its rows come back.

    mozilla/bigquery-etl PR#9683.
    """
    old = datetime.now(UTC) - timedelta(days=400)
    empty = world.backup()
    written = old.isoformat() if world.database.dialect == "postgresql" else f"{old:%Y-%m-%d %H:%M:%S}.000000"
    world.sql(
        "INSERT INTO erasure_tombstone (graph, conversation, tenant, principal, purged_at)"
        f" VALUES ('talks', 't1', 'acme', 'ada', '{written}')"
    )
    world.bench.sweep()
    export = world.export("--since", datetime.now(UTC).isoformat())
    world.restore(empty)
    for source in (export, world.archive):
        world.replay(source, datetime.now(UTC))
        ((at,),) = world.sql("SELECT purged_at FROM erasure_tombstone")
        assert str(at).startswith(f"{old:%Y-%m-%d %H:%M}")


def test_p22_twice_is_once(world):
    """Symptom: whoever repairs after a restore does it twice, or half, and cannot tell what was done.

    decidim#3315.
    """
    backup = world.backup()
    world.erase("b/1", "b/2", "b/3")
    world.restore(backup)
    first = world.replay(world.archive, backup[2])
    second = world.replay(world.archive, backup[2])
    assert (first["added"], first["receipts"], first["cases"]) == (3, 3, 1)
    assert (second["added"], second["there"], second["receipts"], second["cases"]) == (0, 3, 0, 0)
    assert len(world.bench.entries()) == 3


def test_p22_a_dry_run_says_the_same_and_writes_nothing(world):
    """Symptom: nobody dares to run the repair, because it cannot be tried.

    OpenTranscribe#442.
    """
    world.erase("b/1", case="known")
    backup = world.backup()
    world.erase("b/1", case="known")
    world.erase("b/2", "b/3")
    world.restore(backup)
    told = world.replay(world.archive, backup[2], "--dry-run")
    assert told.pop("dry_run") is True
    assert world.bench.entries() == []
    assert len(world.bench.receipts()) == 1
    assert world.sql("SELECT count(*) FROM erasure_decision") == [(0,)]
    assert world.replay(world.archive, backup[2]) == told


def test_p22_a_hold_is_respected(world):
    """Symptom: the repair after a restore erases what a court has ordered to keep.

    pagecord PR#1215 (a stale tombstone after a legitimate restore).
    """
    backup = world.backup()
    world.erase("b/1")
    world.restore(backup)
    world.bench.store.put("b/1")
    with world.database.begin() as tx:
        place_hold(tx, subject="s", by="lawyer", why="suit")
    assert world.replay(world.archive, backup[2])["added"] == 1
    world.bench.drain()
    assert world.bench.store.objects == {"b/1"}
    assert [row.state for row in world.bench.entries()] == ["held"]


def test_p22_a_hold_that_the_restore_forgot_is_put_back(world):
    """Symptom: the restore forgets the order to keep, and the repair erases what it covers.

    saas-factory#203.
    """
    backup = world.backup()
    world.erase("b/1")
    with world.database.begin() as tx:
        place_hold(tx, subject="s", by="lawyer", why="suit", matter="M-1")
    world.bench.sweep()
    world.restore(backup)
    world.bench.store.put("b/1")
    assert world.replay(world.archive, backup[2])["holds"] == 1
    world.bench.drain()
    assert world.bench.store.objects == {"b/1"}


def test_p22_a_release_that_the_restore_forgot_is_put_back(world):
    """Symptom: the restore brings an order to keep back that was lifted, and the erasure waits for ever.

    pagecord PR#1215 (a stale tombstone after a legitimate restore).
    """
    world.bench.sweep()
    with world.database.begin() as tx:
        hold, _ = place_hold(tx, subject="s", by="lawyer", why="suit")
    world.bench.sweep()
    backup = world.backup()
    with world.database.begin() as tx:
        release_hold(tx, hold, by="lawyer", why="settled")
    world.erase("b/1")
    world.restore(backup)
    world.bench.store.put("b/1")
    for _ in range(2):
        world.replay(world.archive, backup[2])
    assert world.sql("SELECT released_by, released_why FROM erasure_hold") == [("lawyer", "settled")]
    world.bench.settle_all()
    assert world.bench.store.objects == set()


def test_p22_what_was_owed_and_not_erased_yet_is_owed_again(world):
    """Symptom: the request came after the backup, and the restore forgets it before it was done.

    mozilla/bigquery-etl PR#9683.
    """
    backup = world.backup()
    world.bench.store.put("b/1")
    world.bench.open("b/1", basis="gdpr", tenant="acme")
    export = world.export("--since", backup[2].isoformat())
    world.restore(backup)
    world.bench.store.put("b/1")
    assert world.replay(export, backup[2])["added"] == 1
    case = world.bench.case("c1")
    assert (case.basis, case.tenant, case.due_at is not None) == ("gdpr", "acme", True)
    world.bench.settle_all()
    assert world.bench.store.objects == set()


def test_p22_what_was_waived_stays_waived(world):
    """Symptom: a legitimate exception is undone by the repair.

    pagecord PR#1215.
    """
    backup = world.backup()
    world.bench.store.put("b/1")
    world.bench.open("b/1")
    (entry,) = world.bench.entries()
    world.run("waive", str(entry.id), "--by", "dana", "--why", "closed account")
    world.bench.sweep()
    world.restore(backup)
    told = world.replay(world.archive, backup[2])
    assert (told["added"], told["receipts"], told["decisions"]) == (0, 1, 1)
    assert world.bench.entries() == []


def test_p22_ids_that_receipts_name_are_not_given_again(world):
    """Symptom: after the restore a new entry has the number of one that a receipt names, and the history lies.

    kafka-backup#170.
    """
    backup = world.backup()
    world.erase("b/1", "b/2", "b/3")
    used = {row.entry_id for row in world.bench.receipts()}
    world.restore(backup)
    world.replay(world.archive, backup[2])
    assert not used & {row.id for row in world.bench.entries()}


def test_p22_a_decision_whose_number_was_given_to_another_is_kept_beside_it(world):
    """Symptom: two histories after one restore, with the same numbers.

    kafka-backup#170.
    """
    backup = world.backup()
    world.run("pause", "mem", "--by", "before", code=1)  # not in these settings
    with world.database.begin() as tx:
        tx.run("INSERT INTO erasure_decision (decision, actor) VALUES ('pause', 'before')")
    world.bench.sweep()
    world.restore(backup)
    with world.database.begin() as tx:
        tx.run("INSERT INTO erasure_decision (decision, actor) VALUES ('pause', 'after')")
    for _ in range(2):
        world.replay(world.archive, backup[2])
    actors = [row[0] for row in world.sql("SELECT actor FROM erasure_decision WHERE decision = 'pause' ORDER BY id")]
    assert actors == ["after", "before"]


def test_p22_the_archive_goes_on_after_a_restore_and_holds_each_receipt_once(world):
    """Symptom: the witness is overwritten by the restored database, or filled with doubles.

    kafka-backup#170.
    """
    world.erase("b/0", case="old")
    backup = world.backup()
    world.erase("b/1")
    files = {path.name: path.read_bytes() for path in world.archive.iterdir()}
    world.restore(backup)
    world.replay(world.archive, backup[2])
    world.bench.settle_all()
    world.bench.sweep()
    now = {path.name: path.read_bytes() for path in world.archive.iterdir()}
    assert files.items() <= now.items()
    assert len({name[:10] for name in now}) == len(now)  # the numbers go on
    found = [json.loads(line) for name in sorted(now) for line in now[name].splitlines()]
    receipts = [line["id"] for line in found if line["type"] == "receipt"]
    assert sorted(receipts) == sorted({str(row.id) for row in world.bench.receipts()})


@pytest.mark.parametrize("damage", ["cut", "short", "changed", "line", "empty", "missing"])
def test_p22_a_source_that_is_not_whole_is_refused_before_anything_is_written(world, damage):
    """Symptom: half a backup is replayed, and looks like all of it.

    kafka-backup#170.
    """
    backup = world.backup()
    for n in range(3):
        world.erase(f"b/{n}", case=f"c{n}")
    world.restore(backup)
    files = sorted(world.archive.iterdir())
    assert len(files) >= 3
    victim, said = files[1], "line"
    text = victim.read_bytes()
    if damage == "cut":
        victim.write_bytes(text[:-20])
    elif damage == "short":
        victim.write_bytes(b"".join(text.splitlines(keepends=True)[:-1]))
    elif damage == "changed":
        victim.write_bytes(text.replace(b'"attempt":1', b'"attempt":2', 1))
    elif damage == "line":
        victim.write_bytes(text.replace(b'"status":"deleted"', b'"status":"gone"', 1))
        said = "line 2: status: 'gone'"
    elif damage == "empty":
        victim.write_bytes(b"")
        said = "is empty"
    else:
        victim.unlink()
        said = "segment 2 is missing"
    result = world.run("replay", "--from", str(world.archive), "--since", "2020-01-01", code=1)
    assert said in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert world.bench.receipts() == []
    assert world.sql("SELECT count(*) FROM erasure_case") == [(0,)]


def test_p22_an_export_that_begins_too_late_is_refused(world):
    """Symptom: the export of last week is replayed for a backup of last month, and nobody notices the gap.

    mozilla/bigquery-etl PR#9683.
    """
    export = world.export("--since", "2026-10-01")
    result = world.run("replay", "--from", str(export), "--since", "2026-09-01", code=1)
    assert "later than --since" in result.stderr


def test_p22_the_case_of_a_second_look_is_open_again(world):
    """Symptom: what waits for its second look counts as gone, and the restored object stays.

    kafka-backup#170.
    """
    world.erase("b/1")
    receipt = world.bench.receipts()[0]
    with world.database.begin() as tx:
        tx.run(
            "INSERT INTO erasure_outbox (case_id, account, kind, locator, action, settled)"
            " VALUES ('c1', 'mem', 'object', 'b/1', 'verify', true)"
        )
        tx.run("UPDATE erasure_case SET completed_at = opened_at")
    world.bench.store.put("b/1")
    told = world.replay(world.archive, datetime(2020, 1, 1, tzinfo=UTC))
    assert (told["added"], told["again"]) == (0, 1)
    (entry,) = world.bench.entries()
    assert (entry.action, bool(entry.settled)) == ("delete", False)
    assert world.bench.case("c1").completed_at is None
    assert receipt.status == "deleted"


def test_p22_parts_come_with_their_whole(world):
    """Symptom: the repair asks for each message of a conversation that it asks for as a whole.

    OpenTranscribe#442.
    """
    rows = [("conversation", "conv_1"), ("conversation_item", "conv_1/msg_1"), ("conversation_item", "conv_2/msg_1")]
    with world.database.begin() as tx:
        open_case(tx.connection, case_id="c1", subject="s", targets=[Target("mem", *row) for row in rows])
    for entry in world.bench.entries():
        world.sql(
            "INSERT INTO erasure_record (id, case_id, entry_id, subject, account, kind, locator, attempt, action,"
            " status, at) SELECT :id, case_id, id, 's', account, kind, locator, 1, 'delete', 'deleted', created_at"
            " FROM erasure_outbox WHERE id = :entry",
            id=f"00000000-0000-0000-0000-{entry.id:012d}",
            entry=entry.id,
        )
    world.sql("DELETE FROM erasure_outbox")
    world.bench.sweep()
    world.replay(world.archive, datetime(2020, 1, 1, tzinfo=UTC))
    assert {row.locator for row in world.bench.entries()} == {"conv_1", "conv_2/msg_1"}


def test_p22_an_export_is_whole_or_not_there(world, monkeypatch):
    """Symptom: a disk that fills up leaves a backup that looks like one.

    kafka-backup#170.
    """
    world.erase("b/1")
    path = world.export()
    before = path.read_bytes()

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("expunge.models.journal.Writer.end", fail)
    result = world.run("export", "--output", str(path), code=1)
    assert "No space left on device" in result.stderr
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir() if "export" in p.name] == [path.name]
