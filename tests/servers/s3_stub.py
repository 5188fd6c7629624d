"""A strict S3 server of our own, which does on purpose what real servers do by accident.

In a test: `with s3_stub() as stub: stub.bucket("b").put("k")`. As a process of its own, for tests that kill things:
`python tests/servers/s3_stub.py --port 9000 --log access.jsonl --bucket plain --bucket old:Enabled`; there, faults are
set with `POST /-/fault?operation=DeleteObjects&kind=drop_after&times=3`. Every request is in the access log, which is
written and flushed before the answer is sent.
"""

import argparse
import base64
import json
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, TextIO
from urllib.parse import parse_qsl, unquote, urlsplit

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from servers.s3_stub_operations import ACCESS_KEY, SECRET_KEY, Answer, Operations, Request, asked, document, error
from servers.s3_stub_store import Bucket, Refused

__all__ = ["ACCESS_KEY", "SECRET_KEY", "Fault", "S3Stub", "s3_stub"]

PAGE = b"<!doctype html><html><head><title>Sign in</title></head><body><p>Please sign in<br></p></body></html>"
XHTML = b'<?xml version="1.0"?><html xmlns="http://www.w3.org/1999/xhtml"><body><p>Please sign in</p></body></html>'

NONSENSE = {
    "truncated": document("DeleteResult", "<Deleted><Key>k</Key></Deleted>")[:-20],
    "huge": b"<html>" + b"x" * 5_000_000,
    "charset": '<?xml version="1.0" encoding="UTF-16"?><ListBucketResult/>'.encode("utf-16"),
    "other_root": document("ListAllMyBucketsResult", "<Buckets></Buckets>"),
}

_SUBRESOURCES = {
    ("GET", "versioning"): "GetBucketVersioning",
    ("PUT", "versioning"): "PutBucketVersioning",
    ("GET", "versions"): "ListObjectVersions",
    ("GET", "list-type"): "ListObjectsV2",
    ("GET", "object-lock"): "GetObjectLockConfiguration",
    ("GET", "retention"): "GetObjectRetention",
    ("GET", "legal-hold"): "GetObjectLegalHold",
    ("POST", "delete"): "DeleteObjects",
    ("GET", "uploads"): "ListMultipartUploads",
    ("POST", "uploads"): "CreateMultipartUpload",
    ("DELETE", "uploadId"): "AbortMultipartUpload",
    ("GET", "uploadId"): "ListParts",
    ("PUT", "uploadId"): "UploadPart",
}


@dataclass
class Fault:
    """What happens to the next requests of an operation.

    `slow_down`, `error_500`, `error_in_200` (a SlowDown within a 200), `html_200`, `xhtml_200`, `html_404`, `html_503`,
    `drop_before` and `drop_after` (doing it), `hang` (doing nothing, until `release`), `quiet` (successes unmentioned),
    `truncated`, `huge`, `charset` and `other_root` (documents that are no answer), `none` (nothing happens),
    `leave_out` (the last key is neither done nor mentioned), `empty_result`, `empty_body`, or `CODE:status`.
    """

    operation: str
    kind: str
    times: int | None = None
    """None: until it is lifted."""
    headers: dict[str, str] = field(default_factory=dict)


