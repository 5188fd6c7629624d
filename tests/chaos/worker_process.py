"""A worker process without a broker, which can be told to kill or stop itself at a named step.

    python tests/chaos/worker_process.py --database sqlite:///x.db --s3 http://127.0.0.1:9000 \
        --provider http://127.0.0.1:8081/v1 --log worker.jsonl --kill marked:3

It sweeps and drains both lanes until SIGTERM. Exit code 0: nothing went wrong that a worker should not survive.
"""

import argparse
import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TextIO

import structlog

from expunge.models.database import Database, is_unreachable
from expunge.tasks.drain import drain
from expunge.tasks.erasers.openai import OpenAIOptions
from expunge.tasks.erasers.s3_options import S3Options
from expunge.tasks.runtime import Policy, Runtime
from expunge.tasks.sweep import sweep

LANES = ("objects", "ai")
LEASE_SECONDS = 1.5
IDLE_SECONDS = 0.05
SWEEP_SECONDS = 0.25
log = structlog.get_logger()


BEGUN = '{"event": "worker.begun"}'


class Doom:
    """Sends a signal to this very process when a step is reached for the nth time, by whichever thread."""

    def __init__(self, wanted: Sequence[tuple[str, int, signal.Signals]]) -> None:
        self._wanted = {(step, number): number_of_signal for step, number, number_of_signal in wanted}
        self._seen: Counter[str] = Counter()
        self._lock = threading.Lock()

    def __call__(self, step: str) -> None:
        with self._lock:
            self._seen[step] += 1
            wanted = self._wanted.get((step, self._seen[step]))
        if wanted is not None:
            os.kill(os.getpid(), wanted)


def _doom(text: str, number: signal.Signals) -> tuple[str, int, signal.Signals]:
    step, _, nth = text.partition(":")
    return step, int(nth or 1), number


def make_runtime(options: argparse.Namespace, on_step: Callable[[str], None]) -> Runtime:
    """One S3 account and one provider account, both quick to give up and to try again."""
    return Runtime(
        Database.open(options.database, pool_size=2 * options.threads + 3),
        Policy(lease_seconds=options.lease, retry_base_seconds=0.05, retry_max_seconds=1.0, threads=options.threads),
        {
            "objects": S3Options(
                endpoint_url=options.s3,
                region="us-east-1",
                allow=("plain", "old"),
                keys_per_call=options.keys_per_call,
                pages_per_claim=1,
                timeout_seconds=0.25,
                verify_after=options.verify_after,
            ),
            "ai": OpenAIOptions(
                base_url=options.provider,
                timeout_seconds=0.4,
                purge_window_days=30,
                verify_after=options.verify_after,
            ),
        },
        on_step=on_step,
    )


def _over_and_over(runtime: Runtime, seconds: float, *works: Callable[[], object]) -> None:
    """A worker outlives a database that goes away; whatever else is raised ends the process with an error."""
    while not runtime.stopping.is_set():
        for work in works:
            try:
                work()
            except Exception as error:
                if not is_unreachable(error):
                    runtime.stopping.set()
                    raise
                log.warning("worker.database_away", error=type(error).__name__)
        runtime.stopping.wait(seconds)


def work(runtime: Runtime, threads: int) -> None:
    """One thread does it all in turn, or each lane has some of its own beside the sweep's."""
    drains = [partial(drain, runtime, lane) for lane in LANES]
    if threads == 1:
        _over_and_over(runtime, IDLE_SECONDS, partial(sweep, runtime), *drains)
        return
    with ThreadPoolExecutor(threads + 1) as pool:
        running = [pool.submit(_over_and_over, runtime, IDLE_SECONDS, drains[number % 2]) for number in range(threads)]
        running.append(pool.submit(_over_and_over, runtime, SWEEP_SECONDS, partial(sweep, runtime)))
        runtime.stopping.wait()
        for future in running:
            future.result()


def configure_log(file: TextIO) -> None:
    """What a failed test shows."""
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        logger_factory=structlog.WriteLoggerFactory(file=file),
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Work until SIGTERM."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--database", required=True)
    parser.add_argument("--s3", required=True)
    parser.add_argument("--provider", required=True)
    parser.add_argument("--log", type=Path, required=True)
    parser.add_argument("--lease", type=float, default=LEASE_SECONDS)
    parser.add_argument("--threads", type=int, default=4, help="1: one thread does everything in turn")
    parser.add_argument("--keys-per-call", type=int, default=4)
    parser.add_argument("--verify-after", type=float, metavar="SECONDS", help="a second look at what is erased")
    parser.add_argument("--kill", action="append", default=[], metavar="STEP:N")
    parser.add_argument("--stop", action="append", default=[], metavar="STEP:N")
    parser.add_argument("--kill-after", type=float, metavar="SECONDS", help="at whatever moment that is")
    options = parser.parse_args(arguments)
    os.environ |= {
        "AWS_ACCESS_KEY_ID": "stubstubstubstub",
        "AWS_SECRET_ACCESS_KEY": "stub-secret",
        "OPENAI_API_KEY": "sk-demo",
    }
    doom = Doom(
        [_doom(text, signal.SIGKILL) for text in options.kill] + [_doom(text, signal.SIGSTOP) for text in options.stop]
    )
    with options.log.open("a", encoding="utf-8", buffering=1) as file:
        configure_log(file)
        runtime = make_runtime(options, doom)
        signal.signal(signal.SIGTERM, lambda *_: runtime.stop())
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        file.write(BEGUN + "\n")  # from here on SIGTERM is heard
        if options.kill_after is not None:
            killer = threading.Timer(options.kill_after, os.kill, (os.getpid(), signal.SIGKILL))
            killer.daemon = True
            killer.start()
        try:
            work(runtime, options.threads)
        finally:
            runtime.close()


if __name__ == "__main__":
    main()
