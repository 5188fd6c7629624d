"""The console script: what must stand before anything else is imported, and then the command line.

Importing takes a second or two. Without this, a signal in that time would end `expunge up` or `expunge serve` as if
something had gone wrong, and a supervisor that stops it early would take it for a crash. And whatever prints, click's
own help included, finds the standard output of standard_output.py.
"""

import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType

from expunge.worker.standard_output import guard

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def main() -> None:
    """Run the command that `sys.argv` names."""
    if _runs_on(sys.argv[1:]):
        for number in _SIGNALS:
            signal.signal(number, _nothing_begun)
    guard()
    from expunge.worker.cli import main as command_line

    command_line()


def _runs_on(arguments: Sequence[str]) -> bool:
    """Whether the command runs until a signal ends it, whatever options stand before it."""
    rest = iter(arguments)
    for argument in rest:
        if argument == "--config":
            next(rest, None)
        elif not argument.startswith("-"):
            return argument in ("up", "serve")
    return False


def _nothing_begun(_: int, __: FrameType | None) -> None:
    """A clean end, at once: until StopSignals takes over there is nothing to settle or to give back. An unwinding
    exception could be caught by whatever is just being imported."""
    os._exit(0)
