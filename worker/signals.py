"""SIGTERM and SIGINT while a command runs: the first asks it to end, the second ends the process."""

import os
import select
import signal
import sys
import threading
from types import FrameType
from typing import Any

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_SHOW_CURSOR = b"\x1b[?25h"


class StopSignals:
    """A context in which the signals are caught; outside the main thread it catches none.

    The handler writes a byte to a pipe and nothing else: it may run in the middle of anything, a lock included.
    """

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)
        self._count = 0
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> "StopSignals":
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                self._before[number] = signal.signal(number, self._caught)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        os.close(self._read)
        os.close(self._write)

    @property
    def asked(self) -> bool:
        """Whether a signal came."""
        return self._count > 0

    def wait(self, seconds: float) -> bool:
        """Wait for a signal, for so long at the most; whether one came."""
        if not self._count:
            select.select([self._read], [], [], seconds)
        return self.asked

    def _caught(self, _: int, __: FrameType | None) -> None:
        self._count += 1
        if self._count > 1:
            if sys.stderr.isatty():
                os.write(2, _SHOW_CURSOR)
            os._exit(1)
        os.write(self._write, b"!")
