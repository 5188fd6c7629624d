"""Where an archive is kept, and where an export or archive is read from: a directory, or a bucket.

A name holds the number of its segment and the hash of its content. Writing one again is writing the same bytes, so a
lost answer does no harm; and a database that was put back to an earlier number overwrites nothing.
"""

import base64
import hashlib
import os
import re
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Protocol
from urllib.parse import unquote, urlsplit

from expunge.models.errors import ConfigurationError

SUFFIX = ".jsonl"
CONNECT_SECONDS, READ_SECONDS = 10, 30
_OURS = re.compile(r"[^./][^/]*\.jsonl")
"""Segments, and exports that somebody put beside them; not a file that is still being written."""


class ArchiveFailed(Exception):
    """It could not be written or read; the text says why, and holds no address, name or key."""


@dataclass(frozen=True, slots=True)
class ArchivePlace:
    """What the settings say of an archive. Credentials of a bucket come the way boto3 finds them, or by profile."""

    url: str
    endpoint_url: str | None = None
    region: str | None = None
    profile: str | None = None


class ArchiveStore(Protocol):
    """A place for segments."""

    url: str

    def write(self, name: str, data: bytes) -> None:
        """Keep it; returns once it will outlive this machine's end as far as the place can promise. Raises
        ArchiveFailed."""
        ...

    def names(self) -> Iterator[str]:
        """What is there, in order. Raises ArchiveFailed."""
        ...

    def open(self, name: str) -> Any:
        """A context manager that gives the segment's bytes as a stream. Raises ArchiveFailed."""
        ...


def segment_name(number: int, data: bytes) -> str:
    """`NNNNNNNNNN-HASH.jsonl`: in the order of the numbers."""
    return f"{number:010d}-{hashlib.sha256(data).hexdigest()[:16]}{SUFFIX}"


def check_url(url: str) -> str:
    """Raises ValueError with what it must be."""
    parts = urlsplit(url)
    if parts.scheme == "file":
        if parts.netloc not in ("", "localhost") or not unquote(parts.path).startswith("/") or parts.path == "/":
            raise ValueError("must have three slashes and a directory, as in file:///var/lib/expunge-archive")
    elif parts.scheme == "s3":
        if not parts.netloc or "@" in parts.netloc or ":" in parts.netloc:
            raise ValueError("must look like s3://BUCKET/PREFIX, without credentials")
    else:
        raise ValueError("must begin with file:/// or s3://")
    if parts.query or parts.fragment:
        raise ValueError("must not have a query or fragment")
    return url


def make_store(place: ArchivePlace) -> ArchiveStore:
    """The store of a place; nothing is connected yet. Raises ConfigurationError."""
    try:
        parts = urlsplit(check_url(place.url))
    except ValueError as error:
        raise ConfigurationError(f"archive_url: {error}") from None
    if parts.scheme == "file":
        return DirectoryArchive(place.url, Path(unquote(parts.path)))
    return BucketArchive(place, parts.netloc, parts.path.strip("/"))


class DirectoryArchive:
    """Segments as files of one directory, which should be another disk's or machine's."""

    def __init__(self, url: str, path: Path) -> None:
        self.url = url
        self._path = path

    def write(self, name: str, data: bytes) -> None:
        """A file that is whole or not there: temporary, synced, renamed, and the directory synced."""
        try:
            # not its parents: a disk that is not mounted must not be written beside
            self._path.mkdir(exist_ok=True)
            write_whole(self._path / name, lambda stream: stream.write(data))
        except OSError as error:
            raise ArchiveFailed(f"the directory cannot be written: {error.strerror or type(error).__name__}") from None

    def names(self) -> Iterator[str]:
        try:
            yield from sorted(entry for entry in os.listdir(self._path) if _OURS.fullmatch(entry))
        except OSError as error:
            raise ArchiveFailed(f"the directory cannot be read: {error.strerror or type(error).__name__}") from None

    @contextmanager
    def open(self, name: str) -> Iterator[BinaryIO]:
        try:
            stream = (self._path / name).open("rb")
        except OSError as error:
            raise ArchiveFailed(f"{name} cannot be read: {error.strerror or type(error).__name__}") from None
        with stream:
            yield stream


def write_whole(path: Path, fill: Any) -> None:
    """Write a file that is whole or not there, also after a power cut; an earlier one of the name is replaced. Raises
    OSError, and whatever `fill` raises."""
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)  # readable by its owner only
    try:
        with os.fdopen(handle, "wb") as stream:
            fill(stream)
            stream.flush()
            os.fsync(stream.fileno())
        os.rename(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


class BucketArchive:
    """Segments as objects under a prefix. Writing needs s3:PutObject and nothing else."""

    def __init__(self, place: ArchivePlace, bucket: str, prefix: str) -> None:
        self.url = place.url
        self._place = place
        self._bucket = bucket
        self._prefix = f"{prefix}/" if prefix else ""
        self._made: Any = None
        self._lock = threading.Lock()

    def write(self, name: str, data: bytes) -> None:
        # buckets with object lock want this header, and every compatible server takes it
        digest = base64.b64encode(hashlib.md5(data, usedforsecurity=False).digest()).decode()
        self._call(
            "put_object",
            Key=self._prefix + name,
            Body=data,
            ContentMD5=digest,
            ContentType="application/x-ndjson",
        )

    def names(self) -> Iterator[str]:
        found: list[str] = []
        token: dict[str, str] = {}
        while True:
            page = self._call("list_objects_v2", Prefix=self._prefix, Delimiter="/", **token)
            for item in page.get("Contents", ()):
                name = item["Key"][len(self._prefix) :]
                if _OURS.fullmatch(name):
                    found.append(name)
            if not page.get("IsTruncated"):
                break
            token = {"ContinuationToken": page["NextContinuationToken"]}
        yield from sorted(found)

    @contextmanager
    def open(self, name: str) -> Iterator[BinaryIO]:
        body = self._call("get_object", Key=self._prefix + name)["Body"]
        # a segment is small; an export that somebody put there may be large
        with tempfile.TemporaryFile() as spool:
            try:
                for chunk in body.iter_chunks(1 << 20):
                    spool.write(chunk)
            except Exception as error:
                raise ArchiveFailed(f"{name} cannot be read: {type(error).__name__}") from None
            spool.seek(0)
            yield spool

    def _call(self, operation: str, **parameters: Any) -> Any:
        from botocore.exceptions import ClientError

        try:
            return getattr(self._client(), operation)(Bucket=self._bucket, **parameters)
        except ClientError as error:
            code = error.response.get("Error", {}).get("Code") or "no code"
            raise ArchiveFailed(f"the bucket refused {operation}: {str(code)[:64]}") from None
        except Exception as error:
            # boto3 finds many ways to fail before it sends anything
            raise ArchiveFailed(f"the bucket cannot be reached: {type(error).__name__}") from None

    def _client(self) -> Any:
        with self._lock:
            if self._made is None:
                import boto3
                from botocore.config import Config

                self._made = boto3.Session(profile_name=self._place.profile).client(
                    "s3",
                    endpoint_url=self._place.endpoint_url,
                    region_name=self._place.region,
                    config=Config(
                        connect_timeout=CONNECT_SECONDS,
                        read_timeout=READ_SECONDS,
                        retries={"total_max_attempts": 1},
                        request_checksum_calculation="when_required",
                        response_checksum_validation="when_required",
                        # a compatible server need not have a name for every bucket
                        s3={"addressing_style": "path" if self._place.endpoint_url else "auto"},
                    ),
                )
            return self._made