class S3Stub:
    """The server. `log` is its access log, one dict a request."""

    def __init__(self, port: int = 0, log_file: TextIO | None = None) -> None:
        self.buckets: dict[str, Bucket] = {}
        self.log: list[dict[str, Any]] = []
        self.requires_md5 = False
        self.faults: list[Fault] = []
        self._log_file = log_file
        self._mutex = threading.Lock()
        self._released = threading.Event()
        stub = self

        class Handler(_Handler):
            server_stub = stub

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"

    def serve(self) -> None:
        self._server.serve_forever(poll_interval=0.05)

    def close(self) -> None:
        self.release()
        self._server.shutdown()
        self._server.server_close()

    def bucket(self, name: str, **settings: Any) -> Bucket:
        """The bucket of this name, made if it is new."""
        bucket = self.buckets.setdefault(name, Bucket(name))
        for setting, value in settings.items():
            setattr(bucket, setting, value)
        return bucket

    def release(self) -> None:
        """Let hanging requests go (without an answer)."""
        self._released.set()

    def calls(self, *operations: str) -> list[dict[str, Any]]:
        """The log's requests of these operations; of all without any."""
        with self._mutex:
            return [line for line in self.log if not operations or line["operation"] in operations]

    @contextmanager
    def fault(self, operation: str, kind: str, *, times: int | None = None, **headers: str) -> Iterator[Fault]:
        """A fault that is lifted at the end of the context."""
        fault = Fault(operation, kind, times, {name.replace("_", "-"): value for name, value in headers.items()})
        with self._mutex:
            self.faults.append(fault)
        try:
            yield fault
        finally:
            with self._mutex:
                if fault in self.faults:
                    self.faults.remove(fault)

    def answer(self, request: Request) -> Answer:
        if request.path == "/-/fault":
            query = request.query
            self.faults.append(Fault(query["operation"], query["kind"], int(query.get("times", 1))))
            return Answer(200)
        request_id, begun = uuid.uuid4().hex[:16].upper(), time.time()
        fault = self._take_fault(request.operation)
        answer = self._with_fault(request, request_id, fault)
        answer.headers.setdefault("x-amz-request-id", request_id)
        answer.headers.setdefault("x-amz-id-2", base64.b64encode(request_id.encode()).decode())
        self._write_log(request, request_id, answer, fault, begun)
        return answer

    def _take_fault(self, operation: str) -> Fault | None:
        with self._mutex:
            for fault in self.faults:
                if fault.operation in (operation, "*") and (fault.times is None or fault.times > 0):
                    if fault.times is not None:
                        fault.times -= 1
                    return fault
        return None

    def _with_fault(self, request: Request, request_id: str, fault: Fault | None) -> Answer:
        kind = fault.kind if fault else ""
        headers = dict(fault.headers) if fault else {}
        if kind == "slow_down":
            return error("SlowDown", 503, request_id, headers)
        if kind == "error_500":
            return error("InternalError", 500, request_id, headers)
        if kind == "error_in_200":
            return Answer(200, error("SlowDown", 503, request_id).body, headers)
        if kind in ("html_200", "html_404", "html_503", "xhtml_200"):
            page = XHTML if kind.startswith("xhtml") else PAGE
            return Answer(int(kind[-3:]), page, {"content-type": "text/html", "x-amz-request-id": "", **headers})
        if kind in NONSENSE:
            return Answer(200, NONSENSE[kind], {"content-type": "application/xml", **headers})
        if kind == "empty_body":
            return Answer(200, b"", headers)
        if kind == "empty_result":
            return Answer(200, document("DeleteResult", ""), headers)
        if kind in ("drop_before", "hang"):
            if kind == "hang":
                self._released.wait()
            return Answer(0, drop=True)
        if ":" in kind:
            code, status = kind.split(":")
            return error(code, int(status), request_id, headers)
        if kind == "leave_out":
            request.keys, request.versions = request.keys[:-1], request.versions[:-1]
        try:
            answer = Operations(self.buckets, request, quiet=kind == "quiet", requires_md5=self.requires_md5).run()
        except Refused as refused:
            answer = error(refused.code, refused.status, request_id)
        answer.drop = kind == "drop_after"
        return answer

    def _write_log(self, request: Request, request_id: str, answer: Answer, fault: Fault | None, begun: float) -> None:
        line = {
            "begun": begun,
            "time": time.time(),
            "method": request.method,
            "path": request.path,
            "query": request.query,
            "operation": request.operation,
            "bucket": request.bucket,
            "keys": request.keys,
            "versions": request.versions,
            "if_match": request.headers.get("if-match"),
            "request_id": answer.headers["x-amz-request-id"] or None,
            "status": None if answer.drop else answer.status,
            "done": answer.status in (200, 204) and not (fault and fault.kind in ("html_200", "xhtml_200")),
            "fault": fault.kind if fault else None,
        }
        with self._mutex:
            self.log.append(line)
            if self._log_file is not None:
                self._log_file.write(json.dumps(line) + "\n")
                self._log_file.flush()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    server_stub: S3Stub

    def do_GET(self) -> None:
        self._serve()

    do_PUT = do_POST = do_DELETE = do_HEAD = do_GET  # noqa: N815 - http.server's names

    def handle_expect_100(self) -> bool:
        going_on = super().handle_expect_100()
        self.wfile.flush()  # the client waits for it before it sends the body
        return going_on

    def _serve(self) -> None:
        request = self._request()
        answer = self.server_stub.answer(request)
        if answer.drop:
            self.close_connection = True
            return
        self.send_response_only(answer.status)
        for name, value in answer.headers.items():
            if value:
                self.send_header(name, value)
        if answer.status != 204:
            self.send_header("content-length", str(len(answer.body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)

    def _request(self) -> Request:
        url = urlsplit(self.path)
        query = dict(parse_qsl(url.query, keep_blank_values=True))
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        bucket, _, key = unquote(url.path).removeprefix("/").partition("/")
        operation = self._operation(bucket, key, query)
        request = Request(
            self.command,
            url.path,
            query,
            {name.lower(): value for name, value in self.headers.items()},
            body,
            operation,
            bucket,
            key,
        )
        if operation == "DeleteObjects":
            request.keys, request.versions = asked(body)
        elif key:
            request.keys, request.versions = [key], [query.get("versionId")]
        return request

    def _operation(self, bucket: str, key: str, query: dict[str, str]) -> str:
        for (method, name), operation in _SUBRESOURCES.items():
            if method == self.command and name in query:
                return operation
        if not bucket:
            return "ListBuckets"
        if not key:
            return {"PUT": "CreateBucket", "HEAD": "HeadBucket"}.get(self.command, "Unknown")
        return {"PUT": "PutObject", "GET": "GetObject", "HEAD": "HeadObject", "DELETE": "DeleteObject"}.get(
            self.command, "Unknown"
        )

    def log_message(self, format: str, *args: Any) -> None:
        """The access log is the stub's own."""


@contextmanager
def s3_stub() -> Iterator[S3Stub]:
    """A stub in this process, on a free port."""
    stub = S3Stub()
    thread = threading.Thread(target=stub.serve, daemon=True)
    thread.start()
    try:
        yield stub
    finally:
        stub.close()
        thread.join()


def main() -> None:
    """The stub as a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--log", type=Path, required=True)
    parser.add_argument("--bucket", action="append", default=[], help="NAME or NAME:Enabled or NAME:Suspended")
    parser.add_argument("--requires-md5", action="store_true")
    options = parser.parse_args()
    with options.log.open("a", encoding="utf-8") as log:
        stub = S3Stub(options.port, log)
        stub.requires_md5 = options.requires_md5
        for text in options.bucket:
            name, _, versioning = text.partition(":")
            stub.bucket(name, versioning=versioning)
        stub.serve()


if __name__ == "__main__":
    main()
