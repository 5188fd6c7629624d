"""The commands that list, erase and decide: what they print, their exit codes, and what they leave alone."""

import csv
import io
import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner
from rows import NOW, add_case, add_many_receipts, add_receipts, change_entries, receipt

from expunge.models import bell
from expunge.models.list_cases import list_cases
from expunge.models.list_outbox import ENTRY_COLUMNS, EntryFilter, list_entries
from expunge.models.list_receipts import RECEIPT_COLUMNS
from expunge.models.tables import ErasureCase, ErasureLane
from expunge.tasks.erasers.openai import OpenAIEraser
from expunge.worker.cli import COMMANDS, main

CASE_COLUMNS = [column.name for column in ErasureCase.__table__.columns]


@pytest.fixture
def config(tmp_path, database_url, monkeypatch) -> Path:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    path = tmp_path / "expunge.toml"
    path.write_text(
        f'database_url = "{database_url}"\n[accounts.ai]\nstore = "openai"\n[accounts.ai_us]\nstore = "openai"\n'
    )
    return path


@pytest.fixture
def run(config):
    """Runs a command and gives its result; `code` is the exit code that it must have."""

    def run(*arguments: str, code: int = 0, lines: list[object] | bytes = b""):
        given = lines if isinstance(lines, bytes) else b"".join(json.dumps(line).encode() + b"\n" for line in lines)
        result = CliRunner().invoke(main, [*arguments, "--config", str(config)], input=given)
        assert result.exit_code == code, (result.output, result.exception)
        return result

    return run


def _json(result):
    return [json.loads(line) for line in result.stdout.splitlines()]


def _cases(database):
    return [row for page in list_cases(database) for row in page]


def _entries(database):
    return [row for page in list_entries(database, EntryFilter()) for row in page]


def _file(locator: str, account: str = "ai", kind: str = "file") -> dict[str, str]:
    return {"account": account, "kind": kind, "locator": locator}


def test_erase_opens_a_case_and_prints_its_row(run, database):
    lines = [_file("file-1"), _file("file-2"), _file("file-1"), _file("vs_1", "ai_us", "vector_store")]
    arguments = ("--subject", "u-1", "--tenant", "acme", "--case", "88213", "--basis", "gdpr", "--json", "-")
    (row,) = _json(run("erase", "--received-at", "2026-01-31", *arguments, lines=lines))
    assert list(row) == [*CASE_COLUMNS, "state", "overdue", "entries", "receipts"]
    assert row["id"] == "88213"
    assert (row["received_at"], row["due_at"]) == ("2026-01-31T00:00:00.000Z", "2026-02-28T00:00:00.000Z")
    assert (row["state"], row["entries"], row["completed_at"]) == ("open", {"ready": 3}, None)
    stored = {(entry["account"], entry["kind"], entry["locator"]) for entry in _entries(database)}
    assert stored == {("ai", "file", "file-1"), ("ai", "file", "file-2"), ("ai_us", "vector_store", "vs_1")}


def test_erase_again_adds_only_what_is_new(run, database):
    arguments = ("erase", "--subject", "u-1", "--case", "1", "-")
    assert "Case 1 opened; 1 target added" in run(*arguments, lines=[_file("file-1")]).stdout
    said = run(*arguments, lines=[_file("file-1"), _file("file-2")]).stdout
    assert said == (
        "Case 1 exists; 1 target added to the outbox;"
        " 1 target not added: in this case's outbox already, or closed by a receipt of it.\n"
    )
    said = run(*arguments, lines=[_file("file-1"), _file("file-2"), _file("file-2"), _file("file-2")]).stdout
    assert said == (
        "Case 1 exists; 2 targets not added: in this case's outbox already, or closed by a receipt of it;"
        " 2 lines not added: the same target as an earlier line.\n"
    )
    assert len(_entries(database)) == 2
    failed = run("erase", "--subject", "u-2", "--case", "1", "-", lines=[_file("file-3")], code=1)
    assert "another subject or tenant" in failed.stderr
    assert len(_entries(database)) == 2


