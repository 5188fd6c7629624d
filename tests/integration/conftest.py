"""Servers of the integration tests."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from servers.ceph_rgw import ACCESS_KEY as RGW_KEY
from servers.ceph_rgw import SECRET_KEY as RGW_SECRET
from servers.ceph_rgw import CephMissing, ceph_rgw
from servers.moto_server import moto_server
from servers.s3_stub import ACCESS_KEY, SECRET_KEY, S3Stub, s3_stub
from servers.s3_targets import S3Server
from servers.seaweed import ACCESS_KEY as SEAWEED_KEY
from servers.seaweed import SECRET_KEY as SEAWEED_SECRET
from servers.seaweed import SeaweedMissing, seaweed

from expunge.models.database import Database
from expunge.models.session_schema import create_sessions
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


@pytest.fixture(scope="session")
def rgw() -> Iterator[S3Server]:
    """Ceph's gateway; `make test-rgw` asks for it."""
    started: AbstractContextManager[str] = ceph_rgw()
    try:
        url = started.__enter__()
    except CephMissing as missing:
        pytest.skip(str(missing))
    try:
        yield S3Server("rgw", url, RGW_KEY, RGW_SECRET)
    finally:
        started.__exit__(None, None, None)


@pytest.fixture
def stub() -> Iterator[S3Stub]:
    with s3_stub() as running:
        yield running


@pytest.fixture(params=["stub", "moto", "weed", *(["rgw"] if os.environ.get("EXPUNGE_TEST_RGW") else [])])
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


@pytest.fixture(scope="session")
def host_postgres_template(postgres: Any, postgres_template: str) -> str:
    name: str = postgres.create(postgres_template)
    database = Database.open(postgres.url(name))
    create_sessions(database)
    database.close()
    return name


@pytest.fixture(scope="session")
def host_sqlite_template(tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path) -> Path:
    path = tmp_path_factory.mktemp("host") / "host.db"
    shutil.copy(sqlite_template, path)
    database = Database.open(f"sqlite:///{path}")
    create_sessions(database)
    database.close()
    return path


@pytest.fixture(params=["sqlite", "postgresql"])
def host_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A fresh database of each kind with the reference host's tables."""
    if request.param == "sqlite":
        shutil.copy(request.getfixturevalue("host_sqlite_template"), tmp_path / "host.db")
        yield f"sqlite:///{tmp_path / 'host.db'}"
        return
    postgres = request.getfixturevalue("postgres")
    name = postgres.create(request.getfixturevalue("host_postgres_template"))
    yield postgres.url(name)
    postgres.drop(name)


@pytest.fixture
def host_database(host_url: str) -> Iterator[Database]:
    """The same, opened as Expunge opens it."""
    opened = Database.open(host_url)
    yield opened
    opened.close()
