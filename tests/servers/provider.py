"""An account of the demo provider, and single steps of a drain on it."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from typing import Any
from unittest.mock import patch

from expunge.models.entry import Entry
from expunge.tasks.erasers.contract import Answer, Looked
from expunge.tasks.erasers.openai import OpenAIEraser, OpenAIOptions
from expunge.worker.demo_provider import DEMO_KEY, DemoProvider

KEY_VARIABLE = "EXPUNGE_TEST_OPENAI_KEY"

_ids = count(1)


@contextmanager
def account(
    base_url: str,
    *,
    key: str | None = DEMO_KEY,
    environment: Mapping[str, str] | None = None,
    asked: bool = True,
    **options: Any,
) -> Iterator[OpenAIEraser]:
    """An eraser of this server, with its key in the environment; closed at the end. `asked`: as after the first read of
    a process, by which the account says who it is."""
    keys = {} if key is None else {KEY_VARIABLE: key}
    with patch.dict("os.environ", {**keys, **(environment or {})}):
        settings = OpenAIOptions(
            store="openai", base_url=base_url, api_key_env=KEY_VARIABLE, **{"timeout_seconds": 10.0, **options}
        )
        eraser = OpenAIEraser("ai", settings, lease_seconds=300)
        if asked:
            eraser.expected.established()
        try:
            yield eraser
        finally:
            eraser.close()


def entry(kind: str, locator: str, **more: Any) -> Entry:
    """An entry as a claim would give it."""
    made = Entry(
        id=next(_ids),
        case_id="case",
        tenant=None,
        subject="subject",
        conversation=None,
        account="ai",
        kind=kind,
        locator=locator,
        token="token",
    )
    return replace(made, **more)


def look(eraser: OpenAIEraser, *entries: Entry, seconds: float = 60.0) -> Looked:
    """One look, with this much time."""
    return eraser.look(entries, time.monotonic() + seconds)


def erase(eraser: OpenAIEraser, kind: str, locator: str) -> Answer:
    """Look and, if the look says so, call: the one answer that comes of it."""
    looked = look(eraser, entry(kind, locator))
    answers = [*looked.answers, *(answer for call in looked.calls for answer in call.send(call.entry_ids))]
    assert len(answers) == 1, (answers, looked.parts)
    return answers[0]


def deletes(provider: DemoProvider) -> list[dict[str, Any]]:
    """The DELETE lines of the access log."""
    return provider.log.lines("DELETE")
