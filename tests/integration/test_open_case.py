"""Opening a case in the host's own transaction, from Python and by plain SQL."""

import threading
from datetime import UTC, datetime, timedelta, timezone

import pytest
import sqlalchemy as sa
from doubles.running import Bench
from sqlalchemy.orm import Session
from waiting import someone_waits, wait_for

from expunge.models import Target, open_case
from expunge.models.basis import BASES, due_date
from expunge.models.database import Database
from expunge.models.errors import CaseConflict, CaseNotFound, InvalidCase, InvalidTarget, translate
from expunge.models.list_cases import read_case
from expunge.models.tables import ErasureCase

ONE, TWO = Target("mem", "object", "b/1"), Target("mem", "object", "b/2")


@pytest.fixture
def bench(database):
    return Bench(database)


def test_the_hosts_session_decides(bench):
    with Session(bench.database.engine) as session:
        opened = open_case(session, subject="s", tenant="t", basis="gdpr", case_id="c1", targets=[ONE, TWO, ONE])
        assert (opened.created, opened.added, opened.known) == (True, 2, 0)
        session.rollback()
    assert bench.entries() == []
    with Session(bench.database.engine) as session, session.begin():
        open_case(session, subject="s", tenant="t", basis="gdpr", case_id="c1", targets=[ONE, TWO])
    assert [e.locator for e in bench.entries()] == ["b/1", "b/2"]
    case = bench.case()
    assert (case.tenant, case.subject, case.basis, case.scope) == ("t", "s", "gdpr", "targets")


def test_a_generated_id_and_the_statutory_date(bench):
    received = datetime(2026, 1, 31, 12, tzinfo=UTC)
    with bench.database.begin() as tx:
        opened = open_case(tx.connection, subject="s", basis="gdpr", received_at=received, targets=[ONE])
    with Session(bench.database.engine) as session:
        case = session.get(ErasureCase, opened.case_id)
        assert case.due_at == datetime(2026, 2, 28, 12, tzinfo=UTC)
        assert case.received_at == received


def test_again_adds_only_what_the_case_does_not_know(bench):
    bench.store.put("b/1", "b/2")
    bench.open("b/1")
    bench.drain()
    assert bench.case().completed_at is not None
    with bench.database.begin() as tx:
        opened = open_case(tx.connection, case_id="c1", subject="s", targets=[ONE])
    assert (opened.created, opened.added, opened.known) == (False, 0, 1)
    assert bench.case().completed_at is not None
    with bench.database.begin() as tx:
        opened = open_case(tx.connection, case_id="c1", subject="s", targets=[ONE, TWO])
    assert (opened.added, opened.known) == (1, 1)
    assert bench.case().completed_at is None
    bench.drain()
    assert bench.case().completed_at is not None
    assert bench.store.deletes("b/1") == 1


def test_a_failed_receipt_is_not_a_settling_one(bench):
    bench.open("b/1")
    bench.store.always["b/1"] = "left out"
    bench.drain()
    with bench.database.begin() as tx:
        tx.run("DELETE FROM erasure_outbox")
    with bench.database.begin() as tx:
        assert open_case(tx.connection, case_id="c1", subject="s", targets=[ONE]).added == 1


@pytest.mark.parametrize("other", [{"subject": "x"}, {"subject": "s", "tenant": "t"}])
def test_another_owner_is_refused(bench, other):
    bench.open("b/1")
    with pytest.raises(CaseConflict), bench.database.begin() as tx:
        open_case(tx.connection, case_id="c1", targets=[TWO], **other)
    assert len(bench.entries()) == 1


RECEIVED = datetime(2026, 1, 31, 12, 0, 0, 123456, tzinfo=UTC)
FULL = {
    "tenant": "t",
    "basis": "gdpr",
    "received_at": RECEIVED,
    "scope": "conversation",
    "conversation": "conversation-7",
}


