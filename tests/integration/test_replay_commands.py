"""expunge export, replay and check, as processes and people see them."""

import json
import os
from datetime import UTC, datetime

import pytest
from click.testing import CliRunner
from commands import run as start
from rows import add_case, add_receipts, receipt

from expunge.models.database import Database
from expunge.models.journal import read
from expunge.models.tombstones import list_tombstones
from expunge.worker.cli import main


@pytest.fixture
def config(tmp_path, database_url):
    path = tmp_path / "expunge.toml"
    path.write_text(f'database_url = "{database_url}"\n')
    return path


@pytest.fixture
def run(config, database):
    def run(*arguments: str, code: int = 0, given: bytes | None = None):
        result = CliRunner().invoke(main, [*arguments, "--config", str(config)], input=given)
        assert result.exit_code == code, (result.output, result.exception)
        return result

    return run


def _write_tombstone(database: Database) -> None:
    with database.begin() as tx:
        tx.run("INSERT INTO erasure_tombstone (graph, conversation, principal) VALUES ('g', 'c-1', 'ann')")


def _rows(result, tmp_path):
    path = tmp_path / "out.jsonl"
    path.write_bytes(result.stdout_bytes)
    with path.open("rb") as stream:
        return list(read(stream, "out"))


def test_an_export_has_every_row_once(run, database, tmp_path):
    add_case(database, "c1", ["b/1", "b/2"])
    add_receipts(database, [receipt("c1", f"b/{n}") for n in range(2500)])
    _write_tombstone(database)
    with database.begin() as tx:
        tx.run("INSERT INTO erasure_decision (decision, actor) VALUES ('retry', 'dana')")
    lines = _rows(run("export"), tmp_path)
    counted = {kind: sum(1 for line in lines if line.kind == kind) for kind in {line.kind for line in lines}}
    assert counted == {"receipt": 2500, "case": 1, "entry": 2, "tombstone": 1, "decision": 1}
    assert len({line.row["id"] for line in lines if line.kind == "receipt"}) == 2500


def test_since_goes_by_when_it_was_recorded_and_tombstones_have_no_age(run, database, tmp_path):
    add_receipts(database, [receipt("c1", "b/1", at=datetime(2020, 1, 1, tzinfo=UTC))])
    _write_tombstone(database)
    lines = _rows(run("export", "--since", "2021-01-01"), tmp_path)
    assert [line.kind for line in lines] == ["tombstone", "receipt"]
    lines = _rows(run("export", "--since", "2999-01-01"), tmp_path)
    assert [line.kind for line in lines] == ["tombstone"]


def test_an_export_to_a_file_says_so_and_is_its_owners(run, database, tmp_path):
    add_receipts(database, [receipt("c1", "b/1")])
    path = tmp_path / "e.jsonl"
    assert run("export", "--output", str(path)).stdout == f"1 row written to {path}.\n"
    told = json.loads(run("export", "--output", str(path), "--json").stdout)
    assert told == {"path": str(path), "rows": 1}
    assert path.stat().st_mode & 0o077 == 0
    assert "cannot be written" in run("export", "--output", str(tmp_path / "no" / "e"), code=1).stderr


def test_an_export_is_replayed_from_standard_input(run, database, tmp_path):
    add_receipts(database, [receipt("c1", "b/1"), receipt("c1", "b/1", version="v1")])
    data = run("export").stdout_bytes
    (row,) = [
        json.loads(line)
        for line in run("replay", "--from", "-", "--since", "2020-01-01", "--json", given=data).stdout.splitlines()
    ]
    assert row == {
        "targets": 1,
        "added": 1,
        "again": 0,
        "there": 0,
        "in_flight": 0,
        "cases": 1,
        "tombstones": 0,
        "holds": 0,
        "receipts": 0,
        "decisions": 0,
        "purged": 0,
    }


def test_people_are_told_what_was_done_and_what_to_run(run, database, tmp_path):
    add_receipts(database, [receipt("c1", "b/1")])
    _write_tombstone(database)
    path = tmp_path / "e.jsonl"
    run("export", "--output", str(path))
    told = run("replay", "--from", str(path), "--since", "2020-01-01", "--dry-run").stdout.splitlines()
    assert told[0] == "1 target would be in the outbox again; 1 missing case would be there again. Nothing was written."
    told = run("replay", "--from", str(path), "--since", "2020-01-01", "--by", "dana", "--why", "disk").stdout
    assert told.splitlines() == [
        "1 target is in the outbox again; 1 missing case is there again.",
        "Rows of 1 purged conversation may have come back: run expunge purge --again --all --yes for every graph.",
    ]
    with database.read() as tx:
        decision = tx.first("SELECT decision, actor, why FROM erasure_decision")
    assert tuple(decision) == ("replay", "dana", "disk")
    assert sum(len(page) for page in list_tombstones(database)) == 1


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("nowhere.jsonl", "No such file"),
        (".", "no export and no archive in it"),
        ("file:///no/such/directory", "the directory cannot be read"),
        ("http://x/y", "must begin with file:/// or s3://"),
        ("expunge.toml", "line 1: is not JSON"),
    ],
)
def test_a_source_that_cannot_be_read_is_one_line(run, tmp_path, monkeypatch, source, said):
    monkeypatch.chdir(tmp_path)
    result = run("replay", "--from", source, "--since", "2020-01-01", code=1)
    assert said in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_wrong_usage(run):
    run("replay", "--since", "2020-01-01", code=2)
    run("replay", "--from", "-", code=2)
    run("export", "--since", "yesterday", code=2)


def test_the_spool_is_gone_at_the_end(run, database, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "spool"))
    os.mkdir(tmp_path / "spool")
    add_receipts(database, [receipt("c1", "b/1")])
    data = run("export").stdout_bytes
    run("replay", "--from", "-", "--since", "2020-01-01", given=data)
    run("replay", "--from", "-", "--since", "2020-01-01", given=data[:-9], code=1)
    assert list((tmp_path / "spool").iterdir()) == []


def _check(run, code):
    lines = [json.loads(line) for line in run("check", "--json", code=code).stdout.splitlines()]
    return [(line["ok"], line["text"]) for line in lines if line["name"] == "archive"]


def test_check_says_how_the_archive_stands(run, database, config, tmp_path):
    assert _check(run, 0) == []
    plain = config.read_text()
    archive = tmp_path / "archive"
    config.write_text(f'archive_url = "{archive.as_uri()}"\n{plain}')
    assert _check(run, 0) == [(None, "not begun: the next sweep does")]
    add_receipts(database, [receipt("c1", "b/1")])
    start("expunge", "up", "--until-idle", "--config", config, cwd=tmp_path)
    assert len(list(archive.iterdir())) == 1
    assert _check(run, 0) == [(True, "1 segment; 0 rows not in it yet")]
    for path in archive.iterdir():
        path.unlink()
    archive.rmdir()
    archive.write_text("in the way")
    add_receipts(database, [receipt("c1", "b/2")])
    start("expunge", "up", "--until-idle", "--config", config, cwd=tmp_path)
    ((ok, text),) = _check(run, 1)
    assert ok is False
    assert text.startswith("cannot be written since 20")
    assert text.endswith("1 row not in it yet")
    config.write_text(plain)
    assert _check(run, 1) == [
        (False, "the settings name none, and the one that was begun misses: 1 row not in it yet"),
    ]
