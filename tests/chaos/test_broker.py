"""A broker that forgets everything, and one that goes away, while Celery's own workers and a beat are in the middle."""

import shlex
import signal
import subprocess
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from chaos.conftest import SEED, World
from commands import BIN, environment
from fleet import write_settings
from servers.s3_stub import ACCESS_KEY, SECRET_KEY
from waiting import wait_for

pytestmark = pytest.mark.chaos


def _deployed(name: str) -> list[str]:
    """What follows `celery` in the Procfile: Celery's gossip does not survive every lost connection."""
    lines = (Path(__file__).parents[2] / "Procfile").read_text().splitlines()
    return shlex.split(next(line for line in lines if line.startswith(f"{name}:")))[2:]


class Celery:
    """One of Celery's own processes; it logs into a file. As deployed, one that ends is started anew: a connection lost
    at an unlucky moment is an "Unrecoverable error" to Celery, from inside kombu's Redis transport."""

    def __init__(self, world: World, label: str, name: str, *arguments: str) -> None:
        self._world, self._command = world, [str(BIN / "celery"), *_deployed(name), *arguments]
        self.log = world.folder / f"worker-{label}.jsonl"  # where World.logs looks
        self._start()

    def _start(self) -> None:
        with self.log.open("a", encoding="utf-8") as file:
            self.process = subprocess.Popen(
                self._command,
                cwd=self._world.folder,
                env=environment(
                    EXPUNGE_CONFIG=str(self._world.folder / "settings.toml"),
                    AWS_ACCESS_KEY_ID=ACCESS_KEY,
                    AWS_SECRET_ACCESS_KEY=SECRET_KEY,
                ),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
            )

    def says(self, text: str) -> bool:
        assert self.process.poll() is None, self.log.read_text()
        return text in self.log.read_text()

    def must_run(self) -> None:
        if self.process.poll() is not None and "Unrecoverable error" in self.log.read_text():
            self._start()
        assert self.process.poll() is None, self.log.read_text()

    def end(self) -> int:
        self.process.terminate()
        return self.process.wait(30)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


def _start(world: World, broker: Any, stack: ExitStack) -> list[Celery]:
    write_settings(
        world.folder / "settings.toml",
        database=world.url,
        broker=broker,
        lease_seconds=3,
        sweep_seconds=1,
        retry_base_seconds=0.05,
        accounts={
            "objects": {
                "store": "s3",
                "endpoint_url": world.s3.url,
                "region": "us-east-1",
                "allow": ["plain", "old"],
                "keys_per_call": 1,
            },
            "ai": {"store": "openai", "base_url": world.provider.base_url},
        },
    )
    workers = [Celery(world, f"w{number}", "worker", "-n", f"w{number}@test") for number in (1, 2)]
    fleet = [*workers, Celery(world, "beat", "beat")]
    for process in fleet:
        stack.callback(process.kill)
    for worker in workers:
        wait_for(lambda worker=worker: worker.says(" ready."), what="a worker", seconds=60)
    return fleet


def _supervised(fleet: list[Celery], world: World) -> bool:
    for process in fleet:
        process.must_run()
    return world.is_complete()


def test_emptied_and_restarted_in_mid_run(
    make_world: Callable[[str], World], postgres_url: str, broker: Any, tmp_path: Path
) -> None:
    """A message is only a doorbell: the sweep finds in the database whatever was lost."""
    world = make_world(postgres_url)
    with ExitStack() as stack:
        fleet = _start(world, broker, stack)
        client = broker.client()
        world.trip.at(8, client.flushall)
        world.trip.at(30, client.flushall)
        world.open()
        world.await_complete()
        assert world.trip.count > 30
        client.close()

        first = world.trip.count
        world.open("c2", at="u/2")
        wait_for(lambda: world.trip.count > first + 8, what=f"the second case to begin (seed {SEED})")
        broker.stop()
        assert not world.is_complete()
        world.open("c3", at="u/3")
        broker.start()
        broker.wait_until_ready()
        wait_for(lambda: _supervised(fleet, world), what=f"the cases (seed {SEED})", seconds=60)
        for process in fleet:
            # 1, or the signal itself: it was about to end, for the reason given above
            assert process.end() in (0, 1, -signal.SIGTERM), world.logs()
    world.check()
