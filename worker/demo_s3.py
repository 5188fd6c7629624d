"""The demo's S3 server: moto, in this process."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from expunge.models.errors import ExpungeError


@contextmanager
def s3_server() -> Iterator[str]:
    """Its endpoint URL. Raises ExpungeError if the extra `demo` is not installed."""
    try:
        from moto.moto_api._internal.models import moto_api_backend
        from moto.server import ThreadedMotoServer
    except ImportError:
        raise ExpungeError("the demo needs a local S3 server: pip install 'expunge[demo]'") from None
    logging.getLogger("werkzeug").setLevel(logging.CRITICAL)
    moto_api_backend.reset()  # its buckets are the process's, and outlive a server
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        yield f"http://{host}:{port}"
    finally:
        server.stop()
