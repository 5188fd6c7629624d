"""Receipts as they come, each once.

Which ones are new is not told by `recorded_at` or id, since one may be committed later than a later one: every look
goes back further than the last look, and what was seen is remembered.
"""

import time
from collections.abc import Iterator

from expunge.models.database import Database
from expunge.models.keyset import RowDict
from expunge.models.list_receipts import read_receipts
from expunge.models.recent import recent_receipts

OVERLAP_SECONDS = 60.0
"""Longer than any settling transaction."""
QUICK_OVERLAP_SECONDS = 2.0
THOROUGH_EVERY_SECONDS = 5.0
"""Most looks go back a little only; one now and then, and the last, go back the whole way."""
_CHUNK = 1000


class ReceiptFollower:
    """Begins now: what is recorded already is not new."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._seen: dict[str, float] = {}
        self._looked_at = self._thorough_at = time.monotonic()
        with database.read() as tx:
            self._remember(recent_receipts(tx, OVERLAP_SECONDS))

    def look(self, *, last: bool = False) -> Iterator[list[RowDict]]:
        """Pages of receipts that were not there before. `last` misses none that is committed by now."""
        now = time.monotonic()
        thorough = last or now - self._thorough_at >= THOROUGH_EVERY_SECONDS
        since = self._thorough_at if thorough else self._looked_at
        overlap = OVERLAP_SECONDS if thorough else QUICK_OVERLAP_SECONDS
        with self._database.read() as tx:
            fresh = [id for id in recent_receipts(tx, now - since + overlap) if id not in self._seen]
        for start in range(0, len(fresh), _CHUNK):
            chunk = fresh[start : start + _CHUNK]
            with self._database.read() as tx:
                rows = read_receipts(tx, chunk)
            self._remember(chunk)
            yield rows
        self._looked_at = now
        if thorough:
            self._thorough_at = now
            self._forget(now)

    def _remember(self, ids: list[str]) -> None:
        now = time.monotonic()
        self._seen.update(dict.fromkeys(ids, now))

    def _forget(self, now: float) -> None:
        # no look goes back so far again
        long_ago = now - 2 * OVERLAP_SECONDS - 2 * THOROUGH_EVERY_SECONDS
        self._seen = {id: at for id, at in self._seen.items() if at > long_ago}
