"""What every eraser is judged with: a World (one store and an eraser on it) and a small stand-in for the drain.

A store joins the suite with one module `world_NAME.py` beside this one, which has `KINDS` and a context manager
`open_world()` that yields a World. It must not import the eraser's internals: what is judged is what the contract
promises.
"""

import importlib.util
import sys
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Protocol

from expunge.models.entry import Entry
from expunge.models.states import Action
from expunge.tasks.erasers.contract import Answer, Eraser, NotSent, verifier
from expunge.tasks.outcomes import Outcome


class Fault(StrEnum):
    """What the store does to the delete calls (not to looks) while the fault is on."""

    THROTTLE = "throttle"
    """Asks for less, with a Retry-After of 7 seconds."""
    UNAVAILABLE = "unavailable"
    """A 5xx; nothing is done."""
    DROP_AFTER = "drop_after"
    """Does it, then closes the connection without an answer."""
    DROP_BEFORE = "drop_before"
    """Closes the connection and does nothing."""
    GARBAGE = "garbage"
    """A proxy's HTML page with status 200; nothing is done."""
    MISSING_PAGE = "missing_page"
    """A proxy's HTML page with status 404; nothing is done."""


@dataclass(frozen=True, slots=True)
class DeleteCall:
    """One delete call as the store's own access log has it."""

    request_id: str | None
    items: tuple[tuple[str, str | None], ...]
    """Locators, each with the version that was named, if one was."""
    status: int | None


class World(Protocol):
    """One store with an eraser on it. All targets that `make` makes live on the same account."""

    ends: tuple[str, ...]
    """Kinds that the store can only end: their targets close as ENDED, and do so again."""

    def make(self, kind: str) -> str:
        """Create a target that exists, with parts if its kind has any, and give its locator."""
        ...

    def absent(self, kind: str) -> str:
        """A well-formed locator of something that never existed."""
        ...

    def exists(self, kind: str, locator: str) -> bool:
        """Whether anything of it is still there, seen by the store itself and not through the eraser."""
        ...

    def eraser(self) -> Eraser:
        """The eraser under test; the same one every time."""
        ...

    def deletes(self) -> list[DeleteCall]:
        """Every delete call since the world was opened, from the store's access log."""
        ...

    def fault(self, fault: Fault) -> AbstractContextManager[None]:
        """Every delete call meets this fault while the context is open."""
        ...

    def without_credentials(self) -> AbstractContextManager[None]:
        """While the context is open, an eraser that is made, or used again after its `close`, finds no credentials."""
        ...


@dataclass(frozen=True, slots=True)
class WorldModule:
    """One world_*.py."""

    name: str
    kinds: tuple[str, ...]
    """The kinds that its World can make."""
    open_world: Callable[[], AbstractContextManager[World]]


def world_modules() -> list[WorldModule]:
    """Every world_*.py in this directory."""
    paths = sorted(Path(__file__).parent.glob("world_*.py"))
    loaded = [(path.stem.removeprefix("world_"), _load(path)) for path in paths]
    return [WorldModule(name, module.KINDS, module.open_world) for name, module in loaded]


def _load(path: Path) -> ModuleType:
    name = f"conformance_{path.stem}"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return sys.modules[name]


_ids = count(1)


def entry(kind: str, locator: str, **more: object) -> Entry:
    """An entry as a claim would give it."""
    made = Entry(
        id=next(_ids),
        case_id="case",
        tenant=None,
        subject="subject",
        conversation=None,
        account="account",
        kind=kind,
        locator=locator,
        token="token",
    )
    return replace(made, **more)  # type: ignore[arg-type]


@dataclass
class Played:
    """What came of it: every answer, by the locator it was about."""

    answers: dict[str, list[Answer]] = field(default_factory=dict)
    not_sent: dict[str, NotSent] = field(default_factory=dict)
    """By locator, of what no request could be sent about."""
    open: dict[int, Entry] = field(default_factory=dict)
    """What is not settled: after a bad answer, or when the rounds were used up."""
    calls: int = 0

    def closing(self, locator: str) -> Answer:
        """The target's own answer. Raises AssertionError if there is none, or more than one."""
        own = [answer for answer in self.answers.get(locator, []) if _settles(answer)]
        assert len(own) == 1, (locator, self.answers.get(locator))
        return own[0]

    def outcomes(self, locator: str) -> list[Outcome]:
        """The outcomes about this locator, in order."""
        return [answer.outcome for answer in self.answers.get(locator, [])]


