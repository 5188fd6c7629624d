"""Pages of listings: what one request returned, and what it proves about keys that are not on it.

A key is absent only if a listing passed its place. That takes an order, and not every server lists in the documented
one (UTF-8 bytes): servers that keep objects in directories walk the tree, so that `a/x` comes before `a.b`, and others
compare UTF-16 units. A page proves an absence only if it is in UTF-8 order and the key's place is inside it in every
other order that the page could be in as well.

Source: Amazon S3 API Reference, ListObjectsV2 and ListObjectVersions.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple
from urllib.parse import unquote_plus

from expunge.tasks.erasers.s3_client import Facts, Reply, S3Client
from expunge.tasks.erasers.s3_keys import needs_encoding
from expunge.tasks.erasers.s3_options import MAX_KEYS

_ORDERS: tuple[Callable[[str], Any], ...] = (
    lambda key: key,  # Python compares code points, which is the order of their UTF-8 bytes
    lambda key: key.replace("/", "\0"),  # a directory's content follows its name at once
    lambda key: key.encode("utf-16-be", "surrogatepass"),
)


Markers = tuple[str, str | None]
"""The key to go on after, and the version of it if its versions are not all listed yet."""


class Version(NamedTuple):
    """One version of an object, or a delete marker."""

    id: str
    is_marker: bool


@dataclass(frozen=True)
class Page:
    """One answer to a listing. `found` has the keys with their versions (none in an unversioned listing)."""

    facts: Facts
    found: dict[str, list[Version]]
    runs: tuple[list[str], ...]
    """The keys as they were listed: one run, or versions and markers apart as botocore gives them."""
    truncated: bool
    encoded: bool
    """URL-encoded as asked; a server may ignore that."""
    after: str | None = None
    """The key that the listing was to start after. Further versions of it may follow."""
    prefix: str | None = None
    ambiguous_plus: bool = False
    """A `+` stood in an encoded key: a space, but some servers leave a plus sign as it is."""
    next_markers: Markers | None = None
    """Where ListObjectVersions goes on."""
    by_key: bool = False
    """The server lists uploads of exactly the key that is given as prefix, and of no other."""

    def has(self, key: str) -> bool:
        """Whether the page shows this very key. A `\\r` that XML brought was escaped there; U+FFFD may stand for what
        XML could not bring."""
        return key in self.found and (self.encoded or "\ufffd" not in key)

    @cached_property
    def is_ordered(self) -> bool:
        """Whether the page keeps to what was asked for, in UTF-8 order."""
        if self.after is not None and any(run and run[0] < self.after for run in self.runs):
            return False
        return _ORDERS[0] in self._possible_orders and all(key.startswith(self.prefix or "") for key in self.found)

    def is_reached(self, key: str) -> bool:
        """Whether the page goes as far as this key, if it is in UTF-8 order."""
        return not self.truncated or any(run and key <= run[-1] for run in self.runs)

    def excludes(self, key: str) -> bool:
        """Whether the page proves that this key did not exist when it was listed."""
        if key in self.found or not key.startswith(self.prefix or ""):
            return False
        if not self.found and self.after is None:
            return not self.truncated
        if (needs_encoding(key) and not self.encoded) or (self.ambiguous_plus and "+" in key):
            return False
        if self.prefix == key:
            return self._excludes_prefix(key)
        return self.is_ordered and all(self._is_inside(order, key) for order in self._possible_orders)

    def _excludes_prefix(self, key: str) -> bool:
        if self.truncated:
            # in every order a key comes before the longer keys that begin with it
            return bool(self.found) and all(found.startswith(key) for found in self.found)
        # servers that shorten a prefix list more than was asked for; one that lists something else proves nothing
        return all(found.startswith(key) or key.startswith(found) for found in self.found)

    @cached_property
    def _possible_orders(self) -> list[Callable[[str], Any]]:
        return [order for order in _ORDERS if self._is_in(order)]

    def _is_in(self, order: Callable[[str], Any]) -> bool:
        for run in self.runs:
            keys = [order(key) for key in run]
            if keys != sorted(keys):
                return False
        return True

    def _is_inside(self, order: Callable[[str], Any], key: str) -> bool:
        place = order(key)
        if self.after is not None and place <= order(self.after):
            return False
        if not self.truncated:
            return True
        ends = [order(run[-1]) for run in self.runs if run]
        return bool(ends) and place < max(ends)


class ObjectPages:
    """Looks at an unversioned bucket: ListObjectsV2."""

    operation = "ListObjectsV2"

    def __init__(self, client: S3Client, bucket: str) -> None:
        self._client = client
        self._bucket = bucket

    def after(self, start: str | None, limit: int) -> Page:
        """The keys after `start`. Raises CallFailed."""
        more = {} if start is None else {"StartAfter": start}
        return self._page(limit, after=start, more=more)

    def exactly(self, key: str) -> Page:
        """The first key that begins with this one, which is the key itself if it exists. Raises CallFailed."""
        return self._page(1, prefix=key, more={"Prefix": key})

    def under(self, prefix: str, start: str | None, limit: int) -> Page:
        """The keys that begin with `prefix`, after `start`. Raises CallFailed."""
        more = {"Prefix": prefix} if start is None else {"Prefix": prefix, "StartAfter": start}
        return self._page(limit, after=start, prefix=prefix, more=more)

    def _page(self, limit: int, *, more: dict[str, str], after: str | None = None, prefix: str | None = None) -> Page:
        reply = self._client.call(self.operation, self._bucket, EncodingType="url", MaxKeys=limit, **more)
        encoded = reply.parsed.get("EncodingType") == "url"
        raw = [item["Key"] for item in reply.parsed.get("Contents", ())]
        keys = _decoded(raw, encoded)
        return Page(
            facts=reply.facts,
            found={key: [] for key in keys},
            runs=(keys,),
            truncated=_is_truncated(reply),
            encoded=encoded,
            after=after,
            prefix=prefix,
            ambiguous_plus=encoded and _has_ambiguous_plus(raw),
        )


class VersionPages:
    """Looks at a bucket that has or had versions: ListObjectVersions, markers included."""

    operation = "ListObjectVersions"

    def __init__(self, client: S3Client, bucket: str, *, limit: int) -> None:
        self._client = client
        self._bucket = bucket
        self._limit = limit

    def exactly(self, key: str) -> Page:
        """The versions of this key, and of longer ones that begin with it if there is room. Raises CallFailed."""
        return self._page(self._limit, prefix=key, more={"Prefix": key})

    def under(self, prefix: str, markers: Markers | None, limit: int) -> Page:
        """The versions of the keys that begin with `prefix`, after the markers that the page before gave.

        No other markers are to be trusted: servers exist that skip a version when the key marker is not a key.
        """
        more = {"Prefix": prefix}
        if markers is not None:
            more["KeyMarker"] = markers[0]
            if markers[1] is not None:
                more["VersionIdMarker"] = markers[1]
        return self._page(limit, after=markers[0] if markers else None, prefix=prefix, more=more)

    def _page(self, limit: int, *, more: dict[str, str], after: str | None = None, prefix: str | None = None) -> Page:
        reply = self._client.call(self.operation, self._bucket, EncodingType="url", MaxKeys=limit, **more)
        parsed = reply.parsed
        encoded = parsed.get("EncodingType") == "url"
        found: dict[str, list[Version]] = {}
        runs = []
        ambiguous = False
        for name, is_marker in (("Versions", False), ("DeleteMarkers", True)):
            items = parsed.get(name, ())
            raw = [item["Key"] for item in items]
            ambiguous = ambiguous or (encoded and _has_ambiguous_plus(raw))
            keys = _decoded(raw, encoded)
            for key, item in zip(keys, items, strict=True):
                found.setdefault(key, []).append(Version(item["VersionId"], is_marker))
            runs.append(keys)
        next_key = parsed.get("NextKeyMarker")
        return Page(
            facts=reply.facts,
            found=found,
            runs=tuple(runs),
            truncated=_is_truncated(reply),
            encoded=encoded,
            after=after,
            prefix=prefix,
            ambiguous_plus=ambiguous,
            next_markers=(
                (_decoded([next_key], encoded)[0], parsed.get("NextVersionIdMarker") or None) if next_key else None
            ),
        )


class UploadPages:
    """Looks at the open multipart uploads of a bucket: ListMultipartUploads. What Page calls a version is an upload."""

    operation = "ListMultipartUploads"

    def __init__(self, client: S3Client, bucket: str) -> None:
        self._client = client
        self._bucket = bucket

    def exactly(self, key: str) -> Page:
        """The uploads of this key, and of longer ones that begin with it if there is room. Raises CallFailed."""
        return self._page(MAX_KEYS, prefix=key, more={"Prefix": key})

    def under(self, prefix: str, markers: Markers | None, limit: int) -> Page:
        """The uploads of keys that begin with `prefix`, after the markers that the page before gave. Raises
        CallFailed."""
        more = {"Prefix": prefix} if prefix else {}
        if markers is not None:
            more["KeyMarker"] = markers[0]
            if markers[1] is not None:
                more["UploadIdMarker"] = markers[1]
        return self._page(limit, after=markers[0] if markers else None, prefix=prefix, more=more)

    def _page(self, limit: int, *, more: dict[str, str], after: str | None = None, prefix: str | None = None) -> Page:
        reply = self._client.call(self.operation, self._bucket, EncodingType="url", MaxUploads=limit, **more)
        parsed = reply.parsed
        encoded = parsed.get("EncodingType") == "url"
        items = parsed.get("Uploads", ())
        raw = [item["Key"] for item in items]
        keys = _decoded(raw, encoded)
        found: dict[str, list[Version]] = {}
        for key, item in zip(keys, items, strict=True):
            found.setdefault(key, []).append(Version(item["UploadId"], is_marker=False))
        next_key = parsed.get("NextKeyMarker")
        server = str(parsed["ResponseMetadata"]["HTTPHeaders"].get("server", ""))
        return Page(
            facts=reply.facts,
            found=found,
            runs=(keys,),
            truncated=_is_truncated(reply),
            encoded=encoded,
            after=after,
            prefix=prefix,
            ambiguous_plus=encoded and _has_ambiguous_plus(raw),
            next_markers=(
                (_decoded([next_key], encoded)[0], parsed.get("NextUploadIdMarker") or None) if next_key else None
            ),
            by_key=server.startswith("MinIO"),
        )


def _decoded(keys: Iterable[str], encoded: bool) -> list[str]:
    return [unquote_plus(key) for key in keys] if encoded else list(keys)


def _has_ambiguous_plus(raw: Iterable[str]) -> bool:
    """A space, unless the server leaves a plus sign as it is; one that encodes plus signs shows it by `%2B`."""
    text = "\n".join(raw)
    return "+" in text and "%2B" not in text and "%2b" not in text


def _is_truncated(reply: Reply) -> bool:
    # an answer that does not say where it ends has not shown that it ended
    return bool(reply.parsed.get("IsTruncated", True))
