"""Deleting objects from a real S3 server (SeaweedFS on this machine), beside s5cmd and plain boto3 in the same run.

Listing is included on all sides: Expunge looks before it deletes, s5cmd expands a wildcard, and the plain boto3 loop
lists page by page and deletes with as many threads. How many calls Expunge makes is counted on a server with an access
log, in key order and shuffled.

    python benchmarks/s3.py [--objects 20000] [--threads 8] [--rounds 3]
"""

import argparse
import logging
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import boto3
import fleet
import structlog
from botocore.config import Config
from servers import seaweed
from servers.postgres import Postgres

from expunge.models import Target, open_case, schema
from expunge.models.database import Database
from expunge.tasks.drain import drain
from expunge.tasks.erasers.s3_options import S3Options
from expunge.tasks.runtime import Policy, Runtime

BUCKET = "bench"


def client(endpoint: str, threads: int) -> Any:
    config = Config(retries={"total_max_attempts": 1}, max_pool_connections=threads)
    # a session of its own: the default one keeps the credentials that it saw first
    return boto3.Session().client("s3", endpoint_url=endpoint, region_name="us-east-1", config=config)


def fill(endpoint: str, keys: list[str], folder: Path) -> None:
    """Upload small objects of these keys."""
    for key in keys:
        path = folder / key
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"x" * 100)
    command = [str(fleet.BIN / "s5cmd"), "--endpoint-url", endpoint, "cp", f"{folder}/*", f"s3://{BUCKET}/"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def count(s3: Any) -> int:
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=BUCKET)
    return sum(page.get("KeyCount", 0) for page in pages)


def by_boto3(s3: Any, threads: int) -> None:
    def delete(keys: list[str]) -> None:
        s3.delete_objects(Bucket=BUCKET, Delete={"Objects": [{"Key": key} for key in keys]})

    with ThreadPoolExecutor(threads) as pool:
        jobs = [
            pool.submit(delete, [item["Key"] for item in page["Contents"]])
            for page in s3.get_paginator("list_objects_v2").paginate(Bucket=BUCKET)
            if page.get("Contents")
        ]
        for job in jobs:
            job.result()


def by_s5cmd(endpoint: str) -> None:
    command = [str(fleet.BIN / "s5cmd"), "--endpoint-url", endpoint, "rm", f"s3://{BUCKET}/*"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def runtime_of(database: Database, endpoint: str, threads: int) -> Runtime:
    options = S3Options(store="s3", endpoint_url=endpoint, region="us-east-1", allow=[BUCKET], concurrency=threads)
    return Runtime(database, Policy(threads=threads + 1, drain_seconds=600), {"s3": options})


def open_all(database: Database, keys: list[str]) -> None:
    with database.begin() as tx:
        targets = [Target("s3", "object", f"{BUCKET}/{key}") for key in keys]
        open_case(tx.connection, subject="bench", targets=targets)


def by_expunge(runtime: Runtime, threads: int) -> None:
    with ThreadPoolExecutor(threads) as pool:
        for job in [pool.submit(drain, runtime, "s3") for _ in range(threads)]:
            job.result()


def rate(objects: int, work: Any, *arguments: Any) -> float:
    began = time.perf_counter()
    work(*arguments)
    return objects / (time.perf_counter() - began)


def count_calls(database: Database, keys: list[str]) -> int:
    """Requests that a server with an access log saw for these keys, in this order."""
    from servers.s3_stub import S3Stub, s3_stub

    with s3_stub() as running:
        stub: S3Stub = running
        s3 = client(stub.url, 4)
        bucket = stub.bucket(BUCKET)
        for key in keys:
            bucket.put(key)
        before = len(stub.log)
        open_all(database, keys)
        runtime = runtime_of(database, stub.url, 1)
        drain(runtime, "s3")
        for eraser in runtime._erasers.values():
            eraser.close()
        assert count(s3) == 0
        return len(stub.log) - before - 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--objects", type=int, default=20_000)
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    keys = [f"tenants/acme/{number:08}" for number in range(options.objects)]
    os.environ.update(AWS_ACCESS_KEY_ID=seaweed.ACCESS_KEY, AWS_SECRET_ACCESS_KEY=seaweed.SECRET_KEY)
    rates: dict[str, list[float]] = {"expunge": [], "s5cmd": [], "boto3": []}
    postgres = Postgres(syncs=True)
    try:
        database = Database.open(postgres.url(postgres.create()), pool_size=options.threads + 2)
        schema.migrate(database)
        with seaweed.seaweed() as endpoint, tempfile.TemporaryDirectory() as folder:
            s3 = client(endpoint, 16)
            s3.create_bucket(Bucket=BUCKET)
            runtime = runtime_of(database, endpoint, options.threads)
            for _ in range(options.rounds):
                for name in rates:
                    fill(endpoint, keys, Path(folder))
                    if name == "expunge":
                        open_all(database, keys)
                        rates[name].append(rate(options.objects, by_expunge, runtime, options.threads))
                    elif name == "s5cmd":
                        rates[name].append(rate(options.objects, by_s5cmd, endpoint))
                    else:
                        rates[name].append(rate(options.objects, by_boto3, s3, options.threads))
                    assert count(s3) == 0, name
                print(
                    "  " + "   ".join(f"{name} {found[-1]:7,.0f} objects/s" for name, found in rates.items()),
                    flush=True,
                )
        for name in ("s5cmd", "boto3"):
            ratio = statistics.median(a / b for a, b in zip(rates["expunge"], rates[name], strict=True))
            print(f"expunge / {name}: {ratio:.2f} (median of {options.rounds}, {options.objects:,} objects)")
        print_calls(database, keys)
        database.close()
    finally:
        postgres.stop()


def print_calls(database: Database, keys: list[str]) -> None:
    from servers import s3_stub

    os.environ.update(AWS_ACCESS_KEY_ID=s3_stub.ACCESS_KEY, AWS_SECRET_ACCESS_KEY=s3_stub.SECRET_KEY)
    calls = count_calls(database, keys)
    print(f"calls in key order: {calls} = one for {len(keys) / calls:.0f} objects")
    shuffled = random.Random(1).sample(keys, len(keys))
    calls = count_calls(database, shuffled)
    print(f"calls shuffled: {calls} = one for {len(keys) / calls:.0f} objects")


if __name__ == "__main__":
    main()
