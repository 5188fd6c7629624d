"""The purge of one large conversation on PostgreSQL: how long it takes, what this process holds meanwhile, and how long
the writers of other conversations wait.

python benchmarks/purge.py [--events 1000000]
"""

import argparse
import statistics
import sys
import threading
import time
from pathlib import Path

import sqlalchemy as sa

sys.path.insert(0, str(Path(__file__).resolve().parent))

import fleet

from expunge.models.database import Database
from expunge.models.errors import translate
from expunge.models.purge import purge
from expunge.models.purged import Principal
from expunge.models.session_schema import create_sessions
from expunge.models.sessions import SESSIONS

ADA = Principal("ada", "acme")
QUIET_SECONDS = 5.0
WRITERS = 2


def resident() -> int:
    """Bytes of this process, from the kernel's own count."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise SystemExit("no VmRSS in /proc/self/status")


class Writer(threading.Thread):
    """Appends one event after the other to a conversation of its own, each in its own transaction."""

    def __init__(self, database: Database, number: int, stop: threading.Event) -> None:
        super().__init__()
        self.database, self.session, self.stop = database, f"other-{number}", stop
        self.waits: list[float] = []
        self.busy = 0

    def run(self) -> None:
        insert = sa.text("INSERT INTO event (session_id) VALUES (:session)")
        while not self.stop.is_set():
            before = time.perf_counter()
            try:
                with self.database.engine.begin() as connection:
                    connection.execute(insert, {"session": self.session})
            except sa.exc.DBAPIError as error:
                if translate(error) is None:
                    raise
                self.busy += 1
            self.waits.append(time.perf_counter() - before)


def write_for(database: Database, action: object) -> tuple[list[float], int]:
    """The waits of all writers while the action runs, and how often they were told to come back."""
    stop = threading.Event()
    writers = [Writer(database, number, stop) for number in range(WRITERS)]
    for writer in writers:
        writer.start()
    assert callable(action)
    action()
    stop.set()
    for writer in writers:
        writer.join()
    return [wait for writer in writers for wait in writer.waits], sum(writer.busy for writer in writers)


def fill(database: Database, session: str, events: int) -> None:
    """A conversation with a run for each thousand events, and an artifact for each hundred."""
    with database.engine.begin() as connection:
        for statement in (
            "INSERT INTO session (id, tenant_id, principal_id) VALUES (:s, 'acme', 'ada')",
            "INSERT INTO run (id, session_id, state) SELECT :s || n, :s, 'succeeded'"
            " FROM generate_series(0, CAST(:events AS integer) / 1000) n",
            "INSERT INTO event (session_id, run_id, payload) SELECT :s, :s || (n / 1000), repeat('x', 200)"
            " FROM generate_series(1, CAST(:events AS integer)) n",
            "INSERT INTO artifact (session_id, account, kind, locator)"
            " SELECT :s, 'files', 'object', 'bucket/' || :s || n"
            " FROM generate_series(1, CAST(:events AS integer) / 100) n",
        ):
            connection.execute(sa.text(statement.replace(":s", "CAST(:s AS text)")), {"s": session, "events": events})
    with database.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql("VACUUM ANALYZE")


def told(waits: list[float]) -> str:
    cuts = statistics.quantiles(waits, n=20)
    middle, late, longest = (1000 * wait for wait in (statistics.median(waits), cuts[18], max(waits)))
    return f"p50 {middle:.1f} ms, p95 {late:.1f} ms, longest {longest:.0f} ms"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--events", type=int, default=1_000_000)
    options = parser.parse_args()
    with fleet.servers() as (url, _):
        database = Database.open(url)
        create_sessions(database)
        for number in range(WRITERS):
            fill(database, f"other-{number}", 100)
        fill(database, "small", 1000)
        fill(database, "large", options.events)
        with database.engine.begin() as connection:
            purge(connection, SESSIONS, "small", principal=ADA)  # everything is loaded
        quiet, _ = write_for(database, lambda: time.sleep(QUIET_SECONDS))
        sizes, done, took = [resident()], threading.Event(), 0.0

        def watch() -> None:
            while not done.wait(0.02):
                sizes.append(resident())

        def run() -> None:
            nonlocal took
            before = time.perf_counter()
            with database.engine.begin() as connection:
                purged = purge(connection, SESSIONS, "large", principal=ADA)
            took = time.perf_counter() - before
            assert purged.deleted["event"] == options.events, purged

        watcher = threading.Thread(target=watch)
        watcher.start()
        waits, busy = write_for(database, run)
        done.set()
        watcher.join()
        database.close()
    print(
        f"{options.events:,} events: purged in {took:.1f} s; this process {sizes[0] / 1e6:.0f} MB before,"
        f" {max(sizes) / 1e6:.0f} MB at the most"
    )
    print(f"other conversations' writers meanwhile: {told(waits)}; told to come back: {busy} of {len(waits):,}")
    print(f"the same without a purge:               {told(quiet)}")


if __name__ == "__main__":
    main()
