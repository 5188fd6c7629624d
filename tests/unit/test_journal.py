"""An export's lines: what is written is read, and nothing that is not whole is believed."""

import hashlib
import io
import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from expunge.models.errors import InvalidJournal
from expunge.models.journal import TABLES, Writer, read

AT = datetime(2026, 10, 18, 9, 30, 0, 123456, tzinfo=UTC)
_text = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1)
_moments = st.datetimes(datetime(1900, 1, 2), datetime(8999, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001  as it wants them
RECEIPT = {
    "id": "00000000-0000-0000-0000-000000000001",
    "case_id": "c",
    "subject": "s",
    "account": "a",
    "kind": "object",
    "locator": "b/k",
    "attempt": 1,
    "action": "delete",
    "status": "deleted",
    "at": AT,
}
DECISION = {"id": 1, "at": AT, "decision": "retry", "actor": "dana"}
TOMBSTONE = {"graph": "g", "conversation": "c-1", "principal": "ann", "purged_at": AT}


def written(*rows: tuple[str, dict[str, object]], **begin: object) -> bytes:
    buffer = io.BytesIO()
    writer = Writer(buffer.write, **begin)
    for kind, row in rows:
        writer.add(kind, row)
    writer.end()
    return buffer.getvalue()


def taken(data: bytes) -> list[tuple[str, dict[str, object]]]:
    return [(line.kind, line.row) for line in read(io.BytesIO(data), "f")]


WHOLE = written(("tombstone", TOMBSTONE), ("decision", DECISION), ("receipt", RECEIPT), content="export")


def test_what_is_written_is_read():
    assert taken(WHOLE) == [("tombstone", TOMBSTONE), ("decision", DECISION), ("receipt", RECEIPT)]


@given(locator=_text, at=_moments, detail=st.none() | st.dictionaries(_text, st.integers() | _text | st.none()))
def test_any_text_and_moment_survives(locator, at, detail):
    row = {**RECEIPT, "locator": locator, "at": at, "detail": detail}
    data = written(("receipt", row))
    assert data.isascii()
    assert len(data.splitlines()) == 3
    assert taken(data) == [("receipt", row)]


@given(st.integers(0, len(WHOLE) - 1))
def test_no_beginning_of_a_file_is_taken_for_it(length):
    with pytest.raises(InvalidJournal, match=r"^f(, line \d+)?: .*; nothing was written$"):
        taken(WHOLE[:length])


@given(place=st.integers(0, len(WHOLE) - 1), byte=st.integers(1, 255))
def test_no_changed_byte_is_believed(place, byte):
    data = bytearray(WHOLE)
    data[place] ^= byte
    with pytest.raises(InvalidJournal):
        taken(bytes(data))


def test_a_line_that_is_gone_is_missed():
    lines = WHOLE.splitlines(keepends=True)
    for place in range(len(lines)):
        with pytest.raises(InvalidJournal):
            taken(b"".join(lines[:place] + lines[place + 1 :]))


def test_two_files_in_one_are_refused():
    with pytest.raises(InvalidJournal, match="line 5: the file ends here"):
        taken(WHOLE + WHOLE)


@pytest.mark.parametrize(
    ("kind", "changed", "said"),
    [
        ("receipt", {"id": "x"}, "id: is no UUID"),
        ("receipt", {"status": "gone"}, "status: 'gone' is not known"),
        ("receipt", {"attempt": "1"}, "attempt: is no int"),
        ("receipt", {"attempt": True}, "attempt: is no number that fits"),
        ("receipt", {"attempt": 2**64}, "attempt: is no number that fits"),
        ("receipt", {"at": "yesterday"}, "at: is not a time"),
        ("receipt", {"at": "2026-10-18T09:30:00"}, "at: is a time without a zone"),
        ("receipt", {"at": None}, "at: is missing"),
        ("receipt", {"locator": "a\0b"}, "locator: holds a NUL"),
        ("receipt", {"locator": "\ud800"}, "locator: holds half a surrogate"),
        ("receipt", {"detail": "x"}, "detail: is no dict"),
        ("receipt", {"colour": "red"}, "no such column"),
        ("receipt", {"status": "failed"}, "error: is missing"),
        ("receipt", {"status": "waived"}, "belong together"),
        ("receipt", {"status": "waived", "action": "decision"}, "actor, why: are missing"),
        ("receipt", {"action": "verify"}, "a second look"),
        ("decision", {"decision": "maybe"}, "decision: 'maybe' is not known"),
        ("tombstone", {"principal": None}, "principal: is missing"),
        ("nonsense", {}, "type: 'nonsense' is not known"),
    ],
)
def test_a_row_that_its_table_would_not_take_is_told_with_its_line(kind, changed, said):
    base = {"receipt": RECEIPT, "decision": DECISION, "tombstone": TOMBSTONE}.get(kind, {})
    data = written(("tombstone", TOMBSTONE), (kind, {**base, **changed}))
    with pytest.raises(InvalidJournal) as caught:
        taken(data)
    assert str(caught.value).startswith("f, line 3: ")
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"", "is empty"),
        (b"{}\n", "is not the first line"),
        (b"[1]\n", "is not a JSON object"),
        (b"\xff\n", "is not JSON in ASCII"),
        (b'{"type": "begin", "format": 2}\n', "is of format 2, and this version reads 1"),
        (b"[" * 100_000 + b"\n", "is not JSON in ASCII"),
        (b'{"account": "a", "kind": "object", "locator": "b/k"}\n', "is not the first line of an export"),
    ],
)
def test_what_is_none_of_ours_is_refused(text, said):
    with pytest.raises(InvalidJournal, match=said):
        taken(text)


def test_no_error_repeats_a_locator():
    data = written(("receipt", {**RECEIPT, "locator": "bucket/secret\0"}))
    with pytest.raises(InvalidJournal) as caught:
        taken(data)
    assert "secret" not in str(caught.value)


def test_the_last_line_says_how_many_and_the_hash():
    lines = WHOLE.splitlines(keepends=True)
    assert json.loads(lines[-1]) == {
        "type": "end",
        "count": 3,
        "sha256": hashlib.sha256(b"".join(lines[:-1])).hexdigest(),
    }


def test_every_table_that_a_line_may_be_of_has_a_key():
    assert all(table.primary_key.columns for table in TABLES.values())
