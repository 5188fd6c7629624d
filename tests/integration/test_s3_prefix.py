"""Prefixes: pages, cursors, and listings that do not do what they should."""

import time
from collections.abc import Callable
from dataclasses import replace

from conformance.harness import entry, play
from servers.s3_stub import S3Stub

from expunge.tasks.erasers.s3 import S3Eraser
from expunge.tasks.outcomes import Outcome

MakeEraser = Callable[..., S3Eraser]


def test_a_prefix_is_listed_some_pages_a_claim(stub: S3Stub, make_eraser: MakeEraser) -> None:
    bucket = stub.bucket("b", page=10)
    for number in range(95):
        bucket.put(f"p/{number:03d}")
    eraser = make_eraser(stub, "b", pages_per_claim=3)
    parent = entry("prefix", "b/p/")
    children: list[tuple[str, str]] = []
    for expected in (30, 30, 30, 5):
        (parts,) = eraser.look([parent], time.monotonic() + 60).parts
        assert len(parts.children) == expected
        children += parts.children
        parent = replace(parent, cursor=parts.cursor, had_parts=True)
    assert parent.cursor is None
    assert children == [("object", f"b/p/{number:03d}") for number in range(95)]


def test_a_resumed_listing_that_finds_no_more_waits_for_its_parts(stub: S3Stub, make_eraser: MakeEraser) -> None:
    stub.bucket("b").put("p/1")
    parent = entry("prefix", "b/p/", cursor='["p/5", null]', had_parts=True)
    (parts,) = make_eraser(stub, "b").look([parent], time.monotonic() + 60).parts
    assert (parts.children, parts.cursor) == ([], None)


def test_a_listing_that_does_not_go_on_ends(stub: S3Stub, make_eraser: MakeEraser) -> None:
    bucket = stub.bucket("b", page=10, ignores_start=True)
    for number in range(25):
        bucket.put(f"p/{number:03d}")
    played = play(make_eraser(stub, "b"), [("prefix", "b/p/")])
    assert played.closing("b/p/").outcome is Outcome.DELETED
    assert not bucket.objects


def test_a_key_that_no_locator_can_name(stub: S3Stub, make_eraser: MakeEraser) -> None:
    bucket = stub.bucket("b")
    for key in ("p/1", "p/nul\0"):
        bucket.put(key)
    played = play(make_eraser(stub, "b"), [("prefix", "b/p/")])
    assert played.closing("b/p/1").outcome is Outcome.DELETED
    (answer,) = played.answers["b/p/"]
    assert (answer.outcome, answer.error) == (Outcome.REFUSED, "UnrepresentableKey")
