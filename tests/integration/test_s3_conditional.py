"""Conditional deletes: probed when an operator says so, used where listing is refused, and never believed too much."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import structlog
from conformance.harness import entry, play
from servers.s3_stub import ACCESS_KEY, SECRET_KEY, S3Stub
from servers.s3_targets import S3Server

from expunge.models import Target, open_case
from expunge.models.capabilities import list_capabilities
from expunge.models.database import Database
from expunge.models.states import Action
from expunge.models.types import Json
from expunge.tasks.capabilities import SharedKnown
from expunge.tasks.drain import drain
from expunge.tasks.erasers.contract import Check, NothingSent, utc_now
from expunge.tasks.erasers.s3 import S3Eraser
from expunge.tasks.erasers.s3_client import CallFailed, Facts
from expunge.tasks.erasers.s3_errors import Verdict
from expunge.tasks.erasers.s3_options import S3Options
from expunge.tasks.outcomes import Outcome
from expunge.tasks.runtime import Policy, Runtime
from expunge.tasks.sweep import sweep
from expunge.worker import check

MakeEraser = Callable[..., S3Eraser]
DELETES = ("DeleteObject", "DeleteObjects")
NAME = "conditional_deletes"


def objects(*keys: str) -> list[tuple[str, str]]:
    return [("object", f"b/{key}") for key in keys]


def probed(eraser: S3Eraser, bucket: str = "b") -> Check:
    (line,) = [each for each in eraser.probe() if each.name == f"conditional deletes of {bucket}"]
    return line


def believing(stub: S3Stub, make_eraser: MakeEraser, **settings: Any) -> S3Eraser:
    """An eraser that has probed the bucket `b` and may not list it."""
    settings.setdefault("conditions", "honoured")
    later = settings.pop("conditions")
    stub.bucket("b", list_refused=True, conditions="honoured", **settings)
    eraser = make_eraser(stub, "b")
    assert probed(eraser).text.startswith("honoured: ")
    stub.buckets["b"].conditions = later
    with stub._mutex:
        stub.log.clear()
    return eraser


@pytest.mark.parametrize("listed", [True, False])
@pytest.mark.parametrize(
    ("conditions", "found", "answer", "ok"),
    [
        ("honoured", "honoured", "404 NoSuchKey", True),
        ("absent", "honoured", "404 NoSuchKey", True),
        ("ignored", "ignored", "204", None),
        ("refused", "refused", "412 PreconditionFailed", None),
        ("AccessDenied", "refused", "403 AccessDenied", None),
    ],
)
def test_a_probe_says_what_was_answered_and_keeps_it(
    stub: S3Stub, make_eraser: MakeEraser, conditions: str, found: str, answer: str, ok: bool | None, listed: bool
) -> None:
    bucket = stub.bucket("b", conditions=conditions, list_refused=not listed)
    bucket.put("u/1")
    eraser = make_eraser(stub, "b/u/")
    with structlog.testing.capture_logs() as logs:
        line = probed(eraser)
    (call,) = stub.calls(*DELETES)
    (key,) = call["keys"]
    assert key.startswith("u/expunge-probe-")
    assert (call["operation"], call["if_match"]) == ("DeleteObject", "*")
    assert line.ok is ok
    assert line.text.startswith(f"{found}: ")
    assert f"was answered {answer} (request {call['request_id']})" in line.text
    assert eraser._buckets.conditional("b") == found
    (event,) = [each for each in logs if each["event"] == "capability.probed"]
    assert (event["lane"], event["found"], event["request_id"]) == ("account", found, call["request_id"])
    assert key not in str(event)
    assert set(bucket.objects) == {"u/1"}


NOT_HONOURED = {
    "drop_before": "unknown",
    "drop_after": "unknown",
    "slow_down": "unknown",
    "error_500": "unknown",
    "html_200": "unknown",
    "html_404": "unknown",
    "html_503": "unknown",
    "error_in_200": "unknown",
    "NoSuchKey:200": "unknown",
    "NoSuchVersion:404": "unknown",
    "NoSuchBucket:404": "unknown",
    "InvalidAccessKeyId:403": "unknown",
    "NotImplemented:501": "refused",
    "InvalidArgument:400": "refused",
    "OperationAborted:409": "refused",
}


def test_only_the_stores_own_word_about_the_key_is_honouring_it(stub: S3Stub, make_eraser: MakeEraser) -> None:
    """And what was believed before is believed no more."""
    stub.bucket("b")
    eraser = make_eraser(stub, "b")
    for fault, found in NOT_HONOURED.items():
        assert probed(eraser).text.startswith("honoured: ")
        with stub.fault("DeleteObject", fault):
            line = probed(eraser)
        assert (fault, line.ok, line.text.partition(": ")[0]) == (fault, None, found)
        assert (fault, eraser._buckets.conditional("b")) == (fault, found)


def test_where_versions_may_exist_nothing_is_probed(stub: S3Stub, make_eraser: MakeEraser) -> None:
    buckets = {
        "b1": ({"versioning": "Enabled"}, "versions may exist"),
        "b2": ({"versioning": "Suspended"}, "versions may exist"),
        "b3": ({"versioning_refused": "AccessDenied"}, "cannot be read"),
        "b4": ({"versioning_refused": "NotImplemented"}, "cannot be read"),
    }
    eraser = make_eraser(stub, *buckets)
    for name, (settings, _) in buckets.items():
        stub.bucket(name, **settings)
    for name, (_, why) in buckets.items():
        line = probed(eraser, name)
        assert line.ok is None
        assert line.text.startswith("not probed: ")
        assert why in line.text
    assert not stub.calls(*DELETES)
    assert not [each for each in eraser.check() if each.name.startswith("conditional")]


def test_a_probe_needs_its_looks(stub: S3Stub, make_eraser: MakeEraser) -> None:
    stub.bucket("b")
    eraser = make_eraser(stub, "b")
    for operation in ("GetBucketVersioning", "ListObjectsV2"):
        for fault in ("html_200", "error_500", "drop_before"):
            with stub.fault(operation, fault):
                eraser.probe()
    assert not stub.calls(*DELETES)


def test_a_listing_that_shows_no_absence_lets_no_probe_through(stub: S3Stub, make_eraser: MakeEraser) -> None:
    stub.bucket("b")
    eraser = make_eraser(stub, "b")
    for key in ("a", "z"):
        stub.buckets["b"].put(key)
    real = eraser._client.call

    def other_listing(operation: str, bucket: str, **more: Any) -> Any:
        if operation == "ListObjectsV2":
            more["Prefix"] = ""  # a server that takes no notice of the prefix, and has more than the page
        return real(operation, bucket, **more)

    eraser._client.call = other_listing  # type: ignore[method-assign]
    line = probed(eraser)
    assert line.text.startswith("not probed: no listing shows")
    assert not stub.calls(*DELETES)


def test_a_probe_that_cannot_be_sent_is_none(stub: S3Stub, make_eraser: MakeEraser) -> None:
    stub.bucket("b")
    eraser = make_eraser(stub, "b")
    real = eraser._client.call

    def no_deletes(operation: str, bucket: str, **more: Any) -> Any:
        if operation == "DeleteObject":
            raise NothingSent("NoCredentialsError", whole_account=True)
        return real(operation, bucket, **more)

    eraser._client.call = no_deletes  # type: ignore[method-assign]
    assert probed(eraser).text == "not probed: nothing can be sent (NoCredentialsError)"
    assert eraser._buckets.conditional("b") is None


def test_an_answer_that_shows_a_version_is_told_and_remembered(stub: S3Stub, make_eraser: MakeEraser) -> None:
    """GetBucketVersioning said never, and the delete left a marker."""
    bucket = stub.bucket("b", conditions="ignored", versioning="Enabled")
    eraser = make_eraser(stub, "b")
    real = eraser._client.call

    def never(operation: str, name: str, **more: Any) -> Any:
        bucket.versioning = "" if operation == "GetBucketVersioning" else "Enabled"
        return real(operation, name, **more)

    eraser._client.call = never  # type: ignore[method-assign]
    line = probed(eraser)
    assert "versions exist after all" in line.text
    assert eraser._buckets._known.recall("b", "versioning") == "once"
    assert eraser._buckets.conditional("b") == "ignored"


def test_without_the_order_nothing_but_reads_is_sent(stub: S3Stub, make_eraser: MakeEraser) -> None:
    for refused in (False, True):
        stub.bucket("b", list_refused=refused)
        (line,) = [each for each in make_eraser(stub, "b").check() if each.name == "conditional deletes of b"]
        assert line.text.startswith("not known: expunge check --probe")
        assert line.ok is (None if refused else True)
    assert {call["method"] for call in stub.calls()} == {"GET"}


def test_the_check_shows_it_with_its_age_and_probes_only_when_told(
    database: Database, stub: S3Stub, make_eraser: MakeEraser
) -> None:
    make_eraser(stub, "b")  # sets the credentials
    stub.bucket("b", list_refused=True)
    options = S3Options(endpoint_url=stub.url, region="us-east-1", allow=("b",))

    def lines(*, probe: bool) -> list[tuple[str, str]]:
        runtime = Runtime(database, Policy(), {"account": options})
        found = [(line.name, line.text) for line in check._accounts(runtime, probe=probe)]
        runtime.eraser("account").close()
        return found

    asked = ("account account: conditional deletes of b", "not known: expunge check --probe")
    assert asked in lines(probe=False)
    assert not stub.calls(*DELETES)
    names = [name for name, _ in lines(probe=True)]
    assert names.count(asked[0]) == 1
    after = lines(probe=False)
    assert asked not in after
    (text,) = [text for name, text in after if name == "account account: known of b" and text.startswith(NAME)]
    assert text.startswith(f"{NAME} honoured, found out at 20")
    assert len(stub.calls(*DELETES)) == 1


def test_what_was_there_is_deleted_and_what_was_not_is_absent(stub: S3Stub, make_eraser: MakeEraser) -> None:
    eraser = believing(stub, make_eraser)
    for key in ("k", "k2", "x\x01"):
        stub.buckets["b"].put(key)
    twice = entry("object", "b/k")
    played = play(eraser, [*objects("k", "never", "x\x01"), twice])
    for key in ("k", "x\x01"):
        gone = next(each for each in played.answers[f"b/{key}"])
        assert (gone.outcome, gone.action, gone.operation) == (Outcome.DELETED, Action.DELETE, "DeleteObject")
        assert gone.detail is not None
        assert "existed" not in gone.detail
        assert (gone.detail["condition"], gone.detail["confirmed_by"]) == ("If-Match: *", "status 204")
    never = played.closing("b/never")
    assert (never.outcome, never.action, never.http_status) == (Outcome.ABSENT, Action.DELETE, 404)
    assert "existed" not in (never.detail or {})
    calls = stub.calls(*DELETES)
    assert [call["if_match"] for call in calls] == ["*"] * 3
    assert len({answer.request_id for answer in played.answers["b/k"]}) == 1
    assert {each.request_id for answers in played.answers.values() for each in answers} == {
        call["request_id"] for call in calls
    }
    assert set(stub.buckets["b"].objects) == {"k2"}


def test_without_it_being_known_everything_is_as_it_was(stub: S3Stub, make_eraser: MakeEraser) -> None:
    stub.bucket("b", list_refused=True).put("k")
    eraser = make_eraser(stub, "b")
    for known in (None, "ignored", "refused", "unknown", 1):
        eraser._buckets._known.learn("b", NAME, known)
        played = play(eraser, objects("k", "never"))
        assert {(played.closing(f"b/{key}").detail or {}).get("existed") for key in ("k", "never")} == {"unknown"}
    assert [(call["operation"], call["if_match"]) for call in stub.calls(*DELETES)] == [("DeleteObjects", None)] * 5


@pytest.mark.parametrize("settings", [{"list_refused": False}, {"versioning": "Enabled", "list_refused": False}])
def test_where_a_listing_tells_no_condition_is_sent(
    stub: S3Stub, make_eraser: MakeEraser, settings: dict[str, Any]
) -> None:
    eraser = believing(stub, make_eraser)
    bucket = stub.bucket("b", **settings)
    if bucket.versioning:
        eraser._buckets.forget_versioning("b")
    bucket.put("k")
    played = play(eraser, objects("k", "never"))
    assert (played.closing("b/k").outcome, played.closing("b/never").outcome) == (Outcome.DELETED, Outcome.ABSENT)
    assert {call["if_match"] for call in stub.calls(*DELETES)} == {None}


def test_a_key_that_may_be_another_in_a_path_goes_by_its_name(stub: S3Stub, make_eraser: MakeEraser) -> None:
    eraser = believing(stub, make_eraser)
    for key in ("a//b", "/a", "a/../b"):
        stub.buckets["b"].put(key)
        assert (play(eraser, objects(key)).closing(f"b/{key}").detail or {})["existed"] == "unknown"
    assert [call["operation"] for call in stub.calls(*DELETES)] == ["DeleteObjects"] * 3


@pytest.mark.parametrize(
    "fault", ["PreconditionFailed:412", "ConditionalRequestConflict:409", "OperationAborted:409", "NotImplemented:501"]
)
def test_an_answer_that_does_not_fit_ends_the_belief(stub: S3Stub, make_eraser: MakeEraser, fault: str) -> None:
    """One call is lost to it: the next ones, also of the same look, go without the condition."""
    eraser = believing(stub, make_eraser)
    keys = [f"k{number}" for number in range(5)]
    for key in keys:
        stub.buckets["b"].put(key)
    with stub.fault("DeleteObject", fault, times=1), structlog.testing.capture_logs() as logs:
        first = play(eraser, objects(*keys))
    (failed,) = [each for key in keys for each in first.answers[f"b/{key}"] if each.outcome is not Outcome.DELETED]
    assert (failed.outcome, failed.error) == (Outcome.ERROR, fault.partition(":")[0])
    assert (failed.detail or {})["condition"] == "If-Match: *"
    assert [event["event"] for event in logs] == ["capability.forgotten"]
    assert eraser._buckets.conditional("b") is None
    assert [call["if_match"] for call in stub.calls(*DELETES)] == ["*", None, None, None, None]
    closing = play(eraser, first.open.values()).closing(f"b/{keys[0]}")
    assert (closing.outcome, (closing.detail or {})["existed"]) == (Outcome.DELETED, "unknown")
    assert not stub.buckets["b"].objects


OTHER_ANSWERS = {
    "html_404": Outcome.UNCONFIRMED,
    "html_200": Outcome.UNCONFIRMED,
    "xhtml_200": Outcome.UNCONFIRMED,
    "NoSuchVersion:404": Outcome.UNCONFIRMED,
    "NoSuchKey:400": Outcome.UNCONFIRMED,
    "NoSuchBucket:404": Outcome.REFUSED_SCOPE,
    "InvalidAccessKeyId:403": Outcome.REFUSED_SCOPE,
    "AccessDenied:403": Outcome.REFUSED,
    "InvalidArgument:400": Outcome.REFUSED,
    "slow_down": Outcome.THROTTLED,
    "error_500": Outcome.UNAVAILABLE,
    "drop_before": Outcome.NO_ANSWER,
    "drop_after": Outcome.NO_ANSWER,
}


def test_no_other_answer_is_an_absence_and_none_of_them_ends_the_belief(stub: S3Stub, make_eraser: MakeEraser) -> None:
    eraser = believing(stub, make_eraser)
    stub.buckets["b"].put("k")
    for fault, outcome in OTHER_ANSWERS.items():
        with stub.fault("DeleteObject", fault):
            first = play(eraser, objects("k"))
        assert (fault, first.outcomes("b/k")) == (fault, [outcome])
        assert (fault, eraser._buckets.conditional("b")) == (fault, "honoured")
        assert ("k" in stub.buckets["b"].objects) is (fault != "drop_after")
    assert play(eraser, first.open.values()).closing("b/k").outcome is Outcome.ABSENT


def test_a_refused_key_spoils_no_other_and_is_tried_without_the_condition(
    stub: S3Stub, make_eraser: MakeEraser
) -> None:
    """With an expected owner, too: a 403 that the condition may have brought is not about the bucket."""
    bucket = stub.bucket("b", list_refused=True)
    eraser = make_eraser(stub, "b", expected_bucket_owner=bucket.owner)
    probed(eraser)
    bucket.conditions = "AccessDenied"  # of absent keys, as without ListBucket on AWS
    bucket.put("k")
    first = play(eraser, objects("never", "k"))
    assert first.closing("b/k").outcome is Outcome.DELETED
    (refused,) = first.answers["b/never"]
    assert (refused.outcome, refused.error, refused.scope) == (Outcome.REFUSED, "AccessDenied", "")
    again = play(eraser, [entry("object", "b/never", refusals=1), *objects("k")])
    assert (again.closing("b/never").detail or {})["existed"] == "unknown"
    assert again.outcomes("b/k") == [Outcome.REFUSED]


def test_a_server_that_answers_404_to_all_of_them_makes_nothing_absent_that_a_head_finds(
    stub: S3Stub, make_eraser: MakeEraser
) -> None:
    """The probe cannot tell it from one that means it."""
    eraser = believing(stub, make_eraser, conditions="absent")
    stub.buckets["b"].put("k")
    first = play(eraser, objects("k"))
    (answer,) = first.answers["b/k"]
    assert (answer.outcome, answer.error) == (Outcome.UNCONFIRMED, "StillThere")
    assert eraser._buckets.conditional("b") is None
    assert play(eraser, first.open.values()).closing("b/k").outcome is Outcome.DELETED


def test_a_veto_that_cannot_be_asked_for_leaves_it_unknown(stub: S3Stub, make_eraser: MakeEraser) -> None:
    eraser = believing(stub, make_eraser)
    for fault, outcome in {
        "AccessDenied:403": Outcome.ABSENT,
        "NotFound:404": Outcome.ABSENT,
        "MethodNotAllowed:405": Outcome.ABSENT,
        "error_500": Outcome.NO_ANSWER,
        "slow_down": Outcome.NO_ANSWER,
        "drop_before": Outcome.NO_ANSWER,
    }.items():
        with stub.fault("HeadObject", fault):
            (answer,) = play(eraser, objects("never")).answers["b/never"]
        assert (fault, answer.outcome) == (fault, outcome)
        assert answer.request_id == stub.calls(*DELETES)[-1]["request_id"]
        assert ("answered" in (answer.detail or {})) is (outcome is Outcome.NO_ANSWER)


def test_versions_that_were_switched_on_in_the_meantime(stub: S3Stub, make_eraser: MakeEraser) -> None:
    eraser = believing(stub, make_eraser)
    bucket = stub.bucket("b")
    play(eraser, objects("never"))  # asks about versions, and believes it for a minute
    bucket.versioning = "Enabled"
    bucket.put("k")
    (answer,) = play(eraser, objects("k")).answers["b/k"]
    assert (answer.outcome, answer.error) == (Outcome.UNCONFIRMED, "DeleteMarker")
    bucket.list_refused = False
    assert play(eraser, objects("k")).closing("b/k").outcome is Outcome.DELETED
    assert not bucket.objects


@pytest.mark.parametrize("uploads", ["", "AccessDenied"])
@pytest.mark.parametrize("known", [True, False])
def test_an_absence_says_as_well_that_uploads_are_unknown(
    stub: S3Stub, make_eraser: MakeEraser, uploads: str, known: bool
) -> None:
    """Also that of a server which answers 404 to a plain delete, as Google's XML interface does."""
    eraser = believing(stub, make_eraser, uploads_refused=uploads)
    if not known:
        eraser._buckets.forget_conditional("b", "x")
        eraser._buckets.refuse_batches("b")
    with stub.fault("DeleteObject", "NoSuchKey:404"):
        closing = play(eraser, objects("never")).closing("b/never")
    assert closing.outcome is Outcome.ABSENT
    assert (closing.detail or {}).get("uploads") == ("unknown" if uploads else None)
    assert "existed" not in (closing.detail or {})


