"""The S3 servers behind one face, for tests that must hold on each of them."""

import itertools
from dataclasses import dataclass
from typing import Any

import boto3
from botocore.config import Config

_numbers = itertools.count(1)


@dataclass(frozen=True)
class S3Server:
    """A running S3 server and the credentials for it."""

    name: str
    url: str
    access_key: str
    secret_key: str

    def client(self) -> Any:
        """A boto3 client that is not the eraser's."""
        return boto3.client(
            "s3",
            endpoint_url=self.url,
            aws_access_key_id=self.access_key,
            aws_secret_access_key=self.secret_key,
            region_name="us-east-1",
            config=Config(retries={"total_max_attempts": 1}, s3={"addressing_style": "path"}),
        )

    def new_bucket(self, versioning: str = "", *, lock: bool = False) -> str:
        """A fresh bucket; '', 'Enabled' or 'Suspended'."""
        name = f"bucket-{next(_numbers)}"
        client = self.client()
        client.create_bucket(Bucket=name, **({"ObjectLockEnabledForBucket": True} if lock else {}))
        if versioning == "Suspended":
            client.put_bucket_versioning(Bucket=name, VersioningConfiguration={"Status": "Enabled"})
        if versioning:
            client.put_bucket_versioning(Bucket=name, VersioningConfiguration={"Status": versioning})
        return name

    def put(self, bucket: str, *keys: str) -> None:
        client = self.client()
        for key in keys:
            client.put_object(Bucket=bucket, Key=key, Body=b"x")

    def keys(self, bucket: str) -> list[str]:
        """Every key of the bucket that has an object, a version or a marker."""
        found = set()
        for page in self.client().get_paginator("list_object_versions").paginate(Bucket=bucket):
            found |= {each["Key"] for each in [*page.get("Versions", []), *page.get("DeleteMarkers", [])]}
        return sorted(found)