def test_erase_again_with_something_else_is_an_error(run, database):
    arguments = ("erase", "--subject", "u-1", "--case", "1")
    run(*arguments, "--basis", "gdpr", "--received-at", "2026-01-31", "-", lines=[_file("file-1")])
    before = _cases(database)
    for more, says in (
        (("--basis", "ccpa"), "basis gdpr, not ccpa"),
        (("--basis", "request"), "basis gdpr, not request"),
        (("--received-at", "2026-02-01"), "received_at 2026-01-31T00:00:00+00:00, not 2026-02-01T00:00:00+00:00"),
    ):
        for dry in ((), ("--dry-run",)):
            failed = run(*arguments, *more, *dry, "-", lines=[_file("file-2")], code=1)
            assert failed.stderr == f"Error: case 1 exists with {says}; nothing was written\n"
    failed = run(*arguments, "--nothing-found", code=1)
    assert failed.stderr == "Error: case 1 has entries, so something was found; nothing was written\n"
    assert _cases(database) == before
    for again in ((), ("--basis", "gdpr"), ("--basis", "gdpr", "--received-at", "2026-01-31T01:00:00+01:00")):
        run(*arguments, *again, "-", lines=[_file("file-1")])
    assert _cases(database) == before


def test_erase_from_a_file(run, database, tmp_path):
    path = tmp_path / "targets.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(_file("file-ünï".replace("ünï", "u"))).encode() + b"\r\n\r\n")
    run("erase", "--subject", "u-1", str(path))
    assert [entry["locator"] for entry in _entries(database)] == ["file-u"]


def test_nothing_found_is_complete(run, database):
    (row,) = _json(run("erase", "--subject", "u-1", "--nothing-found", "--json"))
    assert (row["state"], row["nothing_found"], row["entries"]) == ("complete", True, {})
    assert row["completed_at"] is not None
    assert "nothing was found" in run("erase", "--subject", "u-1", "--nothing-found").stdout
    assert len(_cases(database)) == 2
    again = run("erase", "--subject", "u-1", "--case", row["id"], "--nothing-found").stdout
    assert again == f"Case {row['id']} exists; nothing was found, so it is complete.\n"
    added = run("erase", "--subject", "u-1", "--case", row["id"], "-", lines=[_file("file-1")]).stdout
    assert added == f"Case {row['id']} exists; 1 target added to the outbox.\n"


def test_wrong_lines_are_told_and_nothing_is_written(run, database, monkeypatch):
    monkeypatch.setattr(
        OpenAIEraser, "refuse", lambda self, kind, locator: "outside allow" if locator == "file-no" else None
    )
    lines = [
        _file("file-1"),
        _file("file-1", account="elsewhere"),
        _file("b/k", kind="object"),
        _file("x", kind="nonsense"),
        _file("not a file"),
        {**_file("file-1"), "case": "1"},
        _file("file-no"),
        _file("file-\0"),
    ]
    failed = run("erase", "--subject", "u-1", "--case", "1", "--json", "-", lines=lines, code=1)
    assert failed.stdout == ""
    said = failed.stderr.splitlines()
    assert [line.split(":")[0] for line in said[:-1]] == [f"line {n}" for n in range(2, 9)]
    for line, reason in zip(
        said,
        [
            '"elsewhere" is not in the settings; there are: ai, ai_us',
            '"object" is not erased by account ai',
            '"nonsense" is not erased by account ai',
            "it must look like file-…",
            '"case": no such field',
            "outside allow",
            "NUL",
        ],
        strict=False,
    ):
        assert reason in line
    assert said[-1] == "Error: 7 wrong lines; nothing was written"
    assert "not a file" not in failed.stderr
    assert (_cases(database), _entries(database)) == ([], [])


