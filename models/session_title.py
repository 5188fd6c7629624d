"""A conversation's title: the first non-empty text of the first top-level user message, white space normalised, cut to
64 characters.

A message is an event of a type in MESSAGE_TYPES whose payload is `{"role": "user", "content": …}`; `content` is a text,
or a list of blocks `{"type": "text", "text": …}`. One with a `parent` (a message to a sub-agent) is not top-level. What
has another shape is no message.
"""

import json
import re
from collections.abc import Iterable
from typing import Any

LONGEST = 64
"""Characters of a derived title, as Unicode counts them."""

_CONTROL = re.compile("[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f]")
"""Those that are not white space."""
_HALF_PAIR = re.compile("[\ud800-\udfff]")


def derive_title(payloads: Iterable[str]) -> str | None:
    """The title that these payloads give, in the order of their events; None if there is no such message or it has no
    text. Reads no further than the first message of a user."""
    for payload in payloads:
        message = _message(payload)
        if message is not None:
            return next((title for text in _texts(message) if (title := normalised(text))), None)
    return None


def normalised(text: str) -> str:
    """White space as single blanks, without control characters and half surrogate pairs, cut."""
    text = _HALF_PAIR.sub("\N{REPLACEMENT CHARACTER}", text)
    return " ".join(_CONTROL.sub("", text).split())[:LONGEST]


def _message(payload: str) -> dict[str, Any] | None:
    try:
        said = json.loads(payload)
    except (ValueError, RecursionError):  # plain SQL may have put anything there
        return None
    if not isinstance(said, dict) or said.get("role") != "user" or said.get("parent") is not None:
        return None
    return said


def _texts(message: dict[str, Any]) -> Iterable[str]:
    content = message.get("content", message.get("text"))
    for block in content if isinstance(content, list) else [content]:
        text = block.get("text") if isinstance(block, dict) and block.get("type", "text") == "text" else block
        if isinstance(text, str):
            yield text
