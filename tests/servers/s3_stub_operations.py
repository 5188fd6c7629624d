"""What the S3 stub does with a request: the operations, as strict as the Amazon S3 API Reference has them."""

import base64
import hashlib
import re
import xml.etree.ElementTree as ElementTree
import zlib
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from urllib.parse import quote_plus
from xml.sax.saxutils import escape

from servers.s3_stub_store import Bucket, Refused, Version

ACCESS_KEY = "stubstubstubstub"
SECRET_KEY = "stub-secret"
MAX_KEYS = 1000

_NAMESPACE = "http://s3.amazonaws.com/doc/2006-03-01/"
_UNSAFE = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass
class Answer:
    """What goes back to the client; `drop`: nothing does."""

    status: int
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    drop: bool = False


@dataclass
class Request:
    """One request, taken apart."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes
    operation: str
    bucket: str
    key: str
    keys: list[str] = field(default_factory=list)
    versions: list[str | None] = field(default_factory=list)


class Operations:
    """The operations themselves."""

    def __init__(self, buckets: dict[str, Bucket], request: Request, *, quiet: bool, requires_md5: bool) -> None:
        self._buckets = buckets
        self._request = request
        self._quiet = quiet
        self._requires_md5 = requires_md5

    def run(self) -> Answer:
        request = self._request
        if request.operation == "ListBuckets":
            return Answer(200, document("ListAllMyBucketsResult", "<Buckets></Buckets>"))
        credential = re.search(r"Credential=([^/]+)/", request.headers.get("authorization", ""))
        if credential is None:
            raise Refused("AccessDenied", 403)
        if credential.group(1) != ACCESS_KEY:
            raise Refused("InvalidAccessKeyId", 403)
        if request.operation == "CreateBucket":
            lock = request.headers.get("x-amz-bucket-object-lock-enabled") == "true"
            made = Bucket(request.bucket, lock=lock, versioning="Enabled" if lock else "")
            self._buckets.setdefault(request.bucket, made)
            return Answer(200)
        bucket = self._buckets.get(request.bucket)
        if bucket is None:
            raise Refused("NoSuchBucket", 404)
        if request.headers.get("x-amz-expected-bucket-owner", bucket.owner) != bucket.owner:
            raise Refused("AccessDenied", 403)
        if bucket.redirect:
            answer = error("PermanentRedirect" if bucket.redirect == 301 else "TemporaryRedirect", bucket.redirect, "")
            answer.headers["x-amz-bucket-region"] = "eu-west-1"
            return answer
        operation = getattr(self, "_" + re.sub(r"(?<!^)(?=[A-Z])", "_", request.operation).lower(), None)
        if operation is None:
            raise Refused("NotImplemented", 501)
        answer: Answer = operation(bucket)
        return answer

    def _head_bucket(self, bucket: Bucket) -> Answer:
        return Answer(200)

    def _get_bucket_versioning(self, bucket: Bucket) -> Answer:
        if bucket.versioning_refused:
            raise Refused(bucket.versioning_refused, 501 if bucket.versioning_refused == "NotImplemented" else 403)
        status = f"<Status>{bucket.versioning}</Status>" if bucket.versioning else ""
        return Answer(200, document("VersioningConfiguration", status))

    def _put_bucket_versioning(self, bucket: Bucket) -> Answer:
        found = re.search(rb"<Status>(\w+)</Status>", self._request.body)
        if found is None:
            raise Refused("MalformedXML", 400)
        bucket.versioning = found.group(1).decode()
        return Answer(200)

    def _get_object_lock_configuration(self, bucket: Bucket) -> Answer:
        if not bucket.lock:
            raise Refused("ObjectLockConfigurationNotFoundError", 404)
        return Answer(200, document("ObjectLockConfiguration", "<ObjectLockEnabled>Enabled</ObjectLockEnabled>"))

    def _put_object(self, bucket: Bucket) -> Answer:
        version = bucket.put(self._request.key, self._request.body)
        asked = self._request.headers
        version.legal_hold = asked.get("x-amz-object-lock-legal-hold") == "ON"
        if "x-amz-object-lock-retain-until-date" in asked:
            version.retain_until = datetime.fromisoformat(asked["x-amz-object-lock-retain-until-date"])
            version.mode = asked["x-amz-object-lock-mode"]
        headers = {"etag": '"x"'}
        if bucket.versioning:
            headers["x-amz-version-id"] = version.id
        return Answer(200, b"", headers)

    def _get_object(self, bucket: Bucket) -> Answer:
        current = bucket.current(self._request.key)
        if current is None:
            raise Refused("NoSuchKey", 404)
        return Answer(200, current.body)

    def _head_object(self, bucket: Bucket) -> Answer:
        if "versionId" not in self._request.query:
            return Answer(404 if bucket.current(self._request.key) is None else 200)
        version = self._version(bucket)
        headers = {"x-amz-object-lock-legal-hold": "ON"} if version.legal_hold else {}
        if version.retain_until is not None:
            headers["x-amz-object-lock-mode"] = version.mode
            headers["x-amz-object-lock-retain-until-date"] = _iso(version.retain_until)
        return Answer(200, b"", headers)

    def _version(self, bucket: Bucket) -> Version:
        for version in bucket.objects.get(self._request.key, ()):
            if version.id == self._request.query.get("versionId") and not version.is_marker:
                return version
        raise Refused("NoSuchVersion", 404)

    def _get_object_retention(self, bucket: Bucket) -> Answer:
        version = self._version(bucket)
        if version.retain_until is None:
            raise Refused("NoSuchObjectLockConfiguration", 404)
        until = _iso(version.retain_until)
        return Answer(
            200, document("Retention", f"<Mode>{version.mode}</Mode><RetainUntilDate>{until}</RetainUntilDate>")
        )

    def _get_object_legal_hold(self, bucket: Bucket) -> Answer:
        if not self._version(bucket).legal_hold:
            raise Refused("NoSuchObjectLockConfiguration", 404)
        return Answer(200, document("LegalHold", "<Status>ON</Status>"))

    def _delete_object(self, bucket: Bucket) -> Answer:
        if "if-match" in self._request.headers:
            bucket.check_condition(self._request.key)
        removed = bucket.delete(self._request.key, self._request.query.get("versionId"))
        headers = {}
        if removed.version or removed.marker_version:
            headers["x-amz-version-id"] = removed.version or removed.marker_version or ""
        if removed.marker:
            headers["x-amz-delete-marker"] = "true"
        return Answer(204, b"", headers)

    def _create_multipart_upload(self, bucket: Bucket) -> Answer:
        upload = bucket.begin_upload(self._request.key)
        inside = f"<Bucket>{bucket.name}</Bucket><Key>{_text(self._request.key)}</Key><UploadId>{upload}</UploadId>"
        return Answer(200, document("InitiateMultipartUploadResult", inside))

    def _upload_part(self, bucket: Bucket) -> Answer:
        query = self._request.query
        self._upload(bucket).append(int(query["partNumber"]))
        return Answer(200, b"", {"etag": '"x"'})

    def _abort_multipart_upload(self, bucket: Bucket) -> Answer:
        bucket.abort(self._request.key, self._request.query["uploadId"])
        return Answer(204)

    def _list_parts(self, bucket: Bucket) -> Answer:
        parts = "".join(f"<Part><PartNumber>{n}</PartNumber><Size>1</Size></Part>" for n in self._upload(bucket))
        return Answer(200, document("ListPartsResult", f"<IsTruncated>false</IsTruncated>{parts}"))

    def _upload(self, bucket: Bucket) -> list[int]:
        found = bucket.uploads.get((self._request.key, self._request.query["uploadId"]))
        if found is None:
            raise Refused("NoSuchUpload", 404)
        return found

    def _list_multipart_uploads(self, bucket: Bucket) -> Answer:
        if bucket.uploads_refused == "list":
            return self._list_objects_v2(bucket)
        if bucket.uploads_refused:
            raise Refused(bucket.uploads_refused, 501 if bucket.uploads_refused == "NotImplemented" else 403)
        query = self._request.query
        limit = min(int(query.get("max-uploads", MAX_KEYS)), bucket.page)
        found = bucket.open_uploads(query.get("prefix", ""), query.get("key-marker"), query.get("upload-id-marker"))
        if bucket.lists_uploads_by_key:
            found = [each for each in found if each[0] == query.get("prefix")]
        page, truncated = found[:limit], len(found) > limit
        text = self._encoder(bucket)
        body = f"<Bucket>{bucket.name}</Bucket><IsTruncated>{str(truncated).lower()}</IsTruncated>"
        if self._encodes(bucket):
            body += "<EncodingType>url</EncodingType>"
        if truncated:
            key, upload = page[-1]
            body += f"<NextKeyMarker>{text(key)}</NextKeyMarker><NextUploadIdMarker>{upload}</NextUploadIdMarker>"
        for key, upload in page:
            body += f"<Upload><Key>{text(key)}</Key><UploadId>{upload}</UploadId></Upload>"
        headers = {"server": "MinIO"} if bucket.lists_uploads_by_key else {}
        return Answer(200, document("ListMultipartUploadsResult", body), headers)

    def _delete_objects(self, bucket: Bucket) -> Answer:
        request = self._request
        self._check_body(request)
        quiet = self._quiet or b"<Quiet>true</Quiet>" in request.body
        lines = []
        for key, version_id in zip(request.keys, request.versions, strict=True):
            try:
                removed = bucket.delete(key, version_id)
            except Refused as refused:
                version = f"<VersionId>{version_id}</VersionId>" if version_id else ""
                lines.append(
                    f"<Error><Key>{_text(key)}</Key>{version}<Code>{refused.code}</Code><Message>m</Message></Error>"
                )
                continue
            if quiet:
                continue
            line = f"<Key>{_text(key)}</Key>"
            if removed.version:
                line += f"<VersionId>{removed.version}</VersionId>"
            if removed.marker:
                line += "<DeleteMarker>true</DeleteMarker>"
                line += f"<DeleteMarkerVersionId>{removed.marker_version}</DeleteMarkerVersionId>"
            lines.append(f"<Deleted>{line}</Deleted>")
        return Answer(200, document("DeleteResult", "".join(reversed(lines))))

    def _check_body(self, request: Request) -> None:
        digest = base64.b64encode(hashlib.md5(request.body, usedforsecurity=False).digest()).decode()
        sent = request.headers.get("content-md5")
        if sent is None and self._requires_md5:
            raise Refused("MissingContentMD5", 400)
        crc = base64.b64encode(zlib.crc32(request.body).to_bytes(4, "big")).decode()
        if sent not in (None, digest) or request.headers.get("x-amz-checksum-crc32", crc) != crc:
            raise Refused("BadDigest", 400)
        if _UNSAFE.search(request.body.decode()) or not request.keys or len(request.keys) > MAX_KEYS:
            raise Refused("MalformedXML", 400)

    def _list_objects_v2(self, bucket: Bucket) -> Answer:
        if bucket.list_refused:
            raise Refused("AccessDenied", 403)
        query = self._request.query
        after = query.get("start-after")
        if "continuation-token" in query:
            after = base64.urlsafe_b64decode(query["continuation-token"]).decode()
        limit = min(int(query.get("max-keys", MAX_KEYS)), bucket.page)
        keys = bucket.keys(query.get("prefix", ""), after)
        page, truncated = keys[:limit], len(keys) > limit
        text = self._encoder(bucket)
        body = f"<Name>{bucket.name}</Name><Prefix>{text(query.get('prefix', ''))}</Prefix>"
        body += f"<KeyCount>{len(page)}</KeyCount><IsTruncated>{str(truncated).lower()}</IsTruncated>"
        if self._encodes(bucket):
            body += "<EncodingType>url</EncodingType>"
        if truncated:
            token = base64.urlsafe_b64encode(page[-1].encode()).decode()
            body += f"<NextContinuationToken>{token}</NextContinuationToken>"
        body += "".join(f"<Contents><Key>{text(key)}</Key><Size>1</Size></Contents>" for key in page)
        return Answer(200, document("ListBucketResult", body))

    def _list_object_versions(self, bucket: Bucket) -> Answer:
        if bucket.versions_refused or bucket.list_refused:
            code = bucket.versions_refused or "AccessDenied"
            raise Refused(code, 501 if code == "NotImplemented" else 403)
        query = self._request.query
        limit = min(int(query.get("max-keys", MAX_KEYS)), bucket.page)
        found = bucket.versions(query.get("prefix", ""), query.get("key-marker"), query.get("version-id-marker"))
        page, truncated = found[:limit], len(found) > limit
        text = self._encoder(bucket)
        body = f"<Name>{bucket.name}</Name><IsTruncated>{str(truncated).lower()}</IsTruncated>"
        if self._encodes(bucket):
            body += "<EncodingType>url</EncodingType>"
        if truncated:
            key, version = page[-1]
            body += f"<NextKeyMarker>{text(key)}</NextKeyMarker><NextVersionIdMarker>{version.id}</NextVersionIdMarker>"
        for key, version in page:
            tag = "DeleteMarker" if version.is_marker else "Version"
            body += f"<{tag}><Key>{text(key)}</Key><VersionId>{version.id}</VersionId></{tag}>"
        return Answer(200, document("ListVersionsResult", body))

    def _encodes(self, bucket: Bucket) -> bool:
        return bucket.encodes and self._request.query.get("encoding-type") == "url"

    def _encoder(self, bucket: Bucket) -> Any:
        return (lambda key: quote_plus(key, safe="/")) if self._encodes(bucket) else _text


def _text(key: str) -> str:
    return escape(_UNSAFE.sub("\ufffd", key))  # a raw \r, which XML parsers read as \n


def document(root: str, inside: str) -> bytes:
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<{root} xmlns="{_NAMESPACE}">{inside}</{root}>'.encode()


def _iso(time: datetime) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")


def error(code: str, status: int, request_id: str, headers: dict[str, str] | None = None) -> Answer:
    body = f'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{code}</Code><Message>secret message</Message>'
    body += f"<RequestId>{request_id}</RequestId></Error>"
    return Answer(status, body.encode(), dict(headers or {}))


def asked(body: bytes) -> tuple[list[str], list[str | None]]:
    try:
        root = ElementTree.fromstring(body)
    except ElementTree.ParseError:
        return [], []
    keys, versions = [], []
    for item in root:
        if item.tag.rpartition("}")[2] == "Object":
            fields = {child.tag.rpartition("}")[2]: child.text for child in item}
            keys.append(fields["Key"] or "")
            versions.append(fields.get("VersionId"))
    return keys, versions
