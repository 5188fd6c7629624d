"""Free ports, and waiting until a server answers."""

import http.client
import socket
import subprocess
import time
from collections.abc import Callable

_tried: set[int] = set()


def free_port(low: int = 20000, high: int = 32000, *, also: int = 0) -> int:
    """A port of 127.0.0.1 that nobody listens on; `also` is an offset that must be free as well (gRPC twins).

    Ports are below the kernel's ephemeral range, so that an outgoing connection does not take one in between.
    """
    start = low + (time.time_ns() // 1000) % (high - low)
    for step in range(high - low):
        port = low + (start - low + step) % (high - low)
        if port in _tried:
            continue
        _tried.add(port)
        if _is_free(port) and (not also or _is_free(port + also)):
            return port
    raise RuntimeError("no free port")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def answers_http(port: int, path: str = "/") -> bool:
    """Whether anything answers HTTP there, whatever the status."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=1)
    try:
        connection.request("GET", path)
        connection.getresponse().read()
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
    return True


def wait_until(ready: Callable[[], bool], process: subprocess.Popen[bytes], *, seconds: float = 60.0) -> None:
    """Poll until `ready`. Raises RuntimeError if the process ends first or the time is over."""
    deadline = time.monotonic() + seconds
    while not ready():
        if time.monotonic() > deadline:
            raise RuntimeError(f"{process.args!r} did not get ready in {seconds} s")
        try:
            code = process.wait(timeout=0.05)
        except subprocess.TimeoutExpired:
            continue
        raise RuntimeError(f"{process.args!r} ended with {code}")
