"""Open multipart uploads hold bytes and outlive their key: they are aborted before anything of it closes."""

from collections.abc import Callable

import pytest
from conformance.harness import play
from servers.s3_stub import S3Stub
from servers.s3_targets import S3Server

from expunge.models.states import Action
from expunge.tasks.erasers.s3 import S3Eraser
from expunge.tasks.outcomes import Outcome

MakeEraser = Callable[..., S3Eraser]


def objects(*keys: str, bucket: str = "b") -> list[tuple[str, str]]:
    return [("object", f"{bucket}/{key}") for key in keys]


@pytest.mark.parametrize("versioning", ["", "Enabled"])
def test_uploads_of_the_key_are_aborted_and_no_others(
    server: S3Server, make_eraser: MakeEraser, versioning: str
) -> None:
    bucket, client = server.new_bucket(versioning), server.client()
    server.put(bucket, "a", "ab")
    ids = {}
    for key in ("a", "a/b", "ab", "only"):
        ids[key] = client.create_multipart_upload(Bucket=bucket, Key=key)["UploadId"]
        client.upload_part(Bucket=bucket, Key=key, UploadId=ids[key], PartNumber=1, Body=b"secret")
    played = play(make_eraser(server, bucket), objects("a", "only", "never", bucket=bucket))
    left = {upload["Key"] for upload in client.list_multipart_uploads(Bucket=bucket).get("Uploads", [])}
    assert left == {"a/b", "ab"}
    assert server.keys(bucket) == ["ab"]
    for key in ("a", "only"):
        first, closing = played.answers[f"{bucket}/{key}"][0], played.closing(f"{bucket}/{key}")
        assert (first.outcome, first.version) == (Outcome.DELETED, f"upload:{ids[key]}")
        assert (first.operation, first.action, first.http_status) == ("AbortMultipartUpload", Action.DELETE, 204)
        assert closing.outcome is Outcome.DELETED
        assert closing is played.answers[f"{bucket}/{key}"][-1]
    assert played.closing(f"{bucket}/never").outcome is Outcome.ABSENT


@pytest.mark.parametrize("versioning", ["", "Enabled"])
@pytest.mark.parametrize("pages", [1, 10])
def test_a_prefix_takes_uploads_of_keys_that_have_no_object(
    stub: S3Stub, make_eraser: MakeEraser, versioning: str, pages: int
) -> None:
    bucket = stub.bucket("b", versioning=versioning, page=10)
    for number in range(35):
        bucket.begin_upload(f"p/{number:02d}", 1)
        bucket.put(f"p/{number // 2:02d}")
    bucket.begin_upload("p.txt", 1)
    bucket.begin_upload("pp/1", 1)
    played = play(make_eraser(stub, "b", pages_per_claim=pages), [("prefix", "b/p/")])
    assert played.closing("b/p/").outcome is Outcome.DELETED
    assert {key for key, _ in bucket.uploads} == {"p.txt", "pp/1"}
    assert not bucket.objects


@pytest.mark.parametrize("count", [3, 230])
def test_many_uploads_of_one_key_and_of_its_neighbours(stub: S3Stub, make_eraser: MakeEraser, count: int) -> None:
    bucket = stub.bucket("b", page=10)
    for _ in range(count):
        bucket.begin_upload("k", 1)
    for number in range(50):
        bucket.begin_upload(f"a{number}")
        bucket.begin_upload(f"kk{number}")
    played = play(make_eraser(stub, "b"), objects("k", "a1", "kk1", "kk"))
    assert len(bucket.uploads) == 98
    assert played.closing("b/kk").outcome is Outcome.ABSENT
    assert {played.closing(f"b/{key}").outcome for key in ("k", "a1", "kk1")} == {Outcome.DELETED}


@pytest.mark.parametrize("refused", ["AccessDenied", "NotImplemented", "list"])
@pytest.mark.parametrize("versioning", ["", "Enabled"])
def test_where_uploads_are_not_listed_the_receipt_says_so(
    stub: S3Stub, make_eraser: MakeEraser, refused: str, versioning: str
) -> None:
    bucket = stub.bucket("b", uploads_refused=refused, versioning=versioning)
    bucket.put("k")
    bucket.put("p/1")
    eraser = make_eraser(stub, "b")
    played = play(eraser, [*objects("k", "never"), ("prefix", "b/p/")])
    for locator in ("b/k", "b/never", "b/p/", "b/p/1"):
        assert (played.closing(locator).detail or {})["uploads"] == "unknown"
    assert not bucket.objects
    assert len(stub.calls("ListMultipartUploads")) == 1


def test_an_upload_that_somebody_else_aborted_is_absent(stub: S3Stub, make_eraser: MakeEraser) -> None:
    bucket = stub.bucket("b")
    upload = bucket.begin_upload("k", 1)
    with stub.fault("AbortMultipartUpload", "drop_after"):
        lost = play(make_eraser(stub, "b"), objects("k"))
    assert [(a.outcome, a.version) for a in lost.answers["b/k"]] == [(Outcome.NO_ANSWER, f"upload:{upload}")]
    bucket.begin_upload("k")
    with stub.fault("AbortMultipartUpload", "NoSuchUpload:404", times=1):
        (answer, *_) = play(make_eraser(stub, "b"), objects("k")).answers["b/k"]
    assert answer.outcome is Outcome.ABSENT


@pytest.mark.parametrize(
    ("fault", "outcome"),
    [
        ("slow_down", Outcome.THROTTLED),
        ("error_500", Outcome.UNAVAILABLE),
        ("html_200", Outcome.UNCONFIRMED),
        ("html_404", Outcome.UNCONFIRMED),
        ("AccessDenied:403", Outcome.REFUSED),
        ("NoSuchKey:404", Outcome.UNCONFIRMED),
        ("drop_before", Outcome.NO_ANSWER),
    ],
)
def test_an_abort_that_failed_keeps_the_target_open(
    stub: S3Stub, make_eraser: MakeEraser, fault: str, outcome: Outcome
) -> None:
    bucket = stub.bucket("b")
    bucket.put("k")
    bucket.begin_upload("k", 1)
    with stub.fault("AbortMultipartUpload", fault):
        played = play(make_eraser(stub, "b"), objects("k"))
    assert played.outcomes("b/k") == [outcome]
    assert len(stub.calls("AbortMultipartUpload")) == 1
    assert bucket.objects
    assert bucket.uploads


@pytest.mark.parametrize("parts", [0, 1])
def test_an_abort_that_does_nothing_is_seen(stub: S3Stub, make_eraser: MakeEraser, parts: int) -> None:
    bucket = stub.bucket("b", keeps_uploads=True)
    bucket.begin_upload("k", *range(1, parts + 1))
    answers = play(make_eraser(stub, "b"), objects("k")).answers["b/k"]
    assert answers[-1].error == ("StillThere" if parts else "StillListed")
    assert len(stub.calls("AbortMultipartUpload")) == 1


def test_a_server_that_lists_uploads_of_one_key_only_is_asked_for_each(stub: S3Stub, make_eraser: MakeEraser) -> None:
    """MinIO lists nothing for a bucket or a prefix, which would look like no uploads."""
    bucket = stub.bucket("b", lists_uploads_by_key=True)
    bucket.begin_upload("p/1", 1)
    bucket.put("p/2")
    eraser = make_eraser(stub, "b")
    assert play(eraser, objects("p/1", "p/3")).closing("b/p/1").outcome is Outcome.DELETED
    assert not bucket.uploads
    assert (play(eraser, [("prefix", "b/p/")]).closing("b/p/").detail or {})["uploads"] == "unknown"
