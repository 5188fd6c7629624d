"""The copies that the settings name: into the outbox right after the claim, before anything of it can settle."""

from collections.abc import Sequence

import structlog

from expunge.models.entry import Entry
from expunge.models.replicas import add_copies
from expunge.models.states import EntryAction
from expunge.tasks.runtime import Runtime

log = structlog.get_logger()


def put_copies(runtime: Runtime, account: str, entries: Sequence[Entry], *, token: str) -> None:
    """Every target of this claim gets an entry at each replica of its account, and the replicas' bells ring. Parts have
    none of their own: their whole has, and is listed there by itself."""
    options = runtime.accounts.get(account)
    if options is None:
        return
    whole = [entry for entry in entries if entry.parent_id is None and entry.action == EntryAction.DELETE]
    copies = {entry.id: found for entry in whole if (found := options.copies_of(entry.kind, entry.locator))}
    if not copies:
        return
    with runtime.database.begin() as tx:
        lanes = add_copies(tx, whole, copies, token=token)
    for lane in sorted(lanes):
        log.info("replica.owed", lane=account, replica=lane)
        runtime.ring(lane)
