"""What the S3 stub keeps: buckets with versions, markers and locks, as the Amazon S3 User Guide describes them."""

import itertools
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

_ids = itertools.count(1)


@dataclass
class Version:
    """One version of an object, or a delete marker."""

    id: str
    is_marker: bool = False
    body: bytes = b""
    retain_until: datetime | None = None
    mode: str = "COMPLIANCE"
    legal_hold: bool = False

    @property
    def is_locked(self) -> bool:
        return self.legal_hold or (self.retain_until is not None and self.retain_until > datetime.now(UTC))


@dataclass
class Removed:
    """What a delete did, as the answer must tell it."""

    version: str | None = None
    marker: bool = False
    marker_version: str | None = None


class Refused(Exception):
    """An error in S3's own shape."""

    def __init__(self, code: str, status: int) -> None:
        super().__init__(code)
        self.code = code
        self.status = status


def by_bytes(key: str) -> object:
    """The documented order of listings."""
    return key.encode()


def by_walk(key: str) -> object:
    """The order of servers that keep objects in directories."""
    return key.replace("/", "\0")


@dataclass
class Bucket:
    """One bucket, with the ways in which its server may be odd."""

    name: str
    versioning: str = ""
    """'', 'Enabled' or 'Suspended'."""
    lock: bool = False
    owner: str = "111122223333"
    list_refused: bool = False
    versioning_refused: str = ""
    """An error code that GetBucketVersioning answers."""
    versions_refused: str = ""
    """An error code that ListObjectVersions answers."""
    redirect: int = 0
    """A status (301, 307) that every request answers."""
    tells_markers: bool = True
    """False: a plain delete's answer does not say that it made a marker."""
    encodes: bool = True
    """False: encoding-type=url is ignored."""
    order: Callable[[str], object] = by_bytes
    page: int = 1000
    """Keys of a page at the most, whatever is asked."""
    ignores_start: bool = False
    conditions: str = "honoured"
    """What `If-Match: *` of a DeleteObject does: `honoured` (404 if there is no object), `ignored`, `refused` (412,
    always), `absent` (404, always), or an error code for a key that is absent (`AccessDenied`)."""
    uploads_refused: str = ""
    """An error code that ListMultipartUploads answers; `list`: an ordinary listing, as if it were not asked for."""
    uploads: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    """Open multipart uploads: the parts' numbers by key and id."""
    lists_uploads_by_key: bool = False
    """As MinIO: only the uploads of exactly the key that is the prefix."""
    keeps_uploads: bool = False
    """An abort is confirmed, and the upload stays."""
    objects: dict[str, list[Version]] = field(default_factory=dict)
    """Newest version first."""
    key_errors: dict[str, list[str]] = field(default_factory=dict)
    """Codes that the next deletes of a key answer; 'X*' stays for ever."""
    mutex: threading.RLock = field(default_factory=threading.RLock)

    def put(self, key: str, body: bytes = b"x") -> Version:
        with self.mutex:
            versions = self.objects.setdefault(key, [])
            if self.versioning == "Enabled":
                version = Version(f"v{next(_ids):08d}", body=body)
            else:
                version = Version("null", body=body)
                versions[:] = [each for each in versions if each.id != "null"]
            versions.insert(0, version)
            return version

    def begin_upload(self, key: str, *parts: int) -> str:
        """A multipart upload of the key, with these parts; its id."""
        with self.mutex:
            upload = f"u{next(_ids):08d}"
            self.uploads[key, upload] = list(parts)
            return upload

    def abort(self, key: str, upload: str) -> None:
        """Raises Refused if there is no such upload."""
        with self.mutex:
            self._scripted_error(key)
            if (key, upload) not in self.uploads:
                raise Refused("NoSuchUpload", 404)
            if not self.keeps_uploads:
                del self.uploads[key, upload]

    def open_uploads(self, prefix: str, key_marker: str | None, upload_marker: str | None) -> list[tuple[str, str]]:
        """Keys and ids, by key and then by id, after the markers."""
        with self.mutex:
            every = sorted((k for k in self.uploads if k[0].startswith(prefix)), key=lambda k: (self.order(k[0]), k[1]))
        if key_marker is None:
            return every
        if upload_marker is not None and (key_marker, upload_marker) in every:
            return every[every.index((key_marker, upload_marker)) + 1 :]
        place = self.order(key_marker)
        return [each for each in every if self.order(each[0]) > place]  # type: ignore[operator]

    def current(self, key: str) -> Version | None:
        versions = self.objects.get(key)
        return versions[0] if versions and not versions[0].is_marker else None

    def check_condition(self, key: str) -> None:
        """Raises Refused as `conditions` has it."""
        there = self.current(key) is not None
        if self.conditions == "refused":
            raise Refused("PreconditionFailed", 412)
        if self.conditions == "absent" or (self.conditions == "honoured" and not there):
            raise Refused("NoSuchKey", 404)
        if self.conditions not in ("honoured", "ignored") and not there:
            raise Refused(self.conditions, 403)

    def delete(self, key: str, version_id: str | None) -> Removed:
        """Raises Refused for what a lock or a scripted error keeps."""
        with self.mutex:
            self._scripted_error(key)
            if version_id is not None:
                return self._delete_version(key, version_id)
            if not self.versioning:
                self.objects.pop(key, None)
                return Removed()
            versions = self.objects.setdefault(key, [])
            if self.versioning == "Suspended":
                versions[:] = [each for each in versions if each.id != "null"]
                marker = Version("null", is_marker=True)
            else:
                marker = Version(f"m{next(_ids):08d}", is_marker=True)
            versions.insert(0, marker)
            return Removed(marker=True, marker_version=marker.id) if self.tells_markers else Removed()

    def _scripted_error(self, key: str) -> None:
        codes = self.key_errors.get(key)
        if codes:
            code = codes[0]
            if not code.endswith("*"):
                codes.pop(0)
            raise Refused(code.rstrip("*"), 500 if code.startswith("InternalError") else 403)

    def _delete_version(self, key: str, version_id: str) -> Removed:
        versions = self.objects.get(key, [])
        found = next((each for each in versions if each.id == version_id), None)
        if found is None:
            return Removed(version=version_id)
        if found.is_locked:
            raise Refused("AccessDenied", 403)
        versions.remove(found)
        if not versions:
            del self.objects[key]
        if found.is_marker:
            return Removed(version=version_id, marker=True, marker_version=version_id)
        return Removed(version=version_id)

    def keys(self, prefix: str, after: str | None) -> list[str]:
        """The current objects' keys in this server's order."""
        with self.mutex:
            keys = sorted((k for k in self.objects if k.startswith(prefix) and self.current(k)), key=self.order)
        if after is None or self.ignores_start:
            return keys
        return [key for key in keys if self.order(key) > self.order(after)]  # type: ignore[operator]

    def versions(self, prefix: str, key_marker: str | None, version_marker: str | None) -> list[tuple[str, Version]]:
        """All versions and markers in this server's order, newest first within a key."""
        with self.mutex:
            every = [
                (key, version)
                for key in sorted((k for k in self.objects if k.startswith(prefix)), key=self.order)
                for version in self.objects[key]
            ]
        if key_marker is None:
            return every
        if version_marker is not None:
            ids = [(key, version.id) for key, version in every]
            if (key_marker, version_marker) in ids:
                return every[ids.index((key_marker, version_marker)) + 1 :]
        place = self.order(key_marker)
        return [(key, version) for key, version in every if self.order(key) > place]  # type: ignore[operator]
