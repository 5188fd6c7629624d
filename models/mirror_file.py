"""A client's local copy of its conversations: an SQLite file of its own, and a folder of cached bytes.

It holds nothing that the server does not have. What is removed goes in an order in which it may be interrupted: the row
is marked, and from then on nobody is shown it; then the bytes go; then the row. `sweep` finishes what was interrupted,
and removes bytes that belong to no row. SQLite overwrites what is deleted (secure_delete).
"""

import hashlib
import os
import shutil
import sqlite3
import threading
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from pathlib import Path

BUSY_SECONDS = 10.0
_TABLES = """
CREATE TABLE IF NOT EXISTS session (
    id TEXT PRIMARY KEY,
    title TEXT,
    updated_at TEXT NOT NULL,
    active_run_id TEXT,
    last_run_id TEXT,
    removing INTEGER NOT NULL DEFAULT 0 CHECK (removing IN (0, 1))
);
CREATE TABLE IF NOT EXISTS identity (fingerprint TEXT PRIMARY KEY);
"""
_PUT = """
INSERT INTO session (id, title, updated_at, active_run_id, last_run_id) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET title = excluded.title, updated_at = excluded.updated_at,
    active_run_id = excluded.active_run_id, last_run_id = excluded.last_run_id
WHERE NOT removing AND (title, updated_at, active_run_id, last_run_id)
    IS NOT (excluded.title, excluded.updated_at, excluded.active_run_id, excluded.last_run_id)
"""


@dataclass(frozen=True, slots=True)
class MirroredSession:
    """A conversation as the server's index has it."""

    id: str
    title: str | None
    updated_at: str
    """UTC, ISO 8601 to the microsecond."""
    active_run_id: str | None
    last_run_id: str | None


class MirrorFile:
    """The copy of one account on one server. Threads may share it; so may processes."""

    def __init__(self, folder: Path) -> None:
        """Opens `folder`, or makes it, for its owner only."""
        self._bytes = folder / "bytes"
        self._bytes.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.chmod(0o700)
        self._lock = threading.RLock()
        self._connection = sqlite3.connect(
            folder / "mirror.db", timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )
        # no write-ahead log, in which deleted titles would stay readable
        self._connection.execute("PRAGMA journal_mode = DELETE")
        self._connection.execute("PRAGMA secure_delete = ON")
        self._connection.execute("PRAGMA synchronous = FULL")
        self._connection.executescript(_TABLES)

    def sessions(self) -> list[MirroredSession]:
        """Newest activity first, as the server's index."""
        with self._lock:
            rows = self._connection.execute(
                "SELECT id, title, updated_at, active_run_id, last_run_id FROM session WHERE NOT removing"
                " ORDER BY updated_at DESC, id DESC"
            ).fetchall()
        return [MirroredSession(*row) for row in rows]

    def session_ids(self) -> set[str]:
        """Of all conversations that are here."""
        with self._lock:
            return {row[0] for row in self._connection.execute("SELECT id FROM session WHERE NOT removing")}

    def put(self, sessions: Iterable[MirroredSession]) -> int:
        """Insert or update them; gives how many were new or different."""
        with self._write() as connection:
            return sum(connection.execute(_PUT, astuple(session)).rowcount for session in sessions)

    def remove(self, session_id: str) -> bool:
        """Remove a conversation and its cached bytes; False if it was not here.

        Bytes that the file system will not let go are tried again by `sweep`; the row is hidden already.
        """
        with self._write() as connection:
            found = connection.execute("UPDATE session SET removing = 1 WHERE id = ?", (session_id,)).rowcount
        if found:
            self._finish(session_id)
        return found == 1

    def sweep(self) -> None:
        """Finish interrupted removals, and remove bytes that belong to no conversation."""
        with self._lock:
            unfinished = self._connection.execute("SELECT id FROM session WHERE removing").fetchall()
            for (session_id,) in unfinished:
                self._finish(session_id)
            known = {_name(row[0]) for row in self._connection.execute("SELECT id FROM session")}
            for folder in self._bytes.iterdir():
                if folder.name not in known:
                    shutil.rmtree(folder, ignore_errors=True)

    def cache(self, session_id: str, name: str, content: bytes) -> bool:
        """Keep an artifact's bytes; False, and nothing is kept, if the conversation is not here."""
        folder = self._bytes / _name(session_id)
        with self._lock:
            if not self._is_here(session_id):
                return False
            folder.mkdir(mode=0o700, exist_ok=True)
            half = folder / f"{uuid.uuid4().hex}.part"
            try:
                half.write_bytes(content)
                os.replace(half, folder / _name(name))
            except FileNotFoundError:  # another process has removed the conversation
                return False
            finally:
                half.unlink(missing_ok=True)
            if self._is_here(session_id):
                return True
            shutil.rmtree(folder, ignore_errors=True)
            return False

    def cached(self, session_id: str, name: str) -> bytes | None:
        """An artifact's bytes, or None."""
        with self._lock:
            if not self._is_here(session_id):
                return None
            try:
                return (self._bytes / _name(session_id) / _name(name)).read_bytes()
            except FileNotFoundError:
                return None

    def is_trusted(self, fingerprint: str) -> bool:
        """Whether this token of this server is known to be of the account whose copy this is."""
        with self._lock:
            found = self._connection.execute("SELECT 1 FROM identity WHERE fingerprint = ?", (fingerprint,)).fetchone()
        return found is not None

    def trust(self, fingerprint: str, *, alone: bool = False) -> None:
        """From now on it is; with `alone`, no other is any more."""
        with self._write() as connection:
            if alone:
                connection.execute("DELETE FROM identity")
            connection.execute("INSERT OR IGNORE INTO identity (fingerprint) VALUES (?)", (fingerprint,))

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._connection.close()

    def _is_here(self, session_id: str) -> bool:
        query = "SELECT 1 FROM session WHERE id = ? AND NOT removing"
        return self._connection.execute(query, (session_id,)).fetchone() is not None

    def _finish(self, session_id: str) -> None:
        folder = self._bytes / _name(session_id)
        try:
            shutil.rmtree(folder)
        except FileNotFoundError:
            pass
        except OSError:
            return
        with self._write() as connection:
            connection.execute("DELETE FROM session WHERE id = ? AND removing", (session_id,))

    @contextmanager
    def _write(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")


def _name(text: str) -> str:
    """A file's name that no id or name can break out of."""
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()
