"""Escalation: the entry's state, a notice in the same transaction, and a log event once it is through.

Only the first escalation since a person last decided is noticed; the daily try that fails again is not news.
"""

from collections.abc import Sequence

import structlog

from expunge.models.database import Transaction
from expunge.models.entry import Entry
from expunge.models.mark import escalate_untriable
from expunge.models.notices import add_notice
from expunge.models.states import NoticeKind
from expunge.tasks.runtime import Runtime

log = structlog.get_logger()


def escalate(runtime: Runtime, reasons: Sequence[tuple[Entry, str]]) -> None:
    """Escalate claimed entries that cannot be tried. There was no call, so there is no receipt."""
    if not reasons:
        return
    with runtime.database.begin() as tx:
        ids = [(entry.id, reason) for entry, reason in reasons]
        moved = set(escalate_untriable(tx, ids, token=reasons[0][0].token))
        for entry, reason in reasons:
            if entry.id in moved:
                owe_escalated(tx, entry, reason)
    for entry, reason in reasons:
        if entry.id in moved:
            log_escalated(entry, reason)


def owe_escalated(tx: Transaction, entry: Entry, reason: str | None) -> None:
    """Owe the notice of an escalation; `entry` is as it was before it."""
    if entry.escalations == 0:
        owe(tx, NoticeKind.ENTRY_ESCALATED, entry, f"{entry.id}/{entry.attempt}", reason)


def owe(tx: Transaction, kind: NoticeKind, entry: Entry, dedupe: str, reason: str | None) -> None:
    """Owe a notice about one entry."""
    add_notice(
        tx,
        kind,
        dedupe,
        case_id=entry.case_id,
        entry_id=entry.id,
        account=entry.account,
        kind_of_target=entry.kind[:64],
        reason=reason,
    )


def log_escalated(entry: Entry, reason: str | None) -> None:
    """Tell operators; call it once the transaction is through."""
    log.warning(
        "entry.escalated",
        lane=entry.account,
        case_id=entry.case_id,
        entry_id=entry.id,
        attempt=entry.attempt,
        reason=reason,
    )
