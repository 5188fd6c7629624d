"""What the store in memory is told to answer, and the words that will come of it, for the state machines."""

from itertools import cycle
from typing import Any

from doubles import store as doubled
from doubles.model import BATCH, NOT_SENT, Model
from doubles.store import Store
from hypothesis import strategies as st

from expunge.tasks.outcomes import Outcome

_KINDS = ["truth", "truth", "error", "left out", "left out, but gone", "error, but gone", "raise", NOT_SENT, "accepted"]
ANSWERS = st.lists(st.sampled_from(_KINDS), min_size=BATCH, max_size=BATCH)
_OF_A_LOOK = {
    "error": ("error", Outcome.ERROR),
    "left out": ("refused", Outcome.REFUSED),
    "left out, but gone": ("throttled", Outcome.THROTTLED),
    "raise": ("error", ConnectionError()),
    NOT_SENT: ("refused", doubled.NOT_SENT),
}
"""To a second look; every other kind is the truth."""


def script_call(store: Store, model: Model, ids: list[int], answers: list[str]) -> dict[int, str]:
    """Tell the store what to answer to a delete call; gives the statuses that will come of it."""
    store.scripts.clear()
    objects, statuses = set(store.objects), {}
    same = len({model.locators[entry_id] for entry_id in ids}) < len(ids)
    if same or "raise" in answers[: len(ids)]:  # what is not sent is known by its locator, and before all others
        answers = [answer.replace(NOT_SENT, "truth") for answer in answers]
    known = dict(zip(ids, answers, strict=False))
    for entry_id, answer in known.items():
        locator = model.locators[entry_id]
        store.script(locator, _scripted(store.objects, locator, answer))
        statuses[entry_id] = _status(objects, locator, answer)
        if answer == "accepted":
            store.accepted.add(locator)
    return dict.fromkeys(ids, "failed") if "raise" in known.values() else statuses


def script_looks(store: Store, model: Model, ids: list[int], answers: list[str]) -> dict[int, str]:
    """The same of second looks."""
    store.scripts.clear()
    words = {}
    for entry_id, answer in zip(ids, cycle(answers), strict=False):
        locator = model.locators[entry_id]
        truth = "present" if locator in store.objects else "absent"
        words[entry_id], said = _OF_A_LOOK.get(answer, (truth, None))
        store.script(f"verify {locator}", said)
        model.looks[locator] += 1
        if answer == "raise":
            return dict.fromkeys(ids, "error")
    return words


def _scripted(objects: set[str], locator: str, answer: str) -> Any:
    def act() -> Any:
        if answer == "raise":
            raise ConnectionError
        if "gone" in answer:
            objects.discard(locator)
        if answer == "accepted":
            return Outcome.ACCEPTED
        return "left out" if answer.startswith("left out") else Outcome.ERROR

    if answer == NOT_SENT:
        return doubled.NOT_SENT
    return None if answer == "truth" else act


def _status(objects: set[str], locator: str, answer: str) -> str:
    there = locator in objects
    if answer == "truth" or "gone" in answer:
        objects.discard(locator)
    if answer == "truth":
        return "deleted" if there else "already_absent"
    if answer in (NOT_SENT, "accepted"):
        return answer
    return "unknown" if answer.startswith("left out") else "failed"
