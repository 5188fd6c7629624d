"""The naive design, as a reference: one Celery task for every object, with its own claim, mark and settle."""

import os
import uuid
from datetime import UTC, datetime

from celery import Celery

from expunge.models.claim import claim
from expunge.models.completion import complete_cases
from expunge.models.database import Database
from expunge.models.entry import Receipt
from expunge.models.mark import mark
from expunge.models.settle import remove, write_receipts

app = Celery("single", broker=os.environ.get("BENCH_BROKER", "memory://"))
app.conf.update(task_ignore_result=True, worker_prefetch_multiplier=1, worker_hijack_root_logger=False)
_database: list[Database] = []


@app.task(name="single")
def single() -> None:
    if not _database:
        _database.append(Database.open(os.environ["BENCH_DATABASE"]))
    database, token = _database[0], str(uuid.uuid4())
    with database.begin() as tx:
        claimed = claim(tx, "null", token=token, limit=1, lease_seconds=300).entries
    for entry in claimed:
        with database.begin() as tx:
            attempt = mark(tx, "null", [entry.id], token=token, lease_seconds=300).attempts[entry.id]
        now = datetime.now(UTC)
        receipt = Receipt(
            str(uuid.uuid4()), entry.case_id, entry.id, entry.tenant, entry.subject, entry.conversation, entry.account,
            "null", entry.kind, entry.locator, attempt, "delete", "deleted", now, now,
        )  # fmt: skip
        with database.begin() as tx:
            write_receipts(tx, [receipt])
            remove(tx, [entry.id], token=token)
            complete_cases(tx, [entry.case_id])


def ring_all(broker: str, times: int) -> None:
    """One message for every object."""
    sender = Celery("sender", broker=broker)
    with sender.producer_or_acquire() as producer:
        for _ in range(times):
            sender.send_task("single", producer=producer, ignore_result=True)
