"""All errors, one tree:

ExpungeError
├── InvalidTarget        a target that is refused before anything is written
├── InvalidCase          a case that is refused: no targets, unknown basis, naive time …
├── InvalidDecision      who decides, or why, is missing or is not plain text
├── CaseConflict         the case exists, and is not what the call says: another subject, another basis …
├── CaseNotFound
├── InvalidGraph         a graph that does not fit the live database, or forgot a table of it
├── ConversationNotFound no such conversation for this principal
├── InvalidToken         a bearer token that is refused before it is made
├── TokenNotFound        no bearer token has this id
├── InvalidCursor        a page's cursor that the host did not give
├── InvalidEvent         an event that is refused before it is written
├── RunActive            somebody works on the conversation: stop the run first
├── VersionConflict      the conversation is not what the caller saw
├── Held                 a legal hold stands: nothing is deleted
├── ConversationPurged   a write to a conversation that was purged for ever
├── ConversationBusy     a purge is under way: roll back and try again
├── InvalidWrite         a store in memory refuses what a database's keys would refuse
├── InvalidJournal       an export or archive that cannot be believed: cut off, changed, or none of ours
├── EntryNotFound
├── EntryInFlight        a call about the entry is under way: decide when it has been settled
├── RecordImmutable      the database refused to change receipts, decisions or tombstones
├── SchemaError          tables are missing or of another version: run expunge migrate
└── ConfigurationError   settings that cannot be used, with the field

Database errors are mapped by the names of the constraints and triggers that raise them.
"""

from collections.abc import Sequence
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


class InvalidGraph(ExpungeError):
    """A graph that does not fit the live database. `problems` has one line each."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = tuple(problems)


class ConversationNotFound(ExpungeError):
    """No such conversation for this principal. One of another tenant or owner looks the same."""


class InvalidToken(ExpungeError, ValueError):
    """A bearer token of the reference host that is refused before it is made."""


class TokenNotFound(ExpungeError):
    """No bearer token has this id."""


class InvalidCursor(ExpungeError, ValueError):
    """A page's cursor that this host did not give."""


class InvalidEvent(ExpungeError, ValueError):
    """An event of a conversation that is refused before it is written."""


class RunActive(ExpungeError):
    """Somebody works on the conversation: stop or settle the run first."""

    def __init__(self, run_id: str) -> None:
        super().__init__(f"run {run_id} of the conversation is active: stop it first")
        self.run_id = run_id


class VersionConflict(ExpungeError):
    """The conversation is not at the expected version: somebody wrote to it in between."""


class Held(ExpungeError):
    """A legal hold covers the conversation: nothing is deleted."""


class ConversationPurged(ExpungeError):
    """The conversation was purged, and its identity may never be used again."""


class ConversationBusy(ExpungeError):
    """A purge is under way near this conversation: roll back and try the transaction again."""


class InvalidWrite(ExpungeError, ValueError):
    """A write that a store in memory refuses, as a database does by its keys and foreign keys."""


class InvalidJournal(ExpungeError, ValueError):
    """An export or archive that is refused before anything is taken from it; says which file and line."""


class EntryNotFound(ExpungeError):
    """No outbox entry has this id; it may have been settled."""


class EntryInFlight(ExpungeError):
    """A call about the entry is under way."""


class RecordImmutable(ExpungeError):
    """Receipts, decisions and tombstones are append-only; the database refused to change one."""


class SchemaError(ExpungeError):
    """The tables are missing, or belong to another version."""


class ConfigurationError(ExpungeError):
    """Settings that cannot be used."""


IMMUTABLE_MARK = "expunge: append-only"
"""Begins the message of the triggers that protect erasure_record, erasure_decision and erasure_tombstone."""
PURGED_MARK = "expunge: conversation purged"
"""Begins the message of the fence's triggers (models/fence.py)."""
BUSY_MARK = "expunge: conversation busy"
"""Begins the message of the fence's retryable error, with SQLSTATE 40001."""
SOMEBODY_WRITES = "somebody writes near this conversation: roll back and try again"
"""What ConversationBusy says to a purge; a writer is told that a purge is under way."""
UNRESOLVED_MARK = "expunge: no such parent"
"""Begins the message of the fence about a row whose parent is not there, so that its conversation cannot be told."""

CASE_FOREIGN_KEY = "fk_erasure_outbox_case_id_erasure_case"
NO_SUCH_CASE_MARK = "expunge: no such case"


def translate(error: Exception) -> ExpungeError | None:
    """The domain error behind a database error, or None if it has no domain meaning."""
    original: Any = getattr(error, "orig", None) or error
    text = str(original)
    if IMMUTABLE_MARK in text:
        return RecordImmutable("receipts, decisions and tombstones are append-only: the database refused to change one")
    if PURGED_MARK in text or UNRESOLVED_MARK in text:
        return ConversationPurged("the conversation was purged: its identity may never be used again")
    if BUSY_MARK in text:
        return ConversationBusy("a purge is under way near this conversation: roll back and try again")
    constraint = getattr(getattr(original, "diag", None), "constraint_name", None)
    if constraint == CASE_FOREIGN_KEY or NO_SUCH_CASE_MARK in text:
        return CaseNotFound("the entry names a case that does not exist: insert the erasure_case row first")
    return None
