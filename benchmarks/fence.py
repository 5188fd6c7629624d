"""What the fence costs a bulk insert, on PostgreSQL: events of many conversations in one statement, with the fence and
without it, in turns; the same for an update of all of them.

    python benchmarks/fence.py [--rows 100000] [--conversations 1000] [--rounds 5]
"""

import argparse
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from servers.postgres import Postgres
from sqlalchemy import text

from expunge.models import schema
from expunge.models.database import Database
from expunge.models.session_schema import create_sessions

INSERTS = {
    "event, by its conversation": "INSERT INTO event (session_id, payload) SELECT 's' || g % :c, '{}' FROM {rows}",
    "event, by its run as well": (
        "INSERT INTO event (session_id, run_id, payload) SELECT 's' || g % :c, 'r' || g % :c, '{}' FROM {rows}"
    ),
}
ROWS = "generate_series(1, :n) g"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--conversations", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with host(options.conversations) as database:
        for what, insert in INSERTS.items():
            measure(database, what, insert.replace("{rows}", ROWS), options)


def measure(database: Database, what: str, insert: str, options: argparse.Namespace) -> None:
    took: dict[tuple[str, str], list[float]] = {}
    table = what.split(",")[0]
    for _ in range(options.rounds):
        for fence in ("without", "with"):
            run(database, f"TRUNCATE {table}")
            switch = "DISABLE" if fence == "without" else "ENABLE ALWAYS"
            run(database, f"ALTER TABLE {table} {switch} TRIGGER {trigger(database, table)}")
            run(database, "CHECKPOINT")
            took.setdefault(("insert", fence), []).append(
                seconds(database, insert, n=options.rows, c=options.conversations)
            )
            took.setdefault(("update", fence), []).append(seconds(database, f"UPDATE {table} SET id = id"))
    for verb in ("insert", "update"):
        plain, fenced = (statistics.median(took[verb, fence]) for fence in ("without", "with"))
        cost = (fenced - plain) / options.rows * 1e6
        print(
            f"{verb} of {options.rows:,} rows, {what}: {fenced / plain:.2f} × without the fence"
            f" ({fenced:.2f} s beside {plain:.2f} s: {cost:.0f} µs a row)"
        )


@contextmanager
def host(conversations: int) -> Iterator[Database]:
    """The reference host's tables in a PostgreSQL of their own, with conversations that have a run each."""
    postgres = Postgres(syncs=True)
    database = Database.open(postgres.url(postgres.create()))
    try:
        schema.migrate(database)
        create_sessions(database)
        sessions = "INSERT INTO session (id, tenant_id, principal_id) SELECT 's' || g, 'acme', 'ann' FROM {rows}"
        runs = "INSERT INTO run (id, session_id, state) SELECT 'r' || g, 's' || g, 'succeeded' FROM {rows}"
        for insert in (sessions, runs):
            run(database, insert.replace("{rows}", "generate_series(0, :n) g"), n=conversations)
        run(database, "ANALYZE")
        yield database
    finally:
        database.close()
        postgres.stop()


def trigger(database: Database, table: str) -> str:
    (row,) = run(
        database,
        "SELECT tgname FROM pg_trigger WHERE tgrelid = CAST(:table AS regclass) AND tgname LIKE 'zz_erasure_fence%'",
        table=table,
    )
    return str(row[0])


def run(database: Database, statement: str, **parameters: object) -> list[tuple[object, ...]]:
    with database.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        result = connection.execute(text(statement), parameters)
        return [tuple(row) for row in result] if result.returns_rows else []


def seconds(database: Database, statement: str, **parameters: object) -> float:
    begun = time.perf_counter()
    run(database, statement, **parameters)
    return time.perf_counter() - begun


if __name__ == "__main__":
    main()
