"""Which answer of OpenAI's API is which Outcome, in one place.

    who answered        another organization or project  → WRONG_IDENTITY, whatever else it says
    nothing             timeout, lost connection         → NO_ANSWER
    2xx                 the caller reads the body
    3xx                                                  → REFUSED_SCOPE
    401, 407                                             → REFUSED_SCOPE
    403                 about project, country …         → REFUSED_SCOPE, else REFUSED
    404                 the API's own, names the object  → ABSENT
                        "Invalid URL", another resource  → REFUSED
                        any other                        → UNCONFIRMED
    409                 in use, order of deletions       → ERROR, to be tried again
    429                 quota used up for good           → REFUSED_SCOPE, else THROTTLED
    503                 with Retry-After                 → THROTTLED
    5xx, 408                                             → UNAVAILABLE
    400                 absence, where a dialect says so → ABSENT
    other 4xx           a page                           → UNCONFIRMED, else REFUSED

Codes and wording: OpenAI API reference, "Error codes"; the error types of the openai package.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from expunge.tasks.erasers.openai_identity import Expected
from expunge.tasks.erasers.openai_naming import says_absent
from expunge.tasks.erasers.openai_reply import Reply, code
from expunge.tasks.outcomes import Outcome

QUOTA_CODES = frozenset({"insufficient_quota", "billing_hard_limit_reached", "billing_not_active"})
"""429s that no waiting mends."""

_WHOLE_ACCOUNT = re.compile(r"project|organi[sz]ation|country|region|territory", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Problem:
    """What a reply comes to if it is not a deletion: it is about the object (ABSENT, ENDED …) or it went wrong."""

    outcome: Outcome
    error: str | None = None
    """The API's code, or a word of ours; never a message."""
    retry_after: float | None = None
    detail: Mapping[str, Any] | None = None
    """For the receipt, besides what it always says."""


def unconfirmed(error: str) -> Problem:
    """Not the store's own answer, or one that confirms nothing; `error` says in what way."""
    return Problem(Outcome.UNCONFIRMED, error)


def problem(reply: Reply, expected: Expected, id: str) -> Problem | None:
    """What is wrong with a reply about the object `id`; None if it is a 2xx of the right organization and project."""
    if reply.status is None:
        return _no_answer(reply)
    wrong = expected.mismatch(reply)
    if wrong is not None:
        return Problem(Outcome.WRONG_IDENTITY, wrong)
    found = None if 200 <= reply.status < 300 else _by_status(reply, reply.status, id)
    if expected.missing(reply) and not _speaks_for_itself(found):
        return unconfirmed("NotTheStore") if _is_page(reply) else Problem(Outcome.WRONG_IDENTITY, "MissingIdentity")
    return found


def _no_answer(reply: Reply) -> Problem:
    if reply.failure == "DecodingError":
        return unconfirmed("DecodingError")  # an answer came, but its body cannot be unpacked
    return Problem(Outcome.NO_ANSWER, code(reply.failure) or "ConnectionError")


def _speaks_for_itself(found: Problem | None) -> bool:
    """Gateways, and answers about an unknown key, name nobody. What these say claims no deletion and no absence, so it
    may keep its own meaning."""
    return found is not None and found.outcome in (Outcome.THROTTLED, Outcome.UNAVAILABLE, Outcome.REFUSED_SCOPE)


def _by_status(reply: Reply, status: int, id: str) -> Problem:
    error = reply.error() or {}
    told = code(error.get("code"))
    match status:
        case 401 | 407:
            return Problem(Outcome.REFUSED_SCOPE, told or "Unauthorized")
        case 403:
            return _forbidden(reply, told)
        case 400 if status in reply.dialect.absent_statuses and _is_absence(error, id):
            return Problem(Outcome.ABSENT)
        case 404 | 410:
            return _not_found(reply, status, id)
        case 408:
            return Problem(Outcome.UNAVAILABLE, told or "RequestTimeout")
        case 409:
            return Problem(Outcome.ERROR, "Conflict")
        case 429:
            if QUOTA_CODES & {told, code(error.get("type"))}:
                return Problem(Outcome.REFUSED_SCOPE, told or code(error.get("type")))
            return Problem(Outcome.THROTTLED, told, retry_after(reply))
    if status >= 500:
        pause = retry_after(reply)
        if status == 503 and pause is not None:
            return Problem(Outcome.THROTTLED, told, pause)
        return Problem(Outcome.UNAVAILABLE, told or f"HTTP{status}")
    if status < 400:
        return Problem(Outcome.REFUSED_SCOPE, "Redirect" if status >= 300 else "InformationalAnswer")
    if _is_page(reply):
        return unconfirmed("NotTheStore")
    return Problem(Outcome.REFUSED, told or f"HTTP{status}")


def _is_page(reply: Reply) -> bool:
    return not reply.is_empty and reply.json() is None


def _forbidden(reply: Reply, told: str | None) -> Problem:
    if _is_page(reply):
        return unconfirmed("NotTheStore")
    if _WHOLE_ACCOUNT.search(f"{told} {(reply.error() or {}).get('message')}"):
        return Problem(Outcome.REFUSED_SCOPE, told or "PermissionDenied")
    return Problem(Outcome.REFUSED, told or "PermissionDenied")


def _not_found(reply: Reply, status: int, id: str) -> Problem:
    error = reply.error()
    if error is None:
        return unconfirmed("NotTheStore")
    if str(error["message"]).lstrip().lower().startswith("invalid url"):
        return Problem(Outcome.REFUSED, "InvalidURL")
    dialect, told = reply.dialect, code(error.get("code"))
    if told in dialect.route_codes or str(error["message"]).strip(" .").lower() in dialect.route_messages:
        return Problem(Outcome.REFUSED, told if told in dialect.route_codes else "ResourceNotFound")
    if status == 404 and says_absent(error, id):
        return Problem(Outcome.ABSENT)
    return unconfirmed("NamesAnother")


def _is_absence(error: Mapping[str, Any], id: str) -> bool:
    """Of a status that says other things as well (a malformed id, a wrong parameter): only these words are absence."""
    return "not found" in str(error.get("message")).lower() and says_absent(error, id)


def retry_after(reply: Reply) -> float | None:
    """Seconds that the answer asks to wait: `retry-after-ms`, or `retry-after` in seconds or as a date."""
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        try:
            seconds = float(reply.headers.get(name, "")) / unit
        except ValueError:
            continue
        if math.isfinite(seconds) and seconds >= 0:
            return seconds
    try:
        date = parsedate_to_datetime(reply.headers.get("retry-after", ""))
    except (ValueError, OverflowError, IndexError, TypeError):
        return None
    seconds = (_aware(date) - reply.at).total_seconds()
    return seconds if seconds >= 0 else None


def _aware(date: datetime) -> datetime:
    return date if date.tzinfo is not None else date.replace(tzinfo=UTC)
