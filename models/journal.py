"""The file that an export writes and an archive is made of: JSON lines that tell when some of them are missing.

    {"type": "begin", "format": 1, …}
    {"type": "receipt", …}                                   every column of its row, times to the microsecond
    {"type": "end", "count": 1, "sha256": "…"}               of all lines before this one, their line ends included

A file without its last line is no whole file, and nothing is taken from it. ASCII: locators may hold characters that
other programs take for the end of a line.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, BinaryIO

import sqlalchemy as sa

from expunge.models.errors import InvalidJournal
from expunge.models.purge_tables import Tombstone
from expunge.models.states import Action, Decision, ReceiptStatus, Scope
from expunge.models.tables import ErasureCase, ErasureDecision, ErasureHold, ErasureRecord, OutboxEntry
from expunge.models.types import UtcDateTime

FORMAT = 1
MAX_LINE_BYTES = 16 * 1024 * 1024
"""Far more than any row that we write."""
TABLES: dict[str, sa.Table] = {
    "entry": OutboxEntry.__table__,  # type: ignore[dict-item]
    "case": ErasureCase.__table__,  # type: ignore[dict-item]
    "hold": ErasureHold.__table__,  # type: ignore[dict-item]
    "tombstone": Tombstone.__table__,  # type: ignore[dict-item]
    "decision": ErasureDecision.__table__,  # type: ignore[dict-item]
    "receipt": ErasureRecord.__table__,  # type: ignore[dict-item]
}
"""What a line may be, and the table that it is a row of."""

_WORDS: dict[tuple[str, str], set[str]] = {
    ("receipt", "status"): {str(word) for word in ReceiptStatus},
    ("receipt", "action"): {str(word) for word in Action},
    ("decision", "decision"): {str(word) for word in Decision},
    ("case", "scope"): {str(word) for word in Scope},
}
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_VERIFIED = (ReceiptStatus.ABSENT, ReceiptStatus.PRESENT, ReceiptStatus.UNVERIFIABLE)
_FIRST, _END = datetime(1900, 1, 1, tzinfo=UTC), datetime(9900, 1, 1, tzinfo=UTC)
_MOST = 2**63


class Writer:
    """Writes one file: `begin` when it is made, `end` when it is ended."""

    def __init__(self, write: Callable[[bytes], object], **begin: Any) -> None:
        self._write = write
        self._hash = hashlib.sha256()
        self.count = 0
        self._line({"type": "begin", "format": FORMAT, **begin})

    def add(self, kind: str, row: Mapping[str, Any]) -> None:
        """One row."""
        self._line({"type": kind, **row})
        self.count += 1

    def end(self) -> str:
        """Write the last line; gives the hash that it holds."""
        digest = self._hash.hexdigest()
        self._line({"type": "end", "count": self.count, "sha256": digest})
        return digest

    def _line(self, value: Mapping[str, Any]) -> None:
        line = json.dumps(value, default=_plain, ensure_ascii=True, separators=(",", ":")).encode() + b"\n"
        self._hash.update(line)
        self._write(line)


def _plain(value: Any) -> str:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    return str(value)


@dataclass(frozen=True, slots=True)
class Line:
    """One row of a file."""

    kind: str
    row: dict[str, Any]
    text: bytes
    number: int


def read(stream: BinaryIO, name: str, begun_with: Callable[[dict[str, Any]], None] | None = None) -> Iterator[Line]:
    """The rows of a file, each checked, and at the end the whole. Memory for one line. `begun_with` is told what the
    first line says, and may raise ValueError.

    Raises InvalidJournal, with the name and the line's number: for a line that is none of ours, a row that its table
    would not take, a line that was changed, and a file that is cut off. What was given before must be thrown away then.
    """
    digest, begun, count, number = hashlib.sha256(), False, 0, 0
    while text := stream.readline(MAX_LINE_BYTES + 1):
        number += 1
        try:
            if not text.endswith(b"\n"):
                raise ValueError("is cut off" if len(text) <= MAX_LINE_BYTES else "is too long")
            value = _object(text)
            kind = value.pop("type", None)
            if not begun:
                _require_begin(kind, value)
                if begun_with is not None:
                    begun_with(value)
                begun = True
            elif kind == "end":
                _require_end(value, count, digest.hexdigest())
                if stream.read(1):
                    raise ValueError("the file ends here, and there is more")
                return
            else:
                yield Line(str(kind), _row(kind, value), text, number)
                count += 1
            digest.update(text)
        except ValueError as error:
            raise InvalidJournal(f"{name}, line {number}: {error}; nothing was written") from None
    what = "is empty" if not number else f"is cut off after line {number}: its last line, with the count, is missing"
    raise InvalidJournal(f"{name}: {what}; nothing was written")


def _object(text: bytes) -> dict[str, Any]:
    try:
        value = json.loads(text.decode("ascii"))
    except (ValueError, RecursionError):
        raise ValueError("is not JSON in ASCII") from None
    if not isinstance(value, dict):
        raise ValueError("is not a JSON object")
    return value


def _require_begin(kind: object, value: dict[str, Any]) -> None:
    if kind != "begin":
        raise ValueError("is not the first line of an export or archive of Expunge")
    if value.get("format") != FORMAT:
        raise ValueError(f"is of format {value.get('format')!r}, and this version reads {FORMAT}")


def _require_end(value: dict[str, Any], count: int, digest: str) -> None:
    if value.get("count") != count:
        raise ValueError(f"counts {value.get('count')!r} rows, and there are {count}")
    if value.get("sha256") != digest:
        raise ValueError("the hash is another one: something before it was changed")


def _row(kind: object, value: dict[str, Any]) -> dict[str, Any]:
    """The row with its times as times. Raises ValueError with the column."""
    if not isinstance(kind, str) or kind not in TABLES:
        raise ValueError(f"type: {str(kind)[:64]!r} is not known; known are {', '.join(TABLES)}")
    columns = TABLES[kind].columns
    unknown = [name for name in value if name not in columns]
    if unknown:
        raise ValueError(
            f"{unknown[0][:64]!r}: a {kind} of this version has no such column; was it made by a newer one?"
        )
    row: dict[str, Any] = {}
    for column in columns:
        given = value.get(column.name)
        if given is None:
            if not column.nullable and column.server_default is None:
                raise ValueError(f"{column.name}: is missing")
            if column.name in value and column.nullable:
                row[column.name] = None
            continue
        row[column.name] = _value(kind, column, given)
    if kind == "receipt":
        _require_receipt(row)
    return row


def _require_receipt(row: dict[str, Any]) -> None:
    """As the CHECKs of its table want it."""
    status, action = row["status"], row["action"]
    if (status == ReceiptStatus.WAIVED) != (action == Action.DECISION):
        raise ValueError("status: waived and the action decision belong together")
    if action == Action.DECISION and (row.get("actor") is None or row.get("why") is None):
        raise ValueError("actor, why: are missing")
    if (status in _VERIFIED) != (action == Action.VERIFY):
        raise ValueError("status: a second look, and nothing else, says absent, present or unverifiable")
    if status in (ReceiptStatus.FAILED, ReceiptStatus.UNKNOWN) and row.get("error") is None:
        raise ValueError("error: is missing")


def _value(kind: str, column: sa.Column[Any], given: Any) -> Any:
    name, type_ = column.name, column.type
    if isinstance(type_, UtcDateTime):
        return _moment(name, given)
    if isinstance(type_, sa.Boolean):
        return _as(bool, name, given)
    if isinstance(type_, sa.Integer):
        if isinstance(given, bool) or not -_MOST <= _as(int, name, given) < _MOST:
            raise ValueError(f"{name}: is no number that fits")
        return given
    if isinstance(type_, sa.JSON):
        return _as(dict, name, given)
    text: str = _as(str, name, given)
    if "\0" in text:
        raise ValueError(f"{name}: holds a NUL character")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{name}: holds half a surrogate pair") from None
    if (kind, name) in _WORDS and text not in _WORDS[kind, name]:
        raise ValueError(f"{name}: {text[:64]!r} is not known")
    if kind == "receipt" and name == "id" and not _UUID.fullmatch(text):
        raise ValueError("id: is no UUID")
    return text


def _as(type_: type, name: str, given: Any) -> Any:
    if not isinstance(given, type_):
        raise ValueError(f"{name}: is no {type_.__name__}")
    return given


def _moment(name: str, given: Any) -> datetime:
    try:
        moment = datetime.fromisoformat(_as(str, name, given))
    except ValueError:
        raise ValueError(f"{name}: is not a time in ISO 8601") from None
    if moment.tzinfo is None or not _FIRST <= moment < _END:
        raise ValueError(f"{name}: is a time without a zone, or far off")
    return moment.astimezone(UTC)


def reread(text: bytes) -> Line:
    """A line that `read` has given before."""
    value = _object(text)
    kind = str(value.pop("type"))
    return Line(kind, _row(kind, value), text, 0)
