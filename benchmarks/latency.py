"""From a host's commit to the provider call, on PostgreSQL and Valkey: with the doorbell, and with every bell lost.

The reference is the sweep's interval: without a bell nothing is found earlier than the next sweep.

    python benchmarks/latency.py [--commits 200]
"""

import argparse
import os
import random
import statistics
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import fleet
import null_store
from sqlalchemy.orm import Session

from expunge.models import Target, bell, open_case
from expunge.models.database import Database

SWEEP_SECONDS = 2.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--commits", type=int, default=200)
    options = parser.parse_args()
    folder = null_store.install()
    with fleet.servers() as (url, valkey):
        stamps = Path(folder) / "stamps"
        account = f'[accounts.null]\nstore = "null"\nstamp_file = "{stamps}"'
        config = fleet.configuration(url, valkey, threads=4, accounts=account, extra=f"sweep_seconds = {SWEEP_SECONDS}")
        os.environ["EXPUNGE_CONFIG"] = str(config)
        sys.path.insert(0, folder)
        database = Database.open(url)
        with fleet.celery(config, ["worker"], ["beat"], pythonpath=folder):
            measure(database, stamps, 20, "warm")
            rung = measure(database, stamps, options.commits, "rung")
            bell.take_down()
            swept = measure(database, stamps, max(20, options.commits // 5), "swept")
        database.close()
    print(f"commit to call, bell rung: p50 {p(rung, 50):.1f} ms, p95 {p(rung, 95):.1f} ms ({len(rung)} commits)")
    print(
        f"commit to call, bells lost: p50 {p(swept, 50):.0f} ms, p95 {p(swept, 95):.0f} ms = "
        f"{p(swept, 95) / SWEEP_SECONDS / 1000:.2f} sweeps of {SWEEP_SECONDS:.0f} s ({len(swept)} commits)"
    )


def measure(database: Database, stamps: Path, commits: int, name: str) -> list[float]:
    """Milliseconds from each commit to its call."""
    committed = {}
    pause = threading.Event()
    for number in range(commits):
        locator = f"bucket/{name}-{number}"
        with Session(database.engine) as session:
            open_case(session, subject="s", targets=[Target("null", "object", locator)])
            session.commit()
            committed[locator] = time.time()
        pause.wait(random.uniform(0.02, 0.15))
    fleet.wait_for(lambda: len(read(stamps).keys() & committed.keys()) == commits, 60, "the calls")
    called = read(stamps)
    return [(called[locator] - at) * 1000 for locator, at in committed.items()]


def read(stamps: Path) -> dict[str, float]:
    if not stamps.exists():
        return {}
    lines = (line.split() for line in stamps.read_text().splitlines())
    return {parts[0]: float(parts[1]) for parts in lines if len(parts) == 2}


def p(values: list[float], percent: int) -> float:
    return statistics.quantiles(values, n=100)[percent - 1]


if __name__ == "__main__":
    main()
