"""Memory of a worker process over many entries with the null eraser: the last quarter beside the first.

python benchmarks/memory.py [--entries 1000000]
"""

import argparse
import statistics
import sys
import time
from pathlib import Path

import psycopg

sys.path.insert(0, str(Path(__file__).resolve().parent))

import drain
import fleet
import null_store

from expunge.models.database import Database
from expunge.tasks.doorbell import Doorbell


def resident(pid: int) -> int:
    """Bytes, from the kernel's own count."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise SystemExit("the worker is gone")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--entries", type=int, default=1_000_000)
    options = parser.parse_args()
    folder = null_store.install()
    account = f'[accounts.null]\nstore = "null"\nconcurrency = 2\nbatch = {drain.BATCH}'
    with fleet.servers() as (url, valkey):
        dsn = Database.open(url).engine.url.set(drivername="postgresql").render_as_string(hide_password=False)
        config = fleet.configuration(url, valkey, threads=3, accounts=account)
        bell = Doorbell(f"redis://127.0.0.1:{valkey.port}/0")
        with fleet.celery(config, ["worker"], ["beat"], pythonpath=folder) as (worker, _):
            drain.warm(dsn, bell)
            drain.fill(dsn, options.entries)
            bell.ring("null")
            samples: list[tuple[float, int]] = []
            with psycopg.connect(dsn, autocommit=True) as connection:
                while True:
                    row = connection.execute("SELECT count(*) FROM erasure_record").fetchone()
                    assert row is not None
                    samples.append((row[0] / options.entries, resident(worker.pid)))
                    if drain.count_is_zero(dsn):
                        break
                    time.sleep(0.5)
    first = [size for share, size in samples if 0.02 < share <= 0.25]
    last = [size for share, size in samples if share > 0.75]
    ratio = statistics.median(last) / statistics.median(first)
    print(
        f"resident memory over {options.entries:,} entries: first quarter {statistics.median(first) / 1e6:.0f} MB, "
        f"last quarter {statistics.median(last) / 1e6:.0f} MB, ratio {ratio:.2f}"
    )


if __name__ == "__main__":
    main()
