"""How long until the next try: tenacity's wait strategies, computed into `due_at` instead of slept."""

from tenacity import RetryCallState, Retrying
from tenacity.wait import wait_exponential, wait_random

JITTER = 0.25
"""Of the wait, added at random, so that what failed together does not come back together."""


def _state(attempt: int) -> RetryCallState:
    state = RetryCallState(retry_object=Retrying(), fn=None, args=(), kwargs={})
    state.attempt_number = attempt
    return state


def backoff(attempt: int, *, base: float, most: float) -> float:
    """Seconds before try number `attempt` + 1: `base`, doubled with every try, with jitter, at most `most`."""
    state = _state(max(1, attempt))
    wait = wait_exponential(multiplier=base, max=most)(state)
    return min(most, wait + wait_random(0, wait * JITTER)(state))
