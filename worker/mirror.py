"""A client's mirror of its conversations: the server's index is the truth, the local copy follows it (ADR-0050, 8).

- Reconciling reads the whole index, takes over what it has, and prunes what is here and not there: each only after a
  point read says that it is gone. One that moved between two pages while they were read is not there and not gone.
- Whatever is not the server's own "not found" is no reason to prune: 401, 403, 5xx, a timeout, a proxy's page, an index
  that breaks off, repeats itself or does not end.
- To somebody else's token everything here is "not found". So a token that is not known yet, or another address of the
  server, must first show that it sees a conversation which is here; until then nothing is touched. See `Mirror.trust`.
- Deleting is server first: only 204 removes what is here.
"""

import hashlib
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import httpx2
import structlog

from expunge.models.mirror_file import MirroredSession, MirrorFile
from expunge.worker.mirror_index import MOST_PAGES, PAGE_SIZE, Deletion, Index, Stopped, can_be_named

log = structlog.get_logger()

INTERVAL_SECONDS = 30.0
TIMEOUT_SECONDS = 10.0
"""Between two bytes of an answer."""
MOST_READS = 500
"""Point reads of one pass; the next goes on after them."""
WITNESSES = 20
"""Conversations that an unknown token is asked for, to see whether it is of the same account."""


class LocalMirror(Protocol):
    """The local copy: `MirrorFile`, or a client's own."""

    def session_ids(self) -> set[str]: ...
    def put(self, sessions: list[MirroredSession]) -> int: ...
    def remove(self, session_id: str) -> bool:
        """With its cached bytes, and so that an interruption is finished by `sweep`."""
        ...

    def sweep(self) -> None: ...
    def is_trusted(self, fingerprint: str) -> bool: ...
    def trust(self, fingerprint: str, *, alone: bool = False) -> None: ...


@dataclass(frozen=True, slots=True)
class Reconciled:
    """What one pass did."""

    changed: int = 0
    """Conversations that were new or different."""
    pruned: int = 0
    unconfirmed: int = 0
    """Not in the index, and no word that they are gone: kept."""
    stopped: str | None = None
    """Why the pass did not come to its end; None if it did."""
    retry_after_seconds: float | None = None


