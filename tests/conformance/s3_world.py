"""S3 as the strict stub has it, for the worlds with and without versions."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from unittest import mock

from conformance.harness import DeleteCall, Fault, World
from servers.s3_stub import ACCESS_KEY, SECRET_KEY, S3Stub, s3_stub

from expunge.tasks.erasers.contract import Eraser
from expunge.tasks.erasers.registry import make_eraser
from expunge.tasks.erasers.s3_options import S3Options

KINDS = ("object", "prefix")

_BUCKET = "artifacts"

_FAULTS = {
    Fault.THROTTLE: ("slow_down", {"retry_after": "7"}),
    Fault.UNAVAILABLE: ("error_500", {}),
    Fault.DROP_AFTER: ("drop_after", {}),
    Fault.DROP_BEFORE: ("drop_before", {}),
    Fault.GARBAGE: ("html_200", {}),
    Fault.MISSING_PAGE: ("html_404", {}),
}


class S3World:
    """One bucket."""

    ends: tuple[str, ...] = ()

    def __init__(self, stub: S3Stub, eraser: Eraser, versioning: str) -> None:
        self._stub = stub
        self._bucket = stub.bucket(_BUCKET, versioning=versioning)
        self._eraser = eraser
        self._numbers = count(1)

    def make(self, kind: str) -> str:
        locator = self.absent(kind)
        key = locator.partition("/")[2]
        for name in [key] if kind == "object" else [f"{key}{number}" for number in range(3)]:
            for _ in range(2):
                self._bucket.put(name)
        return locator

    def absent(self, kind: str) -> str:
        return f"{_BUCKET}/{kind}/{next(self._numbers)}" + ("/" if kind == "prefix" else "")

    def exists(self, kind: str, locator: str) -> bool:
        key = locator.partition("/")[2]
        return any(name.startswith(key) if kind == "prefix" else name == key for name in self._bucket.objects)

    def eraser(self) -> Eraser:
        return self._eraser

    def deletes(self) -> list[DeleteCall]:
        return [
            DeleteCall(
                line["request_id"],
                tuple((f"{_BUCKET}/{key}", v) for key, v in zip(line["keys"], line["versions"], strict=True)),
                line["status"],
            )
            for line in self._stub.calls("DeleteObjects", "DeleteObject")
        ]

    @contextmanager
    def fault(self, fault: Fault) -> Iterator[None]:
        kind, headers = _FAULTS[fault]
        with self._stub.fault("DeleteObjects", kind, **headers), self._stub.fault("DeleteObject", kind, **headers):
            yield

    @contextmanager
    def without_credentials(self) -> Iterator[None]:
        with no_credentials():
            yield


@contextmanager
def no_credentials() -> Iterator[None]:
    """An environment in which boto3 finds none, wherever it looks."""
    nowhere = {"AWS_EC2_METADATA_DISABLED": "true", "AWS_CONFIG_FILE": "/-", "AWS_SHARED_CREDENTIALS_FILE": "/-"}
    with mock.patch.dict(os.environ, nowhere):
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
            os.environ.pop(name, None)
        yield


@contextmanager
def open_s3_world(versioning: str) -> Iterator[World]:
    """A world on a stub of its own; '', 'Enabled' or 'Suspended'."""
    keys = {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY}
    with s3_stub() as stub, mock.patch.dict(os.environ, keys):
        options = S3Options(endpoint_url=stub.url, region="us-east-1", allow=(_BUCKET,))
        eraser = make_eraser("artifacts", options, lease_seconds=300)
        try:
            yield S3World(stub, eraser, versioning)
        finally:
            eraser.close()
