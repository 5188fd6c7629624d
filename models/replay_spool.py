"""What a replay has read and not written yet: on disk beside the database, so that nothing is written before the last
line is believed, and memory stays that of a page, however long the archive is."""

import shutil
import sqlite3
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO

from expunge.models.errors import InvalidJournal
from expunge.models.journal import TABLES, Line, reread
from expunge.models.keyset import PAGE
from expunge.models.states import Action, ReceiptStatus
from expunge.models.targets import find_kind

_TARGETS = """
CREATE TABLE target (
    case_id TEXT, account TEXT, kind TEXT, locator TEXT, recorded_at TEXT, status TEXT, is_part INTEGER,
    subject TEXT, tenant TEXT, conversation TEXT,
    PRIMARY KEY (account, kind, locator, case_id)
) WITHOUT ROWID
"""
_ADD = """
INSERT INTO target VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (account, kind, locator, case_id) DO UPDATE
   SET recorded_at = excluded.recorded_at, status = excluded.status
 WHERE excluded.recorded_at >= target.recorded_at
"""
_OWED_STATUS, _LAST = "owed", "9999"
_OWED = f"""
SELECT case_id, account, kind, locator, subject, tenant, conversation FROM target t
 WHERE status <> '{ReceiptStatus.WAIVED}'
   AND NOT (is_part AND EXISTS (
       SELECT 1 FROM target p WHERE p.account = t.account AND p.case_id = t.case_id AND NOT p.is_part
          AND p.locator = substr(t.locator, 1, instr(t.locator, '/') - 1)))
 ORDER BY case_id, account, kind, locator
"""


@dataclass(frozen=True, slots=True)
class Erased:
    """A target that some receipt names, and whose it is."""

    case_id: str
    account: str
    kind: str
    locator: str
    subject: str | None
    """None if the source has the case itself."""
    tenant: str | None
    conversation: str | None


@dataclass(slots=True)
class Spool:
    """Made by `spooled`."""

    folder: Path
    since: datetime | None
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(TABLES, 0))
    most_entry: int = 0
    """The highest entry id that a receipt or decision names."""
    _files: dict[str, BinaryIO] = field(default_factory=dict)
    _db: Any = None

    def add(self, lines: Iterable[Line]) -> None:
        """Take rows in. Raises whatever reading them raises."""
        for line in lines:
            self.counts[line.kind] += 1
            self._file(line.kind).write(line.text)
            named = line.row.get("id") if line.kind == "entry" else line.row.get("entry_id")
            self.most_entry = max(self.most_entry, named or 0)
            if line.kind == "receipt":
                self._add_target(line.row)
            elif line.kind == "entry":
                self._add_owed(line.row)
            elif line.kind == "case":
                self._db.execute("INSERT OR REPLACE INTO known VALUES (?, ?)", (line.row["id"], line.text))

    def _add_target(self, row: dict[str, Any]) -> None:
        """The newest receipt of each target since the moment asked for; one of a version is about a part of it."""
        recorded = row.get("recorded_at") or row["at"]
        if row.get("version") is not None or (self.since is not None and max(recorded, row["at"]) < self.since):
            return
        if row["action"] == Action.VERIFY and row["status"] == ReceiptStatus.UNVERIFIABLE:
            return
        kind = find_kind(row["kind"])
        self._db.execute(
            _ADD,
            (
                row["case_id"],
                row["account"],
                row["kind"],
                row["locator"],
                recorded.isoformat(timespec="microseconds"),
                row["status"],
                kind is not None and kind.is_part,
                row["subject"],
                row.get("tenant"),
                row.get("conversation"),
            ),
        )

    def _add_owed(self, row: dict[str, Any]) -> None:
        """What the outbox owed when the export was made, whatever its receipts say. Parts are found by their whole."""
        if row.get("parent_id") is not None:
            return
        target = (row["case_id"], row["account"], row["kind"], row["locator"])
        self._db.execute(_ADD, (*target, _LAST, _OWED_STATUS, False, None, None, row.get("conversation")))

    def require_owners(self) -> None:
        """Raises InvalidJournal if an entry's case is nowhere. Call it when all is read."""
        nobodys = self._db.execute(
            "SELECT count(*) FROM target WHERE subject IS NULL AND case_id NOT IN (SELECT id FROM known)"
        ).fetchone()[0]
        if nobodys:
            raise InvalidJournal(f"{nobodys} entries are of cases that it does not have; nothing was written")

    def targets(self, size: int = PAGE) -> Iterator[list[Erased]]:
        """What is to be erased again, in pages, by case. Waived ones are not, nor parts whose whole is."""
        found = self._db.execute(_OWED)
        while page := found.fetchmany(size):
            yield [Erased(*row) for row in page]

    def case_row(self, case_id: str) -> dict[str, Any] | None:
        """The case as the export has it; None if it has not."""
        row = self._db.execute("SELECT text FROM known WHERE id = ?", (case_id,)).fetchone()
        return None if row is None else reread(row[0]).row

    def rows(self, kind: str, size: int = PAGE) -> Iterator[Sequence[dict[str, Any]]]:
        """The rows of a kind, in pages, in the order in which they were read."""
        stream = self._file(kind)
        stream.seek(0)
        page: list[dict[str, Any]] = []
        for text in stream:
            page.append(reread(text).row)
            if len(page) == size:
                yield page
                page = []
        if page:
            yield page

    def _file(self, kind: str) -> BinaryIO:
        if kind not in self._files:
            self._files[kind] = (self.folder / kind).open("w+b")
        return self._files[kind]


@contextmanager
def spooled(since: datetime | None) -> Iterator[Spool]:
    """A spool in a folder that only we can read, and that goes at the end. It holds what the source holds."""
    folder = Path(tempfile.mkdtemp(prefix="expunge-replay-"))
    spool = Spool(folder, since)
    try:
        spool._db = sqlite3.connect(folder / "targets.db", isolation_level=None)
        spool._db.execute("PRAGMA journal_mode = OFF")
        spool._db.execute("PRAGMA synchronous = OFF")
        spool._db.execute(_TARGETS)
        spool._db.execute("CREATE TABLE known (id TEXT PRIMARY KEY, text BLOB) WITHOUT ROWID")
        spool._db.execute("BEGIN")
        yield spool
    finally:
        for stream in spool._files.values():
            stream.close()
        if spool._db is not None:
            spool._db.close()
        shutil.rmtree(folder, ignore_errors=True)
