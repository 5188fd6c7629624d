"""What must come of open, claim, mark, call, settle, second looks, lost leases, sweeps, holds and decisions: a simple
model, without a database and without concurrency, that the state machine tests compare with the product.

Its clock only moves when the test moves it, by more than a lease or by more than a day. A retry is due after the next
such move.
"""

from collections import Counter
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass, field

LEASE = 300.0
RETRY = 200.0
DAY = 86_400.0
TRIES = 3
LOST = 3
BATCH = 2
REFUSALS = 2
THROTTLE = 60.0
"""Seconds that a lane waits at the most when a store asks for less."""
MOST_REAPPEARED = 2
SUCCESS = ("deleted", "already_absent")
SETTLING = (*SUCCESS, "waived", "absent")
NOT_SENT = "not sent"
"""In the place of a receipt's status."""


@dataclass
class Kept:
    """An entry as it should be in the outbox."""

    id: int
    case: str
    locator: str
    due: float
    state: str = "ready"
    attempt: int = 0
    tries: int = 0
    lost: int = 0
    owner: str | None = None
    until: float = 0.0
    action: str = "delete"
    settled: bool = False
    refusals: int = 0
    reappeared: int = 0

    def free(self, state: str) -> None:
        self.state, self.owner = state, None

    def turn(self, action: str, state: str, due: float, *, settled: bool = False) -> None:
        """It waits for something else from now on, with all its tries."""
        self.action, self.settled, self.due = action, settled, due
        self.tries = self.refusals = self.lost = 0
        self.free(state)


