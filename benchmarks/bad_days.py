"""Entries a second on bad days, beside the same entries on a good day in the same run.

Two worker processes on PostgreSQL, a strict S3 stub and a provider in this process. Bad days: 5 % of all requests fail
or lose their answer, bursts of throttling, holds placed and released all the time, a worker killed each 150 requests.
After each day the access logs of the stores, the receipts and what is left are compared; a finding is the end.

    python benchmarks/bad_days.py [--entries 1200] [--rounds 1]
"""

import argparse
import statistics
import sys
import tempfile
import threading
import time
from contextlib import ExitStack, closing
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from chaos import checker
from chaos.bad_days import BadDays, StormyS3, Weather
from chaos.conftest import TrippedProvider
from servers.postgres import Postgres
from waiting import wait_for

from expunge.models import schema
from expunge.models.database import Database

LONGEST_SECONDS = 120.0
"""A day ends with an error after so long, and half a second for each entry."""


def one_day(url: str, entries: int, *, bad: bool, seed: str) -> float:
    """Entries a second, from the first worker's start until every case is complete."""
    folder = Path(tempfile.mkdtemp(prefix="expunge-bad-days-"))
    with (folder / "s3.jsonl").open("a", encoding="utf-8") as log:
        s3 = StormyS3(log_file=log)
        s3.weather = Weather(seed)
        thread = threading.Thread(target=s3.serve, daemon=True)
        thread.start()
        with ExitStack() as stack:
            stack.callback(thread.join)
            stack.callback(s3.close)
            provider = stack.enter_context(TrippedProvider(log_path=folder / "provider.jsonl"))
            world = stack.enter_context(closing(BadDays(folder, url, s3, provider, seed=seed)))
            world.open_all(entries)
            world.weather.fine = not bad
            begun = time.monotonic()
            workers = [world.start() for _ in range(2)]
            with ExitStack() as weather:
                if bad:
                    weather.enter_context(world.holding())
                    weather.enter_context(world.killing(workers))
                wait_for(
                    lambda: world.retry_escalated() or world.is_complete(),
                    seconds=LONGEST_SECONDS + entries / 2,
                    pause=0.1,
                    what=f"a {'bad' if bad else 'good'} day to end",
                )
                seconds = time.monotonic() - begun
            for worker in workers:
                world.end(worker)
            found = world.findings()
            assert not found, found[:10]
            closed = checker.query(
                url,
                "SELECT count(DISTINCT entry_id) AS n FROM erasure_record"
                " WHERE version IS NULL AND status IN ('deleted', 'already_absent')",
            )[0]["n"]
    return float(closed / seconds)


def main() -> None:
    """Good and bad days in turns, and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--entries", type=int, default=1200)
    parser.add_argument("--rounds", type=int, default=1)
    options = parser.parse_args()
    server = Postgres(syncs=True)
    rates: dict[bool, list[float]] = {False: [], True: []}
    try:
        for turn in range(options.rounds):
            for bad in (False, True):
                url = server.url(server.create())
                database = Database.open(url)
                schema.migrate(database)
                database.close()
                rates[bad].append(one_day(url, options.entries, bad=bad, seed=f"bench/{turn}"))
                print(f"{'bad' if bad else 'good'} day: {rates[bad][-1]:.0f} entries/s", flush=True)
    finally:
        server.stop()
    good, ill = statistics.median(rates[False]), statistics.median(rates[True])
    print(f"{options.entries} entries: {ill:.0f} entries/s on bad days, {good:.0f} on a good one: {ill / good:.2f} x")


if __name__ == "__main__":
    main()
