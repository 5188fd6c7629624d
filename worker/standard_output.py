"""Standard output that takes no more: a full disk, a reader that has gone, a descriptor that was never open.

Whoever prints need not think of it. The stream that the console script puts in place says once, in one line, what is
wrong, and ends the command the way any other error does: what is under way is settled, and what was done stays done.
"""

import io
import os
import sys
from typing import Any

READER_GONE = 128 + 13
"""What a shell shows for a program that SIGPIPE ended, which is how most programs end in `… | head`."""
_FD = 1


def guard() -> None:
    """Put the stream in place of sys.stdout."""
    given = sys.stdout
    if given is None:
        # the file that is opened next must not become standard output
        _discard()
    sys.stdout = io.TextIOWrapper(
        io.BufferedWriter(_Raw(closed=given is None)),
        encoding="utf-8" if given is None else given.encoding,
        errors=None if given is None else given.errors,
        line_buffering=given is not None and bool(given.line_buffering),
    )


def _discard() -> None:
    """The descriptor leads nowhere from now on: what is buffered still would fail again when the process ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    if nowhere != _FD:
        os.dup2(nowhere, _FD)
        os.close(nowhere)


class _Raw(io.FileIO):
    def __init__(self, *, closed: bool) -> None:
        super().__init__(_FD, "wb", closefd=False)
        self._untold = closed

    def write(self, data: Any, /) -> int:
        """Raises Failure, or SystemExit if nobody reads any more: then there is nobody who misses anything."""
        if self._untold:
            self._untold = False
            raise _failure("it is closed")
        try:
            return super().write(data)
        except BrokenPipeError:
            _discard()
            raise SystemExit(READER_GONE) from None
        except OSError as error:
            _discard()
            raise _failure(error.strerror or type(error).__name__) from None


def _failure(why: str) -> Exception:
    from expunge.worker.cli import Failure

    return Failure(f"standard output cannot be written: {why}; what the command has done stays done")
