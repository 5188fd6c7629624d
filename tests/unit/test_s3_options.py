"""What may be erased with an account."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from expunge.tasks.erasers.s3 import S3Eraser
from expunge.tasks.erasers.s3_options import S3Options, is_allowed, why_refused

NAMES = st.text("ab1./-", min_size=1, max_size=6)


@pytest.mark.parametrize("allow", [(), ("",), ("bucket/prefix",), ("/prefix/",), ("bucket--x-s3",)])
def test_allow_must_name_whole_buckets_or_prefixes(allow: tuple[str, ...]) -> None:
    with pytest.raises(ValidationError):
        S3Options(allow=allow)


def test_allow_is_required() -> None:
    with pytest.raises(ValidationError):
        S3Options.model_validate({"store": "s3"})


def test_unknown_settings_are_an_error() -> None:
    with pytest.raises(ValidationError):
        S3Options.model_validate({"allow": ["b"], "allows": ["c"]})


@pytest.mark.parametrize(
    ("rule", "locator", "allowed"),
    [
        ("b", "b/k", True),
        ("b", "bb/k", False),
        ("bb", "b/k", False),
        ("b/u/1/", "b/u/1/x", True),
        ("b/u/1/", "b/u/1/", True),
        ("b/u/1/", "b/u/10/x", False),
        ("b/u/1/", "b/u/1", False),
        ("b/u/1/", "b/u/", False),
        ("b/u/1/", "c/u/1/x", False),
    ],
)
def test_allow_matches_at_slashes_only(rule: str, locator: str, allowed: bool) -> None:
    assert is_allowed((rule,), locator) is allowed


@given(NAMES, NAMES, NAMES)
def test_what_is_allowed_begins_with_the_rule(bucket: str, prefix: str, key: str) -> None:
    bucket = bucket.replace("/", "")
    rule = f"{bucket}/{prefix}/"
    assert is_allowed((rule,), f"{bucket}/{prefix}/{key}")
    assert is_allowed((rule,), f"{bucket}/{key}") is key.startswith(f"{prefix}/")


def test_partial_prefixes_must_be_asked_for() -> None:
    whole, partial = S3Options(allow=("b",)), S3Options(allow=("b",), partial_prefixes=True)
    assert why_refused(whole, "prefix", "b/u/1/") is None
    assert why_refused(whole, "object", "b/u/1") is None
    assert "partial_prefixes" in (why_refused(whole, "prefix", "b/u/1") or "")
    assert why_refused(partial, "prefix", "b/u/1") is None


def test_a_refusal_does_not_repeat_the_locator() -> None:
    assert "secret" not in (why_refused(S3Options(allow=("b",)), "object", "c/secret") or "")


@pytest.mark.parametrize("lease", [3.0, 30.0, 300.0, 3600.0])
def test_a_call_with_its_look_ends_within_half_the_lease(lease: float) -> None:
    eraser = S3Eraser("a", S3Options(allow=("b",)), lease_seconds=lease)
    assert eraser.timeout < lease / 2
    assert eraser.batch == 1000
