"""A crowd of processes on one database: each opens cases, drains and sweeps.

    python -m doubles.crowd URL PROCESSES LOG CASES

They are forked from one that has imported everything and opened nothing, so that they begin at the same moment.

Every delete call appends its locators to LOG, a line each, so that all processes' calls are in one file.
"""

import os
import sys
import traceback

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


def work(url: str, name: str, log: str, cases: int) -> None:
    """Open cases and drain after each, then sweep, and drain until the outbox is empty."""
    bench = Bench(Database.open(url), concurrency=CONCURRENCY)
    bench.store.objects = Everything()
    calls = os.open(log, os.O_WRONLY | os.O_APPEND)
    # one write is one append, whoever else writes
    bench.store.on_call = lambda locators: (os.write(calls, "".join(f"{x}\n" for x in locators).encode()), None)[1]
    for number in range(cases):
        bench.open(*(f"b/{name}/{number}/{n}" for n in range(ENTRIES)), case=f"{name}-{number}")
        bench.drain()
    bench.sweep()

    def is_empty() -> bool:
        bench.drain()
        return not bench.entries()

    wait_for(is_empty, seconds=60, what="an empty outbox")
    bench.database.close()


def main(url: str, processes: int, log: str, cases: int) -> int:
    """Fork them and wait for all; gives how many failed."""
    children = []
    wait, begin = os.pipe()
    for number in range(processes):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                os.close(begin)
                os.read(wait, 1)  # ends when the parent closes the other end
                work(url, f"p{number}", log, cases)
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                os._exit(code)
        children.append(child)
    os.close(begin)
    return sum(os.waitpid(child, 0)[1] != 0 for child in children)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])))
