"""How fast entries become receipts: Celery workers with the null eraser, beside two references in the same run.

- a hand-written psycopg loop on the same tables, with the same columns, constraints and mark, in as many processes;
- one Celery task per object, with a transaction each for claim, mark and settle.

    python benchmarks/drain.py [--entries 200000] [--rounds 3]
"""

import argparse
import multiprocessing
import os
import statistics
import subprocess
import sys
import time
import uuid
from datetime import UTC, datetime
from pathlib import Path

import psycopg

sys.path.insert(0, str(Path(__file__).resolve().parent))

import fleet
import null_store

from expunge.models.database import Database

BATCH = 1000
PROCESSES = 2
CASES = 20

FILL = """
INSERT INTO erasure_case (id, subject, basis)
SELECT %(run)s || g, 'subject-' || g, 'gdpr' FROM generate_series(1, {cases}) g;
INSERT INTO erasure_outbox (case_id, account, kind, locator)
SELECT %(run)s || (1 + g %% {cases}), 'null', 'object', 'bucket/tenants/acme/objects/' || g
  FROM generate_series(1, {entries}) g
"""

CLAIM = """
UPDATE erasure_outbox o SET state = 'leased', lease_token = %b, lease_until = clock_timestamp() + interval '300 s'
  FROM erasure_case c
 WHERE o.id = ANY(ARRAY(SELECT id FROM erasure_outbox WHERE account = 'null' AND state = 'ready'
       AND due_at <= clock_timestamp() ORDER BY due_at, id LIMIT %b FOR UPDATE SKIP LOCKED)) AND c.id = o.case_id
RETURNING o.id, o.case_id, o.kind, o.locator, c.tenant, c.subject, c.conversation
"""
MARK = """
UPDATE erasure_outbox o SET state = 'calling', attempt = attempt + 1, lease_until = clock_timestamp() + interval '300 s'
 WHERE id = ANY(%b::bigint[]) AND lease_token = %b AND state = 'leased' RETURNING id, attempt
"""
SETTLE = """
WITH gone AS MATERIALIZED (
    DELETE FROM erasure_outbox WHERE id = ANY(%b::bigint[]) AND lease_token = %b AND state = 'calling')
INSERT INTO erasure_record (id, case_id, entry_id, tenant, subject, conversation, account, store, kind, locator,
                            attempt, action, operation, status, request_id, http_status, endpoint, region, called_at,
                            at)
SELECT u.id::uuid, u.case_id, u.entry_id, u.tenant, u.subject, u.conversation, 'null', 'null', 'object', u.locator,
       u.attempt, 'delete', 'DeleteObjects', 'deleted', '0123456789ABCDEF', 200, 'null://', 'nowhere-1', %b, %b
  FROM unnest(%b::text[], %b::text[], %b::bigint[], %b::text[], %b::text[], %b::text[], %b::text[], %b::integer[])
       AS u(id, case_id, entry_id, tenant, subject, conversation, locator, attempt)
ON CONFLICT (id) DO NOTHING
"""


