"""What `expunge check` says about an account of OpenAI's API, in plain words."""

from expunge.tasks.erasers.contract import Check, NothingSent
from expunge.tasks.erasers.openai_client import Client, CredentialsError
from expunge.tasks.erasers.openai_errors import Problem, problem
from expunge.tasks.erasers.openai_identity import Expected, reported
from expunge.tasks.erasers.openai_reply import Reply
from expunge.tasks.outcomes import Outcome

_PLAIN = {
    Outcome.NO_ANSWER: "no answer",
    Outcome.REFUSED_SCOPE: "refused",
    Outcome.REFUSED: "listing files is refused, deleting may be allowed all the same",
    Outcome.THROTTLED: "it answers, but asks for less at the moment",
    Outcome.UNAVAILABLE: "it answers, but has an error of its own",
    Outcome.UNCONFIRMED: "what answers is not the API: a proxy, a login page, or a wrong base_url",
}
_NO_ERROR = frozenset({Outcome.REFUSED, Outcome.THROTTLED})


def check_account(client: Client, expected: Expected) -> list[Check]:
    """Whether there is a key, whether the API answers, and as whom. Sends one read; never raises for an answer."""
    try:
        reply = client.send(lambda sdk: sdk.files.with_raw_response.list(limit=1))
    except CredentialsError as error:
        return [Check("credentials", False, f"no usable key ({error.reason}: environment variable {error.variable})")]
    except NothingSent as nothing:
        return [Check("answer", False, f"{client.base_url}: nothing can be sent ({nothing.reason})")]
    found = problem(reply, expected, "file-none")
    checks = [Check("credentials", True, "a key is set"), _answers(client, reply, found)]
    if reply.status is not None:
        checks.append(_identity(reply, expected, found))
    return checks


def _answers(client: Client, reply: Reply, found: Problem | None) -> Check:
    where = f"{client.base_url}: "
    if found is None and (reply.json() or {}).get("object") != "list":
        return Check("answer", False, where + _PLAIN[Outcome.UNCONFIRMED])
    if found is None or found.outcome is Outcome.WRONG_IDENTITY:
        return Check("answer", True, where + "answers")
    text = f"{_PLAIN.get(found.outcome, found.outcome.value)} ({found.error or 'Unconfirmed'})"
    return Check("answer", None if found.outcome in _NO_ERROR else False, where + text)


def _identity(reply: Reply, expected: Expected, found: Problem | None) -> Check:
    told = reported(reply)
    text = ", ".join(f"{name} {told.get(name, 'not reported')}" for name in ("organization", "project"))
    if found is not None and found.outcome is Outcome.WRONG_IDENTITY:
        wanted = ", ".join(
            f"{name} {value}"
            for name, value in (("organization", expected.organization), ("project", expected.project))
            if value is not None
        )
        return Check("identity", False, f"the answer says {text}; the settings say {wanted}")
    if expected.names_nobody:
        return Check("identity", None, f"{text}; not compared, because the settings name neither")
    if expected.missing(reply):
        return Check("identity", None, f"{text}; this answer cannot be compared")
    return Check("identity", True, f"{text}; as the settings say")
