"""Conditional deletes: DeleteObject with `If-Match: *`, which a store that honours it carries out only if the object is
there. Where listing is refused nothing else tells deleted from already absent.

Amazon S3 answers 204 for an object that is there (Amazon S3 User Guide, "How to perform conditional deletes"; API
Reference, DeleteObject, `If-Match`, which takes an asterisk) and 404 NoSuchKey for one that is not, with versions and
without (measured, ministack#1475). It needs s3:DeleteObject. Others differ: Ceph RGW 16 and MinIO (minio#21677) take no
notice of the header, SeaweedFS 4.48 answers 412 for an absent key, and moto 5.2 answers 404 for an absent one but 412
for one that is there. So a store is asked with a random absent key before it is believed, and only when an operator
says so, since that is a delete call; and a later answer that does not fit ends the belief.

What an answer comes to does not hang on the belief alone. `already_absent` is the store's own 404 about that very key,
and a HEAD that finds the object all the same is a veto. `deleted` is its 204; that the object was there before is what
the condition adds, and the receipt's detail names it.
"""

import uuid
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from expunge.tasks.erasers.contract import Check, NothingSent
from expunge.tasks.erasers.s3_answers import MARKER, STILL_THERE, Judged
from expunge.tasks.erasers.s3_buckets import HONOURED, Buckets
from expunge.tasks.erasers.s3_client import CallFailed, Facts, Reply, S3Client
from expunge.tasks.erasers.s3_pages import ObjectPages
from expunge.tasks.erasers.s3_presence import is_seen
from expunge.tasks.outcomes import Outcome

ANY = "*"
"""`If-Match: *`: whatever is there."""

CONDITION = {"condition": "If-Match: *"}
"""The detail of what a conditional delete decided."""

PROBE_NAME = "expunge-probe-"
"""What the key of a probe is called, under the allowed prefix and before a random number."""

_OF_THE_CONDITION = frozenset({405, 409, 412, 501})
"""Statuses by which a store may refuse the condition rather than the delete (409: a request about the same key won)."""


class Conditions(StrEnum):
    """What a probe found out."""

    HONOURED = HONOURED
    """An absent key is 404 NoSuchKey, in the store's own shape."""
    IGNORED = "ignored"
    """An absent key is a success, as without the header."""
    REFUSED = "refused"
    """412, or a refusal: it may say the same of a key that is there, so it proves nothing."""
    UNKNOWN = "unknown"
    """No answer, or none that tells."""


@dataclass(frozen=True, slots=True)
class Told:
    """What a conditional delete came to."""

    facts: Facts
    judged: Judged
    existed: bool | None
    detail: dict[str, Any] = field(default_factory=dict)


def delete_if_there(client: S3Client, bucket: str, key: str) -> Told:
    """One DeleteObject with `If-Match: *`; after a 404, a HEAD. Raises CallFailed, or NothingSent if there was none."""
    try:
        reply = client.call("DeleteObject", bucket, Key=key, IfMatch=ANY)
    except CallFailed as failure:
        if not _is_absent(failure):
            raise
        return _absent(client, bucket, key, failure.facts)
    if reply.facts.http_status != 204:
        return Told(reply.facts, Judged(Outcome.UNCONFIRMED, "Unconfirmed"), None)
    if _shows_version(reply):
        return Told(reply.facts, Judged(Outcome.UNCONFIRMED, MARKER), None)
    return Told(reply.facts, Judged(Outcome.DELETED), True, {**CONDITION, "confirmed_by": "status 204"})


def is_about_the_condition(failure: CallFailed) -> bool:
    """Whether the store, in its own shape, refused the condition: without it the delete may well go through."""
    own = failure.outcome in (Outcome.REFUSED, Outcome.UNAVAILABLE)
    return own and failure.verdict.http_status in _OF_THE_CONDITION


def judged_failure(failure: CallFailed) -> CallFailed:
    """What a failed conditional delete comes to. One that is about the condition is no refusal of the object: it is
    tried again without. A not-found that is not about this very key is no absence."""
    if is_about_the_condition(failure):
        return failure.as_outcome(Outcome.ERROR)
    return failure.as_outcome(Outcome.UNCONFIRMED) if failure.outcome is Outcome.ABSENT else failure


