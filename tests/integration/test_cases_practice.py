"""Public reports of erasure requests that looked complete while nothing had happened (P23): the symptom, the threads,
and what is right."""

import json
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from click.testing import CliRunner
from doubles.running import Bench
from servers.s3_stub import ACCESS_KEY, SECRET_KEY, S3Stub
from sqlalchemy.orm import Session

from expunge.models import Target, bell, open_case
from expunge.models.database import Database
from expunge.models.errors import InvalidCase, InvalidTarget
from expunge.models.list_cases import read_case
from expunge.tasks.drain import drain
from expunge.tasks.erasers.s3_options import S3Options
from expunge.tasks.runtime import Policy, Runtime
from expunge.tasks.sweep import sweep
from expunge.worker.cli import main

MANY = 2500
"""Targets of one case: several INSERTs."""
TABLES = ("erasure_case", "erasure_outbox", "erasure_record", "erasure_notice")


def is_empty(database: Database) -> bool:
    with database.read() as tx:
        return not any(tx.rows(f"SELECT 1 FROM {table}") for table in TABLES)


def state_of(database: Database, case_id: str) -> str:
    with database.read() as tx:
        return str(read_case(tx, case_id)["state"])


def test_p23_an_empty_plan_is_refused(database: Database) -> None:
    """A request whose erasure tasks were never created is complete (ethyca/fides PR#8268); zero rows deleted is success
    (GitLab#362841, mozilla/bigquery-etl#1431). Here: no targets are no case, unless somebody says that nothing is
    there, and then it is said as that, and not as something erased."""
    with pytest.raises(InvalidCase, match="there are none"), database.begin() as tx:
        open_case(tx.connection, case_id="c1", subject="s", targets=[])
    with pytest.raises(InvalidCase, match="nothing is tracked"), database.begin() as tx:
        open_case(tx.connection, case_id="c1", subject="s", inventory=True)
    assert is_empty(database)
    with database.begin() as tx:
        open_case(tx.connection, case_id="c1", subject="s", nothing_found=True)
        case = read_case(tx, "c1")
    assert (case["state"], case["nothing_found"]) == ("complete", True)
    with database.read() as tx:
        assert tx.rows("SELECT 1 FROM erasure_record") == []


def test_p23_a_case_whose_targets_never_came_stays_open(database: Database) -> None:
    """The same, in the database: a request row with no task is taken for finished by whoever counts what is left (fides
    PR#8268, GitLab#600628: the job that should have done it was missing). Here: it is open for ever, and overdue when
    its date has passed."""
    bench = Bench(database)
    with database.begin() as tx:
        now = database_now(tx)
        tx.run("INSERT INTO erasure_case (id, subject, basis, received_at) VALUES ('c1', 's', 'gdpr', :now)", now=now)
    for days in (1, 100):
        bench.sweep()
        bench.later(days * 86_400.0)
        bench.sweep()
        assert state_of(database, "c1") == "open"
    assert "case.overdue" in {notice.kind for notice in bench.notices(case_id="c1")}


def database_now(tx: Any) -> Any:
    return tx.rows("SELECT {now} AS now")[0].now


def _fails_at(number: int) -> Iterator[Target]:
    for each in range(MANY):
        if each == number:
            raise LookupError("the host's own query failed")
        yield Target("mem", "object", f"b/{each}")


def _with_one_wrong(number: int) -> Iterator[Target]:
    for each in range(MANY):
        yield Target("mem", "object", "no key" if each == number else f"b/{each}")


@pytest.mark.parametrize(("plan", "error"), [(_fails_at, LookupError), (_with_one_wrong, InvalidTarget)])
def test_p23_a_plan_that_cannot_be_made_writes_nothing(
    database: Database, plan: Callable[[int], Iterator[Target]], error: type[Exception]
) -> None:
    """A plan that broke off half way stands as if it were the whole (fides PR#8268; mozilla/bigquery-etl#5963: one
    delete for each table only). Here: nothing of it is written, even if the host commits all the same."""
    with database.begin() as tx, pytest.raises(error):
        open_case(tx.connection, case_id="c1", subject="s", targets=plan(MANY - 100))
    assert is_empty(database)


def test_p23_a_plan_that_the_database_breaks_off(database: Database) -> None:
    """The same with rows written already (fides PR#8268, stage-door#140): the third INSERT fails. The host rolls back,
    and nothing is left: no case, no entry, no bell; doing it again does all of it."""
    rung: list[frozenset[str]] = []
    bell.hang(lambda lanes: rung.append(frozenset(lanes)))
    targets = [Target("mem", "object", f"b/{number}") for number in range(MANY)]
    inserts = []

    def break_off(_: Any, __: Any, statement: str, *___: Any) -> None:
        if statement.startswith("INSERT INTO erasure_outbox"):
            inserts.append(statement)
            if len(inserts) == 3:
                raise ConnectionError("lost")

    sa.event.listen(database.engine, "before_cursor_execute", break_off)
    try:
        with pytest.raises(ConnectionError), Session(database.engine) as session, session.begin():
            open_case(session, case_id="c1", subject="s", targets=targets)
    finally:
        sa.event.remove(database.engine, "before_cursor_execute", break_off)
    assert len(inserts) == 3
    assert is_empty(database)
    assert rung == []
    with Session(database.engine) as session, session.begin():
        opened = open_case(session, case_id="c1", subject="s", targets=targets)
    assert (opened.created, opened.added, rung) == (True, MANY, [frozenset({"mem"})])


