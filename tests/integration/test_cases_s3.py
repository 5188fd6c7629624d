"""Public reports of people who erase from S3, one test at least for each: the symptom, the thread, and what is right.

P02, P04 and others have further tests beside these: test_s3_traps.py and test_s3_refusals.py.
"""

from collections.abc import Callable
from dataclasses import replace

import pytest
from conformance.harness import entry, play
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from servers.s3_stub import S3Stub
from servers.s3_targets import S3Server

from expunge.models.entry import Entry
from expunge.models.states import Action
from expunge.models.targets import complaint
from expunge.tasks.erasers.openai import OpenAIEraser
from expunge.tasks.erasers.s3 import S3Eraser
from expunge.tasks.outcomes import Outcome

MakeEraser = Callable[..., S3Eraser]

assert OpenAIEraser.kinds, "its kinds are registered when it is loaded"

UNSAFE = [*(chr(n) for n in range(1, 32) if chr(n) not in "\t\n"), "\ufffe", "\uffff"]
"""What XML 1.0 cannot carry, or servers change: U+0000 is no key at all."""


def objects(*keys: str, bucket: str = "b") -> list[tuple[str, str]]:
    return [("object", f"{bucket}/{key}") for key in keys]


@pytest.mark.parametrize("versioning", ["", "Enabled"])
def test_p01_a_character_that_xml_cannot_carry_poisons_no_batch(
    stub: S3Stub, make_eraser: MakeEraser, versioning: str
) -> None:
    """One key with a byte below 0x20 makes S3 refuse the whole DeleteObjects call, or nothing is deleted in silence:
    boto/boto3#2005, aws/aws-sdk#271, aws-sdk-go#3592, aws-sdk-ruby#797, aws-sdk-java#333. Here: every such character
    at once; the neighbours go in one batch."""
    bucket = stub.bucket("b", versioning=versioning)
    odd = [f"b{character}c" for character in UNSAFE]
    fine = ["a", "d", "a<b&c", "g\nh", "t\tt", "q\"'>", "]]>", "ü", "\U0001f600", "\ufffd"]
    for key in [*odd, *fine, "bc"]:
        bucket.put(key)
    played = play(make_eraser(stub, "b"), objects(*odd, *fine))
    assert list(bucket.objects) == ["bc"]
    assert {played.closing(f"b/{key}").outcome for key in [*odd, *fine]} == {Outcome.DELETED}
    assert not played.open
    assert [sorted(call["keys"]) for call in stub.calls("DeleteObjects")] == [sorted(fine)]
    assert sorted(call["keys"][0] for call in stub.calls("DeleteObject")) == sorted(odd)


_KEYS = st.text(
    st.one_of(
        st.sampled_from([*"ab/.-+ %&<>\"'\\~?#=*\t\n", *UNSAFE, "\ufffd", "\U0001f600", "\uff5e", "\x7f", "\x85"]),
        st.characters(min_codepoint=1, exclude_categories=["Cs"]),
    ),
    min_size=1,
    max_size=12,
)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(there=st.sets(_KEYS, max_size=8), never=st.sets(_KEYS, max_size=4), versioning=st.sampled_from(["", "Enabled"]))
def test_p01_every_key_that_s3_allows(
    stub: S3Stub, make_eraser: MakeEraser, there: set[str], never: set[str], versioning: str
) -> None:
    """boto/boto3#2005 and its kind: any text is a key. What is asked for goes, what is beside it stays, and nothing
    that is there is ever called absent."""
    name = versioning or "plain"
    bucket = stub.bucket(name, versioning=versioning)
    bucket.objects.clear()
    if not hasattr(stub, "shared_eraser"):
        stub.shared_eraser = make_eraser(stub, "plain", "Enabled")  # type: ignore[attr-defined]
    wanted = set(sorted(there)[::2]) | never
    for key in there:
        bucket.put(key)
    played = play(stub.shared_eraser, objects(*wanted, bucket=name))  # type: ignore[attr-defined]
    for key in wanted:
        if f"{name}/{key}" in played.not_sent:
            assert played.not_sent[f"{name}/{key}"].reason == "UnrepresentableKey"
            assert (key in bucket.objects) == (key in there)
            continue
        expected = Outcome.DELETED if key in there else Outcome.ABSENT
        assert played.closing(f"{name}/{key}").outcome is expected, (key, played.answers)
        assert key not in bucket.objects
    assert there - wanted <= set(bucket.objects)