@pytest.mark.parametrize(
    ("other", "says"),
    [
        ({"basis": "ccpa"}, "basis gdpr, not ccpa"),
        ({"basis": "request"}, "basis gdpr, not request"),
        (
            {"received_at": RECEIVED + timedelta(microseconds=1)},
            "received_at 2026-01-31T12:00:00.123456+00:00, not 2026-01-31T12:00:00.123457+00:00",
        ),
        ({"scope": "targets"}, "scope conversation, not targets"),
        ({"conversation": "conversation-8"}, "another conversation"),
        (
            {"basis": "ccpa", "scope": "subject"},
            "basis gdpr, not ccpa, and scope conversation, not subject",
        ),
    ],
)
def test_what_is_said_of_a_case_again_must_be_what_it_says(bench, other, says):
    """Silently keeping the first would let a caller believe in a date that nobody counts to."""
    bench.open("b/1", **FULL)
    before = bench.case()
    with pytest.raises(CaseConflict) as raised, bench.database.begin() as tx:
        open_case(tx.connection, case_id="c1", subject="s", targets=[TWO], **{**FULL, **other})
    assert str(raised.value) == f"case c1 exists with {says}; nothing was written"
    assert (bench.case(), [entry.locator for entry in bench.entries()]) == (before, ["b/1"])


@pytest.mark.parametrize("left_out", [[], *([name] for name in FULL if name != "tenant"), list(FULL)[1:]], ids=str)
def test_the_same_again_and_what_is_not_said_changes_nothing(bench, left_out):
    bench.open("b/1", **FULL)
    before = bench.case()
    again = {name: value for name, value in FULL.items() if name not in left_out}
    if "conversation" in left_out:
        again.pop("scope", None)
    elsewhere = {"received_at": RECEIVED.astimezone(timezone(timedelta(hours=5)))} if "received_at" in again else {}
    with Session(bench.database.engine) as session, session.begin():
        opened = open_case(session, case_id="c1", subject="s", targets=[ONE], **{**again, **elsewhere})
    assert (opened.created, opened.added, opened.known) == (False, 0, 1)
    assert bench.case() == before


def test_a_case_by_plain_sql_is_compared_as_well(bench):
    with bench.database.begin() as tx:
        tx.run("INSERT INTO erasure_case (id, subject, received_at) VALUES ('c1', 's', '2026-01-31 12:00:00')")
    bench.open("b/1", basis="request", scope="targets", received_at=RECEIVED.replace(microsecond=0))
    with pytest.raises(CaseConflict, match="basis request, not gdpr"):
        bench.open("b/2", basis="gdpr")


@pytest.mark.parametrize(
    ("account", "kind", "locator", "says"),
    [
        ("Mem", "object", "b/1", "account"),
        ("m" * 65, "object", "b/1", "account"),
        ("mem", "flie", "file-1", "kind"),
        ("mem", "object", "no-key", "bucket/key"),
        ("mem", "object", "b/", "bucket/key"),
        ("mem", "object", "/k", "bucket"),
        ("mem", "object", "b/\0", "NUL"),
        ("mem", "object", "b/" + "k" * 1200, "1202 bytes"),
        ("mem", "object", "b/\ud800", "surrogate"),
        ("mem", "object", "", "empty"),
        ("mem", "file", "vs_123", "file-"),
        ("mem", "vector_store", "file-123", "vs_"),
        ("mem", "conversation", "conv_1/msg_2", "conv_"),
        ("mem", "response", "resp_", "resp_"),
        ("mem", "file", "file-../../x", "file-"),
    ],
)
def test_wrong_targets_are_refused_before_anything_is_written(bench, account, kind, locator, says):
    with pytest.raises(InvalidTarget, match=says) as raised, bench.database.begin() as tx:
        open_case(tx.connection, subject="s", targets=[ONE, Target(account, kind, locator)])
    assert str(raised.value).startswith("target 2: ")
    with bench.database.read() as tx:
        assert tx.first("SELECT count(*) AS n FROM erasure_case").n == 0


@pytest.mark.parametrize(
    "wrong",
    [
        {"subject": ""},
        {"subject": "s\0"},
        {"subject": "s", "case_id": "c" * 201},
        {"subject": "s", "basis": "because"},
        {"subject": "s", "scope": "everything"},
        {"subject": "s", "scope": "conversation"},
        {"subject": "s", "received_at": datetime(2026, 1, 1)},  # noqa: DTZ001
        {"subject": "s", "received_at": datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=14)))},
        {"subject": "s", "received_at": datetime(1000, 1, 1, tzinfo=UTC)},
        {"subject": "s", "received_at": datetime(1899, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)},
        {"subject": "s", "received_at": datetime(9000, 1, 1, tzinfo=UTC)},
        {"subject": "s", "received_at": datetime(9999, 12, 31, tzinfo=timezone(-timedelta(hours=14)))},
        {"subject": "s", "targets": []},
        {"subject": "s", "nothing_found": True},
        {"subject": "s", "targets": ["b/1"]},
    ],
)
def test_wrong_cases_are_refused(bench, wrong):
    with pytest.raises(InvalidCase), bench.database.begin() as tx:
        open_case(tx.connection, **{"targets": [ONE], **wrong})
    assert bench.entries() == []


