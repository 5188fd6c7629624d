"""The checker sees faults: a clean run passes, and each thing that is then broken is found."""

import shutil
import sqlite3
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from chaos import checker
from chaos.conftest import World

from expunge.worker.demo_provider_faults import Fault, Reply

pytestmark = pytest.mark.chaos


@pytest.fixture
def clean(make_world: Callable[[str], World], sqlite_url: str) -> World:
    """A case that was completed, with an answer that was lost on the way."""
    world = make_world(sqlite_url)
    world.open()
    world.provider.faults.add(Fault(Reply.DROP, "DELETE", "/v1/vector_stores/*", acts=True))
    world.finish(workers=1)
    return world


def _tampered(world: World, path: Path, sql: str) -> list[str]:
    """What is found in a copy of the database whose receipts no trigger protects any more."""
    shutil.copy(world.url.removeprefix("sqlite:///"), path)
    with closing(sqlite3.connect(path)) as connection:
        for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            connection.execute(f"DROP TRIGGER {name}")
        assert connection.execute(sql).rowcount >= 1
        connection.commit()
    return checker.findings(f"sqlite:///{path}", world.stores, wanted=world.wanted, keep=world.keep)


ONE = "SELECT min(id) FROM erasure_record WHERE status = 'deleted' AND action = 'delete'"
TAMPERED = {
    f"DELETE FROM erasure_record WHERE id = ({ONE} AND store = 'openai')": "1 delete calls without a receipt",
    f"DELETE FROM erasure_record WHERE id = ({ONE} AND version IS NULL)": "1 delete calls without a receipt",
    f"DELETE FROM erasure_record WHERE id = ({ONE} AND version IS NOT NULL AND locator LIKE '%all%')": "no receipt for",
    "DELETE FROM erasure_record WHERE status = 'unknown'": "delete calls without a receipt",
    f"UPDATE erasure_record SET request_id = 'INVENTED' WHERE id = ({ONE})": "no log knows the request id INVENTED",
    f"UPDATE erasure_record SET request_id = NULL WHERE id = ({ONE})": "without a request id",
    f"UPDATE erasure_record SET locator = 'plain/other' WHERE id = ({ONE} AND store = 's3')": "did not ask for",
    "UPDATE erasure_case SET completed_at = NULL": "is not complete",
    "UPDATE erasure_record SET status = 'failed', error = 'X' WHERE kind = 'conversation' AND status = 'deleted'": (
        "no receipt closes it"
    ),
    "INSERT INTO erasure_outbox (case_id, account, kind, locator) VALUES ('c1', 'ai', 'file', 'file-1')": (
        "an entry is left"
    ),
}


def test_the_checker_sees_what_is_wrong(clean: World, tmp_path: Path) -> None:
    assert clean.findings() == []
    for number, (sql, expected) in enumerate(TAMPERED.items()):
        found = _tampered(clean, tmp_path / f"tampered{number}.db", sql)
        assert any(expected in finding for finding in found), (sql, found)

    hidden = tmp_path / "hidden.jsonl"
    lines = clean.stores.s3_log.read_text().splitlines()
    hidden.write_text("\n".join(line for line in lines if "DeleteObjects" not in line))
    stores = replace(clean.stores, s3_log=hidden)
    found = checker.findings(clean.url, stores, wanted=clean.wanted, keep=clean.keep)
    assert any("no log knows" in finding for finding in found)

    for put in (
        lambda: clean.s3.bucket("plain").put("u/1/single/1"),
        lambda: clean.s3.bucket("old").put("u/1/all/never-seen"),
        lambda: clean.provider.seed(files=["file-u11"]),
        lambda: clean.provider.project().items.update(conv_u1={"msg_u11": {}}),
    ):
        before = len(clean.findings())
        put()
        assert len(clean.findings()) >= before + 2  # it is there, and a receipt says that it is not
    clean.s3.bucket("plain").objects.pop("u/10/all/stays")
    assert any("was nobody's to erase" in finding for finding in clean.findings())


