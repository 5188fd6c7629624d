"""Workers that are killed at each step and at random moments, or stopped past their lease."""

import random
import signal

import pytest
from chaos.conftest import ROUNDS, SEED

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
