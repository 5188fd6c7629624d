"""The replicas of an S3 account: which bucket of which other account has a copy, and what is wrong with saying so."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from expunge.models.targets import Target, split_object

Bucket = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")]
"""At most 63 characters (Amazon S3 User Guide, "Bucket naming rules"), so that no copy's locator is too long."""


class Replica(BaseModel):
    """One `[[accounts.NAME.replicas]]` table."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    account: str
    """Another S3 account of the settings."""
    buckets: dict[Bucket, Bucket] = Field(default_factory=dict)
    """The copy's name for a bucket; one that is not named here has the same name there."""

    def locator(self, locator: str) -> str:
        """Where the copy of an object or prefix is."""
        bucket, key = split_object(locator)
        return f"{self.buckets.get(bucket, bucket)}/{key}"


def copies_of(replicas: Sequence[Replica], kind: str, locator: str) -> list[Target]:
    """The copies of one target."""
    return [Target(replica.account, kind, replica.locator(locator)) for replica in replicas]


def complaints(
    name: str,
    allow: Sequence[str],
    replicas: Sequence[Replica],
    accounts: Mapping[str, tuple[tuple[str, ...], bool] | None],
    *,
    partial_prefixes: bool,
) -> Iterator[str]:
    """What is wrong with the replicas of account `name`. `accounts` are all there are, by name: `allow` and
    `partial_prefixes` of the S3 ones, None for others."""
    seen: set[str] = set()
    buckets = {split_object(rule)[0] for rule in allow}
    for replica in replicas:
        other = replica.account
        if other == name:
            yield f"{other} cannot be its own replica"
        elif other in seen:
            yield f"{other} is named twice; put its buckets together"
        elif other not in accounts:
            yield f"there is no account {other}; add [accounts.{other}]"
        elif (options := accounts[other]) is None:
            yield f'{other} is not an account with store = "s3"'
        else:
            their_allow, their_partial = options
            starts = tuple("/".join(split_object(rule)) for rule in their_allow)
            for bucket in sorted(replica.buckets.keys() - buckets):
                yield f"{bucket} is in no `allow` of this account, so it needs no copy at {other}"
            for rule in allow:
                there = replica.locator(rule)
                if not there.startswith(starts):
                    yield f"{there} is outside what the `allow` of {other} names: copies of {rule} could not be erased"
            if partial_prefixes and not their_partial:
                yield f"{other} needs partial_prefixes as well"
        seen.add(other)
