"""Targets as JSON lines: `{"account": "artifacts", "kind": "object", "locator": "bucket/key"}`, one a line.

Every line is checked before anything is written: its JSON, its three fields, and whether its account can erase it. What
is wrong is told with the line's number, and never repeats a locator.
"""

import codecs
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from expunge.models.targets import Target, complaint
from expunge.tasks.erasers.contract import AccountOptions, Eraser
from expunge.tasks.erasers.registry import make_eraser

MAX_LINE_BYTES = 65_536
"""Far more than the longest locator needs, however it is escaped."""
SHOWN = 20
"""Wrong lines that are told one by one."""

_FIELDS = ("account", "kind", "locator")

Allowed = Callable[[Target], str | None]
"""What is wrong with a target on its account, for people; None if it can be erased."""


class _WrongLine(ValueError):
    pass


@dataclass(slots=True)
class Parsed:
    """What a file of targets came to."""

    targets: list[Target] = field(default_factory=list)
    wrong: list[tuple[int, str]] = field(default_factory=list)
    """The first wrong lines, with number and reason."""
    wrong_count: int = 0

    def complain(self, number: int, reason: str) -> None:
        """Remember a wrong line."""
        self.wrong_count += 1
        if len(self.wrong) < SHOWN:
            self.wrong.append((number, reason))
        self.targets.clear()


def parse(stream: BinaryIO, allowed: Allowed) -> Parsed:
    """Read and check all lines. Blank ones, and a byte order mark at the beginning, are passed over."""
    parsed = Parsed()
    for number, line in enumerate(_lines(stream), start=1):
        if number == 1 and line is not None:
            line = line.removeprefix(codecs.BOM_UTF8)
        if line is not None and not line.strip():
            continue
        try:
            target = _target(line)
        except _WrongLine as error:
            parsed.complain(number, str(error))
            continue
        reason = allowed(target)
        if reason is not None:
            parsed.complain(number, reason)
        elif not parsed.wrong:
            parsed.targets.append(target)
    return parsed


def _lines(stream: BinaryIO) -> Iterator[bytes | None]:
    """The lines; None for one that is too long, which is never kept in memory."""
    while line := stream.readline(MAX_LINE_BYTES + 1):
        if len(line) <= MAX_LINE_BYTES or line.endswith(b"\n"):
            yield line
            continue
        while line and not line.endswith(b"\n"):
            line = stream.readline(MAX_LINE_BYTES)
        yield None


def _target(line: bytes | None) -> Target:
    if line is None:
        raise _WrongLine(f"is longer than {MAX_LINE_BYTES} bytes")
    try:
        text = line.decode()
    except UnicodeDecodeError as error:
        raise _WrongLine(f"is not UTF-8 (byte {error.start + 1})") from None
    try:
        value = json.loads(text, object_pairs_hook=_once)
    except json.JSONDecodeError as error:
        raise _WrongLine(f"is not JSON: {error.msg} (column {error.colno})") from None
    except _WrongLine:
        raise
    except (ValueError, RecursionError):
        raise _WrongLine("is not JSON that can be read") from None
    if not isinstance(value, dict):
        raise _WrongLine('is not a JSON object: write {"account": …, "kind": …, "locator": …}')
    unknown = [name for name in value if name not in _FIELDS]
    if unknown:
        raise _WrongLine(f"{_quoted(unknown[0])}: no such field; there are account, kind and locator")
    for name in _FIELDS:
        if name not in value:
            raise _WrongLine(f"{name}: is missing")
        if not isinstance(value[name], str):
            raise _WrongLine(f"{name}: must be text")
    # a million lines name a few accounts and kinds
    return Target(sys.intern(value["account"]), sys.intern(value["kind"]), value["locator"])


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise _WrongLine(f"{_quoted(name)}: stands there twice")
            seen.add(name)
    return value


def _quoted(name: str) -> str:
    return json.dumps(name[:64])


class Accounts:
    """What the accounts of the settings can erase. No network."""

    def __init__(self, accounts: Mapping[str, AccountOptions], lease_seconds: float) -> None:
        self._options = accounts
        self._lease_seconds = lease_seconds
        self._erasers: dict[str, Eraser] = {}

    def complaint(self, target: Target) -> str | None:
        """Why a target cannot be erased; None if it can."""
        if target.account not in self._options:
            named = ", ".join(sorted(self._options)) or "none"
            return f"account: {_quoted(target.account)} is not in the settings; there are: {named}"
        eraser = self._eraser(target.account)
        kinds = [kind.name for kind in eraser.kinds]
        if target.kind not in kinds:
            return (
                f"kind: {_quoted(target.kind)} is not erased by account {target.account} (store {eraser.store});"
                f" it erases {', '.join(kinds)}"
            )
        wrong = complaint(target.account, target.kind, target.locator)
        if wrong is not None:
            return wrong
        refused = eraser.refuse(target.kind, target.locator)
        return None if refused is None else f"locator: {refused}"

    def close(self) -> None:
        """Close what the accounts opened."""
        for eraser in self._erasers.values():
            eraser.close()

    def _eraser(self, account: str) -> Eraser:
        if account not in self._erasers:
            self._erasers[account] = make_eraser(account, self._options[account], lease_seconds=self._lease_seconds)
        return self._erasers[account]
