"""All of it together, and the stores' access logs, the receipts and what is left compared object by object."""

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from chaos.bad_days import LOCKED, BadDays, StormyS3, Weather
from chaos.conftest import ROUNDS, SEED, TrippedProvider

pytestmark = pytest.mark.chaos

ENTRIES = int(os.environ.get("BAD_DAYS_ENTRIES", "300" if ROUNDS == 1 else "3000"))
SECONDS = float(os.environ.get("BAD_DAYS_SECONDS", 60 + ENTRIES / 15))


@pytest.fixture
def bad_days(tmp_path: Path, postgres_url: str) -> Iterator[BadDays]:
    with (tmp_path / "s3.jsonl").open("a", encoding="utf-8") as log:
        s3 = StormyS3(log_file=log)
        s3.weather = Weather("")
        thread = threading.Thread(target=s3.serve, daemon=True)
        thread.start()
        with TrippedProvider(log_path=tmp_path / "provider.jsonl") as provider:
            made = BadDays(tmp_path, postgres_url, s3, provider, seed=f"{SEED}/bad days")
            yield made
            made.close()
        s3.close()
        thread.join()


@pytest.mark.timeout(240 + 3 * SECONDS)
def test_bad_days(bad_days: BadDays) -> None:
    """5 % transient errors and lost answers, throttling in bursts, 1 % locked, holds, SIGKILL, a changed identity."""
    world = bad_days
    world.open_all(ENTRIES, LOCKED)
    locked = len(world.locked())
    assert locked
    left = world.left()
    total, provider = len(left), sum("/" not in row["locator"] for row in left)
    world.weather.fine = False
    with world.holding():
        # a first half in which workers die, at each step and whenever it may be
        world.await_killed(*(world.start("--kill", step) for step in ("marked:2", "called:5", "settling:3")))
        half = [world.start() for _ in range(2)]
        with world.killing(half):
            world.await_share(0.5, provider, SECONDS, account="ai")
        for process in half:
            process.kill()
        world.await_killed(*half)
        # half way: another account behind the same key
        steady = world.change_identity()
        assert "IdentityChanged" in world.reason
        world.restore_identity(steady)
        world.await_killed(world.start("--kill", "called:8"), world.start("--kill-after", "1.0"))
        fresh = [world.start() for _ in range(2)]
        with world.killing(fresh):
            world.await_share(0.1, total, SECONDS)
    world.weather.fine = True
    # what is left then is what a lock keeps, and the prefixes over it
    world.await_only_retained(SECONDS)
    assert len(world.locked()) == locked
    world.unlock()
    world.await_complete(SECONDS)
    for process in fresh:
        world.end(process)
    world.check()
    statuses = {row["status"] for row in world.receipts()}
    kept = {row["locator"] for row in world.receipts() if row["status"] == "retained"}
    assert len(kept) == locked
    assert statuses >= {"deleted", "already_absent", "failed", "unknown", "retained"}
    assert len(world.holds) > 3
    assert world.killed > 0
