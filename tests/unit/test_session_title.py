"""What a conversation without a title is called."""

import json
from collections.abc import Iterator

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from expunge.models.session_title import LONGEST, derive_title, normalised


def message(*texts: str, role: str = "user", **more: object) -> str:
    return json.dumps({"role": role, "content": [{"type": "text", "text": text} for text in texts], **more})


@pytest.mark.parametrize(
    ("payloads", "title"),
    [
        ([message("  How do\n\tI  delete\u00a0this? ")], "How do I delete this?"),
        ([message(" \n ", "", "second")], "second"),
        ([message("said by the model", role="assistant"), message("mine")], "mine"),
        ([message("to a sub-agent", parent="e1"), message("to the agent", parent=None)], "to the agent"),
        ([message(" "), message("the second message")], None),
        ([json.dumps({"role": "user", "content": "plain"})], "plain"),
        ([json.dumps({"role": "user", "content": ["a", "b"]})], "a"),
        ([json.dumps({"role": "user", "text": "short form"})], "short form"),
        (
            [
                json.dumps(
                    {"role": "user", "content": [{"type": "image", "text": "alt"}, {"type": "text", "text": "t"}]}
                )
            ],
            "t",
        ),
        ([json.dumps({"role": "user", "content": [{"type": "text", "text": 7}, None, 3]})], None),
        ([json.dumps({"role": "user"})], None),
        (["no JSON", "[]", "3", "null", "[" * 100_000, message("at last")], "at last"),
        ([], None),
        ([message("é" * 70)], "é" * 64),
        ([message("😀" * 70)], "😀" * 64),
        ([message("a\x00b\x1bc")], "abc"),
        ([message("\x00 a \x7f b")], "a b"),
        ([r'{"role": "user", "content": "half \ud83d pair"}'], "half \N{REPLACEMENT CHARACTER} pair"),
    ],
)
def test_the_title(payloads: list[str], title: str | None) -> None:
    assert derive_title(payloads) == title


def test_nothing_is_read_behind_the_first_message_of_a_user() -> None:
    def payloads() -> Iterator[str]:
        yield message("first")
        raise AssertionError

    assert derive_title(payloads()) == "first"


@given(st.text(st.characters(codec=None)))
@example("\ud800")
@example("\x00 0")
@example("a" * 63 + " \U0001f600")
def test_a_title_can_be_stored_and_shown(text: str) -> None:
    title = normalised(text)
    assert len(title) <= LONGEST
    assert title == normalised(title) or title.endswith(" ")
    assert not set(title) & {"\x00", "\n", "\t"}
    title.encode()
    if text.isascii() and text.isprintable():
        assert " ".join(text.split()).startswith(title)