def test_many_wrong_lines_are_cut_short(run, database):
    failed = run("erase", "--subject", "u-1", "-", lines=b"nope\n" * 5000, code=1)
    assert failed.stderr.splitlines()[-2:] == ["and 4,980 more", "Error: 5,000 wrong lines; nothing was written"]
    assert _cases(database) == []


@pytest.mark.parametrize("lines", [b"", b"\n\n", b"\xef\xbb\xbf\n"])
def test_an_empty_file_is_an_error(run, database, lines):
    assert "--nothing-found" in run("erase", "--subject", "u-1", "-", lines=lines, code=1).stderr
    assert _cases(database) == []


@pytest.mark.parametrize(
    "arguments",
    [
        ("--subject", "u-1"),
        ("--subject", "u-1", "--nothing-found", "-"),
        ("-",),
        ("--subject", "", "-"),
        ("--subject", "u-1", "--basis", "because", "-"),
        ("--subject", "u-1", "--received-at", "yesterday", "-"),
        ("--subject", "u-1", "--received-at", "2999-01-01", "-"),
        ("--subject", "u-1", "no-such-file.jsonl"),
    ],
)
def test_wrong_usage_of_erase(run, database, arguments):
    run("erase", *arguments, lines=[_file("file-1")], code=2)
    assert _cases(database) == []


def test_a_case_that_cannot_be_is_refused(run, database):
    for arguments in (("--subject", "x" * 1001), ("--subject", "u", "--case", "x" * 201)):
        assert run("erase", *arguments, "-", lines=[_file("file-1")], code=1).stderr.startswith("Error: ")
    assert _cases(database) == []


def test_what_a_terminal_would_obey_is_neither_taken_nor_shown(run, database):
    """The host's plain SQL may bring what the commands refuse."""
    for name in ("--subject", "--tenant", "--case"):
        arguments = {"--subject": "u-1", name: "x\x1b[2K"}
        failed = run(
            "erase", *(part for pair in arguments.items() for part in pair), "-", lines=[_file("file-1")], code=1
        )
        assert failed.stderr.endswith(": holds U+001B, a control character\n")
    assert _cases(database) == []
    with database.begin() as tx:
        tx.run("INSERT INTO erasure_case (id, tenant, subject) VALUES (:x, :x, :x)", x="x\x1b[2K\u202e\x85")
        tx.run(
            "INSERT INTO erasure_outbox (case_id, account, kind, locator) VALUES (:x, 'ai', 'file', :x)",
            x="x\x1b[2K\u202e\x85",
        )
        tx.run(
            "INSERT INTO erasure_lane (account, scope, paused_by, paused_since) VALUES ('ai', :x, 'operator', {now})",
            x="\x1b",
        )
    said = run("cases").stdout + run("cases", "x\x1b[2K\u202e\x85").stdout + run("outbox").stdout
    said += run("outbox", "--case", "no\x1b[2K", code=1).stderr
    assert "\\x1b[2K\\u202e\\x85" in said
    assert said.replace("\n", "").isprintable()


def test_a_dry_run_says_what_would_be_done_and_writes_nothing(run, database):
    rung = []
    lines = [_file("file-1"), _file("file-2")]
    said = run("erase", "--subject", "u-1", "--dry-run", "-", lines=[*lines, lines[0]]).stdout
    assert said == (
        "The case would be opened; 2 targets would be added to the outbox;"
        " 1 line not added: the same target as an earlier line. Nothing was written.\n"
    )
    assert (_cases(database), _entries(database)) == ([], [])
    run("erase", "--subject", "u-1", "--case", "1", "-", lines=lines[:1])
    bell.hang(rung.append)
    (row,) = _json(run("erase", "--subject", "u-1", "--case", "1", "--dry-run", "--json", "-", lines=lines))
    assert (row["id"], row["dry_run"], row["entries"]) == ("1", True, {"ready": 2})
    assert len(_entries(database)) == 1
    run("erase", "--subject", "u-2", "--case", "1", "--dry-run", "-", lines=lines, code=1)
    run("erase", "--subject", "u-1", "--dry-run", "-", lines=[_file("nope")], code=1)
    assert rung == []


