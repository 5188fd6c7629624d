"""A store in memory, with an access log and scripted answers, and the eraser that speaks to it.

It stands for any store in the tests of the drain: those are about leases, marks and settles, not about a protocol.
"""

import threading
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from expunge.models.entry import Entry
from expunge.models.states import Action
from expunge.models.targets import find_kind
from expunge.tasks.erasers.contract import AccountOptions, Answer, Call, Check, Looked, NotSent, Parts, utc_now
from expunge.tasks.outcomes import Outcome

NOT_SENT = "CannotBeSent"
NO_KEY = "MissingCredentials"
"""In a script: no request about this one leaves the process, and this is why; NO_KEY is of the whole account."""


@dataclass
class Store:
    """What is there, what was asked, and what is answered next."""

    objects: set[str] = field(default_factory=set)
    log: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)
    """(operation, locators) of every call, in order."""
    scripts: dict[str, deque[Any]] = field(default_factory=lambda: defaultdict(deque))
    """By locator: outcomes, answers' fields, or callables, used up one a call; NOT_SENT and NO_KEY are no calls."""
    always: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, list[str]] = field(default_factory=dict)
    accepted: set[str] = field(default_factory=set)
    """What it will erase later; `finish` does."""
    unusable: str | None = None
    """Why nothing can be sent for the whole account."""
    on_call: Callable[[tuple[str, ...]], None] = lambda locators: None
    lock: threading.RLock = field(default_factory=threading.RLock)

    def put(self, *locators: str) -> None:
        self.objects.update(locators)

    def finish(self) -> None:
        """Erase what was accepted."""
        self.objects -= self.accepted
        self.accepted.clear()

    def script(self, locator: str, *answers: Any) -> None:
        self.scripts[locator].extend(answers)

    def deletes(self, locator: str | None = None) -> int:
        return sum(
            1 for operation, locators in self.log if operation == "delete" and (locator is None or locator in locators)
        )


