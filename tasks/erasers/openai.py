"""The eraser of OpenAI's API and of servers that speak it: files, vector stores, conversations, stored responses …

Documentation: OpenAI API reference, sections Files, Vector stores, Conversations, Responses, "Error codes" and
"Debugging requests" (the headers `x-request-id`, `openai-organization`, `openai-project`).
"""

import re
import time
from collections.abc import Collection, Sequence
from typing import ClassVar, Literal, Self

from pydantic import Field, field_validator, model_validator

from expunge.models.entry import Entry
from expunge.models.targets import Kind, find_kind, locator_complaint
from expunge.tasks.erasers.contract import (
    AccountOptions,
    Answer,
    Call,
    Check,
    Looked,
    NothingSent,
    NotSent,
    Parts,
    call_timeout,
)
from expunge.tasks.erasers.openai_attached import Attached
from expunge.tasks.erasers.openai_batch import KIND as BATCH
from expunge.tasks.erasers.openai_batch import Running, look_at_batch
from expunge.tasks.erasers.openai_check import check_account
from expunge.tasks.erasers.openai_client import Client
from expunge.tasks.erasers.openai_delete import DELETIONS, delete
from expunge.tasks.erasers.openai_dialects import DIALECTS, Dialect
from expunge.tasks.erasers.openai_establish import establish
from expunge.tasks.erasers.openai_identity import Expected
from expunge.tasks.erasers.openai_listing import WHOLES, Empty, list_parts
from expunge.tasks.erasers.openai_verify import verify

DEFAULT_BASE_URL = "https://api.openai.com/v1"
_BASE_URL = re.compile(r"https?://[^/?#@\s]+(/[^?#@\s]*)?")


