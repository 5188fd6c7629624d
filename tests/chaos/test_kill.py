"""Workers that are killed at each step and at random moments, or stopped past their lease; answers that are lost."""

import os
import random
import signal
from contextlib import ExitStack

import pytest
from chaos.conftest import ROUNDS, SEED
from waiting import wait_for

from expunge.worker.demo_provider_faults import Fault, Reply

pytestmark = pytest.mark.chaos

STEPS = ("claimed", "looked", "marked", "called", "settling", "settled")


@pytest.mark.parametrize("turn", range(ROUNDS))
@pytest.mark.parametrize("step", STEPS)
def test_killed_at_a_step(world, step, turn) -> None:
    number = random.Random(f"{SEED}/{step}/{turn}").randint(1, 6)
    doomed = world.start("--kill", f"{step}:{number}")
    world.await_end(doomed, -signal.SIGKILL)
    world.finish()
    world.check()


@pytest.mark.parametrize("turn", range(2 * ROUNDS))
def test_killed_at_random_moments(world, turn) -> None:
    """Three at once, each by another cause: a step, the clock, or the store that it is just calling."""
    chance = random.Random(f"{SEED}/random/{turn}")
    by_step = world.start("--kill", f"{chance.choice(STEPS)}:{chance.randint(2, 12)}")
    by_clock = world.start("--kill-after", f"{chance.uniform(0.05, 1.2):.3f}")
    by_store = world.start()
    world.trip.at(chance.randint(5, 60), by_store.kill)
    three = (by_step, by_clock, by_store)
    wait_for(lambda: world.is_complete() or all(process.exitcode is not None for process in three), what="three deaths")
    killed = [process for process in three if process.exitcode is not None]
    assert {process.exitcode for process in killed} <= {-signal.SIGKILL}, world.logs()
    world.finish()
    world.check()


def test_stopped_after_its_call_until_others_have_finished(world) -> None:
    """The late settle keeps the receipts of the call that was made, and moves nothing."""
    late = world.start("--threads", "1", "--stop", "called:3")
    world.await_stopped(late)
    receipts = {row["request_id"] for row in world.receipts()}
    (request_id,) = {call.request_id for call in world.delete_calls()} - receipts
    world.finish()
    world.check()
    assert request_id not in {row["request_id"] for row in world.receipts()}
    before = world.receipts()

    os.kill(late.pid, signal.SIGCONT)
    its = wait_for(lambda: [row for row in world.receipts() if row["request_id"] == request_id], what="late receipts")
    world.end(late)
    world.check()
    # both tell the truth: that nobody knew for a while, and what the store did answer
    attempts = {(row["entry_id"], row["attempt"]) for row in its}
    interrupted = [row for row in before if (row["entry_id"], row["attempt"]) in attempts]
    assert {(row["status"], row["error"]) for row in interrupted} == {("unknown", "Interrupted")}
    assert len(world.receipts()) == len(before) + len(its)


@pytest.mark.parametrize("step", ["marked:3", "settled:5"])
def test_stopped_before_its_call_until_others_have_finished(world, step) -> None:
    """It comes back with a mark whose lease is over, and must not call any more; then it goes on with other work."""
    late = world.start("--threads", "1", "--stop", step)
    world.await_stopped(late)
    assert "calling" in {row["state"] for row in world.left()}, world.left()
    world.finish()
    world.check()
    before = {call.request_id for call in world.delete_calls()}

    os.kill(late.pid, signal.SIGCONT)
    world.open("c2", at="u/2")
    world.await_complete()
    world.end(late)
    world.check()
    later = {call.locator for call in world.delete_calls() if call.request_id not in before}
    assert later
    assert not {locator for locator in later if "u/2/" not in locator and "u2" not in locator}


def test_answers_lost(world) -> None:
    """The stores did it, and the connection broke before they said so."""
    lost = (("DeleteObjects", 3), ("DeleteObject", 1), ("ListObjectVersions", 1), ("ListObjectsV2", 1))
    with ExitStack() as faults:
        for operation, times in lost:
            faults.enter_context(world.s3.fault(operation, "drop_after", times=times))
        world.provider.faults.add(
            Fault(Reply.DROP, "DELETE", "/v1/files/*", times=2, acts=True),
            Fault(Reply.DROP, "DELETE", "/v1/conversations/*/items/*", times=2, skip=1, acts=True),
            Fault(Reply.DROP, "DELETE", "/v1/conversations/*", acts=True, skip=8),
            Fault(Reply.DROP, "DELETE", "/v1/vector_stores/*", acts=True),
        )
        world.finish()
    world.check()
    unknown = [row for row in world.receipts() if row["status"] == "unknown"]
    assert {row["kind"] for row in unknown} >= {"object", "file", "conversation_item", "vector_store"}
