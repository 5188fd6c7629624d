"""How the state machines are run: on fresh databases, the same way each time, or at random for `make chaos`."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

ROUNDS = int(os.environ.get("CHAOS_ROUNDS", "1"))
TIMEOUT = 120 * (1 + ROUNDS)
"""Seconds of one test."""
_PHASES = (Phase.explicit, Phase.generate)
"""A failure is not made small, which would take minutes."""


class OnDatabase(RuleBasedStateMachine):
    """A machine on a database of its own: `fresh` gives the URL of a migrated one, and `drop` removes it."""

    fresh: Callable[[], str]
    drop: Callable[[str], None]


def run_on_sqlite(machine: type[OnDatabase], template: Path, folder: Path, *, examples: int, steps: int) -> None:
    """Each example on a copy of the template."""
    numbers = iter(range(1_000_000))

    def fresh() -> str:
        path = folder / f"{next(numbers)}.db"
        shutil.copy(template, path)
        return f"sqlite:///{path}"

    def drop(url: str) -> None:
        for path in folder.glob("*.db*"):
            path.unlink()

    _run(machine, fresh, drop, examples, steps)


def run_on_postgresql(machine: type[OnDatabase], server: Any, template: str, *, examples: int, steps: int) -> None:
    """Each example on a copy of the template."""

    def fresh() -> str:
        return str(server.url(server.create(template)))

    def drop(url: str) -> None:
        server.drop(url.split("/@/")[-1].partition("?")[0].rpartition("/")[-1])

    _run(machine, fresh, drop, examples, steps)


def _run(
    machine: type[OnDatabase], fresh: Callable[[], str], drop: Callable[[str], None], examples: int, steps: int
) -> None:
    made = type("Machine", (machine,), {"fresh": staticmethod(fresh), "drop": staticmethod(drop)})
    run_machine(made, examples=examples, steps=steps)


def run_machine(machine: type[RuleBasedStateMachine], *, examples: int, steps: int) -> None:
    """The same examples each time, or at random for `make chaos`, and then more of them."""
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples * ROUNDS,
            stateful_step_count=steps,
            deadline=None,
            database=None,
            derandomize=ROUNDS == 1,
            phases=_PHASES,
            print_blob=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
