"""A store that confirms every deletion at once: what is left to measure is Expunge itself.

The benchmarks install it as another package would install a store: by an entry point of the group `expunge.erasers`.
"""

import sys
import tempfile
from collections.abc import Collection, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from expunge.models.entry import Entry
from expunge.models.targets import find_kind
from expunge.tasks.erasers.contract import AccountOptions, Answer, Call, Check, Looked, call_timeout, utc_now
from expunge.tasks.outcomes import Outcome


class NullOptions(AccountOptions):
    batch: int = 1000
    stamp_file: str | None = None
    """Where every call is written with the moment it was made, for the latency benchmark."""


class NullEraser:
    """Confirms everything."""

    store = "null"
    kinds = tuple(kind for kind in (find_kind("object"),) if kind)
    options = NullOptions

    def __init__(self, account: str, options: Any, *, lease_seconds: float) -> None:
        self.account = account
        self.batch = options.batch
        self.timeout = call_timeout(options, lease_seconds)
        self._stamps = open(options.stamp_file, "a", buffering=1) if options.stamp_file else None  # noqa: SIM115

    def refuse(self, kind: str, locator: str) -> str | None:
        return None

    def look(self, entries: Sequence[Entry], until: float) -> Looked:
        if self._stamps:
            return Looked(calls=[Call((entry.id,), partial(self._stamp, entry.locator), "Stamp") for entry in entries])
        ids = [entry.id for entry in entries]
        calls = []
        for start in range(0, len(ids), self.batch):
            calls.append(Call(tuple(ids[start : start + self.batch]), self._send, "DeleteObjects"))
        return Looked(calls=calls)

    def _stamp(self, locator: str, ids: Collection[int]) -> list[Answer]:
        assert self._stamps
        self._stamps.write(f"{locator} {utc_now().timestamp()}\n")
        return self._send(ids)

    def _send(self, ids: Collection[int]) -> list[Answer]:
        called, at = utc_now(), utc_now()
        return [
            Answer(
                entry_id,
                Outcome.DELETED,
                "DeleteObjects",
                called,
                at,
                request_id="0123456789ABCDEF",
                http_status=200,
                endpoint="null://",
                region="nowhere-1",
            )
            for entry_id in ids
        ]

    def check(self) -> list[Check]:
        return [Check("null", True, "confirms everything")]

    def close(self) -> None:
        if self._stamps:
            self._stamps.close()


def install() -> str:
    """A folder for PYTHONPATH that holds the entry point; gives its path."""
    folder = Path(tempfile.mkdtemp(prefix="expunge-null-"))
    info = folder / "expunge_null-0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: expunge-null\nVersion: 0\n")
    (info / "entry_points.txt").write_text("[expunge.erasers]\nnull = null_store:NullEraser\n")
    (folder / "null_store.py").write_text(Path(__file__).read_text())
    return str(folder)


if __name__ == "__main__":
    sys.stdout.write(install() + "\n")
