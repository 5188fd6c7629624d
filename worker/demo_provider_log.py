"""The demo provider's access log: what it was asked, in its own words. Chaos tests compare it with the receipts."""

import json
import threading
from collections.abc import Callable
from pathlib import Path

from expunge.worker.demo_provider_objects import Json


class AccessLog:
    """Lines in memory and, if a file is given, as JSON lines in it, flushed before the answer is sent."""

    def __init__(self, path: Path | None = None) -> None:
        self._changed = threading.Condition()
        self._lines: list[Json] = []
        self._file = path.open("a", encoding="utf-8") if path is not None else None

    def add(self, line: Json) -> None:
        with self._changed:
            self._lines.append(line)
            if self._file is not None:
                self._file.write(json.dumps(line) + "\n")
                self._file.flush()
            self._changed.notify_all()

    def lines(self, method: str | None = None) -> list[Json]:
        """All of them so far, or those of one method."""
        with self._changed:
            return [line for line in self._lines if method is None or line["method"] == method]

    def wait_for(self, condition: Callable[[list[Json]], bool], timeout: float = 10.0) -> bool:
        """Wait until the lines fulfil a condition; whether they did in time (seconds)."""
        with self._changed:
            return self._changed.wait_for(lambda: condition(self._lines), timeout)

    def close(self) -> None:
        with self._changed:
            if self._file is not None:
                self._file.close()
                self._file = None
