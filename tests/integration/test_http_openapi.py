"""The OpenAPI document, held against the answers: what it allows is taken, what it forbids is refused, and every answer
is one that it names, in its shape. `SCHEMATHESIS_EXAMPLES` makes the round longer."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
import structlog
from host import Host
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import positive_data_acceptance

from expunge.models.database import Database

EXAMPLES = int(os.environ.get("SCHEMATHESIS_EXAMPLES", "8"))
"""Of each kind and operation."""
OPERATIONS = [
    ("GET", "/healthz"),
    ("GET", "/v1/sessions"),
    ("POST", "/v1/sessions"),
    ("GET", "/v1/sessions/{session_id}"),
    ("DELETE", "/v1/sessions/{session_id}"),
    ("POST", "/v1/sessions/{session_id}/events"),
]
NOTHING_TO_GET_WRONG = [("GET", "/healthz"), ("GET", "/v1/sessions/{session_id}")]
"""Any text is an id that may be asked for."""


@pytest.fixture(scope="module")
def document(host_sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    path = tmp_path_factory.mktemp("openapi") / "host.db"
    shutil.copy(host_sqlite_template, path)
    database = Database.open(f"sqlite:///{path}")
    host = Host(database)
    for method in ("GET", "POST", "DELETE"):
        host.session(f"for-{method}")
    loaded = schemathesis.openapi.from_asgi("/openapi.json", host.app)
    loaded.config.update(headers={"Authorization": f"Bearer {host.token()}"})
    yield loaded
    database.close()


def test_the_document_is_whole(document: Any) -> None:
    document.validate()
    found = {(one.ok().method.upper(), one.ok().path) for one in document.get_all_operations()}
    assert found == set(OPERATIONS)


@pytest.mark.parametrize("mode", list(GenerationMode))
@pytest.mark.parametrize(("method", "path"), OPERATIONS)
def test_every_answer_is_one_that_the_document_names(
    document: Any, method: str, path: str, mode: GenerationMode
) -> None:
    if mode is GenerationMode.NEGATIVE and (method, path) in NOTHING_TO_GET_WRONG:
        return
    cases = document[path][method].as_strategy(generation_mode=mode)

    @settings(max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(data=st.data())
    def check(data: Any) -> None:
        case = data.draw(cases)
        if case.path_parameters and data.draw(st.booleans()):
            case.path_parameters["session_id"] = f"for-{method}"  # one that is there
        asked = {**(case.query or {}), **(case.body if isinstance(case.body, dict) else {})}
        # no document can say which cursors were given, and which runs there are
        excluded = [positive_data_acceptance] if {"cursor", "run_id"} & set(asked) else []
        with structlog.testing.capture_logs() as logs:
            case.call_and_validate(excluded_checks=excluded)
        assert [one["event"] for one in logs] == ["request.answered"] * len(logs)

    check()
