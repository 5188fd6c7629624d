"""One account's connection: the openai SDK with everything taken away that could hide a call.

No retries and no redirects inside the SDK, and no organization, project or address from the environment: what the
settings say is what is sent. Only the key comes from the environment, when it is first needed.
"""

import logging
import os
import threading
import time
from collections.abc import Callable
from contextvars import ContextVar
from typing import Protocol

import httpx2
import openai

from expunge.tasks.erasers.contract import utc_now
from expunge.tasks.erasers.openai_deadline import deadline, limit_request, limit_response
from expunge.tasks.erasers.openai_reply import Reply

_sending: ContextVar[bool] = ContextVar("openai_sending", default=False)


class Raw(Protocol):
    """What the SDK's `with_raw_response` gives."""

    @property
    def http_response(self) -> httpx2.Response: ...


Request = Callable[[openai.OpenAI], Raw]


class CredentialsError(Exception):
    """The key is missing or cannot be a key. `code` says which; the key itself is never repeated."""

    def __init__(self, code: str, variable: str) -> None:
        super().__init__(f"{code}: environment variable {variable}")
        self.code = code


def _quiet(record: logging.LogRecord) -> bool:
    """The HTTP client logs each URL at info level; ours hold the ids of what is erased."""
    return record.levelno > logging.INFO or not _sending.get()


class Client:
    """Sends one request at a time and thread, and gives what came of it as a Reply. Never raises for an answer."""

    def __init__(
        self, base_url: str, api_key_env: str, *, organization: str | None, project: str | None, timeout: float
    ) -> None:
        self.base_url = base_url
        self.timeout = timeout
        self._api_key_env = api_key_env
        self._organization = organization
        self._project = project
        self._lock = threading.Lock()
        self._sdk: openai.OpenAI | None = None

    def require_credentials(self) -> None:
        """Raises CredentialsError."""
        self._client()

    def send(self, request: Request, *, before: float | None = None) -> Reply:
        """Send one request; it gives up at `before` (`time.monotonic()`), or after the timeout. Raises
        CredentialsError before anything is sent."""
        sdk = self._client()
        moment = time.monotonic() + self.timeout
        called_at = utc_now()
        mark = _sending.set(True)
        try:
            with deadline(moment if before is None else min(moment, before)):
                response = request(sdk).http_response
        except openai.APIStatusError as error:
            response = error.response
        except openai.APIConnectionError as error:
            return Reply(called_at, utc_now(), failure=type(error.__cause__ or error).__name__)
        finally:
            _sending.reset(mark)
        headers = {name.lower(): value for name, value in response.headers.items()}
        return Reply(called_at, utc_now(), response.status_code, headers, response.content)

    def close(self) -> None:
        """Close the connections. A later request opens new ones."""
        with self._lock:
            if self._sdk is not None:
                self._sdk.close()
                self._sdk = None

    def _client(self) -> openai.OpenAI:
        with self._lock:
            if self._sdk is None:
                self._sdk = self._build(self._key())
            return self._sdk

    def _key(self) -> str:
        key = os.environ.get(self._api_key_env, "").strip()
        if not key:
            raise CredentialsError("MissingCredentials", self._api_key_env)
        if not (key.isascii() and key.isprintable()) or " " in key:
            raise CredentialsError("MalformedCredentials", self._api_key_env)
        return key

    def _build(self, key: str) -> openai.OpenAI:
        logger = logging.getLogger("httpx2")
        if _quiet not in logger.filters:
            logger.addFilter(_quiet)
        # named here too, because the SDK lets OPENAI_CUSTOM_HEADERS take the place of what it would send by itself
        headers = {"Authorization": f"Bearer {key}"}
        if self._organization is not None:
            headers["OpenAI-Organization"] = self._organization
        if self._project is not None:
            headers["OpenAI-Project"] = self._project
        sdk = openai.OpenAI(
            api_key=key,
            base_url=self.base_url,
            max_retries=0,
            timeout=self.timeout,
            default_headers=headers,
            http_client=httpx2.Client(
                follow_redirects=False,
                timeout=self.timeout,
                event_hooks={"request": [limit_request], "response": [limit_response]},
            ),
        )
        # set afterwards, because None in the constructor means "take it from the environment"
        sdk.organization = self._organization
        sdk.project = self._project
        sdk.admin_api_key = None
        return sdk