@pytest.mark.parametrize("versioning", ["", "Enabled"])
def test_p01_keys_of_every_printable_character_on_a_real_server(
    weed: S3Server, make_eraser: MakeEraser, versioning: str
) -> None:
    """boto/boto3#2005 and its kind, on SeaweedFS: all that a server of its own takes as a key."""
    bucket = weed.new_bucket(versioning)
    keys = [f"k{character}x" for character in map(chr, [*range(0x20, 0x7F), 0xFC, 0x3B1, 0x4E2D, 0x1F600])]
    for other in ("k/x", "k\\x"):  # a directory, and what SeaweedFS takes for one
        keys.remove(other)
    weed.put(bucket, *keys)
    wanted, others = keys[::2], keys[1::2]
    played = play(make_eraser(weed, bucket), objects(*wanted, bucket=bucket))
    assert {key for key in wanted if played.outcomes(f"{bucket}/{key}")[-1] is not Outcome.DELETED} == set()
    assert weed.keys(bucket) == sorted(others)


@pytest.mark.parametrize("versioning", ["", "Enabled", "Suspended"])
def test_p01_siblings_stay(server: S3Server, make_eraser: MakeEraser, versioning: str) -> None:
    """A key that others begin with, as a directory or a name (boto/boto3#2005's neighbours): only itself goes."""
    bucket = server.new_bucket(versioning)
    siblings = ["a.b", "ab", "a-", "a0", "A"] + ([] if server.name == "seaweed" else ["a/", "a/b"])
    server.put(bucket, "a", *siblings)
    eraser = make_eraser(server, bucket)
    assert play(eraser, objects("a", bucket=bucket)).closing(f"{bucket}/a").outcome is Outcome.DELETED
    assert server.keys(bucket) == sorted(siblings)
    if "a/" in siblings:
        assert play(eraser, objects("a/", bucket=bucket)).closing(f"{bucket}/a/").outcome is Outcome.DELETED
        assert server.keys(bucket) == sorted({*siblings} - {"a/"})


def test_p02_a_server_that_wants_content_md5_gets_it_or_single_deletes(stub: S3Stub, make_eraser: MakeEraser) -> None:
    """Every batch fails with 400 MissingContentMD5 on compatible servers since the SDKs send CRC32 instead:
    aws-sdk-java-v2#5805, aws-sdk-js-v3#6920, s3fs-fuse#2639, aws-sdk-php#3068, flyology-object-storage#20."""
    stub.requires_md5 = True
    keys = [f"k{number}" for number in range(5)]
    for key in keys:
        stub.bucket("b").put(key)
    eraser = make_eraser(stub, "b")
    pending: list[tuple[str, str] | Entry] = list(objects(*keys))
    for _ in range(3):
        pending = [replace(each, refusals=each.refusals + 1) for each in play(eraser, pending).open.values()]
    assert not pending
    assert not stub.bucket("b").objects
    assert len(stub.calls("DeleteObjects", "DeleteObject")) <= 1 + len(keys)


@pytest.mark.parametrize("code", ["MissingContentMD5", "NotImplemented", "MethodNotAllowed"])
def test_p02_a_server_that_refuses_every_batch_is_not_stormed(stub: S3Stub, make_eraser: MakeEraser, code: str) -> None:
    """aws-sdk-java-v2#5805 and its kind, where not even the header helps: one batch, then one single delete a key."""
    keys = [f"k{number}" for number in range(5)]
    for key in keys:
        stub.bucket("b").put(key)
    eraser = make_eraser(stub, "b")
    with stub.fault("DeleteObjects", f"{code}:400"):
        first = play(eraser, objects(*keys))
        second = play(eraser, [replace(each, refusals=1) for each in first.open.values()])
        assert not second.open
        assert not play(eraser, objects("k1")).open
    assert len(stub.calls("DeleteObjects")) <= 2
    assert len(stub.calls("DeleteObject")) == len(keys)


@pytest.mark.parametrize("code", ["AccessDenied", "InvalidObjectState", "MethodNotAllowed", "SomethingNew"])
@pytest.mark.parametrize("quiet", [False, True])
def test_p03_errors_of_single_keys_within_a_success(
    stub: S3Stub, make_eraser: MakeEraser, quiet: bool, code: str
) -> None:
    """Some keys are refused within a 200, and everything is reported as gone: Opndrive#73, node-s3-client#235,
    scality/zenko-ui PR#226. The same where the answer mentions no successes (Quiet)."""
    bucket = stub.bucket("b")
    for key in "abc":
        bucket.put(key)
    bucket.key_errors["b"] = [f"{code}*"]
    eraser = make_eraser(stub, "b")
    with stub.fault("DeleteObjects", "quiet" if quiet else "none"):
        played = play(eraser, objects(*"abc"))
    (denied,) = played.answers["b/b"]
    assert (denied.outcome, denied.error) == (Outcome.REFUSED, code)
    assert {played.outcomes(f"b/{key}")[0] for key in "ac"} == {Outcome.LEFT_OUT if quiet else Outcome.DELETED}
    again = play(eraser, played.open.values())
    assert [each.locator for each in again.open.values()] == ["b/b"]