@dataclass
class Model:
    """Entries, receipts and holds as they should be."""

    now: float = 0.0
    verify_after: float | None = None
    paused: bool = False
    """By the operator."""
    throttled_until: float = 0.0
    entries: dict[int, Kept] = field(default_factory=dict)
    locators: dict[int, str] = field(default_factory=dict)
    """Of every entry that there ever was."""
    cases: set[str] = field(default_factory=set)
    receipts: Counter[tuple[int, int, str]] = field(default_factory=Counter)
    """(entry, attempt, status)."""
    closed: set[tuple[str, str]] = field(default_factory=set)
    """(case, locator) with a settling receipt."""
    held: set[str] = field(default_factory=set)
    """Cases under a standing hold."""
    calls: Counter[tuple[int, int]] = field(default_factory=Counter)
    """(entry, attempt) of every delete call that the store got."""
    looks: Counter[str] = field(default_factory=Counter)
    """Second looks that the store got, by locator."""

    def fresh(self, case: str, locators: Iterable[str]) -> list[str]:
        """Those that a call of open_case adds."""
        known = {entry.locator for entry in self.entries.values() if entry.case == case}
        return [loc for loc in dict.fromkeys(locators) if loc not in known and (case, loc) not in self.closed]

    def add(self, entry_id: int, case: str, locator: str) -> None:
        self.entries[entry_id] = Kept(entry_id, case, locator, due=self.now)
        self.locators[entry_id] = locator

    def opened(self, case: str) -> None:
        """Whoever adds to a case under a hold holds whatever of it waits for a call."""
        for entry in self.entries.values():
            if entry.case == case and self._is_held(entry) and entry.state == "ready":
                entry.free("held")

    def _is_held(self, entry: Kept) -> bool:
        """A second look erases nothing, so no hold stops it."""
        return entry.case in self.held and entry.action == "delete"

    def due_under_a_hold(self) -> set[int]:
        """A claim holds as many of them as it may take entries: they were in flight when their hold was placed."""
        return {entry_id for entry_id in self.due() if self._is_held(self.entries[entry_id])}

    def hold_due(self, ids: Iterable[int]) -> None:
        for entry_id in ids:
            self.entries[entry_id].free("held")

    @property
    def is_paused(self) -> bool:
        return self.paused or self.throttled_until > self.now

    def pause(self) -> None:
        self.paused, self.throttled_until = True, 0.0

    def resume(self) -> None:
        self.paused, self.throttled_until = False, 0.0

    def due(self) -> set[int]:
        if self.is_paused:
            return set()
        return {e.id for e in self.entries.values() if e.state == "ready" and e.due <= self.now}

    def claim(self, owner: str, ids: Sequence[int]) -> None:
        for entry_id in ids:
            entry = self.entries[entry_id]
            entry.state, entry.owner, entry.until = "leased", owner, self.now + LEASE

    def mark(self, owner: str, ids: Sequence[int]) -> tuple[dict[int, int], list[int]]:
        """Gives the attempts of those marked, and those held."""
        attempts, held = {}, []
        for entry_id in ids:
            entry = self.entries.get(entry_id)
            if entry is None or entry.owner != owner or entry.state != "leased":
                continue
            if self._is_held(entry):
                entry.free("held")
                held.append(entry_id)
            elif entry.until > self.now and not self.is_paused:
                entry.state, entry.until = "calling", self.now + LEASE
                entry.attempt += 1
                attempts[entry_id] = entry.attempt
        return attempts, held

    def settle(self, owner: str, claimed: dict[int, Kept], attempts: dict[int, int], statuses: dict[int, str]) -> None:
        for entry_id, attempt in attempts.items():
            status, known = statuses[entry_id], claimed[entry_id]
            if status == NOT_SENT:
                self._ask_a_person(owner, entry_id)
                continue
            self.receipts[entry_id, attempt, status] += 1
            if status in SETTLING:
                self.closed.add((known.case, known.locator))
            entry = self.entries.get(entry_id)
            if entry is None or entry.owner != owner or entry.state != "calling":
                continue  # a late worker's receipts are kept; the entry is somebody else's
            if status in SETTLING:
                self._gone(entry)
                continue
            if status == "accepted":
                entry.turn("verify", "ready", self.now + RETRY)
                continue
            entry.tries, entry.lost = entry.tries + 1, 0
            entry.free("escalated" if entry.tries >= TRIES else "ready")
            entry.due = self.now + (DAY if entry.state == "escalated" else RETRY)

    def _gone(self, entry: Kept) -> None:
        if self.verify_after is None:
            del self.entries[entry.id]
        else:
            entry.turn("verify", "ready", self.now + self.verify_after, settled=True)

    def looked(self, owner: str, claimed: dict[int, Kept], told: dict[int, str]) -> list[int]:
        """Second looks are marked and settled at once; gives those that were. `told` are the store's words."""
        attempts, _ = self.mark(owner, list(told))
        throttled = any(told[entry_id] == "throttled" for entry_id in attempts)
        for entry_id, attempt in attempts.items():
            entry, word = self.entries[entry_id], told[entry_id]
            self.receipts[entry_id, attempt, word if word in ("absent", "present") else "unverifiable"] += 1
            if word == "absent":
                self.closed.add((entry.case, entry.locator))
                del self.entries[entry_id]
            elif word == "present" and entry.settled:
                entry.reappeared += 1
                again = entry.reappeared >= MOST_REAPPEARED
                entry.turn("delete", "escalated" if again else "ready", self.now + (DAY if again else 0.0))
            else:
                self._not_told(entry, word)
        if throttled and not self.paused:
            self.throttled_until = self.now + THROTTLE
        return list(attempts)

    def _not_told(self, entry: Kept, word: str) -> None:
        tries = 0 if word == "throttled" else 1
        refusals = 1 if word == "refused" else 0
        spent = entry.tries + tries >= TRIES and tries > 0
        if entry.settled and (spent or refusals):
            del self.entries[entry.id]
        elif not entry.settled and (spent or (refusals and entry.refusals + refusals >= REFUSALS)):
            entry.turn("delete", "escalated", self.now + DAY)
        else:
            entry.tries += tries
            entry.refusals += 0 if entry.settled else refusals
            entry.due = self.now + RETRY
            entry.free("ready")

    def _ask_a_person(self, owner: str, entry_id: int) -> None:
        """Nothing was sent: no receipt, and no try is used up."""
        entry = self.entries.get(entry_id)
        if entry is not None and entry.owner == owner and entry.state == "calling":
            entry.free("escalated")
            entry.due = self.now + DAY

    def give_back(self, owner: str, ids: Iterable[int]) -> None:
        for entry_id in ids:
            entry = self.entries.get(entry_id)
            if entry is not None and entry.owner == owner:
                entry.free("ready")

    def sweep(self) -> None:
        for entry in self.entries.values():
            over = entry.owner is not None and entry.until <= self.now
            if entry.state == "leased" and over:
                entry.free("ready")
            elif entry.state == "calling" and over:
                self.receipts[entry.id, entry.attempt, "unknown"] += 1
                entry.lost += 1
                entry.free("escalated" if entry.lost >= LOST else "ready")
                entry.due = self.now + (DAY if entry.state == "escalated" else 0.0)
            elif entry.state == "held" and entry.case not in self.held:
                entry.free("ready")
                entry.due = self.now
            elif entry.state == "escalated" and entry.due <= self.now:
                entry.free("ready")

    def hold(self, case: str) -> list[int]:
        """Gives the entries whose call is in flight, and those whose order the store has accepted."""
        self.held.add(case)
        mine = [entry for entry in self.entries.values() if entry.case == case and not entry.settled]
        for entry in mine:
            if entry.state in ("ready", "leased") and entry.action == "delete":
                entry.free("held")
        return sorted(entry.id for entry in mine if entry.state == "calling" or entry.action == "verify")

    def retry(self, case: str) -> None:
        for entry in self.entries.values():
            if entry.case == case and not entry.settled:
                self.retry_one(entry)

    def retry_one(self, entry: Kept) -> None:
        if entry.state == "escalated":
            entry.state, entry.due, entry.tries, entry.lost = "ready", self.now, 0, 0
            entry.refusals = entry.reappeared = 0
        elif entry.state == "ready":
            entry.due = min(entry.due, self.now)

    def again(self, entry: Kept) -> None:
        """Somebody says that what was erased is to be erased again: a look that is under way is not ours any more."""
        if entry.settled:
            entry.turn("delete", "ready", self.now)

    def waive(self, entry_id: int) -> None:
        entry = self.entries.pop(entry_id)
        self.receipts[entry_id, entry.attempt, "waived"] += 1
        self.closed.add((entry.case, entry.locator))

    def is_complete(self, case: str) -> bool:
        return not any(entry.case == case and not entry.settled for entry in self.entries.values())

    def worker(self, owner: str, ids: Sequence[int]) -> Generator[tuple[str, list[int]], dict[int, str], None]:
        """What a worker should do that has just claimed these entries."""
        return self._worker(owner, {i: Kept(**vars(self.entries[i])) for i in sorted(ids)})

    def _worker(self, owner: str, claimed: dict[int, Kept]) -> Generator[tuple[str, list[int]], dict[int, str], None]:
        """One claim: yields the steps that the worker should come to, and the entries that the next call is about. Who
        is at `marked` is sent the statuses that the store's answers will come to, and so is who is at `look`, which is
        no step: those second looks come next."""
        left = set(claimed)
        sound = [i for i, entry in claimed.items() if entry.lost == 0]
        alone = [[i] for i, entry in claimed.items() if entry.lost == 1]
        alone += [[i] for i, entry in claimed.items() if entry.lost > 1]
        for group in [sound, *alone] if sound else alone:
            looks = [i for i in group if claimed[i].action == "verify"]
            if looks:
                told = yield "look", looks
                yield "looked", []
                left.difference_update(self.looked(owner, claimed, told))
                yield "settled", []
                group = [i for i in group if i not in looks]
                if not group:
                    continue
            yield "looked", []
            calls = [group[start : start + BATCH] for start in range(0, len(group), BATCH)]
            marked: tuple[dict[int, int], list[int]] | None = None
            for number, call in enumerate(calls):
                attempts, held = self.mark(owner, call) if marked is None else marked
                left.difference_update(held)
                marked = None
                if not attempts:
                    if held:
                        continue
                    break
                statuses = yield "marked", list(attempts)
                left.difference_update(attempts)
                sent = {entry_id: a for entry_id, a in attempts.items() if statuses[entry_id] != NOT_SENT}
                self.calls.update(sent.items())
                yield "called", []
                self.settle(owner, claimed, sent, statuses)
                if number + 1 < len(calls) and sent == attempts:
                    marked = self.mark(owner, calls[number + 1])
                if sent:
                    yield "settled", []
                self.settle(owner, claimed, {i: a for i, a in attempts.items() if i not in sent}, statuses)
        self.give_back(owner, left)