def _is_absent(failure: CallFailed) -> bool:
    return failure.outcome is Outcome.ABSENT and failure.error == "NoSuchKey" and failure.verdict.http_status == 404


def _shows_version(reply: Reply) -> bool:
    return bool(reply.parsed.get("VersionId") or reply.parsed.get("DeleteMarker"))


def _absent(client: S3Client, bucket: str, key: str, facts: Facts) -> Told:
    """A server that answers 404 to every condition would make absent what is there: a HEAD that finds it is a veto."""
    try:
        seen = is_seen(client, bucket, key)
    except CallFailed as failure:
        judged = Judged(Outcome.NO_ANSWER, failure.error)
    except NothingSent as nothing:  # the look, that is: the deletion was sent
        judged = Judged(Outcome.NO_ANSWER, nothing.reason)
    else:
        if not seen:
            return Told(facts, Judged(Outcome.ABSENT), False, dict(CONDITION))
        judged = Judged(Outcome.UNCONFIRMED, STILL_THERE)
    return Told(facts, judged, None, {**CONDITION, "answered": 404})


def probe(client: S3Client, buckets: Buckets, account: str, bucket: str, prefix: str) -> Check:
    """Ask a bucket that never had versions, as its store has just said, by one conditional delete of a random key under
    `prefix`, and keep what comes of it. The caller sees to the versions. Never raises for what a store answers."""
    name = check_name(bucket)
    key = f"{prefix}{PROBE_NAME}{uuid.uuid4().hex}"
    try:
        hindrance = _hindrance(client, bucket, key)
        if hindrance is not None:
            return Check(name, None, f"not probed: {hindrance}")
        reply = client.call("DeleteObject", bucket, Key=key, IfMatch=ANY)
    except CallFailed as failure:
        found, facts, answer = _found(failure), failure.facts, failure.error
    except NothingSent as nothing:
        return Check(name, None, f"not probed: nothing can be sent ({nothing.reason})")
    else:
        found, facts, answer = Conditions.IGNORED, reply.facts, ""
        if _shows_version(reply):
            buckets.forget_versioning(bucket)
            answer = MARKER
    buckets.learn_conditional(bucket, found)
    status = facts.http_status
    import structlog  # late: reading the settings needs every eraser

    structlog.get_logger().info(
        "capability.probed",
        lane=account,
        scope=bucket,
        capability="conditional_deletes",
        found=str(found),
        http_status=status,
        error=answer or None,
        request_id=facts.request_id,
    )
    came = " ".join(str(word) for word in (status, answer) if word) or "nothing"
    request = f"request {facts.request_id}" if facts.request_id else "without a request id"
    said = f"DeleteObject with If-Match: * of the absent key {key} was answered {came} ({request})"
    if answer == MARKER:
        return Check(
            name, None, f"{found}: {said}: versions exist after all, and a delete marker of that key may be left"
        )
    return Check(name, True if found is Conditions.HONOURED else None, f"{found}: {said}: {_WORDS[found]}")


_WORDS = {
    Conditions.HONOURED: "where listing is refused, receipts tell deleted from already absent",
    Conditions.IGNORED: "the condition tells nothing, and is not used",
    Conditions.REFUSED: "it may say so of a key that is there, too, and is not used",
    Conditions.UNKNOWN: "that tells nothing, and it is not used",
}


def check_name(bucket: str) -> str:
    """The name of the line in `expunge check`."""
    return f"conditional deletes of {bucket}"


def _hindrance(client: S3Client, bucket: str, key: str) -> str | None:
    """What a listing has against the probe, where one is allowed. Raises NothingSent."""
    try:
        page = ObjectPages(client, bucket).exactly(key)
    except CallFailed as failure:
        return None if failure.outcome is Outcome.REFUSED else f"the listing before it failed ({failure.error})"
    return None if page.excludes(key) else "no listing shows that a random key is absent"


def _found(failure: CallFailed) -> Conditions:
    if _is_absent(failure):
        return Conditions.HONOURED
    if failure.outcome is Outcome.REFUSED or is_about_the_condition(failure):
        return Conditions.REFUSED
    return Conditions.UNKNOWN