@pytest.mark.parametrize("code", ["InternalError", "SlowDown", "ServiceUnavailable"])
def test_p04_a_passing_error_of_one_key_is_that_keys_alone(stub: S3Stub, make_eraser: MakeEraser, code: str) -> None:
    """InternalError of a few keys within a 200 is not retried by the SDK, whatever max_attempts says: boto/boto3#3052,
    AFFiNE PR#15183. Only those keys are sent again."""
    bucket = stub.bucket("b")
    keys = [f"k{number:03d}" for number in range(1000)]
    for key in keys:
        bucket.put(key)
    bucket.key_errors["k047"] = [code, code]
    eraser = make_eraser(stub, "b")
    pending: list[tuple[str, str] | Entry] = list(objects(*keys))
    receipts: dict[str, list[Outcome]] = {}
    for _ in range(3):
        played = play(eraser, pending)
        pending = list(played.open.values())
        for locator, answers in played.answers.items():
            receipts.setdefault(locator, []).extend(answer.outcome for answer in answers)
    passing = Outcome.THROTTLED if code == "SlowDown" else Outcome.UNAVAILABLE
    assert receipts.pop("b/k047") == [passing, passing, Outcome.DELETED]
    assert set(map(tuple, receipts.values())) == {(Outcome.DELETED,)}
    assert [len(call["keys"]) for call in stub.calls("DeleteObjects")] == [1000, 1, 1]


@pytest.mark.parametrize("versioning", ["Enabled", "Suspended"])
@pytest.mark.parametrize("markers", [0, 2])
def test_p05_a_plain_delete_only_hides(
    server: S3Server, make_eraser: MakeEraser, versioning: str, markers: int
) -> None:
    """In a bucket with versions a plain delete answers DeleteMarker, GET gives 404, and the bytes stay:
    threefoldtech/grid_wiki#962, jdevelop/s3kit#4, aws-sdk-go-v2#2607. Null versions from before and while suspended."""
    if server.name != "stub" and versioning == "Suspended" and markers:
        pytest.skip("SeaweedFS 4.48 and moto 5.2 keep a suspended bucket's null marker: test_s3_ordinary.py")
    bucket, client = server.new_bucket(), server.client()
    server.put(bucket, "k", "kk")
    client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    server.put(bucket, "k", "k")
    client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": versioning})
    server.put(bucket, "k")
    for _ in range(markers):
        client.delete_object(Bucket=bucket, Key="k")
    played = play(make_eraser(server, bucket), objects("k", bucket=bucket))
    assert server.keys(bucket) == ["kk"]
    closing = played.closing(f"{bucket}/k")
    assert (closing.outcome, closing.action, closing.operation) == (Outcome.DELETED, Action.LOOK, "ListObjectVersions")
    assert all(answer.version for answer in played.answers[f"{bucket}/k"][:-1])


def test_p05_thousands_of_versions_of_one_key_and_markers_only(stub: S3Stub, make_eraser: MakeEraser) -> None:
    """More versions than a page or a call holds (jdevelop/s3kit#4), and a key of which only markers are left."""
    bucket = stub.bucket("b", versioning="Enabled", page=400)
    for _ in range(2500):
        bucket.put("k")
    for _ in range(3):
        bucket.delete("gone", None)
    played = play(make_eraser(stub, "b"), objects("k", "gone"))
    assert not bucket.objects
    assert len({answer.version for answer in played.answers["b/k"]}) == 2501
    assert [(answer.detail or {}).get("marker") for answer in played.answers["b/gone"][:-1]] == [True] * 3
    assert played.closing("b/gone").outcome is Outcome.DELETED


@pytest.mark.parametrize("versioning", ["Enabled", "Suspended"])
def test_p06_an_absent_key_is_absent_and_piles_up_no_markers(
    server: S3Server, make_eraser: MakeEraser, versioning: str
) -> None:
    """S3 answers success for a key that never was, and adds a delete marker for it: aws-sdk-go-v2#2607."""
    bucket = server.new_bucket(versioning)
    eraser = make_eraser(server, bucket)
    for _ in range(3):
        closing = play(eraser, objects("never", bucket=bucket)).closing(f"{bucket}/never")
        assert (closing.outcome, closing.action) == (Outcome.ABSENT, Action.LOOK)
    assert server.keys(bucket) == []


