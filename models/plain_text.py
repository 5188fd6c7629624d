"""What the text that people give may hold: names, ids, reasons.

It is shown to other people, in terminals, tables and logs, and kept for ever. So nothing is taken that is not text
(half a surrogate pair), that a terminal obeys (control characters), or that makes other text read as what it is not
(bidirectional embeddings, overrides and isolates; Unicode Standard Annex #9, section 2). Locators are not people's
text: they are taken exactly as the store has them.
"""

import re
from collections.abc import Mapping

_HALF_PAIRS = "\\ud800-\\udfff"
_REORDERING = "\\u202a-\\u202e\\u2066-\\u2069"
_REFUSED = re.compile(f"[\\x00-\\x1f\\x7f-\\x9f{_REORDERING}{_HALF_PAIRS}]")


MAX_TEXT = 1000
"""Characters of a name or reference."""


def require_text(fields: Mapping[str, str | None], refusal: type[Exception], longest: int = MAX_TEXT) -> None:
    """Raises `refusal` with the name of the first field that is no text of 1 to `longest` characters, or not plain.
    None is left out."""
    for name, text in fields.items():
        if text is not None and (not isinstance(text, str) or not 0 < len(text) <= longest):
            raise refusal(f"{name}: text of 1 to {longest} characters")
        require_plain({name: text}, refusal)


def require_plain(fields: Mapping[str, str | None], refusal: type[Exception]) -> None:
    """Raises `refusal` with the name of the first field that holds what no text may hold. Never repeats the text."""
    for name, text in fields.items():
        found = None if text is None else _REFUSED.search(text)
        if found is not None:
            raise refusal(f"{name}: holds U+{ord(found[0]):04X}, {_what(found[0])}")


def _what(character: str) -> str:
    if re.match(f"[{_HALF_PAIRS}]", character):
        return "half a surrogate pair, which is not Unicode text"
    if re.match(f"[{_REORDERING}]", character):
        return "which makes the text around it read in another order"
    return "a control character"
