"""Who answered: the organization and project that OpenAI's API names in the headers of its answers.

A key of another project gets 404 for everything it is asked about, which would read as "already absent". So when the
settings name an organization or project, an answer that does not name the same one proves nothing.
"""

from dataclasses import dataclass

from expunge.tasks.erasers.openai_reply import Reply

ORGANIZATION_HEADER = "openai-organization"
PROJECT_HEADER = "openai-project"


@dataclass(frozen=True, slots=True)
class Expected:
    """What the settings say; None is not compared."""

    organization: str | None = None
    project: str | None = None

    def mismatch(self, reply: Reply) -> str | None:
        """`WrongOrganization` or `WrongProject` if the answer names another one."""
        for wanted, header, error in self._comparisons():
            reported = reply.headers.get(header)
            if wanted is not None and reported is not None and reported.strip() != wanted:
                return error
        return None

    def missing(self, reply: Reply) -> bool:
        """Whether the answer does not name one that is to be compared."""
        return any(wanted is not None and header not in reply.headers for wanted, header, _ in self._comparisons())

    def _comparisons(self) -> tuple[tuple[str | None, str, str], ...]:
        return (
            (self.organization, ORGANIZATION_HEADER, "WrongOrganization"),
            (self.project, PROJECT_HEADER, "WrongProject"),
        )


def reported(reply: Reply) -> dict[str, str]:
    """What the answer said of organization and project, for the receipt's detail."""
    found = {"organization": reply.header(ORGANIZATION_HEADER), "project": reply.header(PROJECT_HEADER)}
    return {name: value for name, value in found.items() if value is not None}
