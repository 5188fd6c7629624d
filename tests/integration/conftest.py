"""Servers of the integration tests."""

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest
from servers.moto_server import moto_server
from servers.s3_stub import ACCESS_KEY, SECRET_KEY, S3Stub, s3_stub
from servers.s3_targets import S3Server
from servers.seaweed import ACCESS_KEY as SEAWEED_KEY
from servers.seaweed import SECRET_KEY as SEAWEED_SECRET
from servers.seaweed import SeaweedMissing, seaweed

from expunge.tasks.erasers.s3 import S3Eraser
from expunge.tasks.erasers.s3_options import S3Options

MakeEraser = Callable[..., S3Eraser]


@pytest.fixture(scope="session")
def moto() -> Iterator[S3Server]:
    with moto_server() as url:
        yield S3Server("moto", url, "motomotomotomoto", "secret")


@pytest.fixture(scope="session")
def weed() -> Iterator[S3Server]:
    started: AbstractContextManager[str] = seaweed()
    try:
        url = started.__enter__()
    except SeaweedMissing as missing:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(missing))
    try:
        yield S3Server("seaweed", url, SEAWEED_KEY, SEAWEED_SECRET)
    finally:
        started.__exit__(None, None, None)


@pytest.fixture
def stub() -> Iterator[S3Stub]:
    with s3_stub() as running:
        yield running


@pytest.fixture(params=["stub", "moto", "weed"])
def server(request: pytest.FixtureRequest) -> S3Server:
    """Each S3 server in turn."""
    found = request.getfixturevalue(request.param)
    return S3Server("stub", found.url, ACCESS_KEY, SECRET_KEY) if isinstance(found, S3Stub) else found


@pytest.fixture
def make_eraser(monkeypatch: pytest.MonkeyPatch) -> Iterator[MakeEraser]:
    """An eraser on a server: `make_eraser(server, "bucket", …, keys_per_call=10)`."""
    made: list[S3Eraser] = []

    def make(server: S3Server | S3Stub, *allow: str, lease_seconds: float = 300.0, **options: object) -> S3Eraser:
        keys = (ACCESS_KEY, SECRET_KEY) if isinstance(server, S3Stub) else (server.access_key, server.secret_key)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", keys[0])
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", keys[1])
        settings = {"endpoint_url": server.url, "region": "us-east-1", "allow": allow, **options}
        made.append(S3Eraser("account", S3Options.model_validate(settings), lease_seconds=lease_seconds))
        return made[-1]

    yield make
    for eraser in made:
        eraser.close()