@pytest.mark.parametrize("basis", ["request", "gdpr", "ccpa"])
@pytest.mark.parametrize(
    "received", [datetime(1900, 1, 1, tzinfo=UTC), datetime(8999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)]
)
def test_the_first_and_the_last_time_that_can_be_kept(bench, received, basis):
    with bench.database.begin() as tx:
        open_case(tx.connection, case_id="c", subject="s", targets=[ONE], received_at=received, basis=basis)
    with bench.database.begin() as tx:
        assert read_case(tx, "c")["received_at"] == received


def test_nothing_found_is_complete_at_once(bench):
    with bench.database.begin() as tx:
        open_case(tx.connection, case_id="n", subject="s", nothing_found=True)
    case = bench.case("n")
    assert (bool(case.nothing_found), case.completed_at is not None) == (True, True)


NOT_PLAIN = {
    **dict.fromkeys([*range(0x20), *range(0x7F, 0xA0)], "a control character"),
    **dict.fromkeys([*range(0x202A, 0x202F), *range(0x2066, 0x206A)], "in another order"),
    **dict.fromkeys([0xD800, 0xDBFF, 0xDC00, 0xDFFF], "half a surrogate pair"),
}


@pytest.mark.parametrize("field", ["subject", "tenant", "case_id", "conversation"])
def test_text_that_is_shown_to_people_is_plain(bench, field):
    def open_with(text: str) -> None:
        with bench.database.begin() as tx:
            open_case(tx.connection, **{"subject": "s", field: text}, targets=[ONE])

    for number, says in NOT_PLAIN.items():
        for text in (f"{chr(number)}x", f"x{chr(number)}x", f"x{chr(number)}"):
            with pytest.raises(InvalidCase) as raised:
                open_with(text)
            said = str(raised.value)
            assert said.startswith(f"{field.replace('_', ' ')}: holds U+{number:04X}, ")
            assert says in said
            assert said.isprintable()
    assert bench.entries() == []
    open_with("Łukasz O'Brien 北京 👩‍👩‍👧 \u200f\u05d0 \\x1b")
    assert len(bench.entries()) == 1


def test_a_locator_is_what_the_store_has(bench):
    """Object stores take control characters in keys."""
    bench.open("b/\x1b[31m\r\n\x7f\x85\u202e")
    assert bench.entry().locator == "b/\x1b[31m\r\n\x7f\x85\u202e"


def nothing_found(bench, case="c1", **more):
    with bench.database.begin() as tx:
        return open_case(tx.connection, case_id=case, subject="s", nothing_found=True, **more)


def test_nothing_found_again_changes_nothing(bench):
    nothing_found(bench, basis="gdpr")
    before = bench.case()
    opened = nothing_found(bench)
    assert (opened.created, opened.added, bench.case()) == (False, 0, before)
    with pytest.raises(CaseConflict, match="basis gdpr, not ccpa"):
        nothing_found(bench, basis="ccpa")


def test_nothing_found_is_no_word_for_a_case_for_which_something_was(bench):
    """Neither while it waits, nor once it is gone, nor when only a receipt is left of it all."""
    bench.store.put("b/1")
    bench.open("b/1")
    with pytest.raises(CaseConflict, match="case c1 has entries"):
        nothing_found(bench)
    bench.drain()
    done = bench.case()
    with pytest.raises(CaseConflict, match="case c1 has receipts"):
        nothing_found(bench)
    assert (bench.case(), bool(done.nothing_found), done.completed_at is not None) == (done, False, True)
    with bench.database.begin() as tx:
        tx.run("DELETE FROM erasure_case")
        # even if the caller's transaction goes on
        with pytest.raises(CaseConflict, match="case c1 has receipts"):
            open_case(tx.connection, case_id="c1", subject="s", nothing_found=True)
    with bench.database.read() as tx:
        assert tx.rows("SELECT id FROM erasure_case") == []