def test_the_checker_sees_a_call_while_held(clean: World) -> None:
    """The same calls are one in flight, or an offence, by what the hold named."""
    call = next(call for call in clean.delete_calls() if call.locator == "file-u11")
    (entry,) = {row["entry_id"] for row in clean.receipts() if row["request_id"] == call.request_id}
    hold = checker.Hold(("file-u11",), call.begun - 0.001, call.begun + 0.001, frozenset())

    def found(hold: checker.Hold) -> list[str]:
        return list(checker.called_while_held(clean.receipts(), clean.delete_calls(), [hold]))

    assert "not named as in flight" in "".join(found(hold))
    assert found(replace(hold, prefixes=("file-u12",))) == []
    assert found(replace(hold, committed=call.begun + 0.0005)) == []
    assert found(replace(hold, released=call.begun - 0.0005)) == []
    assert found(replace(hold, in_flight=frozenset({entry}))) == []
    again = [{**row, "attempt": 9} for row in clean.receipts() if row["request_id"] == call.request_id]
    named = replace(hold, in_flight=frozenset({entry}))
    twice = checker.called_while_held([*clean.receipts(), *again], clean.delete_calls(), [named])
    assert "more than the attempt" in "".join(twice)
    # one attempt is one call, also of those whose answer was lost and which no receipt names
    lost = replace(call, request_id="req_lost", begun=call.begun + 0.0005)
    twice = checker.called_while_held(clean.receipts(), [*clean.delete_calls(), lost], [named])
    assert "more than the attempt" in "".join(twice)


def test_the_checker_sees_calls_that_nobody_should_have_made(clean: World) -> None:
    """By somebody who asks neither the outbox nor the holds, at both stores."""
    begun = time.time()
    for url, key in (
        (f"{clean.provider.base_url}/files/file-u11", "Bearer sk-demo"),
        (f"{clean.stores.s3_url}/plain/u/1/single/1", "x Credential=stubstubstubstub/x"),
    ):
        request = urllib.request.Request(url, method="DELETE", headers={"authorization": key})
        with suppress(urllib.error.HTTPError):
            urllib.request.urlopen(request, timeout=10).close()
    hold = checker.Hold(("file-u1", "plain/u/1/"), begun, time.time(), frozenset())
    found = checker.findings(clean.url, clean.stores, wanted=clean.wanted, keep=clean.keep, holds=[hold])
    for locator in ("file-u11", "plain/u/1/single/1"):
        assert any(each.startswith(f"{locator}: 1 delete calls without a receipt") for each in found), found
        assert any(each.startswith(f"{locator}: called while held, and not named") for each in found), found
    assert len(found) == 4


def test_the_checker_sees_another_accounts_word(clean: World) -> None:
    stores = replace(clean.stores, project="proj_else")
    found = checker.findings(clean.url, stores, wanted=clean.wanted, keep=clean.keep)
    assert any("by the word of another account" in finding for finding in found)


def test_a_page_stands_for_one_failed_receipt() -> None:
    """It names no request; a second one without a receipt, or one that was done, is an offence."""
    page = checker.DeleteCall("req_1", "openai", "file-1", {None}, names_itself=False)
    row = {"request_id": None, "entry_id": 1, "attempt": 1, "store": "openai", "locator": "file-1", "version": None}
    failed = {**row, "status": "failed", "http_status": 503}

    def found(*calls: checker.DeleteCall, **changes: object) -> bool:
        return any("without a receipt" in each for each in checker.calls_without_receipts([failed | changes], calls))

    assert not found(page)
    assert found(page, page)
    assert found(replace(page, done=True))
    assert found(replace(page, names_itself=True))
    assert found(page, locator="file-2")
    assert found(page, http_status=None)
    assert not found(replace(page, done=True), status="unknown")
