"""`expunge check` of an S3 account, in plain words: harmless reads only, unless a probe was ordered."""

from collections.abc import Iterator

from expunge.models.targets import split_object
from expunge.tasks.erasers.contract import Check, NothingSent
from expunge.tasks.erasers.s3_buckets import Buckets, Versioning
from expunge.tasks.erasers.s3_client import CallFailed, S3Client
from expunge.tasks.erasers.s3_conditional import check_name, probe
from expunge.tasks.erasers.s3_errors import why_not_sent
from expunge.tasks.erasers.s3_options import S3Options
from expunge.tasks.outcomes import Outcome

_SHOWN = 4
"""Characters of an access key id that are shown."""

_WORDS = {
    Outcome.THROTTLED: "the store asks for less at the moment",
    Outcome.UNAVAILABLE: "the store fails at the moment",
    Outcome.NO_ANSWER: "the store could not be reached",
    Outcome.UNCONFIRMED: "what answers there is not S3",
    Outcome.ERROR: "an error that is not known",
}

_NOT_PROBED = {
    Versioning.ONCE: "versions may exist, and a delete could leave a marker",
    Versioning.UNREADABLE: "whether it has versions cannot be read, and a delete could leave a marker",
}


def check_account(
    client: S3Client, options: S3Options, buckets: Buckets, *, probe_as: str | None = None
) -> Iterator[Check]:
    """One line about the credentials, three or four about every bucket of `allow`, and one about each replica. With the
    account's name in `probe_as`, conditional deletes are probed: that alone sends anything but reads."""
    yield (identity := _identity(client))
    if identity.ok:
        for bucket in dict.fromkeys(split_object(rule)[0] for rule in options.allow):
            yield from _bucket(client, options, buckets, bucket, probe_as)
    for replica in options.replicas:
        copies = ", ".join(dict.fromkeys(replica.locator(rule) for rule in options.allow))
        yield Check(f"replica {replica.account}", True, f"every target is owed there, too: {copies}")


def _identity(client: S3Client) -> Check:
    try:
        access_key = client.access_key()
        endpoint = client.boto().meta.endpoint_url if access_key else None
    except Exception as error:
        return Check("credentials", False, f"boto3 cannot use them: {why_not_sent(error)}")
    if not access_key:
        return Check("credentials", False, "boto3 finds none: set a profile, or the environment's AWS_… variables")
    return Check("credentials", True, f"access key {mask(access_key)} at {endpoint}")


def mask(access_key: str) -> str:
    """An access key id that can be recognised but not used to look for anything."""
    return f"{'*' * max(4, len(access_key) - _SHOWN)}{access_key[-_SHOWN:]}" if len(access_key) > 2 * _SHOWN else "****"


def _bucket(
    client: S3Client, options: S3Options, buckets: Buckets, bucket: str, probe_as: str | None
) -> Iterator[Check]:
    prefix = next((key for b, key in map(split_object, options.allow) if b == bucket), "")
    name = f"bucket {bucket}"
    listed = True
    try:
        client.call("ListObjectsV2", bucket, MaxKeys=1, EncodingType="url", Prefix=prefix)
    except CallFailed as failure:
        if failure.outcome is not Outcome.REFUSED:
            yield Check(name, False, f"{_words(failure)} ({failure.error})")
            return
        text = f"listing is refused ({failure.error}): receipts cannot tell deleted from already absent"
        listed = False
        yield Check(name, None, text)
    except NothingSent as nothing:
        yield Check(name, False, f"nothing can be sent ({nothing.reason})")
        return
    else:
        yield Check(name, True, "reachable, and listing is allowed")
    line, versioning = _versioning(client, bucket)
    yield line
    yield _lock(client, bucket)
    if probe_as is None:
        yield from _conditional(buckets, bucket, versioning, listed=listed)
    elif versioning is Versioning.NEVER:
        yield probe(client, buckets, probe_as, bucket, prefix)
    else:
        yield Check(check_name(bucket), None, f"not probed: {_NOT_PROBED[versioning]}")


def _conditional(buckets: Buckets, bucket: str, versioning: Versioning, *, listed: bool) -> Iterator[Check]:
    """What is known has a line with its age already; where versions may exist, they tell what was there."""
    if versioning is Versioning.NEVER and buckets.conditional(bucket) is None:
        text = "not known: expunge check --probe"
        yield Check(
            check_name(bucket), listed or None, f"{text}; where listing is allowed nothing needs it" if listed else text
        )


def _versioning(client: S3Client, bucket: str) -> tuple[Check, Versioning]:
    name = f"versioning of {bucket}"
    try:
        status = client.call("GetBucketVersioning", bucket).parsed.get("Status")
    except (CallFailed, NothingSent) as failure:
        text = f"cannot be read ({failure}): every version is looked for, to be safe"
        return Check(name, None, text), Versioning.UNREADABLE
    if status:
        return Check(name, True, f"{status.lower()}: every version and marker of a key is deleted"), Versioning.ONCE
    return Check(name, True, "never on: plain deletes remove the bytes"), Versioning.NEVER


def _lock(client: S3Client, bucket: str) -> Check:
    name = f"object lock of {bucket}"
    try:
        configuration = client.call("GetObjectLockConfiguration", bucket).parsed.get("ObjectLockConfiguration") or {}
    except (CallFailed, NothingSent) as failure:
        if str(failure) == "ObjectLockConfigurationNotFoundError":
            return Check(name, True, "off")
        return Check(name, None, f"cannot be read ({failure})")
    if configuration.get("ObjectLockEnabled") != "Enabled":
        return Check(name, True, "off")
    return Check(name, None, "on: the store itself may keep versions, which are then recorded as retained")


def _words(failure: CallFailed) -> str:
    if failure.outcome is Outcome.REFUSED_SCOPE:
        return "no such bucket here, or these credentials are refused"
    return _WORDS.get(failure.outcome, "refused")