def test_commands_ring_before_they_end(run, database, monkeypatch):
    rung = []
    monkeypatch.setattr("expunge.worker.invocation.hang_for", lambda settings: bell.hang(rung.append))
    run("erase", "--subject", "u-1", "--case", "1", "-", lines=[_file("file-1"), _file("file-2", "ai_us")])
    assert rung[0] == {"ai", "ai_us"}
    change_entries(database, [_entries(database)[0]["id"]], state="escalated", reason="x")
    rung.clear()
    run("retry", "--case", "1")
    run("resume", "ai_us")
    assert {"ai"} in rung
    assert {"ai_us"} in rung


@pytest.fixture
def filled(database):
    """Case 1 with an escalated entry, a waiting one and two receipts; case 2 complete."""
    ids = add_case(
        database, "1", ["file-1", "file-2"], account="ai", kind="file", basis="gdpr", received_at=NOW - timedelta(60)
    )
    change_entries(database, ids[:1], state="escalated", reason="AccessDenied")
    numbered = [
        f"00000000-0000-4000-8000-00000000000{n}" for n in range(3)
    ]  # one moment: their order is that of their ids
    made = [
        receipt("1", "file-1", account="ai", kind="file", status="failed", error="AccessDenied", http_status=403),
        receipt("1", "file-3", account="ai", kind="file", detail={"a": 'x,"y"'}, request_id="req-1"),
        receipt("3", "b/[bold]\x1b[31m\u2028", tenant=None),
    ]
    for number, one in zip(numbered, made, strict=True):
        one.id = number
        add_receipts(database, [one])
    add_case(database, "2", [])
    return ids


def test_cases(run, filled):
    first, second = _json(run("cases", "--json"))
    assert list(first) == [*CASE_COLUMNS, "state", "overdue", "entries", "receipts"]
    assert (first["id"], first["state"], first["entries"], first["receipts"]) == (
        "1",
        "escalated",
        {"ready": 1, "escalated": 1},
        2,
    )
    assert (second["id"], second["state"], second["overdue"]) == ("2", "complete", False)
    said = run("cases").stdout
    assert "1 ready, 1 escalated" in said
    assert said.endswith("2 cases.\n")


def test_one_case_with_its_entries_and_receipts(run, filled):
    rows = _json(run("cases", "1", "--json"))
    assert [row["row"] for row in rows] == ["case", "entry", "entry", "receipt", "receipt"]
    assert list(rows[0]) == ["row", *CASE_COLUMNS, "state", "overdue", "entries", "receipts", "holds"]
    assert list(rows[1]) == ["row", *ENTRY_COLUMNS]
    assert list(rows[3]) == ["row", *RECEIPT_COLUMNS]
    said = run("cases", "1").stdout
    assert "Still to be erased" in said
    assert "req-1" in said
    assert "OVERDUE" in said or datetime.now(UTC) < NOW - timedelta(29)
    assert "Somebody looked" in run("cases", "2").stdout
    failed = run("cases", "nobody", code=1)
    assert (failed.stdout, failed.stderr) == ("", "Error: there is no case nobody\n")


def test_receipts_as_json_csv_and_table(run, filled):
    rows = _json(run("receipts", "--json"))
    assert [list(row) for row in rows] == [RECEIPT_COLUMNS] * 3
    assert rows[2]["locator"] == "b/[bold]\x1b[31m\u2028"
    lines = list(csv.DictReader(io.StringIO(run("receipts", "--csv").stdout, newline="")))
    assert list(lines[0]) == RECEIPT_COLUMNS
    for row, line in zip(rows, lines, strict=True):
        flat = {name: "" if value is None else value for name, value in row.items()}
        assert line == {n: json.dumps(v) if isinstance(v, dict) else str(v) for n, v in flat.items()}
    said = run("receipts").stdout
    assert "\x1b" not in said
    assert "DeleteObjects 403 AccessDenied" in said
    assert said.endswith("3 receipts.\n")


