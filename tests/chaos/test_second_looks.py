"""Workers that die over second looks, and over the entries that a second look has put back."""

import signal
from collections.abc import Callable, Iterator

import pytest
import sqlalchemy as sa
from chaos.conftest import ROUNDS, SEED, World
from waiting import wait_for

from expunge.models.database import Database
from expunge.models.tables import OutboxEntry

pytestmark = pytest.mark.chaos

BACK_AT_S3 = ("plain/u/1/single/3", "old/u/1/single/4", "old/u/1/never", "plain/u/1/all/5")
BACK_AT_THE_PROVIDER = ("file-u12", "file-neveru1", "vs_u1")
"""Of these some were deleted, some never there, and one is in a prefix."""
TARGETS_BACK = {*BACK_AT_S3[:3], *BACK_AT_THE_PROVIDER, "plain/u/1/all/"}


class Looked(World):
    """A world whose second looks are an hour away, unless the test says that the hour is over."""

    database: Database

    def hour_passes(self) -> None:
        with self.database.begin() as tx:
            tx.connection.execute(
                sa.update(OutboxEntry)
                .where(OutboxEntry.action == "verify", OutboxEntry.state == "ready")
                .values(due_at=OutboxEntry.created_at)
            )

    def put_back(self) -> None:
        """As another writer of the host would, who never heard of the case."""
        for locator in BACK_AT_S3:
            bucket, _, key = locator.partition("/")
            self.s3.buckets[bucket].put(key)
        files = [name for name in BACK_AT_THE_PROVIDER if name.startswith("file-")]
        self.provider.seed(files=files, vector_stores=["vs_u1"])

    def looks(self) -> dict[str, list[str]]:
        """What the second looks said, by target, in their order; without those that a slow machine let time out."""
        said: dict[str, list[str]] = {}
        for row in sorted(self.receipts(), key=lambda row: row["at"]):
            if row["action"] == "verify" and row["status"] != "unverifiable":
                said.setdefault(row["locator"], []).append(row["status"])
        return said

    def await_looked(self) -> None:
        """Until nothing is owed any more, not even a look; hours pass meanwhile."""
        try:
            wait_for(lambda: self.hour_passes() or not self.left(), seconds=40.0, pause=0.1, what="the looks")
        except AssertionError as error:
            raise AssertionError(f"seed {SEED}: {self.left()} {self.logs()}") from error


@pytest.fixture
def looked(make_world: Callable[..., Looked], database_url: str) -> Iterator[Looked]:
    """A case that is complete, whose looks are due, while something has come back."""
    world = make_world(database_url, Looked)
    world.database = Database.open(database_url)
    world.options = ("--verify-after", "3600")
    world.open()
    world.finish(workers=1)
    world.check()
    assert {row["state"] for row in world.left()} == {"ready"}
    assert len(world.left()) == len(world.wanted)
    world.put_back()
    world.hour_passes()
    yield world
    world.database.close()


DEATHS = ("looked:2", "settling:2", "called:2", "claimed:1", "settled:1", "marked:1", "looked:1")


@pytest.mark.parametrize("turn", range(ROUNDS))
@pytest.mark.parametrize("death", DEATHS[:3] if ROUNDS == 1 else DEATHS)
def test_killed_over_a_second_look(looked: Looked, death: str, turn: int) -> None:
    """Each target is looked at in the end, once, by whichever worker lives; what was there again is erased again."""
    before = {row["id"] for row in looked.receipts()}
    looked.await_end(looked.start("--kill", death), -signal.SIGKILL)
    fresh = [looked.start() for _ in range(2)]
    looked.await_looked()
    for process in fresh:
        looked.end(process)
    looked.check()
    expected = {name: ["present", "absent"] if name in TARGETS_BACK else ["absent"] for name in looked.wanted}
    assert looked.looks() == expected
    later = [row for row in looked.receipts() if row["id"] not in before and row["action"] != "verify"]
    # the answer of a call that died with its worker is unknown, and what it did is absent when it is called again
    for name in TARGETS_BACK:
        said = {row["status"] for row in later if row["locator"] == name and row["version"] is None}
        assert "deleted" in said or said == {"unknown", "already_absent"}, (name, said)
