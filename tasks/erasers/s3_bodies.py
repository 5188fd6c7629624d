"""The bodies that carry a thousand keys, written and read without botocore's general serializer and parser.

Those walk every element by the service's model, which takes longer than a local server takes to answer, and more than
half of a drain's own time. What is written and read here is the same, element by element, and a test compares both over
documents of every shape. What cannot be read here is left to botocore, and fails there.

Source: Amazon S3 API Reference, DeleteObjects, ListObjectsV2 and ListObjectVersions ("Request Body", "Response
Elements").
"""

from collections.abc import Mapping, Sequence
from typing import Any
from xml.etree import ElementTree
from xml.sax.saxutils import escape

_NAMESPACE = "http://s3.amazonaws.com/doc/2006-03-01/"
_LINE_ENDS = {"\r": "&#xD;", "\n": "&#xA;"}
"""Escaped, since an XML parser makes `\\n` of both (XML 1.0, section 2.11)."""

_STANDING_IN = [{"Key": "-"}]
_OBJECTS = "expunge_objects"


def delete_body(objects: Sequence[Mapping[str, str]]) -> bytes:
    """The body of a DeleteObjects call that wants every key confirmed. Each object has a `Key` and perhaps a
    `VersionId`, which XML must be able to carry."""
    parts = [f'<Delete xmlns="{_NAMESPACE}">']
    for each in objects:
        version = each.get("VersionId")
        named = "" if version is None else f"<VersionId>{escape(version, _LINE_ENDS)}</VersionId>"
        parts.append(f"<Object><Key>{escape(each['Key'], _LINE_ENDS)}</Key>{named}</Object>")
    parts.append("<Quiet>false</Quiet></Delete>")
    return "".join(parts).encode()


def keep_objects(params: dict[str, Any], context: dict[str, Any], **_: Any) -> None:
    """For botocore's `provide-client-params`: put the objects aside, so that it validates and writes one only."""
    context[_OBJECTS] = params["Delete"]["Objects"]
    params["Delete"] = {"Objects": _STANDING_IN, "Quiet": False}


def write_objects(params: dict[str, Any], context: dict[str, Any], **_: Any) -> None:
    """For botocore's `before-call`, which comes before checksums and signature: the body with all objects."""
    params["body"] = delete_body(context.pop(_OBJECTS))


def read_body(operation: str, body: bytes) -> dict[str, Any] | None:
    """What botocore would make of this answer, as far as it is used here; None if botocore must read it: a body that is
    not XML, or in which names are not what they seem (several namespaces, an element where there is room for one
    twice)."""
    lists = _LISTS.get(operation)
    if lists is None or body.count(b"xmlns") > 1 or b"xmlns:" in body:
        return None
    try:
        root = ElementTree.fromstring(body.decode())
    except (ElementTree.ParseError, UnicodeDecodeError, ValueError):
        return None
    space = root.tag[: root.tag.index("}") + 1] if root.tag.startswith("{") else ""
    try:
        return _read(root, len(space), lists)
    except _TwiceError:
        return None


_LISTS: dict[str, dict[str, str]] = {
    "ListObjectsV2": {"Contents": "Contents"},
    "ListObjectVersions": {"Version": "Versions", "DeleteMarker": "DeleteMarkers"},
    "DeleteObjects": {"Deleted": "Deleted", "Error": "Errors"},
}
"""Elements that may be repeated, with botocore's names for their lists."""
_LEFT_OUT = frozenset({"CommonPrefixes"})
_BOOLEANS = frozenset({"IsTruncated", "DeleteMarker"})


class _TwiceError(ValueError):
    """An element stands twice where there is room for one."""


def _read(root: ElementTree.Element, space: int, lists: Mapping[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for child in root:
        name = child.tag[space:]
        if name in lists:
            item = {field.tag[space:]: field.text or "" for field in child}
            if len(item) != len(child):
                raise _TwiceError
            if "DeleteMarker" in item:
                found.setdefault(lists[name], []).append(item | {"DeleteMarker": item["DeleteMarker"] == "true"})
            else:
                found.setdefault(lists[name], []).append(item)
        elif name in found:
            raise _TwiceError
        elif name not in _LEFT_OUT:
            text = child.text or ""
            found[name] = text == "true" if name in _BOOLEANS else text
    return found
