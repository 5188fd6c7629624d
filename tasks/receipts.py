"""Receipts from answers. Nothing that a store says gets in that is longer, or other, than a receipt may hold."""

import hashlib
import math
import re
from datetime import datetime, timedelta
from typing import Any

from expunge.models.entry import Entry, Receipt, receipt_about
from expunge.models.states import Action, ReceiptStatus
from expunge.tasks.erasers.contract import AccountOptions, Answer
from expunge.tasks.outcomes import Outcome
from expunge.tasks.verdict import RULES, error_of, status_of

_CODE = re.compile(r"[A-Za-z0-9_.:-]{1,64}")
_LONGEST = 1100
_PURGED_LATER = (ReceiptStatus.DELETED, ReceiptStatus.ALREADY_ABSENT)


def receipt_id(entry: Entry, attempt: int, part: str) -> str:
    """Known before the call: the entry, its lease and the number of the attempt name it."""
    name = f"{entry.token}/{entry.id}/{attempt}/{part}"
    h = hashlib.blake2b(name.encode(), digest_size=16, person=b"expunge.receipt").hexdigest()
    # a UUID of version 8, whose other bits are ours to choose (RFC 9562, section 5.8)
    return f"{h[:8]}-{h[8:12]}-8{h[13:16]}-a{h[17:20]}-{h[20:]}"


def make_receipt(
    entry: Entry, answer: Answer, attempt: int, *, store: str, number: int, window: tuple[int, str | None] | None
) -> Receipt:
    """The receipt of one answer about one entry; `number` tells several answers about one entry apart;
    `window` is the provider's documented purge in days, and the page that says so."""
    rule = RULES[answer.outcome]
    error = error_of(answer)
    detail = dict(answer.detail or {})
    if rule.fixed_error and answer.error and answer.error != error:
        detail["code"] = _code(answer.error)
    if answer.retry_after is not None:
        detail["retry_after"] = answer.retry_after
    if answer.retain_until is not None:
        detail["retain_until"] = answer.retain_until.isoformat()
    status = status_of(entry, answer.outcome)
    purge_due_at = None
    if window is not None and answer.version is None and _is_purged_later(entry, status):
        purge_due_at = answer.at + timedelta(days=window[0])
        if window[1] is not None:
            detail["purge_source"] = window[1]
    return receipt_about(
        entry,
        store,
        id=receipt_id(entry, attempt, f"{number}"),
        version=_text(answer.version),
        attempt=attempt,
        action=str(answer.action),
        operation=_text(answer.operation),
        status=str(status),
        request_id=_text(answer.request_id),
        http_status=answer.http_status,
        error=None if error is None else _code(error),
        detail=_clean(detail) or None if detail else None,
        endpoint=_text(answer.endpoint),
        region=_text(answer.region),
        called_at=answer.called_at,
        at=answer.at,
        purge_due_at=purge_due_at,
    )


def interrupted(entry: Entry, store: str | None, at: datetime) -> Receipt:
    """The receipt of an attempt whose worker died or hangs: the store may have acted, or not."""
    return receipt_about(
        entry,
        store,
        id=receipt_id(entry, entry.attempt, "interrupted"),
        attempt=entry.attempt,
        action=str(Action.DELETE),
        status=str(ReceiptStatus.UNKNOWN),
        error="Interrupted",
        at=at,
    )


def bare(receipt: Receipt) -> Receipt:
    """The same receipt without anything that the store said but the outcome: for a database that refuses the rest."""
    return Receipt(
        **{
            name: getattr(receipt, name)
            for name in (
                "id", "case_id", "entry_id", "tenant", "subject", "conversation", "account", "store", "kind", "locator",
                "attempt", "action", "status", "at", "called_at", "purge_due_at",
            )
        },
        version=None if receipt.version is None else "unstorable",
        operation=receipt.operation,
        error=receipt.error,
        detail={"dropped": "the database refused the rest of this answer"},
    )  # fmt: skip


def missing(entry: Entry, called_at: datetime, at: datetime, operation: str) -> Answer:
    """The answer about an entry that an eraser said nothing about."""
    return Answer(entry.id, Outcome.LEFT_OUT, operation, called_at, at)


def raised(
    entry: Entry, error: BaseException, called_at: datetime, at: datetime, operation: str, action: Action
) -> Answer:
    """The answer when an eraser raised, whatever it was."""
    return Answer(entry.id, Outcome.ERROR, operation, called_at, at, action=action, error=type(error).__name__)


def unlookable(entry: Entry, store: str | None, at: datetime) -> Receipt:
    """The receipt of a second look that nobody can make any more."""
    return receipt_about(
        entry,
        store,
        id=receipt_id(entry, entry.attempt, "unlookable"),
        attempt=entry.attempt,
        action=str(Action.VERIFY),
        status=str(ReceiptStatus.UNVERIFIABLE),
        error="UnknownAccount",
        at=at,
    )


def purge_window(options: AccountOptions, kind: str) -> tuple[int, str | None] | None:
    """The documented purge of a kind in days, with its source if the settings name one."""
    window = options.purge_windows.get(kind)
    if window is not None:
        return window.days, window.source
    return None if options.purge_window_days is None else (options.purge_window_days, None)


def _is_purged_later(entry: Entry, status: ReceiptStatus) -> bool:
    """The purge counts from the receipt that closes the target; of what was accepted, that is the look."""
    return status in _PURGED_LATER or (status is ReceiptStatus.ABSENT and not entry.settled)


def _code(value: str) -> str:
    return value if _CODE.fullmatch(value) else "UnrecognizedCode"


def _text(value: str | None) -> str | None:
    if value is None or (value.isascii() and len(value) <= _LONGEST and "\0" not in value):
        return value
    return str(value).replace("\0", "").encode("utf-8", "replace").decode()[:_LONGEST]


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, dict):
        return {_text(str(key)): _clean(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_clean(item) for item in value[:100]]
    if value is None or isinstance(value, (bool, int)) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return _text(str(value))
