"""Notices on their way out: HTTP POST, JSON, signed.

The header `Expunge-Signature: t=SECONDS,v1=HEX` holds the HMAC-SHA256 (RFC 2104) of `SECONDS.BODY` under the shared
secret; a receiver refuses old times, so that a recorded request is worth nothing later. A notice is sent at least once;
its `id` tells doubles apart.
"""

import hashlib
import hmac
import json
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any

import structlog

from expunge.models.notices import claim_notices, notice_later, notice_sent
from expunge.models.types import iso
from expunge.tasks.backoff import backoff
from expunge.tasks.policy import Webhook
from expunge.tasks.runtime import Runtime

log = structlog.get_logger()

CHUNK = 20
LONGEST_WAIT = 3600.0
"""Seconds between two tries of one notice."""


def sign(secret: str, body: bytes, at: int) -> str:
    """The value of the signature header; `at` in seconds since the epoch."""
    digest = hmac.new(secret.encode(), f"{at}.".encode() + body, hashlib.sha256).hexdigest()
    return f"t={at},v1={digest}"


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        return None


_opener = urllib.request.build_opener(_NoRedirect)


def post(webhook: Webhook, document: Mapping[str, Any]) -> str | None:
    """Send one notice; None if it was accepted (2xx), else what went wrong, without the address."""
    body = json.dumps(document, separators=(",", ":")).encode()
    request = urllib.request.Request(
        webhook.url,
        data=body,
        method="POST",
        headers={
            "Content-Type": "application/json",
            "User-Agent": "expunge",
            "Expunge-Signature": sign(webhook.secret, body, int(time.time())),
        },
    )
    try:
        with _opener.open(request, timeout=webhook.timeout_seconds) as answer:
            return None if 200 <= answer.status < 300 else f"status {answer.status}"
    except urllib.error.HTTPError as error:
        error.close()
        return f"status {error.code}"
    except (OSError, ValueError) as error:
        return type(error).__name__


def send_notices(runtime: Runtime) -> int:
    """Send what is due; gives how many were accepted. Without a webhook nothing is sent, and nothing is lost."""
    if runtime.webhook is None:
        return 0
    with runtime.database.begin() as tx:
        # put off for longer than sending all of them can take
        again = CHUNK * runtime.webhook.timeout_seconds + 10
        due = claim_notices(tx, CHUNK, again_after_seconds=again)
    accepted = 0
    for notice in due:
        if runtime.stopping.is_set():
            break
        wrong = post(
            runtime.webhook,
            {
                **notice.body,
                "id": notice.id,
                "kind": notice.kind,
                "case_id": notice.case_id,
                "entry_id": notice.entry_id,
                "account": notice.account,
                "created_at": iso(notice.created_at),
            },
        )
        with runtime.database.begin() as tx:
            if wrong is None:
                notice_sent(tx, notice.id)
            else:
                base = runtime.policy.retry_base_seconds
                notice_later(tx, notice.id, backoff(notice.attempt, base=base, most=LONGEST_WAIT))
        if wrong is None:
            accepted += 1
            log.info("notice.sent", notice_id=notice.id, kind=notice.kind)
        else:
            log.warning("notice.refused", notice_id=notice.id, kind=notice.kind, attempt=notice.attempt, error=wrong)
    return accepted
