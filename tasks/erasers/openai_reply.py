"""What came back of one request, reduced to what may be looked at. A body lives no longer than its Reply."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from expunge.tasks.erasers.openai_dialects import OPENAI, Dialect

_HEADER_VALUE = re.compile(r"[\x21-\x7e][\x20-\x7e]{0,254}")
_CODE = re.compile(r"[A-Za-z0-9_.:-]{1,64}")


def code(value: object) -> str | None:
    """A code that may stand on a receipt: short, and never a sentence."""
    return value if isinstance(value, str) and _CODE.fullmatch(value) else None


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to one request, or the name of what came in its place."""

    called_at: datetime
    at: datetime
    status: int | None = None
    """None: no answer came."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Names in lower case."""
    body: bytes = field(default=b"", repr=False)
    failure: str | None = None
    """Class name of the failure when there is no answer."""
    dialect: Dialect = OPENAI
    """What the settings say that the server speaks."""

    def header(self, name: str) -> str | None:
        """A header's value if it is one that can be kept."""
        value = self.headers.get(name, "").strip()
        return value if _HEADER_VALUE.fullmatch(value) else None

    @property
    def request_id(self) -> str | None:
        """The provider's name for this request; compatible servers may have none."""
        return next((id for id in map(self.header, self.dialect.request_id_headers) if id is not None), None)

    @property
    def is_empty(self) -> bool:
        return not self.body.strip()

    def json(self) -> dict[str, Any] | None:
        """The body as a JSON object; None if it is anything else."""
        try:
            value = json.loads(self.body)
        except (ValueError, RecursionError):
            return None
        return value if isinstance(value, dict) else None

    def error(self) -> dict[str, Any] | None:
        """The `error` object of the API's own error shape, which has a message; None for any other shape. Of a server
        whose errors are `{"detail": "…"}`, that text is the message."""
        body = self.json() or {}
        error = body.get("error")
        if isinstance(error, dict) and isinstance(error.get("message"), str):
            return error
        detail = body.get("detail")
        return {"message": detail} if self.dialect.detail_is_message and isinstance(detail, str) else None