def test_receipts_of_none(run, database):
    assert run("receipts", "--json").stdout == ""
    assert run("receipts", "--csv").stdout == ",".join(RECEIPT_COLUMNS) + "\n"
    assert run("receipts").stdout == "0 receipts.\n"


def test_receipts_by_filter(run, filled):
    def found(*arguments):
        return [row["locator"] for row in _json(run("receipts", "--json", *arguments))]

    assert found("--case", "1") == ["file-1", "file-3"]
    assert found("--status", "failed", "--account", "ai", "--kind", "file") == ["file-1"]
    assert found("--locator", "file-3", "--subject", "s", "--tenant", "t") == ["file-3"]
    recorded = _json(run("receipts", "--json"))[1]["recorded_at"]
    assert "file-3" in found("--since", recorded)
    assert "file-3" not in found("--until", recorded)
    assert found("--since", "2000-01-01", "--until", "2000-01-02") == []
    run("receipts", "--status", "gone", code=2)
    run("receipts", "--since", "2026-02-01", "--until", "2026-01-01", code=2)
    run("receipts", "--csv", "--json", code=2)


@pytest.mark.parametrize(
    "command",
    [
        ("receipts", "--case"),
        ("receipts", "--json", "--case"),
        ("receipts", "--csv", "--case"),
        ("receipts", "--status", "failed", "--case"),
        ("outbox", "--case"),
        ("outbox", "--json", "--account", "ai", "--case"),
        ("retry", "--case"),
        ("cases",),
    ],
    ids=" ".join,
)
def test_a_case_that_does_not_exist_is_an_error(run, filled, command):
    """A mistyped id must not read as a case that has nothing left, or no receipts."""
    failed = run(*command, "nosuch", code=1)
    assert (failed.stdout, failed.stderr) == ("", "Error: there is no case nosuch\n")


def test_a_case_without_receipts_or_entries_is_none(run, filled):
    assert run("receipts", "--case", "2").stdout == "0 receipts.\n"
    assert run("receipts", "--case", "1", "--status", "waived", "--json").stdout == ""
    assert run("outbox", "--case", "2").stdout == "0 entries.\n"
    # only receipts are left of case 3
    assert run("receipts", "--case", "3").stdout.endswith("1 receipt.\n")
    assert run("receipts", "--case", "3", "--status", "failed").stdout == "0 receipts.\n"
    assert run("outbox", "--case", "3").stdout == "0 entries.\n"


def test_outbox_with_the_lanes_that_are_paused(run, filled):
    rows = _json(run("outbox", "--json"))
    assert [list(row) for row in rows] == [[*ENTRY_COLUMNS, "paused_by", "paused_until", "paused_reason"]] * 2
    assert {row["paused_by"] for row in rows} == {None}
    assert [row["id"] for row in _json(run("outbox", "--json", "--state", "escalated"))] == filled[:1]
    assert _json(run("outbox", "--json", "--case", "2")) == []
    run("pause", "ai", "--why", "maintenance")
    assert {(row["paused_by"], row["paused_reason"]) for row in _json(run("outbox", "--json", "--account", "ai"))} == {
        ("operator", "maintenance")
    }
    said = run("outbox").stdout
    assert said.startswith("account ai is paused by an operator since ")
    assert said.endswith("2 entries.\n")
    run("outbox", "--state", "gone", code=2)


def test_pause_and_resume(run, database):
    (row,) = _json(run("pause", "ai", "--by", "dana", "--json"))
    assert list(row) == [column.name for column in ErasureLane.__table__.columns]
    assert (row["account"], row["paused_by"], row["paused_until"]) == ("ai", "operator", None)
    assert "until `expunge resume ai`" in run("pause", "ai").stdout
    assert run("resume", "ai").stdout == "Account ai goes on.\n"
    assert run("resume", "ai").stdout == "Account ai was not paused.\n"
    (row,) = _json(run("resume", "ai_us", "--json"))
    assert (row["account"], row["scope"], row["paused_by"]) == ("ai_us", "", None)
    for command in ("pause", "resume"):
        assert "is not in the settings; there are: ai, ai_us" in run(command, "nobody", code=1).stderr
        run(command, code=2)


