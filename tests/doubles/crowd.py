"""One process of a crowd on one database: it opens cases, drains and sweeps as soon as its standard input says so.

    python -m doubles.crowd URL NAME LOG CASES

Every delete call appends its locators to LOG, a line each, so that all processes' calls are in one file.
"""

import os
import sys

from doubles.running import Bench
from waiting import wait_for

from expunge.models.database import Database

ENTRIES = 5
"""Of one case."""
CONCURRENCY = 10


class Everything(set[str]):
    """A store in which every object is there."""

    def __contains__(self, locator: object) -> bool:
        return True


def main(url: str, name: str, log: str, cases: int) -> None:
    """Open cases and drain after each, then drain and sweep until the outbox is empty."""
    bench = Bench(Database.open(url), concurrency=CONCURRENCY)
    bench.store.objects = Everything()
    calls = os.open(log, os.O_WRONLY | os.O_APPEND)
    # one write is one append, whoever else writes
    bench.store.on_call = lambda locators: (os.write(calls, "".join(f"{x}\n" for x in locators).encode()), None)[1]
    print("ready", flush=True)  # noqa: T201
    sys.stdin.readline()
    for number in range(cases):
        bench.open(*(f"b/{name}/{number}/{n}" for n in range(ENTRIES)), case=f"{name}-{number}")
        bench.drain()

    def is_empty() -> bool:
        bench.sweep()
        bench.drain()
        return not bench.entries()

    wait_for(is_empty, seconds=60, what="an empty outbox")
    bench.database.close()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