class StoreEraser:
    """Deletes from a Store; `batch` entries a call; kinds object and prefix."""

    store = "memory"
    kinds = tuple(kind for kind in (find_kind("object"), find_kind("prefix")) if kind)
    options = AccountOptions

    def __init__(
        self, account: str, backend: Store, *, batch: int = 10, timeout: float = 1.0, page: int = 100, pages: int = 2
    ) -> None:
        self.account, self.backend, self.batch, self.timeout = account, backend, batch, timeout
        self.page, self.pages = page, pages
        self.refused: dict[str, str] = {}

    def refuse(self, kind: str, locator: str) -> str | None:
        return self.refused.get(locator)

    def look(self, entries: Sequence[Entry], until: float) -> Looked:
        looked = Looked()
        plain = []
        if self.backend.unusable is not None:
            return Looked(not_sent=[NotSent(entries[0].id, self.backend.unusable, whole_account=True)])
        for entry in entries:
            if entry.kind == "prefix":
                self._list(entry, looked)
            elif entry.locator in self.backend.versions:
                self._look_at_versions(entry, looked)
            else:
                plain.append(entry)
        for start in range(0, len(plain), self.batch):
            looked.calls.append(self._call(plain[start : start + self.batch]))
        return looked

    def _list(self, entry: Entry, looked: Looked) -> None:
        now = utc_now()
        with self.backend.lock:
            self.backend.log.append(("list", (entry.locator,)))
            found = sorted(o for o in self.backend.objects if o.startswith(entry.locator) and o > (entry.cursor or ""))
        taken = found[: self.page * self.pages]
        if taken or entry.cursor is not None:
            cursor = taken[-1] if len(found) > len(taken) else None
            looked.parts.append(Parts(entry.id, [("object", locator) for locator in taken], cursor))
            return
        outcome = Outcome.DELETED if entry.had_parts else Outcome.ABSENT
        looked.answers.append(Answer(entry.id, outcome, "List", now, utc_now(), action=Action.LOOK, request_id="list"))

    def _look_at_versions(self, entry: Entry, looked: Looked) -> None:
        now = utc_now()
        versions = list(self.backend.versions[entry.locator])
        if not versions:
            outcome = Outcome.DELETED if entry.had_parts else Outcome.ABSENT
            looked.answers.append(Answer(entry.id, outcome, "ListVersions", now, utc_now(), action=Action.LOOK))
            return

        def send(ids: Collection[int]) -> list[Answer]:
            answers = []
            with self.backend.lock:
                self.backend.log.append(("delete", (entry.locator,)))
                for version in versions:
                    answer = self._answer(entry, f"{entry.locator}?{version}")
                    answer.version = version
                    if answer.outcome is Outcome.DELETED:
                        self.backend.versions[entry.locator].remove(version)
                    answers.append(answer)
            return answers

        looked.calls.append(Call((entry.id,), send, "DeleteVersions"))

    def _call(self, entries: Sequence[Entry]) -> Call:
        by_id = {entry.id: entry for entry in entries}

        def send(ids: Collection[int]) -> list[Answer | NotSent]:
            chosen = [by_id[entry_id] for entry_id in ids]
            if self.backend.unusable is not None:
                return [NotSent(entry_id, self.backend.unusable, whole_account=True) for entry_id in ids]
            told: list[Answer | NotSent] = []
            for entry in list(chosen):
                script = self.backend.scripts[entry.locator]
                if script and script[0] in (NOT_SENT, NO_KEY):
                    reason = script.popleft()
                    told.append(NotSent(entry.id, reason, whole_account=reason == NO_KEY))
                    chosen.remove(entry)
            locators = tuple(entry.locator for entry in chosen)
            if not chosen:
                return told
            self.backend.on_call(locators)
            with self.backend.lock:
                self.backend.log.append(("delete", locators))
                return told + [each for entry in chosen if (each := self._answer(entry, entry.locator)) is not None]

        return Call(tuple(by_id), send, "Delete")

    def _answer(self, entry: Entry, key: str) -> Any:
        called = utc_now()
        there = key in self.backend.objects or key.partition("?")[0] in self.backend.versions
        answer = Answer(
            entry.id,
            Outcome.DELETED if there else Outcome.ABSENT,
            "Delete",
            called,
            utc_now(),
            request_id=f"req-{len(self.backend.log)}",
            http_status=200,
            endpoint="memory://",
        )
        scripted = (
            self.backend.scripts[key].popleft() if self.backend.scripts.get(key) else self.backend.always.get(key)
        )
        if callable(scripted):
            scripted = scripted()
        if scripted == "left out":
            return None
        if isinstance(scripted, BaseException):
            raise scripted
        if isinstance(scripted, Outcome):
            answer.outcome = scripted
        elif isinstance(scripted, dict):
            for name, value in scripted.items():
                setattr(answer, name, value)
        if answer.outcome is Outcome.DELETED:
            self.backend.objects.discard(key)
        elif answer.outcome is not Outcome.ABSENT:
            answer.error = answer.error or "Scripted"
        return answer

    def verify(self, entries: Sequence[Entry], until: float) -> list[Answer | NotSent]:
        """Scripts are of `verify LOCATOR`."""
        told: list[Answer | NotSent] = []
        for entry in entries:
            if self.backend.unusable is not None:
                return [*told, NotSent(entry.id, self.backend.unusable, whole_account=True)]
            now = utc_now()
            with self.backend.lock:
                self.backend.log.append(("verify", (entry.locator,)))
                key = f"verify {entry.locator}"
                script = self.backend.scripts[key]
                said = script.popleft() if script else self.backend.always.get(key)
                if isinstance(said, BaseException):
                    raise said
                if said == NOT_SENT:
                    told.append(NotSent(entry.id, NOT_SENT))
                    continue
                there = any(o == entry.locator or o.startswith(f"{entry.locator}/") for o in self.backend.objects)
            outcome = said if isinstance(said, Outcome) else Outcome.PRESENT if there else Outcome.ABSENT
            told.append(Answer(entry.id, outcome, "Get", now, utc_now(), action=Action.VERIFY))
        return told

    def check(self) -> list[Check]:
        return [Check("memory", True, "there")]

    def close(self) -> None:
        return None