@pytest.mark.parametrize("fault", ["drop_before", "drop_after", "error_500", "html_200", "slow_down", "leave_out"])
@pytest.mark.parametrize("key", ["k", "k\x01"])
def test_p06_retries_pile_up_no_markers(stub: S3Stub, make_eraser: MakeEraser, key: str, fault: str) -> None:
    """aws-sdk-go-v2#2607 again: whatever becomes of the first tries, no try ever makes a marker."""
    bucket = stub.bucket("b", versioning="Enabled")
    for _ in range(3):
        bucket.put(key)
    eraser = make_eraser(stub, "b")
    pending: list[tuple[str, str] | Entry] = list(objects(key))
    for _ in range(3):
        with stub.fault("DeleteObjects", fault, times=1), stub.fault("DeleteObject", fault, times=1):
            pending = list(play(eraser, pending).open.values())
        assert not [version for versions in bucket.objects.values() for version in versions if version.is_marker]
    play(eraser, pending)
    assert not bucket.objects


@pytest.mark.parametrize("keys_per_call", [1000, 300])
def test_p07_never_more_than_a_thousand_and_each_key_once(
    stub: S3Stub, make_eraser: MakeEraser, keys_per_call: int
) -> None:
    """More than 1,000 keys surface as MalformedXML, and 1,000 are too slow for some: boto3#3297, spotify/luigi PR#2529,
    s5cmd PR#579."""
    bucket = stub.bucket("b")
    keys = [f"k{number}" for number in range(2498)]
    for key in keys:
        bucket.put(key)
    entries = [entry(kind, locator) for kind, locator in objects(*keys, "k1", "k2", "k3")]
    played = play(make_eraser(stub, "b", keys_per_call=keys_per_call), entries)
    sent = [call["keys"] for call in stub.calls("DeleteObjects")]
    assert max(map(len, sent)) <= keys_per_call
    assert sorted(key for each in sent for key in each) == sorted(keys)
    assert not played.open
    assert sum(len(answers) for answers in played.answers.values()) == 2501


@pytest.mark.parametrize("kind", ["slow_down", "error_in_200", "SlowDown:503", "TooManyRequests:429"])
@pytest.mark.parametrize("operation", ["ListObjectsV2", "ListMultipartUploads", "GetBucketVersioning", "DeleteObjects"])
def test_p08_throttling_is_back_pressure(stub: S3Stub, make_eraser: MakeEraser, operation: str, kind: str) -> None:
    """A burst of SlowDown eats the SDK's retries; some servers say it within a 200: earth-mover/icechunk PR#2408,
    awslabs/aws-sdk-rust#873, flightstats/hub#291, rust-lang/docs.rs PR#3369. One call, and `throttled`, which uses up
    no try (test_drain.py)."""
    stub.bucket("b").put("k")
    with stub.fault(operation, kind):
        (answer,) = play(make_eraser(stub, "b"), objects("k")).answers["b/k"]
    assert answer.outcome is Outcome.THROTTLED
    assert len(stub.calls(operation)) == 1


@pytest.mark.parametrize(
    ("kind", "locator"),
    [
        ("file", "vs_68b1"),
        ("vector_store", "file-68b1"),
        ("conversation", "resp_68b1"),
        ("response", "conv_68b1"),
        ("object", "bucket-without-key"),
        ("object", "/key"),
        ("prefix", "bucket"),
        ("object", "b/\0"),
    ],
)
def test_p09_an_id_of_another_form_is_refused_when_it_is_named(kind: str, locator: str) -> None:
    """The wrong form of an id matches nothing, and the provider reports success: langx PR#1253."""
    assert complaint("account", kind, locator) is not None


NONSENSE = ["html_200", "xhtml_200", "html_404", "html_503", "empty_body", "truncated", "huge", "charset", "other_root"]


@pytest.mark.parametrize("kind", NONSENSE)
@pytest.mark.parametrize(
    "operation", ["GetBucketVersioning", "ListMultipartUploads", "ListObjectsV2", "ListObjectVersions", "DeleteObjects"]
)
def test_p08_nonsense_is_one_failed_receipt_and_no_storm(
    stub: S3Stub, make_eraser: MakeEraser, operation: str, kind: str
) -> None:
    """Endpoints that answer with pages, half documents or others' documents (the kind of awslabs/aws-sdk-rust#873):
    one answer an attempt, the request is sent once, and nothing is believed."""
    bucket = stub.bucket("b", versioning="Enabled" if operation == "ListObjectVersions" else "")
    bucket.put("k")
    with stub.fault(operation, kind):
        played = play(make_eraser(stub, "b"), objects("k"))
    (answer,) = played.answers["b/k"]
    assert answer.outcome in (Outcome.UNCONFIRMED, Outcome.UNAVAILABLE, Outcome.ERROR)
    assert len(stub.calls(operation)) == 1
    assert len(stub.calls()) <= 4
    assert bucket.objects
