"""S3, in a bucket that never had versions."""

from collections.abc import Iterator
from contextlib import contextmanager

from conformance.harness import World
from conformance.s3_world import KINDS, open_s3_world

__all__ = ["KINDS", "open_world"]


@contextmanager
def open_world() -> Iterator[World]:
    with open_s3_world("") as world:
        yield world
