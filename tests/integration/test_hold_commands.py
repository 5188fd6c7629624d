"""`expunge hold`, `expunge extend`, and what `expunge cases` says of both."""

import json
from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa
from click.testing import CliRunner

from expunge.models import Target, open_case
from expunge.worker.cli import main

WHO = ("--by", "dana", "--why", "court order")


@pytest.fixture
def run(database, database_url, tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    path = tmp_path / "expunge.toml"
    path.write_text(f'database_url = "{database_url}"\n[accounts.ai]\nstore = "openai"\n')

    def run(*arguments, code=0):
        result = CliRunner().invoke(main, [*arguments, "--config", str(path)])
        assert result.exit_code == code, (result.output, result.exception)
        return result

    return run


def _open(database, case, *locators, **more):
    with database.begin() as tx:
        targets = [Target("ai", "file", locator) for locator in locators]
        open_case(tx.connection, subject=f"s-{case}", case_id=case, targets=targets, **more)


def _states(database):
    with database.read() as tx:
        return {row.locator: row.state for row in tx.rows("SELECT locator, state FROM erasure_outbox")}


@pytest.mark.parametrize(
    "covers",
    [("--subject", "s-1"), ("--case", "1"), ("--account", "ai", "--locator-prefix", "file-a")],
)
def test_what_a_hold_covers_is_held_until_its_release(run, database, covers) -> None:
    _open(database, "1", "file-a1", basis="gdpr")
    _open(database, "2", "file-b1")
    held = json.loads(run("hold", "place", *covers, "--matter", "M-7", *WHO, "--json").stdout)
    assert (held["entries"], held["in_flight"]) == (1, [])
    assert _states(database) == {"file-a1": "held", "file-b1": "ready"}
    _open(database, "1", "file-a2")  # what is opened under the hold is held at once
    assert _states(database)["file-a2"] == "held"
    case = json.loads(run("cases", "1", "--json").stdout.splitlines()[0])
    assert [(hold["id"], hold["matter"], hold["entries"]) for hold in case["holds"]] == [(held["id"], "M-7", 2)]
    assert case["due_at"] is not None
    assert "matter M-7" in run("cases", "1").stdout
    run("hold", "release", str(held["id"]), *WHO)
    assert set(_states(database).values()) == {"ready"}
    assert "released already" in run("hold", "release", str(held["id"]), *WHO, code=1).output
    assert run("hold", "list", "--json").stdout == ""
    assert json.loads(run("hold", "list", "--all", "--json").stdout)["released_by"] == "dana"


@pytest.mark.parametrize(
    "wrong",
    [(), ("--subject", "s", "--case", "1"), ("--account", "ai"), ("--locator-prefix", "b")],
)
def test_a_hold_that_covers_nothing_or_too_much_is_wrong_usage(run, wrong) -> None:
    run("hold", "place", *wrong, *WHO, code=2)


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE erasure_hold SET subject = 'x'",
        "UPDATE erasure_hold SET released_at = NULL, released_by = NULL, released_why = NULL",
        "UPDATE erasure_hold SET released_why = 'other'",
        "DELETE FROM erasure_hold",
    ],
)
def test_the_history_of_holds_is_append_only(run, database, change) -> None:
    hold = json.loads(run("hold", "place", "--subject", "s", *WHO, "--json").stdout)
    run("hold", "release", str(hold["id"]), *WHO)
    with pytest.raises(sa.exc.DBAPIError, match="append-only"), database.begin() as tx:
        tx.run(change)


def test_a_case_is_extended_once_and_in_time(run, database) -> None:
    now = datetime.now(UTC)
    _open(database, "1", "file-a", basis="ccpa", received_at=now)
    _open(database, "late", "file-a", basis="gdpr", received_at=now - timedelta(days=60))
    _open(database, "no", "file-a")
    row = json.loads(run("extend", "1", *WHO, "--json").stdout)
    assert datetime.fromisoformat(row["due_at"]).date() == (now + timedelta(days=90)).date()
    assert (row["extended_by"], row["extended_why"]) == ("dana", "court order")
    assert "already" in run("extend", "1", *WHO, code=1).output
    assert "before that" in run("extend", "late", *WHO, code=1).output
    assert "no extension" in run("extend", "no", *WHO, code=1).output
    assert "no case" in run("extend", "none", *WHO, code=1).output
    assert [json.loads(line)["id"] for line in run("cases", "--overdue", "--json").stdout.splitlines()] == ["late"]


def test_a_mistyped_account_is_no_hold(run, database) -> None:
    said = run("hold", "place", "--account", "nosuch", "--locator-prefix", "a/", *WHO, code=1).output
    assert "account nosuch is not in the settings; there are: ai" in said
    assert run("hold", "list", "--all", "--json").stdout == ""
