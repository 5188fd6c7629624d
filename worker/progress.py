"""What a person sees of a run: a bar on a terminal while it goes on, and a summary at its end."""

import sys
import time
from collections import Counter
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from expunge.models.database import Database
from expunge.models.idle import standing
from expunge.models.keyset import RowDict
from expunge.models.states import SETTLING_STATUSES
from expunge.worker.output import plural, say
from expunge.worker.run import Ending, Ran

_COUNT_SHARE = 20
"""Counting the outbox takes a twentieth of the time at the most."""


class Tally:
    """Receipts of this run by status, and the entries that they closed."""

    def __init__(self) -> None:
        self.statuses: Counter[str] = Counter()
        self.gone = 0

    def add(self, rows: Sequence[RowDict]) -> None:
        """Count a page of receipts."""
        self.statuses.update(row["status"] for row in rows)
        self.gone += sum(1 for row in rows if row["version"] is None and row["status"] in SETTLING_STATUSES)


class Bar:
    """A bar on standard error if that is a terminal, else nothing."""

    def __init__(self, tally: Tally, *, shown: bool | None = None) -> None:
        self._tally = tally
        self._count_at = 0.0
        self._left = 0
        self._progress: Any = None
        if sys.stderr.isatty() if shown is None else shown:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn

            self._progress = Progress(
                SpinnerColumn(),
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                console=Console(stderr=True),
                transient=True,
            )
            self._task = self._progress.add_task("erasing", total=None)

    def __enter__(self) -> "Bar":
        if self._progress is not None:
            self._progress.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        if self._progress is not None:
            self._progress.stop()

    def update(self, database: Database) -> None:
        """Show how far it is."""
        if self._progress is None:
            return
        now = time.monotonic()
        if now >= self._count_at:
            with database.read() as tx:
                self._left = standing(tx).left
            self._count_at = now + (time.monotonic() - now) * _COUNT_SHARE
        self._progress.update(
            self._task,
            completed=self._tally.gone,
            total=self._tally.gone + self._left,
            description="erasing" if self._left else "waiting for entries",
        )


def summarise(ran: Ran, tally: Tally) -> None:
    """Say what was done and what is left, on standard output."""
    if tally.statuses:
        counted = ", ".join(f"{n:,} {status}" for status, n in sorted(tally.statuses.items()))
        say(f"{plural(tally.gone, 'entry', 'entries')} gone. Receipts: {counted}.")
    else:
        say("Nothing was due.")
    if ran.ending is Ending.TIMEOUT:
        say("The time was up.")
    if ran.standing.left:
        counted = ", ".join(f"{n:,} {state}" for state, n in ran.standing.entries.items())
        say(f"Left in the outbox: {counted}. See: expunge outbox")
    elif ran.standing.open_cases:
        # their case says neither what is to be erased nor that nothing was found
        say(f"{plural(ran.standing.open_cases, 'case')} open without any entry. See: expunge cases")
