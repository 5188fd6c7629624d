"""A client's mirror of the reference host: its own requests, answers and errors, on both databases."""

from pathlib import Path

import pytest
from host import Host

from expunge.models.database import Database
from expunge.models.mirror_file import MirrorFile
from expunge.worker.mirror import Mirror


class Device:
    """A client with a copy of its own."""

    def __init__(self, host: Host, folder: Path, token: str) -> None:
        self.local = MirrorFile(folder)
        self.token = token
        self.mirror = Mirror(host.client, self.local, lambda: self.token, page_size=2)

    @property
    def titles(self) -> dict[str, str | None]:
        return {session.id: session.title for session in self.local.sessions()}


@pytest.fixture
def host(database: Database) -> Host:
    host = Host(database)
    for number in range(5):
        host.session(f"s{number}")
        host.message(f"s{number}", f"Question {number}?")
    host.session("other", principal="bob")
    return host


def test_a_purge_on_one_device_reaches_the_other(host: Host, tmp_path: Path) -> None:
    phone, laptop = (Device(host, tmp_path / name, host.token()) for name in ("phone", "laptop"))
    for device in (phone, laptop):
        assert device.mirror.connected().stopped is None
        assert device.titles == {f"s{number}": f"Question {number}?" for number in range(5)}
        assert device.local.cache("s1", "a.png", b"secret")
    assert phone.mirror.delete("s1").gone
    assert phone.mirror.delete("s1").gone
    assert host.sql("SELECT id FROM session WHERE id = 's1'") == []
    assert laptop.local.cached("s1", "a.png") == b"secret"
    done = laptop.mirror.foregrounded()
    assert (done.pruned, done.unconfirmed, done.stopped) == (1, 0, None)
    for device in (phone, laptop):
        assert sorted(device.titles) == ["s0", "s2", "s3", "s4"]
        assert device.local.cached("s1", "a.png") is None
        device.local.close()


def test_activity_moves_a_conversation_and_prunes_nothing(host: Host, tmp_path: Path) -> None:
    device = Device(host, tmp_path, host.token())
    device.mirror.connected()
    pages = []
    put = device.local.put

    def moving(sessions: list) -> int:  # type: ignore[type-arg]
        if not pages:
            host.message("s0", "Again?")  # which is on the last page
        pages.append([session.id for session in sessions])
        return put(sessions)

    device.local.put = moving  # type: ignore[method-assign,assignment]
    done = device.mirror.foregrounded()
    assert (done.pruned, done.unconfirmed, done.stopped) == (0, 0, None)
    assert pages == [["s4", "s3"], ["s2", "s1"], ["s0"]]  # the last by its point read
    assert list(device.titles) == ["s0", "s4", "s3", "s2", "s1"]
    device.local.close()


def test_an_active_run_is_named_and_nothing_is_lost(host: Host, tmp_path: Path) -> None:
    host.run("r1", "s1", "waiting")
    device = Device(host, tmp_path, host.token())
    device.mirror.connected()
    answer = device.mirror.delete("s1")
    assert (answer.gone, answer.status, answer.code, answer.run_id) == (False, 409, "invalid_state", "r1")
    assert device.mirror.delete("other").status == 404
    assert "s1" in device.titles
    device.local.close()


def test_whoever_may_not_read_empties_nothing(host: Host, tmp_path: Path) -> None:
    device = Device(host, tmp_path, host.token())
    device.mirror.connected()
    before = device.titles
    for token in (
        "nonsense",
        host.token(scopes=["session.write"]),
        host.token(principal="bob"),
        host.token(tenant="globex"),
        host.token(principal="nobody"),
    ):
        device.token = token
        assert device.mirror.foregrounded().stopped
        assert device.titles == before
    device.token = host.token()  # logged in again
    assert device.mirror.foregrounded().stopped is None
    device.local.close()
