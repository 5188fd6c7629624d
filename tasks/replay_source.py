"""Reading what is to be replayed: one file, or all of a directory or bucket with an archive or exports."""

import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO

from expunge.models.errors import InvalidJournal
from expunge.models.journal import read
from expunge.models.replay_spool import Spool
from expunge.models.types import iso
from expunge.tasks.archive_stores import ArchiveFailed, ArchivePlace, make_store

Part = tuple[str, AbstractContextManager[BinaryIO]]
_NUMBER = re.compile(r"([0-9]{10,})-[0-9a-f]{16}\.jsonl")


class Source:
    """Where to read from: `-` is standard input, else a file, a directory, `file:///…` or `s3://…`."""

    def __init__(self, name: str, place: ArchivePlace) -> None:
        """`place` says how a bucket is reached; its address is not used."""
        self._name = name
        self._store = None
        address = name if "://" in name else None
        if address is None and name != "-" and Path(name).is_dir():
            address = Path(name).resolve().as_uri()
        if address is not None:
            self._store = make_store(ArchivePlace(address, place.endpoint_url, place.region, place.profile))
        self.address = address
        self.last_segment = 0
        self._known_since: list[datetime | None] = []

    def read_into(self, spool: Spool) -> None:
        """Read and believe all of it. Raises InvalidJournal, which says where and what, or ArchiveFailed."""
        parts = 0
        for name, opened in self._parts():
            parts += 1
            with opened as stream:
                spool.add(read(stream, name, self._begun))
        if not parts:
            raise InvalidJournal(f"{self._name}: there is no export and no archive in it; nothing was written")
        spool.require_owners()
        if spool.since is not None and None not in self._known_since and min(self._starts) > spool.since:
            raise InvalidJournal(
                f"{self._name}: begins at {iso(min(self._starts))}, later than --since: it does not know what was"
                " erased before; nothing was written"
            )

    @property
    def _starts(self) -> list[datetime]:
        return [since for since in self._known_since if since is not None]

    def _begun(self, begin: dict[str, Any]) -> None:
        since = begin.get("since")
        self._known_since.append(None if since is None else datetime.fromisoformat(since))

    def _parts(self) -> Iterator[Part]:
        if self._store is not None:
            names = list(self._store.names())
            self._require_all(names)
            for name in names:
                yield name, self._store.open(name)
        elif self._name == "-":
            yield "standard input", nullcontext(sys.stdin.buffer)
        else:
            try:
                stream = open(self._name, "rb")  # noqa: SIM115  whoever reads it closes it
            except OSError as error:
                raise ArchiveFailed(f"{self._name}: cannot be read: {error.strerror}") from None
            yield self._name, stream

    def _require_all(self, names: Sequence[str]) -> None:
        """Segments are numbered without gaps. Raises InvalidJournal: one that is missing may hold what is asked for."""
        numbers = sorted({int(found[1]) for found in map(_NUMBER.fullmatch, names) if found})
        if not numbers:
            return
        self.last_segment = numbers[-1]
        missing = sorted(set(range(numbers[0], numbers[-1])) - set(numbers))
        if missing:
            told = ", ".join(map(str, missing[:10])) + (" …" if len(missing) > 10 else "")
            raise InvalidJournal(
                f"{self._name}: segment {told} is missing; nothing was written. To go on without, put the others into"
                " the database one by one"
            )
