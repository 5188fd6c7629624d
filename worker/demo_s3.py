"""The demo's S3 server: moto, in this process, with one of its listings put right."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from expunge.models.errors import ExpungeError


@contextmanager
def s3_server() -> Iterator[str]:
    """Its endpoint URL. Raises ExpungeError if the extra `demo` is not installed."""
    try:
        from moto.s3.models import S3Backend
        from moto.server import ThreadedMotoServer
    except ImportError:
        raise ExpungeError("the demo needs a local S3 server: pip install 'expunge[demo]'") from None
    logging.getLogger("werkzeug").setLevel(logging.CRITICAL)
    with patch.object(S3Backend, "list_object_versions", _corrected(S3Backend.list_object_versions)):
        server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        server.start()
        try:
            host, port = server.get_host_and_port()
            yield f"http://{host}:{port}"
        finally:
            server.stop()


def _corrected(listing: Any) -> Any:
    """moto 5.2 leaves out the first version after a KeyMarker that is no key itself. S3 begins right after the marker,
    whether or not such a key exists (Amazon S3 API Reference, ListObjectVersions), and an eraser relies on it."""

    def list_object_versions(
        backend: Any,
        bucket_name: str,
        delimiter: str | None = None,
        key_marker: str | None = None,
        max_keys: int | None = 1000,
        prefix: str = "",
        version_id_marker: str | None = None,
    ) -> Any:
        if key_marker is None or delimiter:
            return listing(backend, bucket_name, delimiter, key_marker, max_keys, prefix, version_id_marker)
        versions, _, markers, _, _ = listing(backend, bucket_name, None, None, None, prefix, None)
        everything = sorted([*versions, *markers], key=lambda item: item.name)
        at_marker = [item.version_id for item in everything if item.name == key_marker]
        passed = at_marker.index(version_id_marker) + 1 if version_id_marker in at_marker else len(at_marker)
        wanted = [item for item in everything if item.name == key_marker][passed:]
        wanted += [item for item in everything if item.name > key_marker]
        page = wanted if max_keys is None else wanted[:max_keys]
        ends = page[-1] if page and len(page) < len(wanted) else None
        are_markers = {id(item) for item in markers}
        return (
            [item for item in page if id(item) not in are_markers],
            [],
            [item for item in page if id(item) in are_markers],
            ends.name if ends else None,
            ends.version_id if ends else None,
        )

    return list_object_versions
