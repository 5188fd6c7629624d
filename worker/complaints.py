"""What is said about a wrong setting: Pydantic's errors in words for people."""

import difflib
import re
from collections.abc import Iterable

from pydantic_core import ErrorDetails

_LIST = 'must be a list, as in ["one", "two"]'
_MUST = {
    "tuple_type": _LIST,
    "list_type": _LIST,
    "set_type": _LIST,
    "frozen_set_type": _LIST,
    "dict_type": "must be a table",
    "dataclass_type": "must be a table",
    "too_long": "must have {max_length} items at the most",
    "string_type": "must be text in quotes",
    "string_pattern_mismatch": "must match {pattern}",
    "string_too_long": "must have {max_length} characters at the most",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_parsing_size": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
}
"""By the type of Pydantic's error, with what its context says: where its own words are not for people."""


def must(detail: ErrorDetails) -> str:
    """What the value must be. The value itself is never repeated."""
    context = detail.get("ctx", {})
    if detail["type"] == "value_error":
        return str(context["error"])
    if detail["type"] in ("too_short", "string_too_short"):
        least, what = context["min_length"], "items" if detail["type"] == "too_short" else "characters"
        return "must not be empty" if least == 1 else f"must have {least} {what} at least"
    known = _MUST.get(detail["type"])
    if known is not None:
        return known.format(**context)
    return re.sub(r"^(Input|String|List|Value) should ", "must ", detail["msg"])


def suggestion(name: str, known: Iterable[str]) -> str:
    """The name that was meant, or all that there are."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1)
    return f"; did you mean {close[0]}?" if close else f"; known are {', '.join(names)}"