def test_retry(run, database, filled):
    one, two = filled
    (row,) = _json(run("retry", str(one), "--json"))
    assert (list(row), row["id"], row["state"], row["reason"]) == (ENTRY_COLUMNS, one, "ready", None)
    change_entries(database, [one], state="escalated", reason="AccessDenied")
    change_entries(database, [two], state="held")
    assert run("retry", "--case", "1").stdout == "1 escalated entry ready again; left as they are: 1 held.\n"
    assert run("retry", "--account", "ai_us").stdout == "Nothing to retry.\n"
    assert len(_json(run("retry", "--account", "ai", "--json"))) == 2
    assert "entry 999 is not in the outbox" in run("retry", "999", code=1).stderr
    assert "there is no case 9" in run("retry", "--case", "9", code=1).stderr
    assert "not in the settings" in run("retry", "--account", "nobody", code=1).stderr
    for wrong in ((), (str(one), "--case", "1"), ("x",), ("0",), (str(2**63),), (str(one), "--by", "")):
        run("retry", *wrong, code=2)


def test_waive(run, database, filled):
    one, two = filled
    for wrong in (
        (str(one),),
        (str(one), "--by", "d"),
        (str(one), "--by", "d", "--why", " "),
        ("--by", "d", "--why", "x"),
    ):
        run("waive", *wrong, code=2)
    assert "nothing was changed" in run("waive", str(one), "999", "--by", "d", "--why", "x", code=1).stderr
    change_entries(database, [two], state="calling")
    assert "in a worker's hands" in run("waive", str(two), "--by", "d", "--why", "x", code=1).stderr
    assert len(_entries(database)) == 2
    (row,) = _json(run("waive", str(one), "--by", "dana", "--why", "TICKET-1", "--json"))
    assert list(row) == RECEIPT_COLUMNS
    assert (row["status"], row["actor"], row["why"], row["entry_id"]) == ("waived", "dana", "TICKET-1", one)
    change_entries(database, [two], state="escalated", reason="x", lease_token=None, lease_until=None)
    assert run("waive", str(two), "--by", "d", "--why", "x").stdout == "1 entry waived.\nCase 1 is complete.\n"
    assert "dana: TICKET-1" in run("receipts", "--status", "waived").stdout


@pytest.mark.parametrize("command", ["erase", "cases", "receipts", "outbox", "retry", "waive", "pause", "resume"])
def test_help_has_examples(command):
    result = CliRunner().invoke(main, [command, "--help"])
    assert result.exit_code == 0
    assert f"expunge {command}" in result.output
    assert "Example" in result.output
    assert "--json" in result.output
    assert "--config" in result.output


WITHOUT_CREATING = [
    ("check",),
    ("erase", "--subject", "s", "-"),
    ("erase", "--subject", "s", "--dry-run", "--nothing-found"),
    ("cases",),
    ("cases", "88213"),
    ("receipts", "--csv"),
    ("outbox", "--json"),
    ("retry", "1"),
    ("waive", "1", "--by", "d", "--why", "w"),
    ("pause", "ai"),
    ("resume", "ai"),
    ("graph",),
    ("fence", "check"),
    ("purge", "c1", "--principal", "p", "--yes"),
    ("inventory",),
    ("serve", "--port", "0"),
    ("token", "list"),
    ("hold", "place", "--subject", "s", "--by", "d", "--why", "w"),
    ("hold", "release", "1", "--by", "d", "--why", "w"),
    ("hold", "list"),
    ("extend", "1", "--by", "d", "--why", "w"),
    ("export",),
    ("replay", "--from", __file__, "--since", "2026-01-01"),
]
WITH_GRAPH = {"graph", "fence", "purge"}
"""These ask for their graph first."""
CREATING = {"demo", "up", "migrate"}


