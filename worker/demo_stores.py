"""The two stores of the demo, on this machine and in this process: a versioned S3 bucket and an AI provider, with what
they hold about one person and about others."""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from unittest.mock import patch

import boto3
from botocore.config import Config

from expunge.models import Target
from expunge.worker.demo_provider import DEMO_KEY, DemoProvider
from expunge.worker.demo_provider_faults import Fault, Reply
from expunge.worker.demo_s3 import s3_server

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

BUCKET = "chat-artifacts"
TENANT = "tenants/acme"
REGION: Final = "eu-central-1"
PROJECT = "proj_demo"
ORGANIZATION = "org-demo"
KEY_VARIABLE = "EXPUNGE_DEMO_KEY"

UPLOADS = f"{TENANT}/uploads/u-88213"
EXPORTS = f"{TENANT}/exports/u-88213/"
OBJECTS = {
    # key: how often it was written; each time is a version
    f"{UPLOADS}/portrait.jpg": 1,
    f"{UPLOADS}/tax-return.pdf": 3,
    f"{UPLOADS}/old-draft.txt": 2,
    f"{EXPORTS}2025.zip": 1,
    f"{EXPORTS}2026.zip": 2,
    f"{EXPORTS}2026/january.csv": 1,
    f"{EXPORTS}2026/february.csv": 1,
}
HIDDEN = f"{UPLOADS}/old-draft.txt"
"""Deleted by the user long ago: on a versioned bucket that is a marker, and the bytes are still there."""
NEIGHBOURS = (f"{TENANT}/uploads/u-8821/portrait.jpg", f"{TENANT}/exports/u-882130/2026.zip")
"""Of other people, under names that begin alike."""

DOCUMENTS = ("file-contract88213", "file-invoice88213", "file-letter88213")
SLOW_DOCUMENT = DOCUMENTS[1]
"""Answers 503 at first."""
NEVER_THERE = "file-neverexisted88213"
VECTOR_STORE = "vs_88213"
CONVERSATION = "conv_88213"
ITEMS = tuple(f"msg_88213{letter}" for letter in "abcde")

TARGETS = [
    *(Target("openai_eu", "file", document) for document in DOCUMENTS),
    Target("openai_eu", "file", NEVER_THERE),
    Target("openai_eu", "vector_store", VECTOR_STORE),
    Target("openai_eu", "conversation", CONVERSATION),
    *(Target("artifacts", "object", f"{BUCKET}/{key}") for key in OBJECTS if key.startswith(UPLOADS)),
    Target("artifacts", "prefix", f"{BUCKET}/{EXPORTS}"),
]


@dataclass(slots=True)
class Stores:
    """Where they listen, and a look into them."""

    s3_url: str
    provider: DemoProvider
    s3: "S3Client"

    def keys_left(self) -> list[str]:
        """Every key of the bucket that has a version or a marker left."""
        page = self.s3.list_object_versions(Bucket=BUCKET)
        found = [*page.get("Versions", []), *page.get("DeleteMarkers", [])]
        return sorted({item["Key"] for item in found})


@contextmanager
def demo_stores() -> Iterator[Stores]:
    """Start both, filled; stopped at the end. Raises ExpungeError if the extra `demo` is not installed."""
    with ExitStack() as stack:
        stack.enter_context(_environment())
        url = stack.enter_context(s3_server())
        provider = stack.enter_context(DemoProvider())
        s3 = boto3.client("s3", endpoint_url=url, region_name=REGION, config=Config(s3={"addressing_style": "path"}))
        stack.callback(s3.close)
        _fill_bucket(s3)
        provider.seed(
            PROJECT,
            files=[*DOCUMENTS, "file-ofsomebodyelse"],
            # the slow one alone: of another, the order of the calls would decide whether the store still lists it
            vector_stores={VECTOR_STORE: [SLOW_DOCUMENT]},
            conversations={CONVERSATION: ITEMS, "conv_ofsomebodyelse": ["msg_1"]},
        )
        provider.faults.add(Fault(Reply.ERROR, method="DELETE", path=f"/v1/files/{SLOW_DOCUMENT}", status=503, times=2))
        yield Stores(url, provider, s3)


@contextmanager
def _environment() -> Iterator[None]:
    """Made-up credentials, and no proxy, for the time of the demo: it must reach nothing but this machine."""
    ours = {
        "AWS_ACCESS_KEY_ID": "demo",
        "AWS_SECRET_ACCESS_KEY": "demo",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "NO_PROXY": "127.0.0.1",
        "no_proxy": "127.0.0.1",
        KEY_VARIABLE: DEMO_KEY,
    }
    # as for a test: everything is put back at the end
    with patch.dict(os.environ):
        for name in [name for name in os.environ if name.startswith(("AWS_", "OPENAI_"))]:
            del os.environ[name]
        os.environ.update(ours)
        yield


def _fill_bucket(s3: "S3Client") -> None:
    s3.create_bucket(Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": REGION})
    s3.put_bucket_versioning(Bucket=BUCKET, VersioningConfiguration={"Status": "Enabled"})
    for key, versions in {**OBJECTS, **dict.fromkeys(NEIGHBOURS, 1)}.items():
        for number in range(versions):
            s3.put_object(Bucket=BUCKET, Key=key, Body=f"version {number}".encode())
    s3.delete_object(Bucket=BUCKET, Key=HIDDEN)