class OpenAIOptions(AccountOptions):
    """`[accounts.NAME]` with `store = "openai"`."""

    store: Literal["openai"] = "openai"
    base_url: str = DEFAULT_BASE_URL
    """Of OpenAI, of one of its regions, or of a compatible server; with its path, without credentials."""
    api_key_env: str = Field(default="OPENAI_API_KEY", pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")
    """The environment variable that holds the key; the key itself is never in the settings."""
    organization: str | None = Field(default=None, min_length=1)
    """Sent, and compared with what every answer says."""
    project: str | None = Field(default=None, min_length=1)
    """Sent, and compared with what every answer says."""
    list_pages: int = Field(default=10, ge=1, le=1000)
    """Pages of 100 parts that one claim lists of a conversation or a vector store."""
    azure: bool = False
    """`base_url` is an Azure OpenAI resource's: `https://NAME.openai.azure.com/openai/v1`, or `…/openai` with an
    `api_version`. The key goes into the header `api-key`."""
    api_version: str | None = Field(default=None, pattern=r"^[A-Za-z0-9][A-Za-z0-9.-]{0,63}$")
    """Azure's `api-version` query parameter."""
    compatible: Literal["ogx"] | None = None
    """What else answers at `base_url`, if it answers otherwise than OpenAI."""

    @field_validator("base_url")
    @classmethod
    def _plain_url(cls, url: str) -> str:
        if not _BASE_URL.fullmatch(url):
            raise ValueError("must be an http or https address without credentials, query or fragment")
        return url.rstrip("/")

    @model_validator(mode="after")
    def _one_dialect(self) -> Self:
        if self.azure and self.compatible is not None:
            raise ValueError("azure and compatible: a server speaks one dialect; leave one of the two out")
        if self.api_version is not None and not self.azure:
            raise ValueError("api_version: is Azure's; it needs azure = true")
        if not self.dialect.shows_identity and (self.organization is not None or self.project is not None):
            raise ValueError(
                "organization and project: these servers name neither in their answers, so that no answer could be"
                " compared with them; leave them out"
            )
        if self.azure and self.base_url == DEFAULT_BASE_URL:
            raise ValueError("base_url: azure = true needs the address of your resource")
        return self

    @property
    def dialect(self) -> Dialect:
        """What is spoken at `base_url`."""
        return DIALECTS["azure" if self.azure else self.compatible or "openai"]


def _kinds() -> tuple[Kind, ...]:
    kinds = tuple(kind for kind in map(find_kind, DELETIONS) if kind is not None)
    assert len(kinds) == len(DELETIONS), "every kind that can be deleted has a shape in models/targets.py"
    return kinds


class OpenAIEraser:
    """One account. One object a call: the API has no batch deletion of these."""

    store: ClassVar[str] = "openai"
    kinds: ClassVar[tuple[Kind, ...]] = _kinds()
    options: ClassVar[type[AccountOptions]] = OpenAIOptions

    def __init__(self, account: str, options: OpenAIOptions, *, lease_seconds: float) -> None:
        self.account = account
        self.batch = 1
        self.timeout = call_timeout(options, lease_seconds)
        self._list_pages = options.list_pages
        self._attached = Attached()
        self.expected = Expected(options.organization, options.project)
        self._client = Client(
            options.base_url,
            options.api_key_env,
            organization=options.organization,
            project=options.project,
            timeout=self.timeout,
            dialect=options.dialect,
            api_version=options.api_version,
        )

    def refuse(self, kind: str, locator: str) -> str | None:
        """Kinds of other stores, and locators that have not the shape of their kind."""
        if kind not in DELETIONS:
            return f"kind {kind[:64]!r} is not one that an openai account erases: {', '.join(DELETIONS)}"
        known = find_kind(kind)
        return "its kind has no shape" if known is None else locator_complaint(known, locator)

    def look(self, entries: Sequence[Entry], until: float) -> Looked:
        """Conversations and vector stores are listed, batches are read; everything else is deleted without a look,
        since the API tells absent objects apart by itself. Before the first delete the account is asked who it is.
        Containers come last: once one is gone, no call reaches a file of it that is owed as well."""
        looked = Looked()
        for entry in sorted(entries, key=lambda entry: entry.kind == "container"):
            self._look(entry, until, looked)
            if any(each.whole_account for each in looked.not_sent[-1:]):
                break
        return looked

    def _look(self, entry: Entry, until: float, looked: Looked) -> None:
        malformed = self.refuse(entry.kind, entry.locator)
        if malformed is not None:
            looked.not_sent.append(NotSent(entry.id, malformed))
            return
        try:
            self._client.require_usable()
            if not self.expected.is_established and not (entry.kind in WHOLES and not self.expected.changed):
                # a listing is a read as well, and shows who answers
                if time.monotonic() >= until:
                    return
                refused = establish(self._client, self.expected, entry)
                if refused is not None:
                    looked.answers.append(refused)
                    return
            if entry.kind == "file" and self._attached.must_wait(entry.locator):
                looked.parts.append(Parts(entry.id, []))  # a moment later, with no receipt and no try
                return
            found = self._find(entry, until)
        except NothingSent as nothing:
            looked.not_sent.append(nothing.about(entry.id))
            return
        match found:
            case Empty() | Running():
                looked.calls.append(self._call(entry))
            case Parts():
                self._attached.add(found)
                looked.parts.append(found)
            case Answer():
                looked.answers.append(found)
            case None:
                pass

    def _find(self, entry: Entry, until: float) -> Empty | Running | Parts | Answer | None:
        if entry.kind in WHOLES:
            return list_parts(self._client, self.expected, entry, pages=self._list_pages, until=until)
        if entry.kind == BATCH:
            return look_at_batch(self._client, self.expected, entry, until)
        return Empty()

    def _call(self, entry: Entry) -> Call:
        def send(ids: Collection[int]) -> Sequence[Answer | NotSent]:
            if entry.id not in ids:
                return []
            try:
                answer = delete(self._client, self.expected, entry)
            except NothingSent as nothing:
                return [nothing.about(entry.id)]
            self._attached.settle(entry, answer)
            return [answer]

        return Call((entry.id,), send, DELETIONS[entry.kind].operation)

    def verify(self, entries: Sequence[Entry], until: float) -> Sequence[Answer | NotSent]:
        """Read each object by its id. It ends where nothing can be sent for the whole account."""
        found: list[Answer | NotSent] = []
        for entry in entries:
            if time.monotonic() >= until:
                break
            try:
                found.append(verify(self._client, self.expected, entry))
            except NothingSent as nothing:
                found.append(nothing.about(entry.id))
                if nothing.whole_account:
                    break
        return found

    def check(self) -> list[Check]:
        """One read that changes nothing: a listing of at most one file."""
        return check_account(self._client, self.expected)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()


ERASER = OpenAIEraser