def test_every_command_is_held_to_creating_nothing():
    assert {name for name, *_ in WITHOUT_CREATING} | CREATING == set(COMMANDS)


@pytest.mark.parametrize("arguments", WITHOUT_CREATING, ids=" ".join)
@pytest.mark.parametrize("url", ["sqlite:///FOLDER/typo.db", "sqlite:///file:FOLDER/typo.db?uri=true"])
def test_a_file_that_is_not_there_is_not_created(tmp_path, arguments, url):
    config = tmp_path / "expunge.toml"
    config.write_text(
        f'database_url = "{url.replace("FOLDER", str(tmp_path))}"\n'
        '[accounts.ai]\nstore = "openai"\n[graphs.sessions.root]\ntable = "session"\n'
    )
    result = CliRunner().invoke(main, [*arguments, "--config", str(config)], input="")
    assert result.exit_code == 1
    said = f"the SQLite file {tmp_path}/typo.db does not exist: correct database_url"
    assert said in " ".join(result.output.split())
    assert list(tmp_path.iterdir()) == [config]


@pytest.mark.parametrize("arguments", [each for each in WITHOUT_CREATING if each[0] not in WITH_GRAPH], ids=" ".join)
def test_without_tables_a_command_says_what_to_do(tmp_path, arguments):
    config = tmp_path / "expunge.toml"
    (tmp_path / "empty.db").touch()
    config.write_text(f'database_url = "sqlite:///{tmp_path}/empty.db"\n')
    result = CliRunner().invoke(main, [*arguments, "--config", str(config)], input="")
    assert result.exit_code == 1
    assert "no Expunge tables yet: run expunge migrate" in result.output


@pytest.mark.parametrize(
    "content", [b"not a database" * 100, b"SQLite format 3\0" + b"\xff" * 4096], ids=["junk", "broken"]
)
@pytest.mark.parametrize("command", ["cases", "outbox", "migrate", "up"])
def test_a_file_that_sqlite_cannot_read_is_told_in_a_line(tmp_path, command, content):
    (tmp_path / "junk.db").write_bytes(content)
    config = tmp_path / "expunge.toml"
    config.write_text(f'database_url = "sqlite:///{tmp_path}/junk.db"\n')
    result = CliRunner().invoke(main, [command, "--config", str(config)])
    assert result.exit_code == 1
    assert "is not one that SQLite can read" in " ".join(result.output.split())
    assert "Traceback" not in result.output
    assert (tmp_path / "junk.db").read_bytes() == content


_MEASURED = """
import resource, subprocess, sys
ran = subprocess.run([sys.executable, "-c", "from expunge.worker.cli import main; main()", *sys.argv[1:]])
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, file=sys.stderr)
sys.exit(ran.returncode)
"""


def _peak_memory(*arguments: str) -> tuple[int, int]:
    """(KiB at the peak, lines printed) of a command in a process of its own. A small process starts it and asks, since
    a process begins with the peak of the one that forked it, and that of the tests is above all that it may reach."""
    with subprocess.Popen(
        [sys.executable, "-c", _MEASURED, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        lines = sum(1 for _ in process.stdout)
        told = process.stderr.read().split()
    assert process.returncode == 0
    return int(told[-1]), lines


@pytest.mark.parametrize("arguments", [("--json",), ("--csv", "--case", "many")], ids=["all", "of a case"])
def test_sixty_thousand_receipts_take_no_more_memory_than_two_thousand(database, tmp_path, database_url, arguments):
    config = tmp_path / "few.toml"
    config.write_text(f'database_url = "{database_url}"\n')
    add_many_receipts(database, "few", 2_000)  # two pages
    add_many_receipts(database, "many", 60_000)
    few, _ = _peak_memory("receipts", "--config", str(config), "--json", "--case", "few")
    many, lines = _peak_memory("receipts", "--config", str(config), *arguments)
    assert lines >= 60_000
    assert many < few + 8 * 1024
