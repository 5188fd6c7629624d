"""expunge check: what is missing or wrong, in plain words."""

import json
from datetime import timedelta

import pytest
from click.testing import CliRunner
from rows import NOW, add_case, change_entries

from expunge.models.database import Database
from expunge.models.health import read_health
from expunge.models.lanes import ensure_lane, pause_lane
from expunge.models.notices import add_notice
from expunge.models.states import NoticeKind
from expunge.worker.cli import main
from expunge.worker.demo_provider import DemoProvider


@pytest.fixture
def check(tmp_path, monkeypatch):
    """Runs the command on the text of a settings file; gives the lines by name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-demo")

    def check(text: str, *, code: int):
        (tmp_path / "expunge.toml").write_text(text)
        result = CliRunner().invoke(main, ["check", "--json"])
        assert result.exit_code == code, (result.output, result.exception)
        lines = [json.loads(line) for line in result.stdout.splitlines()]
        assert all(list(line) == ["name", "ok", "text"] for line in lines)
        assert code == any(line["ok"] is False for line in lines)
        return {line["name"]: (line["ok"], line["text"]) for line in lines}

    return check


def test_all_is_well(check, database_url, valkey_url) -> None:
    with DemoProvider() as provider:
        lines = check(
            f'database_url = "{database_url}"\nbroker_url = "{valkey_url}"\n'
            f'[accounts.ai]\nstore = "openai"\nbase_url = "{provider.base_url}"\nproject = "proj_demo"\n',
            code=0,
        )
    assert lines["settings"] == (True, "read from expunge.toml")
    assert "tables of version" in lines["database"][1]
    assert lines["outbox"] == (True, "nothing is due")
    assert lines["broker"][1].startswith("reachable: redis, 127.0.0.1:")
    assert any(name.startswith("account ai: ") for name in lines)


def test_every_trouble_is_told_by_itself(check) -> None:
    lines = check(
        'database_url = "postgresql+psycopg://u:hunter2@127.0.0.1:1/d"\nbroker_url = "redis://:hunter2@127.0.0.1:1"\n'
        'webhook_url = "https://u:hunter2@x"\nwebhook_secret_env = "NO_SUCH_VARIABLE"\n'
        '[accounts.ai]\nstore = "openai"\nbase_url = "http://127.0.0.1:1/v1"\n',
        code=1,
    )
    for name in ("webhook", "database", "broker"):
        assert lines[name][0] is False
    assert any(ok is False for name, (ok, _) in lines.items() if name.startswith("account ai"))
    assert "hunter2" not in json.dumps(lines)


def test_wrong_settings_are_the_only_line(check) -> None:
    lines = check("lease_seconds = 0", code=1)
    assert list(lines) == ["settings"]
    assert "lease_seconds" in lines["settings"][1]


def test_a_missing_sqlite_file_is_not_created(check, tmp_path) -> None:
    said = check('database_url = "sqlite:///x.db"', code=1)["database"][1]
    assert said == f"the SQLite file {tmp_path}/x.db does not exist: correct database_url, or run expunge migrate"
    assert not (tmp_path / "x.db").exists()


def test_tables_that_are_missing(check, empty_postgres_url) -> None:
    assert "run expunge migrate" in check(f'database_url = "{empty_postgres_url}"', code=1)["database"][1]


def test_what_waits_and_what_is_paused(check, database, database_url) -> None:
    ids = add_case(database, "c1", ["b/1", "b/2"])
    add_case(database, "c2", ["b/1"], account="other")
    change_entries(database, ids[1:], state="escalated", reason="x")
    with database.begin() as tx:
        ensure_lane(tx, "other")
        tx.run("UPDATE erasure_lane SET paused_by = 'operator', reason = 'audit', paused_since = {now}")
        ensure_lane(tx, "down")
        pause_lane(tx, "down", by="breaker", seconds=60, reason="ConnectError")
        ensure_lane(tx, "slow")
        pause_lane(tx, "slow", by="throttle", seconds=60, reason="SlowDown")
        add_notice(tx, NoticeKind.ENTRY_ESCALATED, "1", entry_id=1)
    lines = check(f'database_url = "{database_url}"', code=1)
    assert lines["outbox"] == (None, "1 entry escalated: see expunge outbox --state escalated")
    assert lines["lane other"] == (None, "paused by an operator until expunge resume: audit")
    assert lines["lane down"][0] is False
    assert lines["lane slow"][0] is None
    assert lines["webhook"][0] is None


def test_nobody_drains(check, database, database_url) -> None:
    ids = add_case(database, "c1", ["b/1"], received_at=NOW - timedelta(days=90), basis="gdpr")
    change_entries(database, ids, due_at=NOW - timedelta(days=1))
    lines = check(f'database_url = "{database_url}"', code=1)
    assert lines["outbox"][0] is False
    assert lines["outbox"][1].endswith("is there a worker, and a beat?")
    assert lines["cases"] == (False, "1 case past the statutory date")


def test_health_counts_by_the_databases_clock(database: Database) -> None:
    ids = add_case(database, "c1", ["b/1", "b/2"])
    change_entries(database, ids, due_at=NOW)
    with database.read() as tx:
        health = read_health(tx)
    assert health.due == 2
    assert health.oldest_due_at == NOW
    assert health.oldest_waits_seconds > 0
    assert health.version.split()[0] in ("SQLite", "PostgreSQL")


def test_people_get_a_table(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, ["check"])
    assert result.exit_code == 1
    assert "WRONG" in result.stdout
    assert "1 wrong." in result.stdout
