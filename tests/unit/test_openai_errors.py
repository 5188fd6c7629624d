"""Which answer of the API is which outcome."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from expunge.tasks.erasers.openai_errors import Problem, problem, retry_after
from expunge.tasks.erasers.openai_identity import Expected
from expunge.tasks.erasers.openai_reply import Reply
from expunge.tasks.outcomes import Outcome

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
FILE = "file-abc"
PAGE = b"<html>Sign in</html>"
OURS = {"openai-organization": "org-1", "openai-project": "proj_1"}


def reply(status: int | None, body: Any = b"", **headers: str) -> Reply:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Reply(NOW, NOW, status, {name.replace("_", "-"): value for name, value in headers.items()}, raw)


def error(message: str = "Something.", **more: str | None) -> dict[str, Any]:
    return {"error": {"message": message, "type": "invalid_request_error", "param": None, "code": None, **more}}


MISSING = error(f"No such File object: {FILE}", param="id")

TABLE = [
    (reply(404, MISSING), Outcome.ABSENT, None),
    (reply(404, error("Not found.", param=FILE)), Outcome.ABSENT, None),
    (reply(404, error(f"No such File object: {FILE}2")), Outcome.UNCONFIRMED, "NamesAnother"),
    (reply(404, error(f"No such File object: my{FILE}")), Outcome.UNCONFIRMED, "NamesAnother"),
    (reply(404, error("Resource not found")), Outcome.UNCONFIRMED, "NamesAnother"),
    (reply(404, error(f"{FILE} does not exist or you do not have access to it.")), Outcome.UNCONFIRMED, "NamesAnother"),
    (reply(404, error(f"Invalid URL (DELETE /v1/files/{FILE})")), Outcome.REFUSED, "InvalidURL"),
    (reply(404, error(f"Cannot DELETE /v1/files/{FILE}")), Outcome.UNCONFIRMED, "NamesAnother"),
    (reply(404, {"detail": f"No such File object: {FILE}"}), Outcome.UNCONFIRMED, "NotTheStore"),
    (reply(404, {"error": f"No such File object: {FILE}"}), Outcome.UNCONFIRMED, "NotTheStore"),
    (reply(404, {"error": {"code": FILE}}), Outcome.UNCONFIRMED, "NotTheStore"),
    (reply(404, [MISSING]), Outcome.UNCONFIRMED, "NotTheStore"),
    (reply(404, PAGE), Outcome.UNCONFIRMED, "NotTheStore"),
    (reply(404), Outcome.UNCONFIRMED, "NotTheStore"),
    (reply(410, MISSING), Outcome.UNCONFIRMED, "NamesAnother"),
    (reply(400, MISSING), Outcome.REFUSED, "HTTP400"),
    (reply(401, error(code="invalid_api_key")), Outcome.REFUSED_SCOPE, "invalid_api_key"),
    (reply(401, PAGE), Outcome.REFUSED_SCOPE, "Unauthorized"),
    (reply(407), Outcome.REFUSED_SCOPE, "Unauthorized"),
    (reply(403, error("You have insufficient permissions for this operation.")), Outcome.REFUSED, "PermissionDenied"),
    (reply(403, error("Project is archived.")), Outcome.REFUSED_SCOPE, "PermissionDenied"),
    (
        reply(403, error("Not supported.", code="unsupported_country_region_territory")),
        Outcome.REFUSED_SCOPE,
        "unsupported_country_region_territory",
    ),
    (reply(403, PAGE), Outcome.UNCONFIRMED, "NotTheStore"),
    (reply(409, error("In use.")), Outcome.ERROR, "Conflict"),
    (reply(422, error("No.", code="bad")), Outcome.REFUSED, "bad"),
    (reply(405, error("No.", code="a sentence, not a code")), Outcome.REFUSED, "HTTP405"),
    (reply(405, PAGE), Outcome.UNCONFIRMED, "NotTheStore"),
    (reply(429, error(code="rate_limit_exceeded")), Outcome.THROTTLED, "rate_limit_exceeded"),
    (reply(429, PAGE), Outcome.THROTTLED, None),
    (reply(429, error(code="insufficient_quota")), Outcome.REFUSED_SCOPE, "insufficient_quota"),
    (reply(429, error(type="insufficient_quota")), Outcome.REFUSED_SCOPE, "insufficient_quota"),
    (reply(500, error()), Outcome.UNAVAILABLE, "HTTP500"),
    (reply(502, PAGE), Outcome.UNAVAILABLE, "HTTP502"),
    (reply(503, error()), Outcome.UNAVAILABLE, "HTTP503"),
    (reply(503, error(), retry_after="soon"), Outcome.UNAVAILABLE, "HTTP503"),
    (reply(503, error(), retry_after="9"), Outcome.THROTTLED, None),
    (reply(408), Outcome.UNAVAILABLE, "RequestTimeout"),
    (reply(307), Outcome.REFUSED_SCOPE, "Redirect"),
    (reply(304), Outcome.REFUSED_SCOPE, "Redirect"),
    (Reply(NOW, NOW, failure="ReadTimeout"), Outcome.NO_ANSWER, "ReadTimeout"),
    (Reply(NOW, NOW, failure="DecodingError"), Outcome.UNCONFIRMED, "DecodingError"),
]


@pytest.mark.parametrize(("answer", "outcome", "code"), TABLE)
def test_each_answer_has_one_outcome(answer: Reply, outcome: Outcome, code: str | None) -> None:
    found = problem(answer, Expected(), FILE)
    assert found is not None
    assert (found.outcome, found.error) == (outcome, code)


@pytest.mark.parametrize(("answer", "outcome", "code"), TABLE)
def test_another_project_is_noticed_before_anything_else(answer: Reply, outcome: Outcome, code: str | None) -> None:
    if answer.status is None:
        return
    foreign = Reply(NOW, NOW, answer.status, {**answer.headers, **OURS, "openai-project": "proj_2"}, answer.body)
    assert problem(foreign, Expected("org-1", "proj_1"), FILE) == Problem(Outcome.WRONG_IDENTITY, "WrongProject")


@pytest.mark.parametrize(("answer", "outcome", "code"), TABLE)
def test_an_answer_that_names_nobody_never_proves_absence(answer: Reply, outcome: Outcome, code: str | None) -> None:
    found = problem(answer, Expected("org-1", None), FILE)
    assert found is not None
    assert found.outcome is not Outcome.ABSENT
    if outcome in (Outcome.THROTTLED, Outcome.UNAVAILABLE, Outcome.REFUSED_SCOPE, Outcome.NO_ANSWER):
        assert found.outcome is outcome, "gateways name nobody, and their meaning is kept"
    elif found.outcome is Outcome.WRONG_IDENTITY:
        assert found.error == "MissingIdentity"


@pytest.mark.parametrize(
    ("headers", "error"),
    [
        ({}, "MissingIdentity"),
        ({"openai-organization": "org-1"}, "MissingIdentity"),
        ({"openai-organization": "org-2", "openai-project": "proj_1"}, "WrongOrganization"),
        ({"openai-organization": "", "openai-project": "proj_1"}, "WrongOrganization"),
        ({"openai-organization": "org-1", "openai-project": "proj_2"}, "WrongProject"),
        ({"openai-organization": "org-10", "openai-project": "proj_1"}, "WrongOrganization"),
        (OURS, None),
    ],
)
def test_a_success_counts_only_from_whom_the_settings_name(headers: dict[str, str], error: str | None) -> None:
    answer = Reply(NOW, NOW, 200, headers, b'{"id": "file-abc", "deleted": true}')
    found = problem(answer, Expected("org-1", "proj_1"), FILE)
    assert found == (None if error is None else Problem(Outcome.WRONG_IDENTITY, error))


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry_after": "7"}, 7.0),
        ({"retry_after": "0"}, 0.0),
        ({"retry_after": "1.5"}, 1.5),
        ({"retry_after_ms": "250", "retry_after": "7"}, 0.25),
        ({"retry_after_ms": "x", "retry_after": "7"}, 7.0),
        ({"retry_after_ms": "-1", "retry_after": "7"}, 7.0),
        ({"retry_after": "-7"}, None),
        ({"retry_after": "nan"}, None),
        ({"retry_after": "inf"}, None),
        ({"retry_after": "Sun, 01 Mar 2026 12:01:30 GMT"}, 90.0),
        ({"retry_after": "Sun, 01 Mar 2026 11:00:00 GMT"}, None),
        ({"retry_after": "soon"}, None),
        ({}, None),
    ],
)
def test_how_long_to_wait(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(reply(429, **headers)) == seconds


@given(status=st.integers(100, 599), body=st.binary(max_size=60), header=st.text(max_size=20))
def test_nothing_unreadable_is_ever_absence(status: int, body: bytes, header: str) -> None:
    answer = Reply(NOW, NOW, status, {"retry-after": header, "openai-organization": header}, body)
    found = problem(answer, Expected(), FILE)
    assert (found is None) == (200 <= status < 300)
    assert found is None or found.outcome is not Outcome.ABSENT


@given(
    message=st.text(max_size=40),
    code=st.one_of(st.none(), st.integers(), st.text(max_size=80), st.lists(st.integers(), max_size=2)),
    kind=st.one_of(st.none(), st.integers(), st.text(max_size=80)),
    status=st.integers(400, 599),
)
def test_errors_are_codes_and_never_messages(message: str, code: Any, kind: Any, status: int) -> None:
    found = problem(reply(status, {"error": {"message": message, "type": kind, "code": code}}), Expected(), FILE)
    assert found is not None
    assert found.error is None or (len(found.error) <= 64 and " " not in found.error)
