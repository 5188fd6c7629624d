"""How many calls an erasure takes."""

from collections.abc import Callable

import pytest
from conformance.harness import play
from servers.s3_stub import S3Stub

from expunge.tasks.erasers.s3 import S3Eraser

MakeEraser = Callable[..., S3Eraser]
Objects = list[tuple[str, str]]


def objects(*keys: str, bucket: str = "b") -> Objects:
    return [("object", f"{bucket}/{key}") for key in keys]


@pytest.mark.parametrize("count", [1000, 2000, 20000])
def test_dense_keys_cost_one_call_per_450(stub: S3Stub, make_eraser: MakeEraser, count: int) -> None:
    bucket = stub.bucket("b")
    keys = [f"tenants/7/doc-{number:06d}.pdf" for number in range(count)]
    for key in [*keys, "tenants/6/x", "tenants/8/x"]:
        bucket.put(key)
    eraser = make_eraser(stub, "b")
    for start in range(0, count, 2000):
        play(eraser, objects(*keys[start : start + 2000]))
    assert set(bucket.objects) == {"tenants/6/x", "tenants/8/x"}
    once = 0 if count == 20000 else 2  # versioning, in five minutes, and open uploads, in ten seconds
    assert len(stub.calls()) - once <= count / 450


def test_sparse_keys_cost_one_look_each(stub: S3Stub, make_eraser: MakeEraser) -> None:
    bucket = stub.bucket("b")
    keys = [f"k-{number}" for number in range(20000)]
    for key in keys:
        bucket.put(key)
    play(make_eraser(stub, "b"), objects(*keys[::1000]))
    assert len(stub.calls("ListObjectsV2")) <= 22
