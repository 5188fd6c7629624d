"""All errors, one tree:

ExpungeError
├── InvalidTarget        a target that is refused before anything is written
├── InvalidCase          a case that is refused: no targets, unknown basis, naive time …
├── InvalidDecision      who decides, or why, is missing or is not plain text
├── CaseConflict         the case exists, and is not what the call says: another subject, another basis …
├── CaseNotFound
├── EntryNotFound
├── EntryInFlight        a call about the entry is under way: decide when it has been settled
├── RecordImmutable      the database refused to change receipts or decisions
├── SchemaError          tables are missing or of another version: run expunge migrate
└── ConfigurationError   settings that cannot be used, with the field

Database errors are mapped by the names of the constraints and triggers that raise them.
"""

from typing import Any


class ExpungeError(Exception):
    """Something that a person can mend; its text says what was wrong, where, and what to do."""


class InvalidTarget(ExpungeError, ValueError):
    """A target that is refused before anything is written."""


class InvalidCase(ExpungeError, ValueError):
    """A case that is refused before anything is written."""


class InvalidDecision(ExpungeError, ValueError):
    """A decision that is refused before anything is written: who decides, or why, is missing or not plain text."""


class CaseConflict(ExpungeError):
    """The case exists already, and is not what the call says of it."""


class CaseNotFound(ExpungeError):
    """No case has this id."""


class EntryNotFound(ExpungeError):
    """No outbox entry has this id; it may have been settled."""


class EntryInFlight(ExpungeError):
    """A call about the entry is under way."""


class RecordImmutable(ExpungeError):
    """Receipts and decisions are append-only; the database refused to change one."""


class SchemaError(ExpungeError):
    """The tables are missing, or belong to another version."""


class ConfigurationError(ExpungeError):
    """Settings that cannot be used."""


IMMUTABLE_MARK = "expunge: append-only"
"""Begins the message of the triggers that protect erasure_record and erasure_decision."""

CASE_FOREIGN_KEY = "fk_erasure_outbox_case_id_erasure_case"
NO_SUCH_CASE_MARK = "expunge: no such case"


def translate(error: Exception) -> ExpungeError | None:
    """The domain error behind a database error, or None if it has no domain meaning."""
    original: Any = getattr(error, "orig", None) or error
    text = str(original)
    if IMMUTABLE_MARK in text:
        return RecordImmutable("receipts and decisions are append-only: the database refused to change one")
    constraint = getattr(getattr(original, "diag", None), "constraint_name", None)
    if constraint == CASE_FOREIGN_KEY or NO_SUCH_CASE_MARK in text:
        return CaseNotFound("the entry names a case that does not exist: insert the erasure_case row first")
    return None
