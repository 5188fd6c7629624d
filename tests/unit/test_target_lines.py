"""Targets as JSON lines: what is taken, and how each wrong line is told."""

import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from expunge.models.targets import Target
from expunge.worker.target_lines import MAX_LINE_BYTES, SHOWN, Parsed, parse


def _parse(*lines: bytes, allowed=lambda target: None) -> Parsed:
    return parse(io.BytesIO(b"\n".join(lines)), allowed)


def _line(**fields: object) -> bytes:
    return json.dumps({"account": "a", "kind": "object", "locator": "b/k", **fields}).encode()


def test_lines_become_targets_in_their_order():
    parsed = _parse(_line(locator="b/1"), _line(locator="b/ünï"))
    assert parsed.targets == [Target("a", "object", "b/1"), Target("a", "object", "b/ünï")]
    assert not parsed.wrong_count


def test_byte_order_mark_blank_lines_and_carriage_returns_are_passed_over_but_counted():
    parsed = _parse(b"\xef\xbb\xbf" + _line() + b"\r", b"", b"  \t\r", _line(locator="b/2"), b"nope", b"")
    assert [target.locator for target in parsed.targets] == []
    assert [number for number, _ in parsed.wrong] == [5]
    assert len(_parse(b"\xef\xbb\xbf" + _line() + b"\r", b"", _line(locator="b/2"), b"").targets) == 2


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"nope", "is not JSON: Expecting value (column 1)"),
        (b'"\xff"', "is not UTF-8 (byte 2)"),
        (b"\xff\xfe{\x00}\x00", "is not UTF-8"),
        (b"[1]", "is not a JSON object"),
        (b"null", "is not a JSON object"),
        (b"{}", "account: is missing"),
        (b'{"account": "a", "kind": "object"}', "locator: is missing"),
        (_line(kind=7), "kind: must be text"),
        (_line(locator=None), "locator: must be text"),
        (_line(parent="x"), '"parent": no such field'),
        (b'{"account": "a", "account": "a", "kind": "object", "locator": "b/k"}', '"account": stands there twice'),
        (_line() + b" {}", "is not JSON: Extra data"),
        (b"[" * 60_000, "is not JSON that can be read"),
        (b'{"account": ' + b"1" * 10_000 + b"}", "is not JSON that can be read"),
        (b"x" * (MAX_LINE_BYTES + 1), f"is longer than {MAX_LINE_BYTES} bytes"),
        (b"x" * (3 * MAX_LINE_BYTES), f"is longer than {MAX_LINE_BYTES} bytes"),
    ],
)
def test_a_wrong_line_is_told_with_its_number_and_reason(line, reason):
    parsed = _parse(_line(), line, _line())
    assert [number for number, _ in parsed.wrong] == [2]
    assert parsed.wrong[0][1].startswith(reason)
    assert not parsed.targets


def test_the_list_of_wrong_lines_is_short_and_counted():
    parsed = _parse(*[b"nope"] * 1000)
    assert (len(parsed.wrong), parsed.wrong_count) == (SHOWN, 1000)


def test_what_the_account_refuses_is_a_wrong_line():
    parsed = _parse(_line(), _line(locator="c/k"), allowed=lambda t: "locator: not so" if t.locator == "c/k" else None)
    assert parsed.wrong == [(2, "locator: not so")]


@given(st.lists(st.binary(max_size=200).filter(lambda line: b"\n" not in line), max_size=8))
def test_whatever_the_bytes_every_line_is_a_target_or_wrong(lines):
    parsed = _parse(*lines)
    assert len(parsed.targets) + parsed.wrong_count <= len(lines)
    assert not (parsed.targets and parsed.wrong_count)


@given(st.text(min_size=1, max_size=60))
def test_locators_come_through_exactly(locator):
    try:
        locator.encode()
    except UnicodeEncodeError:
        return
    for line in (_line(locator=locator), json.dumps({"account": "a", "kind": "k", "locator": locator}).encode()):
        assert _parse(line).targets[0].locator == locator
