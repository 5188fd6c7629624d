"""Opening a case in the host's own transaction, from Python and by plain SQL."""

from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa
from doubles.running import Bench
from sqlalchemy.orm import Session

from expunge.models import Target, open_case
from expunge.models.basis import BASES, due_date
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
        {"subject": "s", "targets": []},
        {"subject": "s", "nothing_found": True},
        {"subject": "s", "targets": ["b/1"]},
    ],
)
def test_wrong_cases_are_refused(bench, wrong):
    with pytest.raises(InvalidCase), bench.database.begin() as tx:
        open_case(tx.connection, **{"targets": [ONE], **wrong})
    assert bench.entries() == []


def test_nothing_found_is_complete_at_once(bench):
    with bench.database.begin() as tx:
        open_case(tx.connection, case_id="n", subject="s", nothing_found=True)
    case = bench.case("n")
    assert (bool(case.nothing_found), case.completed_at is not None) == (True, True)


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
    assert [n.kind for n in bench.notices()] == ["case.due_soon"]
