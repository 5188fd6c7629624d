"""Keys of S3 objects: what XML can carry, what a URL may not carry, and where a listing may begin to include one.

Sources: Amazon S3 User Guide, "Creating object key names"; Extensible Markup Language 1.0, section 2.2 (Char) and 2.11
(End-of-Line Handling); RFC 3986, section 5.2.4 (Remove Dot Segments).
"""

import re

_XML_UNSAFE = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_NEEDS_ENCODING = re.compile("[^\t\n\x20-\ud7ff\ue000-\ufffc\U00010000-\U0010ffff]")
_DOT_SEGMENT = re.compile(r"(?:^|/)\.{1,2}(?:/|$)")


def is_xml_safe(key: str) -> bool:
    """Whether XML 1.0 can carry this key at all. One that it cannot makes a whole DeleteObjects call fail."""
    return _XML_UNSAFE.search(key) is None


def goes_singly(key: str) -> bool:
    """Whether the key must not stand in the body of a DeleteObjects call.

    `\\r` is XML-safe when it is escaped, but servers that read it as `\\n` exist, and would delete another object.
    """
    return "\r" in key or not is_xml_safe(key)


def needs_encoding(key: str) -> bool:
    """Whether a listing can be believed about this key only if it came URL-encoded: plain XML loses a `\\r`, and
    servers write U+FFFD for what XML cannot carry."""
    return _NEEDS_ENCODING.search(key) is not None


def is_url_safe(key: str) -> bool:
    """Whether the key may stand in a URL's path: clients and proxies take `.` and `..` segments away, and what is then
    deleted is another object."""
    return _DOT_SEGMENT.search(key) is None


def is_path_odd(key: str) -> bool:
    """Whether a server that keeps objects in directories may keep this key under another name (`a//b` as `a/b`)."""
    return key.startswith("/") or "//" in key or not is_url_safe(key)


def just_before(key: str) -> str | None:
    """A key that sorts before this one with next to nothing in between, so that a listing that starts after it begins
    with this key if it exists. None for the start of the bucket.

    It is a guess about density and nothing else: whether the listing reached the key is seen in what it returns.
    """
    head, last = key[:-1], ord(key[-1])
    before = last - 1
    if before == ord("/"):
        before -= 1  # "d/" + "/" would name a directory to servers that keep objects in directories
    if last <= ord("!") or not is_xml_safe(chr(before)):
        return head or None
    return head + chr(before) + "~"
