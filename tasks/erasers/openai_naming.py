"""Whether an error of OpenAI's API speaks of one object's absence.

A 404 is given for an unknown route, a wrong deployment or another project as well, so a not-found counts only if its
message names exactly the id that was asked for: "No such File object: file-abc", "Conversation with id 'conv_1' not
found."
"""

import re
from collections.abc import Mapping
from typing import Any

_ROUTE = re.compile(r"\b(?:URL|route|endpoint)\b|(?-i:\b(?:GET|POST|PUT|PATCH|DELETE) +/)", re.IGNORECASE)
"""Speaks of the request's address: "Invalid URL (DELETE /v1/foo)", "Cannot DELETE /v1/files/file-abc"."""

_NO_PROOF = re.compile(r"\b(?:access|permission|permissions|allowed|authorized)\b", re.IGNORECASE)
""""… does not exist or you do not have access to it" says that it cannot tell."""


def names(text: str, id: str) -> bool:
    """Whether `id` stands in `text` as a word of its own: not inside a longer id, a file name or a path.

    >>> names("No such File object: file-abc", "file-abc")
    True
    >>> names("No such File object: file-abc2", "file-abc")
    False
    """
    word = rf"(?<![\w/.%-]){re.escape(id)}(?![\w/%-]|[.:@][\w-])"
    if id.isalpha():
        # "found" may be an id, but in "not found" it is only a word
        word = rf"(?<=['\"`]){re.escape(id)}(?=['\"`])"
    return re.search(word, text) is not None


def says_absent(error: Mapping[str, Any], id: str) -> bool:
    """Whether the `error` object of a 404 is about the absence of this very object."""
    message = str(error.get("message"))
    # ids are random text: "file-get-1" must not be taken for a word about routes
    wording = message.replace(id, " ")
    if _ROUTE.search(wording) or _NO_PROOF.search(wording):
        return False
    return names(message, id) or error.get("param") == id