class Mirror:
    """One account's conversations on this device. It has no thread of its own: whoever has a clock calls `tick`."""

    def __init__(
        self,
        client: httpx2.Client,
        local: LocalMirror,
        token: Callable[[], str],
        *,
        interval_seconds: float = INTERVAL_SECONDS,
        clock: Callable[[], float] = time.monotonic,
        page_size: int = PAGE_SIZE,
        most_pages: int = MOST_PAGES,
        most_reads: int = MOST_READS,
    ) -> None:
        """`client` has the server's address as base_url. `token` gives the bearer token of now, and is asked once a
        pass. `clock` gives seconds that never go back."""
        self._client = client
        self._local = local
        self._token = token
        self._interval = interval_seconds
        self._clock = clock
        self._page_size = page_size
        self._most_pages = most_pages
        self._most_reads = most_reads
        self._open = False
        self._due = 0.0
        self._read_last = ""
        self._passing = threading.Lock()
        self._applying = threading.Lock()
        self._deleted: set[str] = set()
        """Since the pass began that runs: its pages may still have them."""

    @classmethod
    def open(cls, url: str, token: Callable[[], str], folder: Path) -> "Mirror":
        """A mirror of the server at `url` in `folder`."""
        return cls(httpx2.Client(base_url=url, timeout=TIMEOUT_SECONDS), MirrorFile(folder), token)

    def connected(self) -> Reconciled:
        """The client has connected: reconcile now, and from now on with `tick`."""
        return self._begin()

    def foregrounded(self) -> Reconciled:
        """The client is in the foreground again: as `connected`."""
        return self._begin()

    def backgrounded(self) -> None:
        """The client is not seen: `tick` does nothing until it is again."""
        self._open = False

    def tick(self, now: float | None = None) -> Reconciled | None:
        """Reconcile if the interval is over, or what the server asked for; None if it is not."""
        now = self._clock() if now is None else now
        if not self._open or now < self._due:
            return None
        return self._reconcile(now)

    def delete(self, session_id: str) -> Deletion:
        """Delete a conversation for ever, on the server and then here. Unless the answer is 204 it stays here: a lost
        answer is asked for again, and the server says 204 again."""
        answer = Index(self._client, self._token()).delete(session_id)
        if answer.gone:
            with self._applying:
                self._deleted.add(session_id)
                self._local.remove(session_id)
        log.info("mirror.deleted", gone=answer.gone, status=answer.status, code=answer.code)
        return answer

    def trust(self) -> None:
        """The client knows that the token of now is of the account whose copy this is: its user has logged in again,
        or the server has moved."""
        self._local.trust(self._fingerprint(self._token()))

    def _begin(self) -> Reconciled:
        self._open = True
        return self._reconcile(self._clock())

    def _reconcile(self, now: float) -> Reconciled:
        if not self._passing.acquire(blocking=False):
            return Reconciled(stopped="another pass is running")
        try:
            done = self._pass()
            self._due = now + max(self._interval, done.retry_after_seconds or 0.0)
        finally:
            self._passing.release()
        tell = log.info if done.changed or done.pruned or done.stopped else log.debug
        tell(
            "mirror.reconciled",
            changed=done.changed,
            pruned=done.pruned,
            unconfirmed=done.unconfirmed,
            stopped=done.stopped,
        )
        return done

    def _pass(self) -> Reconciled:
        token = self._token()
        index = Index(self._client, token, page_size=self._page_size, most_pages=self._most_pages)
        with self._applying:
            self._deleted.clear()
        self._local.sweep()
        listed: set[str] = set()
        done = Reconciled()
        trusted = self._local.is_trusted(self._fingerprint(token))
        try:
            if not trusted and not self._prove(index, token):
                return Reconciled(stopped="the token is not known to be of this account")
            for page in index.pages():
                listed |= {session.id for session in page}
                done = replace(done, changed=done.changed + self._put(page))
        except Stopped as stop:
            # what the pages brought is true, but what they lack may be on the next
            return replace(done, stopped=stop.why, retry_after_seconds=stop.retry_after)
        return self._prune(index, listed, done)

    def _prune(self, index: Index, listed: set[str], done: Reconciled) -> Reconciled:
        absent = self._local.session_ids() - listed
        # some may never be confirmed: the others must have their turn
        for session_id in sorted(absent, key=lambda one: (one <= self._read_last, one))[: self._most_reads]:
            if not can_be_named(session_id):
                done = replace(done, unconfirmed=done.unconfirmed + 1)
                continue
            self._read_last = session_id
            try:
                found = index.read(session_id)
            except Stopped as stop:
                done = replace(done, unconfirmed=done.unconfirmed + 1)
                if stop.for_all:
                    return replace(done, stopped=stop.why, retry_after_seconds=stop.retry_after)
                continue
            if found is None:
                with self._applying:
                    done = replace(done, pruned=done.pruned + self._local.remove(session_id))
            else:
                done = replace(done, changed=done.changed + self._put([found]))
        return done

    def _put(self, sessions: list[MirroredSession]) -> int:
        with self._applying:
            return self._local.put([session for session in sessions if session.id not in self._deleted])

    def _prove(self, index: Index, token: str) -> bool:
        """Whether the token sees a conversation that is here; or nothing is here that it could harm."""
        here = self._local.session_ids()
        if here and not self._sees(index, here):
            return False
        # an empty copy belongs to nobody yet: whoever fills it is the only one who may empty it
        self._local.trust(self._fingerprint(token), alone=not here)
        return True

    def _sees(self, index: Index, here: set[str]) -> bool:
        if any(session.id in here for page in index.pages() for session in page):
            return True
        for session_id in sorted(filter(can_be_named, here))[:WITNESSES]:
            try:
                if index.read(session_id) is not None:
                    return True
            except Stopped as stop:
                if stop.for_all:
                    raise
        return False

    def _fingerprint(self, token: str) -> str:
        """Of a token on a server: 256 random bits are found by nobody, so a plain hash of them may be kept."""
        return hashlib.sha256(f"{self._client.base_url}\n{token}".encode()).hexdigest()
