"""Keys that XML or a URL cannot carry, and where a listing begins."""

import xml.etree.ElementTree as ElementTree
from xml.sax.saxutils import escape

import pytest
from hypothesis import given
from hypothesis import strategies as st

from expunge.tasks.erasers.s3_keys import goes_singly, is_path_odd, is_url_safe, is_xml_safe, just_before

KEYS = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), min_size=1, max_size=8)


def _expat_takes(character: str) -> bool:
    try:
        root = ElementTree.fromstring(f"<k>{escape(character)}</k>".encode())
    except ElementTree.ParseError:
        return False
    return root.text is not None


@pytest.mark.parametrize("code", [*range(1, 0x120), 0xD7FF, 0xE000, 0xFFFD, 0xFFFE, 0xFFFF, 0x10000, 0x10FFFF])
def test_xml_safety_is_what_a_parser_takes(code: int) -> None:
    assert is_xml_safe(chr(code)) is _expat_takes(chr(code))


@pytest.mark.parametrize("key", ["a\rb", "a\x01b", "\ufffe", "\x1f"])
def test_what_goes_singly(key: str) -> None:
    assert goes_singly(key)


@pytest.mark.parametrize("key", ["a\nb", "a\tb", "a<b&c", "ü", " ", "a//b", "a/../b"])
def test_what_goes_in_a_batch(key: str) -> None:
    assert not goes_singly(key)


@pytest.mark.parametrize("key", [".", "..", "a/./b", "../a", "a/..", "./a"])
def test_dot_segments_are_not_for_urls(key: str) -> None:
    assert not is_url_safe(key)
    assert is_path_odd(key)


@pytest.mark.parametrize("key", ["a.b", "..a", "a..", "a/.b/c", "...", "a/.../b"])
def test_other_dots_are(key: str) -> None:
    assert is_url_safe(key)
    assert not is_path_odd(key)


@given(KEYS)
def test_a_listing_begins_before_its_key(key: str) -> None:
    start = just_before(key)
    assert start is None or start.encode() < key.encode()
    assert start != ""


@pytest.mark.parametrize(("key", "between"), [("doc-2", "doc-1999"), ("u/1/0", "u/1/"), ("a/b", "a/a")])
def test_next_to_nothing_is_in_between(key: str, between: str) -> None:
    start = just_before(key)
    assert start is not None
    assert start > between
