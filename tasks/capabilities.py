"""What an eraser knows of its store, shared by the fleet: rows with an age, and a copy of them in the process."""

import threading
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import structlog
from sqlalchemy.exc import SQLAlchemyError

from expunge.models.capabilities import forget_capability, learn_capability, list_capabilities
from expunge.models.database import Database, Transaction
from expunge.tasks.erasers.contract import AccountOptions

log = structlog.get_logger()

REREAD_SECONDS = 60.0
"""How long the process' copy is used before the rows, which other processes write too, are read again."""


def place_of(options: AccountOptions) -> str:
    """The endpoint as it is kept: without credentials and query. A region where the SDK chooses the endpoint."""
    url = getattr(options, "endpoint_url", None) or getattr(options, "base_url", None)
    if not url:
        return str(getattr(options, "region", None) or "")
    parts = urlsplit(str(url))
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}".rstrip("/")


class SharedKnown:
    """contract.Known on the database. Thread-safe. A database that cannot be used makes it forgetful and no more: what
    is not known is asked again."""

    def __init__(
        self,
        database: Database,
        account: str,
        endpoint: str,
        *,
        max_age_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._database = database
        self._account = account
        self._endpoint = endpoint
        self._max_age = max_age_seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._copy: dict[tuple[str, str], Any] = {}
        self._read_at: float | None = None

    def recall(self, scope: str, name: str) -> Any | None:
        """The value, or None if it is not known or too old."""
        now = self._clock()
        with self._lock:
            stale = self._read_at is None or now > self._read_at + min(REREAD_SECONDS, self._max_age)
            if not stale:
                return self._copy.get((scope, name))
        copy = self._read()
        with self._lock:
            self._copy, self._read_at = copy, now
            return copy.get((scope, name))

    def learn(self, scope: str, name: str, value: Any) -> None:
        """Keep it for the fleet; what is known already is kept with its new age."""
        with self._lock:
            self._copy[scope, name] = value
        self._write("learn", lambda tx: learn_capability(tx, self._account, self._endpoint, scope, name, value))

    def forget(self, scope: str, name: str) -> None:
        """It was wrong."""
        with self._lock:
            self._copy.pop((scope, name), None)
        self._write("forget", lambda tx: forget_capability(tx, self._account, self._endpoint, scope, name))

    def _read(self) -> dict[tuple[str, str], Any]:
        if self._database.missing_file is not None:
            return {}  # looking would create it
        try:
            with self._database.read() as tx:
                found = list_capabilities(tx, self._account, self._endpoint, max_age_seconds=self._max_age)
        except SQLAlchemyError as error:
            log.warning("capability.not_shared", lane=self._account, step="recall", error=type(error).__name__)
            return {}
        return {(each.scope, each.name): each.value for each in found}

    def _write(self, step: str, write: Callable[[Transaction], None]) -> None:
        if self._database.missing_file is not None:
            return
        try:
            with self._database.begin() as tx:
                write(tx)
        except SQLAlchemyError as error:
            log.warning("capability.not_shared", lane=self._account, step=step, error=type(error).__name__)
