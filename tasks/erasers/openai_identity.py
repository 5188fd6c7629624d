"""Who answered: the organization and project that OpenAI's API names in the headers of its answers.

A key of another project gets 404 for everything it is asked about, which would read as "already absent". So an answer
that names another organization or project than the settings proves nothing, and neither does one that names none
although the settings do. Where the settings are silent, the first answer of the process says who the account is:
before the first delete one is asked for, and what names another one later is not believed any more, in either
direction, for nobody knows which of the two is right. A restart asks anew.
"""

import threading
from collections.abc import Iterator

from expunge.tasks.erasers.openai_reply import Reply

ORGANIZATION_HEADER = "openai-organization"
PROJECT_HEADER = "openai-project"
_HEADERS = (ORGANIZATION_HEADER, PROJECT_HEADER)

IDENTITY_CHANGED = "IdentityChanged"


class Expected:
    """Who is to answer: what the settings say, and what the answers of this process have shown. Threads share it."""

    def __init__(self, organization: str | None = None, project: str | None = None) -> None:
        self.organization = organization
        self.project = project
        self._lock = threading.Lock()
        self._shown: dict[str, str] = {}
        self._changed = False
        self._established = False

    @property
    def names_nobody(self) -> bool:
        """Whether the settings leave it to the answers."""
        return self.organization is None and self.project is None

    @property
    def changed(self) -> bool:
        """Whether answers of this process have come from two accounts that the settings do not tell apart."""
        return self._changed

    @property
    def is_established(self) -> bool:
        """Whether this account has been asked who it is, and answered as it does."""
        return self._established and not self._changed

    def established(self) -> None:
        """It has been asked: what was not shown then is not going to be, as with most compatible servers."""
        self._established = True

    def mismatch(self, reply: Reply) -> str | None:
        """`WrongOrganization` or `WrongProject` if the answer names another one than the settings, `IdentityChanged`
        if it names another one than the answers before, or if one did."""
        for wanted, header, error in self._comparisons():
            reported = reply.headers.get(header)
            if wanted is not None and reported is not None and reported.strip() != wanted:
                return error
        return self._compare_with_before(reply)

    def _compare_with_before(self, reply: Reply) -> str | None:
        with self._lock:
            for header in _HEADERS:
                name = reply.headers.get(header, "").strip()
                if name and self._shown.setdefault(header, name) != name:
                    self._changed = True
                self._established = self._established or bool(name)
            return IDENTITY_CHANGED if self._changed else None

    def missing(self, reply: Reply) -> bool:
        """Whether the answer does not name one that is to be compared."""
        return any(wanted is not None and header not in reply.headers for wanted, header, _ in self._comparisons())

    def _comparisons(self) -> Iterator[tuple[str | None, str, str]]:
        yield self.organization, ORGANIZATION_HEADER, "WrongOrganization"
        yield self.project, PROJECT_HEADER, "WrongProject"


def reported(reply: Reply) -> dict[str, str]:
    """What the answer said of organization and project, for the receipt's detail."""
    found = {"organization": reply.header(ORGANIZATION_HEADER), "project": reply.header(PROJECT_HEADER)}
    return {name: value for name, value in found.items() if value is not None}
