"""Presence against the truth, on servers that list in their own order: never absent when it is there."""

import random
from collections.abc import Callable

import pytest
from conformance.harness import play
from servers.s3_stub import S3Stub
from servers.s3_stub_store import by_bytes, by_walk
from servers.s3_targets import S3Server

from expunge.tasks.erasers.s3 import S3Eraser
from expunge.tasks.outcomes import Outcome

MakeEraser = Callable[..., S3Eraser]


def _candidates(seed: int) -> list[str]:
    """Keys of few characters, so that they are each other's prefixes, directories and neighbours."""
    dice = random.Random(seed)
    names = [
        "".join(dice.choice("ab.-+ 0/~\uff5e\U0001f600") for _ in range(dice.randint(1, 6))).strip("/")
        for _ in range(250)
    ]
    return sorted({name for name in names if name and "//" not in name and not {"", ".", ".."} & set(name.split("/"))})


def _without_files_as_directories(keys: list[str]) -> list[str]:
    kept: list[str] = []
    for key in sorted(keys, key=len):
        parents = {key[:place] for place, letter in enumerate(key) if letter == "/"}
        if not parents & set(kept) and not any(other.startswith(key + "/") for other in kept):
            kept.append(key)
    return kept


@pytest.mark.parametrize("versioning", ["", "Enabled"])
@pytest.mark.parametrize("seed", range(3))
def test_what_is_there_is_found(server: S3Server, make_eraser: MakeEraser, versioning: str, seed: int) -> None:
    candidates = _candidates(seed)
    dice = random.Random(seed)
    bucket = server.new_bucket(versioning)
    there = set(_without_files_as_directories(dice.sample(candidates, 60)))
    server.put(bucket, *there)
    wanted = dice.sample(candidates, 100)
    played = play(make_eraser(server, bucket), [("object", f"{bucket}/{key}") for key in wanted])
    for key in wanted:
        outcomes = played.outcomes(f"{bucket}/{key}")
        if key in there:
            assert Outcome.ABSENT not in outcomes, key
            assert outcomes[-1] is Outcome.DELETED, (key, outcomes)
        else:
            # a server that lists so oddly that absence can't be told is deleted from all the same, or a person asked
            assert outcomes[-1] in (Outcome.ABSENT, Outcome.DELETED, Outcome.REFUSED), (key, outcomes)
    assert set(server.keys(bucket)) == there - set(wanted)


@pytest.mark.parametrize("page", [3, 17, 1000])
@pytest.mark.parametrize("order", [by_bytes, by_walk], ids=["bytes", "walk"])
@pytest.mark.parametrize("versioning", ["", "Enabled"])
def test_any_order_and_any_page(
    stub: S3Stub, make_eraser: MakeEraser, order: Callable[[str], object], versioning: str, page: int
) -> None:
    for seed in range(4):
        candidates = _candidates(seed)
        dice = random.Random(seed)
        bucket = stub.bucket(f"bucket-{seed}", order=order, page=page, versioning=versioning)
        there, wanted = set(dice.sample(candidates, 60)), dice.sample(candidates, 100)
        for key in there:
            bucket.put(key)
        played = play(make_eraser(stub, bucket.name), [("object", f"{bucket.name}/{key}") for key in wanted])
        for key in wanted:
            expected = Outcome.DELETED if key in there else Outcome.ABSENT
            assert played.closing(f"{bucket.name}/{key}").outcome is expected, key
        assert set(bucket.objects) == there - set(wanted)
