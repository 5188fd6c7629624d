"""A receiver of webhooks that keeps what it got and answers as it is told."""

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Receiver:
    """`answers` are used up first, then every request is accepted."""

    def __init__(self) -> None:
        self.got: list[tuple[str, dict[str, str], bytes]] = []
        """(path, headers in lower case, body)"""
        self.answers: deque[int] = deque()
        self.url = ""


@contextmanager
def receiver() -> Iterator[Receiver]:
    """A running one."""
    state = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            state.got.append((self.path, {k.lower(): v for k, v in self.headers.items()}, body))
            status = state.answers.popleft() if state.answers else 204
            self.send_response(status)
            if status in (302, 307):
                self.send_header("Location", state.url + "/elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_GET = do_POST  # noqa: N815  the name is http.server's

        def log_message(self, format: str, *args: object) -> None:
            return None

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    state.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