def test_it_is_forgotten_when_it_is_old(database: Database, stub: S3Stub, make_eraser: MakeEraser) -> None:
    stub.bucket("b", list_refused=True)
    for skew, condition in ((59, "*"), (61, None)):
        database.skew = timedelta()
        first = make_eraser(stub, "b")
        first.use(SharedKnown(database, "account", stub.url, max_age_seconds=60))
        probed(first)
        database.skew = timedelta(seconds=skew)
        eraser = make_eraser(stub, "b")
        eraser.use(SharedKnown(database, "account", stub.url, max_age_seconds=60))
        play(eraser, objects("k"))
        assert stub.calls(*DELETES)[-1]["if_match"] == condition


@pytest.mark.parametrize("later", ["honoured", "refused", "ignored"])
def test_receipts_and_access_log_tell_the_same_story(
    database: Database, stub: S3Stub, monkeypatch: pytest.MonkeyPatch, later: str
) -> None:
    """The real drain: answers are lost, a key is denied, and the store may not be as the probe found it."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
    bucket = stub.bucket("b", list_refused=True)
    options = S3Options(endpoint_url=stub.url, region="us-east-1", allow=("b",))
    runtime = Runtime(database, Policy(lease_seconds=60, retry_base_seconds=1), {"artifacts": options})
    for line in check._accounts(runtime, probe=True):
        assert line.ok is not False
    (the_probe,) = stub.calls(*DELETES)
    bucket.conditions = later
    there, absent = [f"there/{n}" for n in range(6)], [f"absent/{n}" for n in range(4)]
    for key in there:
        bucket.put(key)
    bucket.key_errors["there/0"] = ["AccessDenied"]
    with database.begin() as tx:
        targets = [Target("artifacts", "object", f"b/{key}") for key in [*there, *absent]]
        open_case(tx.connection, case_id="c", subject="s", targets=targets)
    with stub.fault("DeleteObject", "drop_after", times=1), stub.fault("DeleteObject", "slow_down", times=1):
        for _ in range(20):
            drain(runtime, "artifacts")
            sweep(runtime)
            database.skew += timedelta(seconds=90)
    with database.read() as tx:
        assert tx.rows("SELECT id FROM erasure_outbox") == []
        receipts = list(tx.typed_rows("SELECT * FROM erasure_record", {"detail": Json}))
        known = list_capabilities(tx, "artifacts", stub.url, max_age_seconds=86_400)
    assert not bucket.objects
    calls = [call for call in stub.calls(*DELETES) if call is not the_probe]
    named = sorted((f"b/{key}", call["request_id"]) for call in calls if call["status"] for key in call["keys"])
    assert named == sorted((each.locator, each.request_id) for each in receipts if each.request_id)
    lost = [f"b/{key}" for call in calls if not call["status"] for key in call["keys"]]
    assert lost == [each.locator for each in receipts if each.status == "unknown"] != []
    assert (NAME in {each.name for each in known}) is (later != "refused")
    if later == "honoured":
        status = {each.locator: each.status for each in receipts if each.status in ("deleted", "already_absent")}
        assert {status[f"b/{key}"] for key in absent} == {"already_absent"}
        assert {status[f"b/{key}"] for key in there if f"b/{key}" not in lost} == {"deleted"}
    for each in receipts:
        if each.status == "deleted" and later == "refused":
            assert each.detail["existed"] == "unknown"
    runtime.eraser("artifacts").close()


def test_moto_honours_half_of_it_and_that_is_found_out(moto: S3Server, make_eraser: MakeEraser) -> None:
    """moto 5.2.5 answers 404 for an absent key, as AWS does, and 412 for one that is there: `*` is an ETag to it."""
    bucket = moto.new_bucket()
    moto.put(bucket, "k", "k2")
    eraser = make_eraser(moto, bucket)
    assert probed(eraser, bucket).text.startswith("honoured: ")
    refuse_listings(eraser)
    first = play(eraser, [("object", f"{bucket}/{key}") for key in ("k", "k2")])
    assert first.outcomes(f"{bucket}/k") == [Outcome.ERROR]
    assert first.closing(f"{bucket}/k2").outcome is Outcome.DELETED
    assert play(eraser, first.open.values()).closing(f"{bucket}/k").outcome is Outcome.DELETED
    assert moto.keys(bucket) == []


def refuse_listings(eraser: S3Eraser) -> None:
    """As a policy without ListBucket does, on a server that has no policies."""
    real = eraser._client.call

    def call(operation: str, bucket: str, **more: Any) -> Any:
        if operation.startswith("List"):
            now = utc_now()
            raise CallFailed(Facts(operation, now, now), Verdict(Outcome.REFUSED, "AccessDenied", 403), bucket)
        return real(operation, bucket, **more)

    eraser._client.call = call  # type: ignore[method-assign]
