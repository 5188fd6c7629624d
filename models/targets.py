"""Targets: what may be asked to be erased, and the shape of every kind's locator.

The built-in kinds are those of the built-in erasers. An eraser that adds kinds registers them with `register_kind`;
one that is installed through the entry point group `expunge.erasers` is loaded when a kind is not known yet.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import entry_points

from expunge.models.errors import InvalidTarget
from expunge.models.tables import MAX_ACCOUNT, MAX_LOCATOR_BYTES

ERASER_GROUP = "expunge.erasers"

_ACCOUNT = re.compile(r"[a-z][a-z0-9_]*")
_KIND = re.compile(r"[a-z][a-z0-9_]{0,63}")
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}")
_MAX_KEY_BYTES = 1024


@dataclass(frozen=True, slots=True)
class Target:
    """One thing to erase: an account of the settings, a kind, and the locator exactly as the store knows it."""

    account: str
    kind: str
    locator: str


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of target. `complain` says what is wrong with a locator, or gives None.

    A part is made by Expunge itself inside a composite target; it is a valid target of its own all the same.
    """

    name: str
    complain: Callable[[str], str | None]
    shape: str
    """For people: what a locator looks like."""
    is_part: bool = False


def split_object(locator: str) -> tuple[str, str]:
    """Bucket and key: a bucket's name has no slash, so the first one splits. The key is never normalised."""
    bucket, _, key = locator.partition("/")
    return bucket, key


def _object(locator: str) -> str | None:
    bucket, slash, key = locator.partition("/")
    if not slash or not key:
        return "it needs a bucket and a key: bucket/key"
    if not _BUCKET.fullmatch(bucket):
        return "its first part is not a bucket's name"
    if len(key.encode()) > _MAX_KEY_BYTES:
        return f"its key is longer than {_MAX_KEY_BYTES} bytes"
    return None


def by_pattern(pattern: str, shape: str) -> Callable[[str], str | None]:
    """A complaint for locators that a regular expression must match whole."""
    compiled = re.compile(pattern)

    def complain(locator: str) -> str | None:
        return None if compiled.fullmatch(locator) else f"it must look like {shape}"

    return complain


_ID = r"[A-Za-z0-9_-]{1,256}"

_KINDS: dict[str, Kind] = {}


def register_kind(kind: Kind) -> None:
    """Make a kind known to `open_case`. Raises ValueError if its name is taken by a kind of another shape."""
    if not _KIND.fullmatch(kind.name):
        raise ValueError(f"kind {kind.name!r}: lower-case letters, digits and underscores, at most 64")
    known = _KINDS.get(kind.name)
    if known is not None and known.shape != kind.shape:
        raise ValueError(f"kind {kind.name!r} is registered already, as {known.shape}")
    _KINDS[kind.name] = kind


for _kind in (
    Kind("object", _object, "bucket/key"),
    Kind("prefix", _object, "bucket/key-prefix/"),
    Kind("file", by_pattern(f"(?:file|assistant)-{_ID}", "file-…"), "file-…"),
    Kind("vector_store", by_pattern(f"vs_{_ID}", "vs_…"), "vs_…"),
    Kind(
        "vector_store_file",
        by_pattern(f"vs_{_ID}/(?:file|assistant)-{_ID}", "vs_…/file-…"),
        "vs_…/file-…",
        is_part=True,
    ),
    Kind("conversation", by_pattern(f"conv_{_ID}", "conv_…"), "conv_…"),
    Kind("response", by_pattern(f"resp_{_ID}", "resp_…"), "resp_…"),
    Kind(
        "conversation_item",
        by_pattern(f"conv_{_ID}/{_ID}", "conv_…/msg_…"),
        "conv_…/msg_…",
        is_part=True,
    ),
    Kind("container", by_pattern(f"cntr_{_ID}", "cntr_…"), "cntr_…"),
    Kind(
        "container_file",
        by_pattern(f"cntr_{_ID}/cfile_{_ID}", "cntr_…/cfile_…"),
        "cntr_…/cfile_…",
        is_part=True,
    ),
    Kind("thread", by_pattern(f"thread_{_ID}", "thread_…"), "thread_…"),
    Kind("assistant", by_pattern(f"asst_{_ID}", "asst_…"), "asst_…"),
    Kind("upload", by_pattern(f"upload_{_ID}", "upload_…"), "upload_…"),
    Kind("batch", by_pattern(f"batch_{_ID}", "batch_…"), "batch_…"),
    Kind("chat_completion", by_pattern(f"chatcmpl-{_ID}", "chatcmpl-…"), "chatcmpl-…"),
):
    register_kind(_kind)


def find_kind(name: str) -> Kind | None:
    """The kind of this name, loading installed erasers if it is not known yet; None if nobody knows it."""
    if name not in _KINDS:
        for point in entry_points(group=ERASER_GROUP):
            for kind in getattr(point.load(), "kinds", ()):
                register_kind(kind)
    return _KINDS.get(name)


def kind_names() -> list[str]:
    """The names of all known kinds, in order."""
    return sorted(_KINDS)


def is_account(name: str) -> bool:
    """Whether this can be an account's name."""
    return len(name) <= MAX_ACCOUNT and _ACCOUNT.fullmatch(name) is not None


def complaint(account: str, kind: str, locator: str) -> str | None:
    """What is wrong with a target, for people; None if its shape is right. Never repeats the locator."""
    if not isinstance(account, str) or not is_account(account):
        return f"account: a lower-case letter, then lower-case letters, digits or underscores; at most {MAX_ACCOUNT}"
    if not isinstance(kind, str):
        return "kind: must be text"
    known = find_kind(kind)
    if known is None:
        return f"kind: {kind[:64]!r} is not known; known are {', '.join(kind_names())}"
    return locator_complaint(known, locator)


def locator_complaint(kind: Kind, locator: str) -> str | None:
    """What is wrong with a locator of a known kind; None if its shape is right."""
    if not isinstance(locator, str) or not locator:
        return "locator: must be text that is not empty"
    if "\0" in locator:
        return "locator: holds a NUL character, which no store takes and no database keeps"
    try:
        size = len(locator.encode())
    except UnicodeEncodeError:
        return "locator: holds half a surrogate pair, which is not Unicode text"
    if size > MAX_LOCATOR_BYTES:
        return f"locator: {size} bytes, at most {MAX_LOCATOR_BYTES} are taken"
    wrong = kind.complain(locator)
    return None if wrong is None else f"locator of kind {kind.name}: {wrong}"


def require_valid(target: Target) -> None:
    """Raises InvalidTarget with the field and the reason."""
    wrong = complaint(target.account, target.kind, target.locator)
    if wrong is not None:
        raise InvalidTarget(wrong)