def test_p23_two_cases_of_one_subject_at_once(database: Database) -> None:
    """Of two approvals at once the second gets a 404, or the two share their work and one of them is never done (fides
    PR#4593, PostHog PR#56587: cleaned up although the delete failed). Here: both are opened and worked off at the same
    time. Each has its own entries, each receipt is true of its own call, and both complete."""
    bench = Bench(database, batch=3, threads=9)
    names = [f"b/{number}" for number in range(12)]
    bench.store.put(*names)
    barrier = threading.Barrier(2)
    errors: list[BaseException] = []

    def approve(case: str) -> None:
        try:
            barrier.wait(30)
            bench.open(*names, case=case)
            bench.drain(runtime=bench.another())
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=approve, args=(case,), daemon=True) for case in ("c1", "c2")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert errors == []
    bench.settle_all()
    calls = [
        (locator, f"req-{number}") for number, (_, locators) in enumerate(bench.store.log, 1) for locator in locators
    ]
    assert len(calls) == 2 * len(names)
    told = [(row.locator, row.request_id) for row in bench.receipts()]
    assert sorted(told) == sorted(calls)
    for name in names:
        assert sorted(bench.statuses(locator=name)) == ["already_absent", "deleted"]
    for case in ("c1", "c2"):
        assert sorted(row.locator for row in bench.receipts(case_id=case)) == sorted(names)
        assert state_of(database, case) == "complete"


@pytest.fixture
def without_delete(
    database: Database, database_url: str, stub: S3Stub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Runtime, Callable[..., dict[str, tuple[bool | None, str]]]]]:
    """A runtime over a bucket with nine objects, a case of them, and what `expunge check` says of it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
    (tmp_path / "expunge.toml").write_text(
        f'database_url = "{database_url}"\n'
        f'[accounts.objects]\nstore = "s3"\nendpoint_url = "{stub.url}"\nregion = "us-east-1"\nallow = ["b"]\n'
    )
    for number in range(9):
        stub.bucket("b").put(f"k{number}")
    options = S3Options(endpoint_url=stub.url, region="us-east-1", allow=("b",))
    runtime = Runtime(database, Policy(retry_base_seconds=0.5, retry_max_seconds=1.0), {"objects": options})
    with database.begin() as tx:
        targets = [Target("objects", "object", f"b/k{number}") for number in range(9)]
        open_case(tx.connection, case_id="c1", subject="s", targets=targets)

    def check(code: int | None = None) -> dict[str, tuple[bool | None, str]]:
        result = CliRunner().invoke(main, ["check", "--json"])
        assert code in (None, result.exit_code), result.output
        lines = [json.loads(line) for line in result.stdout.splitlines()]
        return {line["name"]: (line["ok"], line["text"]) for line in lines}

    yield runtime, check
    for eraser in runtime._erasers.values():
        eraser.close()


@pytest.mark.parametrize("said", ["key by key", "at once"])
def test_p23_credentials_without_delete(database: Database, without_delete: Any, stub: S3Stub, said: str) -> None:
    """Without the permission to delete, the backlog grows without bound and nobody hears of it (redpanda PR#7191;
    PostHog PR#56587: what failed to be deleted was forgotten). S3 says AccessDenied for each key of a 200, other
    stores by a 403. Each is tried twice, then for a person; nothing is complete, nor is called again and again."""
    runtime, check = without_delete
    at_once = said == "at once"
    if not at_once:
        stub.bucket("b").key_errors.update({f"k{number}": ["AccessDenied*"] for number in range(9)})
    with stub.fault("DeleteObjects", "AccessDenied:403" if at_once else "none"):
        for _ in range(5):
            drain(runtime, "objects")
            sweep(runtime)
            later(database, 600)
    with database.read() as tx:
        entries = tx.rows("SELECT state, reason, refusals FROM erasure_outbox")
        told = tx.rows("SELECT status, error, http_status FROM erasure_record")
        notices = tx.rows("SELECT kind FROM erasure_notice")
    assert [tuple(row) for row in entries] == [("escalated", "AccessDenied", 2)] * 9
    assert [tuple(row) for row in told] == [("failed", "AccessDenied", 403 if at_once else 200)] * 18
    assert [row.kind for row in notices if row.kind == "entry.escalated"] == ["entry.escalated"] * 9
    assert state_of(database, "c1") == "escalated"
    assert len(stub.bucket("b").objects) == 9
    assert "9 entries escalated" in check()["outbox"][1]
    assert len(stub.calls("DeleteObjects")) == 2


@pytest.mark.parametrize(
    ("code", "line"), [("AllAccessDisabled", "lane objects (b)"), ("InvalidAccessKeyId", "lane objects")]
)
def test_p23_credentials_that_are_refused(
    database: Database, without_delete: Any, stub: S3Stub, code: str, line: str
) -> None:
    """A disabled connector fails each request, or none (ethyca/fides#2048, redpanda PR#7191): what is refused whatever
    is asked pauses its lane, is told once, and `expunge check` fails. When it is repaired, everything is done."""
    runtime, check = without_delete
    with stub.fault("DeleteObjects", f"{code}:403"):
        for _ in range(5):
            drain(runtime, "objects")
            sweep(runtime)
            later(database, 5)
        with database.read() as tx:
            told = {tuple(row) for row in tx.rows("SELECT status, error FROM erasure_record")}
            kinds = [row.kind for row in tx.rows("SELECT kind FROM erasure_notice")]
        assert told == {("failed", code)}
        assert kinds.count("lane.paused") == 1
        assert len(stub.calls("DeleteObjects")) <= 2
        ok, text = check(code=1)[line]
        assert ok is False
        assert code in text
    assert len(stub.bucket("b").objects) == 9
    for _ in range(4):
        later(database, 90_000)  # longer than any pause, and an escalated entry is tried once more a day
        sweep(runtime)
        drain(runtime, "objects")
    assert stub.bucket("b").objects == {}
    assert state_of(database, "c1") == "complete"


def later(database: Database, seconds: float) -> None:
    database.skew += timedelta(seconds=seconds)
