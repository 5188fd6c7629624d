"""One account's connection: the openai SDK with everything taken away that could hide a call.

No retries and no redirects inside the SDK, and no organization, project or address from the environment: what the
settings say is what is sent. Only the key comes from the environment, when it is first needed.

The SDK is imported when the first request is to be sent: reading the settings needs every eraser, and a command that
calls no store should not wait for what would.
"""

import logging
import os
import re
import threading
import time
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from expunge.tasks.erasers.contract import NothingSent, utc_now
from expunge.tasks.erasers.openai_deadline import deadline, limit_request, limit_response
from expunge.tasks.erasers.openai_dialects import OPENAI, Dialect
from expunge.tasks.erasers.openai_reply import Reply

if TYPE_CHECKING:
    import httpx2
    import openai


@dataclass(slots=True)
class _Sending:
    """A request under way in this thread."""

    begun: bool = False
    """It was handed to the transport, and may have been sent."""


_sending: ContextVar[_Sending | None] = ContextVar("openai_sending", default=None)


class Raw(Protocol):
    """What the SDK's `with_raw_response` gives."""

    @property
    def http_response(self) -> "httpx2.Response": ...


Request = Callable[["openai.OpenAI"], Raw]


class CredentialsError(NothingSent):
    """The key is missing or cannot be a key. `reason` says which; the key itself is never repeated."""

    def __init__(self, reason: str, variable: str) -> None:
        super().__init__(reason, whole_account=True)
        self.variable = variable


def _quiet(record: logging.LogRecord) -> bool:
    """The HTTP client logs each URL at info level; ours hold the ids of what is erased."""
    return record.levelno > logging.INFO or _sending.get() is None


_HEADER_NAME = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(rb"(?:[^\0\s]+(?:[ \t]+[^\0\s]+)*)?")


class IllegalHeaderError(ValueError):
    """The settings or the environment bring a header that HTTP cannot carry (RFC 9110, section 5)."""


def _begin(request: "httpx2.Request") -> None:
    """Event hook of the client: the last thing before the transport, which would refuse such headers as well, but not
    so that it can be told from a request of which a part was sent."""
    for name, value in request.headers.raw:
        if not (_HEADER_NAME.fullmatch(name) and _HEADER_VALUE.fullmatch(value)):
            raise IllegalHeaderError
    sending = _sending.get()
    if sending is not None:
        sending.begun = True


def _without_bearer(request: "httpx2.Request") -> None:
    """Azure's keys go into `api-key`; a bearer token would be taken for one of Entra, and the SDK insists on one."""
    request.headers.pop("authorization", None)


def _cannot_send(error: BaseException) -> NothingSent:
    # a locator has its kind's shape and can always be sent: what cannot is the same in every request (a header of the
    # settings or of the environment, a proxy or certificates that cannot be used)
    return NothingSent(type(error).__name__, whole_account=True)


class Client:
    """Sends one request at a time and thread, and gives what came of it as a Reply. Never raises for an answer."""

    def __init__(
        self,
        base_url: str,
        api_key_env: str,
        *,
        organization: str | None,
        project: str | None,
        timeout: float,
        dialect: Dialect = OPENAI,
        api_version: str | None = None,
    ) -> None:
        self.base_url = base_url
        self.timeout = timeout
        self._api_key_env = api_key_env
        self._organization = organization
        self._project = project
        self._dialect = dialect
        self._api_version = api_version
        self._lock = threading.Lock()
        self._sdk: openai.OpenAI | None = None

    def require_usable(self) -> None:
        """Raises NothingSent if no request could be sent."""
        self._client()

    def send(self, request: Request, *, before: float | None = None) -> Reply:
        """Send one request; it gives up at `before` (`time.monotonic()`), or after the timeout. Raises NothingSent if
        it could not be sent."""
        sdk = self._client()
        import openai

        moment = time.monotonic() + self.timeout
        called_at = utc_now()
        sending = _Sending()
        mark = _sending.set(sending)
        try:
            with deadline(moment if before is None else min(moment, before)):
                response = request(sdk).http_response
        except openai.APIStatusError as error:
            response = error.response
        except openai.APIConnectionError as error:
            cause = error.__cause__ or error
            if not sending.begun:
                raise _cannot_send(cause) from error
            return Reply(called_at, utc_now(), failure=type(cause).__name__, dialect=self._dialect)
        except Exception as error:
            if sending.begun:
                raise
            raise _cannot_send(error) from error
        finally:
            _sending.reset(mark)
        headers = {name.lower(): value for name, value in response.headers.items()}
        return Reply(called_at, utc_now(), response.status_code, headers, response.content, dialect=self._dialect)

    def close(self) -> None:
        """Close the connections. A later request opens new ones."""
        with self._lock:
            if self._sdk is not None:
                self._sdk.close()
                self._sdk = None

    def _client(self) -> "openai.OpenAI":
        with self._lock:
            if self._sdk is None:
                key = self._key()
                try:
                    self._sdk = self._build(key)
                except Exception as error:
                    raise _cannot_send(error) from error
            return self._sdk

    def _key(self) -> str:
        key = os.environ.get(self._api_key_env, "").strip()
        if not key:
            raise CredentialsError("MissingCredentials", self._api_key_env)
        if not (key.isascii() and key.isprintable()) or " " in key:
            raise CredentialsError("MalformedCredentials", self._api_key_env)
        return key

    def _build(self, key: str) -> "openai.OpenAI":
        import httpx2
        import openai

        logger = logging.getLogger("httpx2")
        if _quiet not in logger.filters:
            logger.addFilter(_quiet)
        # named here too, because the SDK lets OPENAI_CUSTOM_HEADERS take the place of what it would send by itself
        headers = {"Authorization": f"Bearer {key}"}
        hooks = [limit_request, _begin]
        if self._dialect.name == "azure":
            headers["api-key"] = key
            hooks.insert(0, _without_bearer)
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
            default_query=None if self._api_version is None else {"api-version": self._api_version},
            http_client=httpx2.Client(
                follow_redirects=False,
                timeout=self.timeout,
                limits=httpx2.Limits(max_keepalive_connections=None if self._dialect.reuses_connections else 0),
                event_hooks={"request": hooks, "response": [limit_response]},
            ),
        )
        # set afterwards, because None in the constructor means "take it from the environment"
        sdk.organization = self._organization
        sdk.project = self._project
        sdk.admin_api_key = None
        return sdk
