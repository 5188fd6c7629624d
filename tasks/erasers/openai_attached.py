"""Detach first, then delete the file, then the store.

A file that is deleted while a vector store has it may stay counted in that store for ever (openai-dotnet#540), or be
refused with 409. Where both are owed, the listing of the store says which files it has; their deletion is put off for
a moment, so that their entries in the store go first. It is a matter of order only: nothing depends on it for long, and
another process, which does not know of the listing, may do it in the other order.
"""

import threading

from expunge.models.entry import Entry
from expunge.tasks.erasers.contract import Answer, Parts
from expunge.tasks.verdict import GOOD

MOST_WAITS = 5
"""Looks at a file that give way to its detaching. Each costs a first retry's delay and nothing else."""
MOST_FILES = 100_000
"""Kept at once; what is more is not put off."""


class Attached:
    """Files that a listing of this process found in vector stores which are being erased. Threads share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: dict[str, set[str]] = {}
        self._waits: dict[str, int] = {}

    def add(self, parts: Parts) -> None:
        """What a listing found."""
        with self._lock:
            for kind, locator in parts.children:
                if kind == "vector_store_file" and len(self._entries) < MOST_FILES:
                    self._entries.setdefault(locator.partition("/")[2], set()).add(locator)

    def must_wait(self, file: str) -> bool:
        """Whether this file is to be left for now."""
        with self._lock:
            if file not in self._entries:
                return False
            waits = self._waits.get(file, 0) + 1
            if waits > MOST_WAITS:
                self._forget(file)
                return False
            self._waits[file] = waits
            return True

    def settle(self, entry: Entry, answer: Answer) -> None:
        """An entry that is gone from its store holds its file back no longer."""
        if entry.kind != "vector_store_file" or answer.outcome not in GOOD:
            return
        file = entry.locator.partition("/")[2]
        with self._lock:
            left = self._entries.get(file, set())
            left.discard(entry.locator)
            if not left:
                self._forget(file)

    def _forget(self, file: str) -> None:
        self._entries.pop(file, None)
        self._waits.pop(file, None)
