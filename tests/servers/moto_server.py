"""moto's S3 emulator as a server of its own process."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from servers.ports import answers_http, free_port, wait_until


@contextmanager
def moto_server() -> Iterator[str]:
    """Its endpoint URL, once it answers; killed at the end."""
    port = free_port()
    program = (
        "import sys; from moto.server import main; main(['-H', '127.0.0.1', '-p', sys.argv[1]])"  # no console script
    )
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", program, str(port)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "AWS_ACCESS_KEY_ID": "t", "AWS_SECRET_ACCESS_KEY": "t"},
    )
    try:
        wait_until(lambda: answers_http(port, "/moto-api/"), process)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()