def _settles(answer: Answer) -> bool:
    return answer.version is None and _is_good(answer) and answer.action is not Action.VERIFY


def _is_good(answer: Answer) -> bool:
    return answer.outcome in (Outcome.DELETED, Outcome.ABSENT, Outcome.ENDED)


def _turned(each: Entry, answer: Answer) -> Entry | None:
    """The entry as an order that was only accepted, or a look at one, leaves it; None for every other answer."""
    if answer.action is not Action.VERIFY:
        return replace(each, action="verify") if answer.outcome is Outcome.ACCEPTED else None
    match answer.outcome:
        case Outcome.PRESENT:
            return each
        case Outcome.ENDED:
            return replace(each, action="delete", had_parts=False, rounds=0)
    return None


def play(eraser: Eraser, targets: Iterable[tuple[str, str] | Entry], *, rounds: int = 40) -> Played:
    """Drain these targets without a database: look, call, look again, until everything is closed or got a bad answer.

    Children of composite targets become entries, and their parent is looked at again when they are gone. A bad answer
    ends the entry's turn, as it would in a drain; give its entry to another `play` to try again.
    """
    played = Played()
    todo = [t if isinstance(t, Entry) else entry(*t) for t in targets]
    waiting: dict[int, tuple[Entry, set[int]]] = {}
    for _ in range(rounds):
        if not todo:
            break
        found = eraser.look([each for each in todo if each.action == "delete"], time.monotonic() + 60)
        accepted = [each for each in todo if each.action == "verify"]
        if accepted:
            verifies = verifier(eraser)
            assert verifies is not None, "what is only accepted is looked at until it is done"
            for verified in verifies.verify(accepted, time.monotonic() + 60):
                assert isinstance(verified, Answer)
                found.answers.append(verified)
        by_id = {each.id: each for each in todo}
        came: list[Answer | NotSent] = [*found.answers, *found.not_sent]
        for call in found.calls:
            played.calls += 1
            came += _sent(call.send(call.entry_ids), call.entry_ids)
        again = dict(by_id)
        for each in came:
            if isinstance(each, NotSent):
                played.not_sent[by_id[each.entry_id].locator] = each
                played.open[each.entry_id] = again.pop(each.entry_id)
        answers = [each for each in came if isinstance(each, Answer)]
        for answer in answers:
            each = by_id[answer.entry_id]
            played.answers.setdefault(each.locator, []).append(answer)
            turned = _turned(each, answer)
            if turned is not None:
                again[each.id] = turned
                continue
            if _is_good(answer) and answer.version is not None:
                if each.id in again:
                    again[each.id] = replace(again[each.id], had_parts=True)
                continue
            again.pop(each.id, None)
            if not _settles(answer):
                played.open[each.id] = each
        for parts in found.parts:
            parent = replace(again.pop(parts.entry_id), cursor=parts.cursor)
            children = [entry(kind, locator, parent_id=parent.id) for kind, locator in parts.children]
            if children:
                parent = replace(parent, had_parts=True)
            if parts.cursor is not None:
                again[parent.id] = parent
                waiting.setdefault(parent.id, (parent, set()))[1].update(child.id for child in children)
            else:
                before = waiting.pop(parent.id, (parent, set()))[1]
                waiting[parent.id] = (parent, before | {child.id for child in children})
            again.update({child.id: child for child in children})
        todo = list(again.values())
        ready = [
            key
            for key, (_, children) in waiting.items()
            if key not in again and not children & (again.keys() | played.open.keys())
        ]
        todo += [replace(waiting.pop(key)[0], cursor=None) for key in ready]
    played.open.update({each.id: each for each in todo})
    played.open.update({parent.id: parent for parent, _ in waiting.values()})
    return played


def _sent(came: Sequence[Answer | NotSent], ids: Collection[int]) -> Sequence[Answer | NotSent]:
    assert {each.entry_id for each in came} <= set(ids), "an answer about an entry that was not marked"
    return came


def is_look(answer: Answer) -> bool:
    """Whether a listing or a read decided."""
    return answer.action is Action.LOOK
