"""`expunge erase --tracked` and `expunge inventory`."""

import csv
import io
import json
from datetime import timedelta

import pytest
import sqlalchemy as sa
from click.testing import CliRunner

from expunge.models import track
from expunge.models.list_cases import database_clock
from expunge.models.list_inventory import INVENTORY_COLUMNS
from expunge.models.purge_tables import Tombstone
from expunge.worker.cli import main


@pytest.fixture
def run(database, database_url, tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    path = tmp_path / "expunge.toml"
    path.write_text(
        f'database_url = "{database_url}"\n[accounts.ai]\nstore = "openai"\n[graphs.chat.root]\ntable = "chat"\n'
    )
    with database.begin() as tx:
        tx.run("CREATE TABLE chat (id INTEGER PRIMARY KEY)")
        tx.run("INSERT INTO chat VALUES (7), (8)")

    def run(*arguments, code=0, given=b""):
        result = CliRunner().invoke(main, [*arguments, "--config", str(path)], input=given)
        assert result.exit_code == code, (result.output, result.exception)
        return result

    return run


@pytest.fixture
def put(database):
    def put(locator, subject="s", conversation=None, **more):
        with database.begin() as tx:
            return track(
                tx.connection,
                account="ai",
                kind="file",
                locator=f"file-{locator}",
                subject=subject,
                conversation=conversation,
                **more,
            )

    return put


def _listed(run, *arguments):
    rows = [json.loads(line) for line in run("inventory", *arguments, "--json").stdout.splitlines()]
    assert all(list(row) == INVENTORY_COLUMNS for row in rows)
    return [row["locator"].removeprefix("file-") for row in rows]


def test_erase_what_is_tracked(run, put):
    put("1")
    put("2", conversation="7")
    put("2", "s2")
    put("3", tenant="t")
    said = run("erase", "--subject", "s", "--tracked", "--case", "c1", "--dry-run").stdout
    assert "1 target would be added" in said
    assert len(_listed(run)) == 4
    given = json.dumps({"account": "ai", "kind": "file", "locator": "file-9"}).encode() + b"\n"
    row = json.loads(run("erase", "--subject", "s", "--tracked", "--case", "c1", "--json", "-", given=given).stdout)
    assert (row["id"], row["scope"], row["shared"]) == ("c1", "subject", 1)
    entries = [json.loads(line)["locator"] for line in run("outbox", "--json").stdout.splitlines()]
    assert sorted(entries) == ["file-1", "file-9"]
    assert _listed(run, "--shared") == ["2"]
    said = run("erase", "--subject", "s", "--tracked", "--conversation", "7").stdout
    assert "1 tracked object left, since another subject or conversation has it too" in said


def test_erase_says_when_nothing_is_tracked(run):
    assert "nothing is tracked of this subject" in run("erase", "--subject", "s", "--tracked", code=1).stderr
    assert "nothing was found" in run("erase", "--subject", "s", "--tracked", "--nothing-found").stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ("erase", "--subject", "s"),
        ("erase", "--subject", "s", "--conversation", "7", "--nothing-found"),
        ("inventory", "--shared", "--orphaned"),
        ("inventory", "--within", "3"),
        ("inventory", "--expiring", "--within", "-1"),
        ("inventory", "--csv", "--json"),
    ],
)
def test_wrong_usage(run, arguments):
    run(*arguments, code=2)


def test_what_expires_soon(run, put, database):
    with database.read() as tx:
        now = database_clock(tx)
    for name, days in (("late", 6), ("soon", 1), ("past", -1), ("far", 30)):
        put(name, expires_at=now + timedelta(days=days))
    put("never")
    assert _listed(run, "--expiring") == ["soon", "late"]
    assert _listed(run, "--expiring", "--within", "2") == ["soon"]
    assert _listed(run, "--expiring", "--within", "31") == ["soon", "late", "far"]


def test_what_no_case_has_though_its_conversation_is_gone(run, put, database):
    put("there", conversation="7")
    put("gone", conversation="9")
    put("no-number", conversation="x")
    put("none")
    put("purged", conversation="8", tenant="t")
    put("other", conversation="8")
    with database.begin() as tx:
        tx.connection.execute(
            sa.insert(Tombstone.__table__).values(graph="chat", conversation="8", tenant="t", principal="s")
        )
    assert _listed(run, "--orphaned") == ["gone", "no-number", "purged"]
    assert _listed(run, "--orphaned", "--tenant", "t") == ["purged"]
    with database.begin() as tx:
        tx.run("DROP TABLE chat")
    assert "has no table chat with the key id" in run("inventory", "--orphaned", code=1).stderr


def test_what_is_tracked_after_the_erasure(run, put, database):
    put("1")
    run("erase", "--subject", "s", "--tracked", "--case", "c1")
    with database.begin() as tx:
        tx.run("DELETE FROM erasure_outbox")
        tx.run("UPDATE erasure_case SET completed_at = {now}")
    assert put("2").case_id is None
    put("3", "other")
    assert _listed(run, "--after-erasure") == ["2"]


def test_narrowed_and_shown(run, put):
    put("1", tenant="t", region="eu")
    put("2", "s2", "7")
    assert _listed(run, "--subject", "s2") == ["2"]
    assert _listed(run, "--tenant", "t") == ["1"]
    assert _listed(run, "--conversation", "7") == ["2"]
    assert _listed(run, "--account", "other") == []
    shown = run("inventory").stdout
    assert "file-1" in shown
    assert shown.endswith("2 objects.\n")
    rows = list(csv.DictReader(io.StringIO(run("inventory", "--csv").stdout)))
    assert [row["region"] for row in rows] == ["eu", ""]