def test_nothing_found_of_a_case_that_was_opened_without_targets(bench):
    with bench.database.begin() as tx:
        tx.run("INSERT INTO erasure_case (id, subject) VALUES ('c1', 's')")
    assert not nothing_found(bench).created
    assert (bool(bench.case().nothing_found), bench.case().completed_at is not None) == (True, True)


def test_a_target_takes_nothing_found_back(bench):
    bench.store.put("b/1")
    nothing_found(bench)
    bench.open("b/1")
    assert (bool(bench.case().nothing_found), bench.case().completed_at) == (False, None)
    bench.drain()
    assert (bool(bench.case().nothing_found), bench.case().completed_at is not None) == (False, True)


def test_nothing_found_waits_for_an_entry_in_flight(postgres_url):
    """The host's INSERT is not committed yet, and cannot be seen; its foreign key holds the case."""
    bench = Bench(Database.open(postgres_url))
    with bench.database.begin() as tx:
        tx.run("INSERT INTO erasure_case (id, subject) VALUES ('c1', 's')")
    refused = []

    def say() -> None:
        try:
            nothing_found(bench)
        except CaseConflict as error:
            refused.append(str(error))

    with bench.database.begin() as host:
        host.run("INSERT INTO erasure_outbox (case_id, account, kind, locator) VALUES ('c1', 'mem', 'object', 'b/1')")
        person = threading.Thread(target=say)
        person.start()
        wait_for(lambda: someone_waits(bench.database), what="a session that waits for the host")
    person.join()
    assert refused == ["case c1 has entries, so something was found; nothing was written"]
    assert (bool(bench.case().nothing_found), bench.case().completed_at) == (False, None)
    bench.database.close()


def test_two_plain_inserts_open_a_case(bench):
    bench.store.put("b/1")
    with bench.database.begin() as tx:
        tx.run("INSERT INTO erasure_case (id, subject) VALUES ('sql', 's')")
        tx.run("INSERT INTO erasure_outbox (case_id, account, kind, locator) VALUES ('sql', 'mem', 'object', 'b/1')")
    assert bench.sweep().rung == 1
    bench.drain()
    assert bench.case("sql").completed_at is not None


@pytest.mark.parametrize("basis", BASES)
def test_a_known_basis_by_plain_sql_gets_its_date(bench, basis):
    received = datetime(2026, 1, 31, 12, tzinfo=UTC)
    with bench.database.begin() as tx:
        tx.connection.execute(sa.insert(ErasureCase).values(id="sql", subject="s", basis=basis, received_at=received))
    bench.sweep()
    with bench.database.read() as tx:
        assert read_case(tx, "sql")["due_at"] == due_date(basis, received)


@pytest.mark.parametrize("basis", ["GDPR", "gdpr ", "foo", "", "ccpa\n", None])
def test_an_unknown_basis_by_plain_sql_is_refused(bench, basis):
    """It would never get a date, and nobody would be told that it is due."""
    with pytest.raises(sa.exc.IntegrityError, match="basis"), bench.database.begin() as tx:
        tx.run("INSERT INTO erasure_case (id, subject, basis) VALUES ('sql', 's', :basis)", basis=basis)
    bench.open("b/1", basis="gdpr")
    with pytest.raises(sa.exc.IntegrityError, match="basis"), bench.database.begin() as tx:
        tx.run("UPDATE erasure_case SET basis = :basis", basis=basis)
    assert bench.case().basis == "gdpr"


def test_an_entry_without_a_case_is_refused(bench):
    with pytest.raises(sa.exc.IntegrityError) as raised, bench.database.begin() as tx:
        tx.run("INSERT INTO erasure_outbox (case_id, account, kind, locator) VALUES ('x', 'mem', 'object', 'b/1')")
    assert isinstance(translate(raised.value), CaseNotFound)


def test_large_cases_are_inserted_in_chunks(bench):
    bench.open(*[f"b/{n}" for n in range(5000)])
    with bench.database.read() as tx:
        assert tx.first("SELECT count(*) AS n FROM erasure_outbox").n == 5000


def test_received_long_ago_is_overdue_at_once(bench):
    received = datetime.now(UTC) - timedelta(days=60)
    bench.open("b/1", basis="ccpa", received_at=received)
    bench.sweep()
    assert [n.kind for n in bench.notices()] == ["case.overdue"]
