"""What a DeleteObjects answer says of each key."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from expunge.tasks.erasers.s3_answers import Judged, Pair, judge_batch
from expunge.tasks.outcomes import Outcome


def outcomes(parsed: dict[str, Any], *asked: Pair) -> list[Outcome]:
    judged = judge_batch(parsed, asked)
    return [judged[pair].outcome for pair in asked]


def test_each_list_is_read_by_name_not_by_place() -> None:
    parsed = {"Deleted": [{"Key": "c"}, {"Key": "a"}], "Errors": [{"Key": "b", "Code": "AccessDenied"}]}
    assert outcomes(parsed, ("a", None), ("b", None), ("c", None), ("d", None)) == [
        Outcome.DELETED,
        Outcome.REFUSED,
        Outcome.DELETED,
        Outcome.LEFT_OUT,
    ]


def test_any_sign_of_a_version_means_hidden() -> None:
    for sign in ({"DeleteMarker": True}, {"VersionId": "null"}, {"DeleteMarkerVersionId": "m"}):
        assert outcomes({"Deleted": [{"Key": "a", **sign}]}, ("a", None)) == [Outcome.UNCONFIRMED]
    assert outcomes({"Deleted": [{"Key": "a", "DeleteMarker": False, "VersionId": ""}]}, ("a", None)) == [
        Outcome.DELETED
    ]


def test_a_version_must_be_named() -> None:
    assert outcomes({"Deleted": [{"Key": "a"}]}, ("a", "1")) == [Outcome.LEFT_OUT]
    assert outcomes({"Deleted": [{"Key": "a", "VersionId": "2"}]}, ("a", "1")) == [Outcome.LEFT_OUT]
    assert outcomes({"Deleted": [{"Key": "b", "VersionId": "1"}]}, ("a", "1")) == [Outcome.LEFT_OUT]
    assert outcomes({"Deleted": [{"Key": "a", "VersionId": "1"}]}, ("a", "1")) == [Outcome.DELETED]


def test_a_deleted_marker_may_be_named_as_such() -> None:
    parsed = {"Deleted": [{"Key": "a", "DeleteMarker": True, "DeleteMarkerVersionId": "m"}]}
    assert outcomes(parsed, ("a", "m"), ("a", "1")) == [Outcome.DELETED, Outcome.LEFT_OUT]


def test_an_error_without_its_version_is_about_what_was_not_deleted() -> None:
    parsed = {"Deleted": [{"Key": "a", "VersionId": "1"}], "Errors": [{"Key": "a", "Code": "AccessDenied"}]}
    assert outcomes(parsed, ("a", "1"), ("a", "2"), ("b", "1")) == [Outcome.DELETED, Outcome.REFUSED, Outcome.LEFT_OUT]


def test_in_both_lists_is_not_deleted() -> None:
    parsed = {"Deleted": [{"Key": "a"}], "Errors": [{"Key": "a", "Code": "InternalError"}]}
    assert outcomes(parsed, ("a", None)) == [Outcome.UNAVAILABLE]


def test_codes_of_single_keys() -> None:
    codes = {
        "InternalError": Outcome.UNAVAILABLE,
        "SlowDown": Outcome.THROTTLED,
        "NoSuchKey": Outcome.ABSENT,
        "NoSuchVersion": Outcome.ABSENT,
        "Some message": Outcome.REFUSED,
    }
    parsed = {"Errors": [{"Key": code, "Code": code} for code in codes]}
    judged = judge_batch(parsed, [(code, None) for code in codes])
    assert {key: each.outcome for (key, _), each in judged.items()} == codes
    assert judged["Some message", None].error == "Unrecognised"


def test_nothing_said_confirms_nothing() -> None:
    assert outcomes({}, ("a", None), ("b", "1")) == [Outcome.UNCONFIRMED] * 2


PAIRS = st.tuples(st.sampled_from("abc"), st.sampled_from([None, "1", "2"]))
ITEMS = st.fixed_dictionaries(
    {"Key": st.sampled_from("abcd")},
    optional={"VersionId": st.sampled_from(["1", "2", "null"]), "DeleteMarker": st.booleans(), "Code": st.just("X")},
)


@given(st.sets(PAIRS, min_size=1), st.lists(ITEMS), st.lists(ITEMS))
def test_deleted_is_only_what_was_named_exactly(asked: set[Pair], deleted: Any, errors: Any) -> None:
    judged = judge_batch({"Deleted": deleted, "Errors": errors}, asked)
    assert judged.keys() == asked
    for (key, version), verdict in judged.items():
        if verdict.outcome is Outcome.DELETED:
            named = [each for each in deleted if each["Key"] == key]
            assert any(each.get("VersionId") == version for each in named)


def test_mfa_delete_is_told_from_a_missing_permission() -> None:
    words = {"Mfa Authentication must be used for this request": "MfaDelete", "Access Denied": "AccessDenied"}
    for message, error in words.items():
        item = {"Key": "k", "VersionId": "v", "Code": "AccessDenied", "Message": message}
        judged = judge_batch({"Errors": [item]}, [("k", "v")])
        assert judged["k", "v"] == Judged(Outcome.REFUSED, error)
