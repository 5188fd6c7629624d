"""The command line and Celery's as processes of their own."""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

BIN = Path(sys.executable).parent


def environment(**more: str) -> dict[str, str]:
    """Of a process that must find nothing but what the test gives it."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("EXPUNGE_", "COV_CORE"))}
    return {**inherited, "OPENAI_API_KEY": "sk-demo", **more}


@contextmanager
def start(
    *arguments: str | Path, cwd: Path, stdout: int = subprocess.PIPE, under: Sequence[str] = (), **more: str
) -> Iterator["subprocess.Popen[str]"]:
    """Start `expunge` or `celery` with these arguments, in a folder, `under` another command if there is one; killed at
    the end if it still runs."""
    program, *rest = arguments
    process = subprocess.Popen(
        [*under, str(BIN / program), *map(str, rest)],
        cwd=cwd,
        env=environment(**more),
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def run(*arguments: str | Path, cwd: Path, code: int = 0, **more: str) -> Any:
    """Run it to its end and give what it wrote; `code` is the exit code that it must have."""
    with start(*arguments, cwd=cwd, **more) as process:
        out, err = process.communicate(timeout=90)
    assert process.returncode == code, (process.returncode, out, err)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)
