"""The settings of an S3 account, and what may be erased with it."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Annotated, Literal

from pydantic import Field, StringConstraints, field_validator

from expunge.models.targets import Target, split_object
from expunge.tasks.erasers.contract import AccountOptions
from expunge.tasks.erasers.s3_replicas import Replica, complaints, copies_of

MAX_KEYS = 1000
"""Of one DeleteObjects call and of one listing page (Amazon S3 API Reference)."""

OUTSIDE_ALLOW = "it is outside what the account's `allow` names"

_DIRECTORY_BUCKET = "--x-s3"


class S3Options(AccountOptions):
    """`[accounts.NAME]` with `store = "s3"`."""

    store: Literal["s3"] = "s3"
    endpoint_url: str | None = None
    """Of a compatible server; AWS's own endpoint if unset."""
    region: str | None = None
    profile: str | None = None
    """Of the shared AWS configuration; else credentials come the way boto3 finds them."""
    allow: tuple[Annotated[str, StringConstraints(min_length=1)], ...] = Field(min_length=1)
    """`bucket` or `bucket/prefix/`: what may be erased from, and nothing else ever."""
    partial_prefixes: bool = False
    """Whether a `prefix` target may end inside a name: `u/1` is also the start of `u/10`."""
    expected_bucket_owner: str | None = Field(default=None, pattern=r"^\d{12}$")
    """The AWS account that must own every bucket; sent with every call."""
    addressing_style: Literal["auto", "path", "virtual"] = "auto"
    keys_per_call: int = Field(default=MAX_KEYS, ge=1, le=MAX_KEYS)
    pages_per_claim: int = Field(default=10, ge=1, le=1000)
    """Listing pages of a `prefix` that one claim puts into the outbox."""
    replicas: tuple[Replica, ...] = ()
    """Accounts with copies of its buckets: every target of this account is owed there, too."""

    def copies_of(self, kind: str, locator: str) -> Sequence[Target]:
        return copies_of(self.replicas, kind, locator)

    def complaints(self, name: str, accounts: Mapping[str, AccountOptions]) -> Sequence[str]:
        known = {
            other: (options.allow, options.partial_prefixes) if isinstance(options, S3Options) else None
            for other, options in accounts.items()
        }
        found = complaints(name, self.allow, self.replicas, known, partial_prefixes=self.partial_prefixes)
        return [f"replicas: {each}" for each in found]

    @field_validator("allow")
    @classmethod
    def _whole_names(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for rule in value:
            bucket, prefix = split_object(rule)
            if not bucket or (prefix and not prefix.endswith("/")):
                raise ValueError(f"{rule!r}: name a bucket, or bucket/prefix/ with a slash at its end")
            if bucket.endswith(_DIRECTORY_BUCKET):
                raise ValueError(f"{rule!r}: directory buckets list in no order, so absence could not be told")
        return value


def is_allowed(allow: tuple[str, ...], locator: str) -> bool:
    """Whether one of the rules covers this object or prefix. `bucket/u/1/` does not cover `bucket/u/10/x`."""
    return locator.startswith(_starts(allow))


@lru_cache(maxsize=256)
def _starts(allow: tuple[str, ...]) -> tuple[str, ...]:
    return tuple("/".join(split_object(rule)) for rule in allow)


def why_refused(options: S3Options, kind: str, locator: str) -> str | None:
    """Why this account may never erase this target; None if it may. Never repeats the locator."""
    if not is_allowed(options.allow, locator):
        return OUTSIDE_ALLOW
    if kind == "prefix" and not locator.endswith("/") and not options.partial_prefixes:
        return "a prefix must end in / unless the account sets partial_prefixes"
    return None
