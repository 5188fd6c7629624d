"""The real drain over the real eraser: at the end the store's access log and the receipts tell the same story."""

from datetime import timedelta
from typing import Any

import pytest
from servers.s3_stub import ACCESS_KEY, SECRET_KEY, S3Stub

from expunge.models import Target, open_case
from expunge.models.database import Database
from expunge.tasks.drain import drain
from expunge.tasks.erasers.s3_options import S3Options
from expunge.tasks.runtime import Policy, Runtime
from expunge.tasks.sweep import sweep


@pytest.fixture
def runtime(database: Database, stub: S3Stub, monkeypatch: pytest.MonkeyPatch) -> Runtime:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
    options = S3Options(endpoint_url=stub.url, region="us-east-1", allow=("plain", "old"), pages_per_claim=1)
    return Runtime(database, Policy(lease_seconds=60, retry_base_seconds=1), {"artifacts": options})


def drive(runtime: Runtime, *, turns: int = 40) -> list[Any]:
    """Drain and sweep, with the clock put forward in between, until nothing is left; gives the receipts."""
    for _ in range(turns):
        drain(runtime, "artifacts")
        sweep(runtime)
        with runtime.database.read() as tx:
            if not tx.rows("SELECT id FROM erasure_outbox"):
                break
        runtime.database.skew += timedelta(seconds=90)
    with runtime.database.read() as tx:
        assert tx.rows("SELECT id FROM erasure_outbox") == []
        return list(tx.rows("SELECT * FROM erasure_record"))


def test_a_case_over_both_kinds_of_buckets(runtime: Runtime, stub: S3Stub) -> None:
    plain, old = stub.bucket("plain", page=20), stub.bucket("old", versioning="Enabled")
    for number in range(50):
        plain.put(f"u/1/{number}")
    for bucket in (plain, old):
        for key in ("u/10/stays", "one", "two\x01", "two"):
            bucket.put(key)
            bucket.put(key)
    targets = [Target("artifacts", "prefix", "plain/u/1/"), Target("artifacts", "object", "old/never")]
    targets += [
        Target("artifacts", "object", f"{name}/{key}") for name in ("plain", "old") for key in ("one", "two\x01")
    ]
    with runtime.database.begin() as tx:
        open_case(tx.connection, case_id="c", subject="s", targets=targets)
    with stub.fault("DeleteObjects", "drop_after", times=1), stub.fault("DeleteObject", "slow_down", times=1):
        receipts = drive(runtime)
    assert set(plain.objects) == {"u/10/stays", "two"}
    assert set(old.objects) == {"u/10/stays", "two"}

    logged = {call["request_id"] for call in stub.calls()}
    answered = {receipt.request_id for receipt in receipts if receipt.request_id}
    assert answered <= logged
    for call in stub.calls("DeleteObjects", "DeleteObject"):
        unknown = {receipt.locator for receipt in receipts if receipt.status == "unknown"}
        assert call["request_id"] in answered or {f"{call['bucket']}/{key}" for key in call["keys"]} <= unknown
    closing = {r.locator: r.status for r in receipts if r.version is None and r.status in ("deleted", "already_absent")}
    assert closing["old/never"] == "already_absent"
    assert closing["plain/u/1/"] == closing["old/one"] == closing["old/two\x01"] == "deleted"
    assert len(closing) == 50 + len(targets)


def test_thousands_of_versions_in_rounds(runtime: Runtime, stub: S3Stub) -> None:
    bucket = stub.bucket("old", versioning="Enabled")
    for _ in range(2100):
        bucket.put("k")
    with runtime.database.begin() as tx:
        open_case(tx.connection, case_id="c", subject="s", targets=[Target("artifacts", "object", "old/k")])
    receipts = drive(runtime)
    assert not bucket.objects
    assert len(receipts) == 2101
    assert [receipt.status for receipt in receipts if receipt.version is None] == ["deleted"]


WHOLE_CALL = {
    "drop_before": ("unknown", "ConnectionClosedError", 1, 0),
    "drop_after": ("unknown", "ConnectionClosedError", 1, 0),
    "error_500": ("failed", "InternalError", 1, 0),
    "html_200": ("failed", "Unconfirmed", 1, 0),
    "html_404": ("failed", "Unconfirmed", 1, 0),
    "slow_down": ("failed", "Throttled", 0, 0),
    "MalformedXML:400": ("failed", "MalformedXML", 1, 1),
    "MethodNotAllowed:405": ("failed", "MethodNotAllowed", 1, 1),
    "NoSuchBucket:404": ("failed", "NoSuchBucket", 1, 1),
    "InvalidAccessKeyId:403": ("failed", "InvalidAccessKeyId", 1, 1),
}


@pytest.mark.parametrize("fault", WHOLE_CALL)
@pytest.mark.parametrize("locators", [("old/a", "old/b"), ("old/one\x01",)], ids=["batch", "single"])
def test_a_call_that_failed_as_a_whole_leaves_a_receipt_for_each_version_it_named(
    runtime: Runtime, stub: S3Stub, locators: tuple[str, ...], fault: str
) -> None:
    """And counts once: for the entry, and for the lane."""
    status, error, tries, refusals = WHOLE_CALL[fault]
    bucket = stub.bucket("old", versioning="Enabled")
    for key in ("a", "a", "a", "b", "b", "one\x01", "one\x01"):
        bucket.put(key)
    bucket.delete("a", None)  # leaves a delete marker
    with runtime.database.begin() as tx:
        open_case(
            tx.connection, case_id="c", subject="s", targets=[Target("artifacts", "object", each) for each in locators]
        )
    with stub.fault("DeleteObjects", fault, times=1), stub.fault("DeleteObject", fault, times=1):
        drain(runtime, "artifacts")
    with runtime.database.read() as tx:
        receipts = tx.rows("SELECT * FROM erasure_record")
        entries = {row.locator: row for row in tx.rows("SELECT * FROM erasure_outbox")}
        lanes = tx.rows("SELECT * FROM erasure_lane")
    failed = [receipt for receipt in receipts if receipt.error is not None]
    assert {(receipt.status, receipt.error) for receipt in failed} == {(status, error)}
    calls = [call for call in stub.calls("DeleteObjects", "DeleteObject") if call["fault"]]
    named = [
        (f"{call['bucket']}/{key}", version)
        for call in calls
        for key, version in zip(call["keys"], call["versions"], strict=True)
    ]
    assert sorted(named, key=str) == sorted(((each.locator, each.version) for each in failed), key=str)
    assert len(named) == (1 if "one" in locators[0] else 6)
    assert {(entries[each].tries, entries[each].refusals, entries[each].state) for each in locators} == {
        (tries, refusals, "ready")
    }
    assert sum(row.failures for row in lanes) <= len(calls) == 1
    drive(runtime, turns=80)
    assert {f"old/{key}" for key in bucket.objects} == {"old/a", "old/b", "old/one\x01"} - {*locators}