def by_hand(dsn: str) -> None:
    """The loop that somebody would write for this and nothing else."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        while True:
            token = uuid.uuid4()
            rows = connection.execute(CLAIM, [token, BATCH], binary=True).fetchall()
            if not rows:
                return
            ids = [row[0] for row in rows]
            attempts = dict(connection.execute(MARK, [ids, token], binary=True).fetchall())
            called = at = datetime.now(UTC)
            connection.execute(
                SETTLE,
                [
                    ids,
                    token,
                    called,
                    at,
                    [str(uuid.uuid4()) for _ in rows],
                    [row[1] for row in rows],
                    ids,
                    [row[4] for row in rows],
                    [row[5] for row in rows],
                    [row[6] for row in rows],
                    [row[3] for row in rows],
                    [attempts[row[0]] for row in rows],
                ],
            )


def fill(dsn: str, entries: int) -> None:
    run = uuid.uuid4().hex[:8] + "-"
    with psycopg.connect(dsn, autocommit=True) as connection:
        for statement in FILL.format(cases=CASES, entries=entries).split(";"):
            connection.execute(statement, {"run": run})  # type: ignore[call-overload]
        connection.execute("VACUUM ANALYZE erasure_outbox")


def count(dsn: str) -> int:
    with psycopg.connect(dsn, autocommit=True) as connection:
        row = connection.execute("SELECT count(*) FROM erasure_outbox").fetchone()
        assert row is not None
        return int(row[0])


def time_by_hand(dsn: str, entries: int) -> float:
    fill(dsn, entries)
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=by_hand, args=(dsn,)) for _ in range(PROCESSES)]
    began = time.perf_counter()
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    seconds = time.perf_counter() - began
    assert count(dsn) == 0
    return entries / seconds


def time_expunge(dsn: str, entries: int, lane_rings: "list[str]", ring: "object") -> float:
    fill(dsn, entries)
    began = time.perf_counter()
    for lane in lane_rings:
        ring(lane)  # type: ignore[operator]
    fleet.wait_for(lambda: count_is_zero(dsn), 600, "the workers")
    return entries / (time.perf_counter() - began)


def count_is_zero(dsn: str) -> bool:
    with psycopg.connect(dsn, autocommit=True) as connection:
        return connection.execute("SELECT 1 FROM erasure_outbox LIMIT 1").fetchone() is None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--entries", type=int, default=200_000)
    parser.add_argument("--singles", type=int, default=1_000, help="objects for one task per object")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    folder = null_store.install()
    account = '[accounts.null]\nstore = "null"\nconcurrency = {}\nbatch = {}\n{}'
    with fleet.servers() as (url, valkey):
        dsn = Database.open(url).engine.url.set(drivername="postgresql").render_as_string(hide_password=False)
        from expunge.tasks.doorbell import Doorbell

        bell = Doorbell(f"redis://127.0.0.1:{valkey.port}/0")
        config = fleet.configuration(url, valkey, accounts=account.format(PROCESSES, BATCH, ""))
        hand, ours = [], []
        workers = [["worker"]] * PROCESSES
        for _ in range(options.rounds):
            hand.append(time_by_hand(dsn, options.entries))
            with fleet.celery(config, *workers, ["beat"], pythonpath=folder):
                warm(dsn, bell)
                ours.append(time_expunge(dsn, options.entries, ["null"], bell.ring))
            print(f"  by hand {hand[-1]:9,.0f} rows/s   expunge {ours[-1]:9,.0f} rows/s", flush=True)
        singles = one_task_per_object(url, dsn, valkey, options.singles)
    ratio = statistics.median(o / h for o, h in zip(ours, hand, strict=True))
    print(f"expunge / by hand: {ratio:.2f} (median of {options.rounds}, {options.entries:,} entries, batch {BATCH})")
    print(f"expunge / one task per object: {statistics.median(ours) / singles:.0f} ({singles:,.0f} rows/s)")


def warm(dsn: str, bell: "object") -> None:
    """The workers are up when they have drained a few entries."""
    fill(dsn, 2000)
    bell.ring("null")  # type: ignore[attr-defined]
    fleet.wait_for(lambda: count_is_zero(dsn), 60, "the workers to start")


def one_task_per_object(url: str, dsn: str, valkey: object, entries: int) -> float:
    """The same product code, driven the naive way: one message, one claim, one mark and one settle for every object."""
    from single_task import ring_all

    fill(dsn, entries)
    environment = {
        **os.environ,
        "BENCH_DATABASE": url,
        "BENCH_BROKER": f"redis://127.0.0.1:{valkey.port}/1",  # type: ignore[attr-defined]
    }
    processes = [
        subprocess.Popen(
            [
                str(fleet.BIN / "celery"),
                "-A",
                "single_task",
                "worker",
                "--pool",
                "threads",
                "-c",
                "4",
                "-n",
                f"s{n}@%h",
            ],
            env=environment,
            cwd=Path(__file__).parent,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for n in range(PROCESSES)
    ]
    try:
        ring_all(environment["BENCH_BROKER"], 1)
        fleet.wait_for(lambda: count(dsn) < entries, 60, "the single-task workers")
        began, left = time.perf_counter(), count(dsn)
        ring_all(environment["BENCH_BROKER"], left)
        fleet.wait_for(lambda: count_is_zero(dsn), 600, "the single tasks")
        return left / (time.perf_counter() - began)
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait()


if __name__ == "__main__":
    main()
