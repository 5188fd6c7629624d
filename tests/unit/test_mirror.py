"""A client's mirror: never prunes a living conversation, always converges, deletes server first."""

import shutil
import tempfile
from pathlib import Path
from typing import Any

import httpx2
import pytest
from doubles.machines import ROUNDS, run_machine
from doubles.session_server import FAULTS, STRANGER, TOKEN, SessionServer, problem
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from expunge.models import mirror_file
from expunge.models.mirror_file import MirrorFile
from expunge.worker.mirror import Mirror


class Device:
    """A mirror of the server, with its token and clock in the test's hand."""

    def __init__(self, server: SessionServer, folder: Path, **options: Any) -> None:
        self.server = server
        self.folder = folder
        self.token = TOKEN
        self.now = 0.0
        self.local = MirrorFile(folder)
        for pragma in ("synchronous = OFF", "journal_mode = MEMORY"):  # the disk is not what is tested
            self.local._connection.execute(f"PRAGMA {pragma}")
        options = {"page_size": 2, **options}
        self.mirror = Mirror(server.client(), self.local, lambda: self.token, clock=lambda: self.now, **options)

    def has(self) -> dict[str, str | None]:
        return {session.id: session.title for session in self.local.sessions()}

    def folders(self) -> int:
        return len(list((self.folder / "bytes").iterdir()))


@pytest.fixture
def server() -> SessionServer:
    made = SessionServer()
    for number in range(5):
        made.touch(f"s{number}")
    return made


@pytest.fixture
def device(server: SessionServer, tmp_path: Path) -> Any:
    made = Device(server, tmp_path / "mirror")
    yield made
    made.local.close()


def titles(server: SessionServer) -> dict[str, Any]:
    return {session_id: server.view(session_id)["title"] for session_id in server.sessions}


def test_a_pass_takes_over_what_the_server_has(server: SessionServer, device: Device) -> None:
    done = device.mirror.connected()
    assert (done.changed, done.pruned, done.stopped) == (5, 0, None)
    assert device.has() == titles(server)
    assert list(device.has()) == ["s4", "s3", "s2", "s1", "s0"]
    server.touch("s2")
    server.touch("s9")
    server.purge("s0")
    done = device.mirror.foregrounded()
    assert (done.changed, done.pruned, done.unconfirmed) == (2, 1, 0)
    assert device.has() == titles(server)
    again = device.mirror.foregrounded()
    assert (again.changed, again.pruned) == (0, 0)


def test_one_that_moves_between_two_pages_stays(server: SessionServer, device: Device) -> None:
    device.mirror.connected()
    # s0 would be on the last page; after the first one was read it is on the first
    server.script.extend([lambda: None, lambda: server.touch("s0")])
    done = device.mirror.foregrounded()
    assert (done.pruned, done.unconfirmed) == (0, 0)
    assert ("GET", "/v1/sessions/s0") in server.asked
    assert device.has() == titles(server)


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("at", [0, 1, 2])
def test_an_index_that_is_not_seen_whole_prunes_nothing(
    server: SessionServer, device: Device, fault: str, at: int
) -> None:
    device.mirror.connected()
    server.purge("s1")
    server.script.extend([*[lambda: None] * at, FAULTS[fault]])
    if fault == "no cursor" and at == 2:
        server.script.clear()
        server.script.extend([lambda: None, lambda: None, FAULTS[fault]])
        server.touch("s1x")  # so that there is a third page
    done = device.mirror.foregrounded()
    assert done.stopped or at == 2
    assert "s1" in device.has() or at == 2
    assert device.mirror.foregrounded().stopped is None
    assert device.has() == titles(server)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_point_read_that_does_not_say_gone_prunes_nothing(server: SessionServer, device: Device, fault: str) -> None:
    device.mirror.connected()
    server.purge("s1")
    server.script.extend([lambda: None] * 2)  # the pages
    server.script.append(FAULTS[fault])
    done = device.mirror.foregrounded()
    assert (done.pruned, done.unconfirmed) == (0, 1)
    assert "s1" in device.has()
    assert device.mirror.foregrounded().pruned == 1


@pytest.mark.parametrize("token", ["expired", "not latin: …", "two\nlines", ""])
def test_a_token_that_is_not_taken_empties_nothing(device: Device, token: str) -> None:
    device.mirror.connected()
    device.token = token
    assert device.mirror.foregrounded().stopped
    assert len(device.has()) == 5


def test_a_strangers_token_changes_nothing(server: SessionServer, device: Device) -> None:
    """To it the index is empty and whole, and every point read says not found."""
    device.mirror.connected()
    device.token = STRANGER
    done = device.mirror.foregrounded()
    assert "not known" in (done.stopped or "")
    assert device.has() == titles(server)


def test_a_stranger_who_found_it_empty_does_not_empty_it_later(server: SessionServer, device: Device) -> None:
    device.token = STRANGER
    assert device.mirror.connected().stopped is None
    device.token = TOKEN
    device.mirror.foregrounded()
    device.token = STRANGER
    assert device.mirror.foregrounded().stopped
    assert device.has() == titles(server)


def test_another_server_changes_nothing(server: SessionServer, device: Device) -> None:
    device.mirror.connected()
    other = SessionServer()
    other.touch("x")
    moved = Mirror(
        httpx2.Client(base_url="https://other.example", transport=httpx2.MockTransport(other.answer)),
        device.local,
        lambda: TOKEN,
    )
    assert moved.connected().stopped
    assert device.has() == titles(server)


def test_a_new_token_of_the_same_account_is_known_by_what_it_sees(
    server: SessionServer, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    device.mirror.connected()
    monkeypatch.setattr("doubles.session_server.TOKEN", "ada, logged in again")
    device.token = "ada, logged in again"
    server.purge("s0")
    done = device.mirror.foregrounded()
    assert (done.stopped, done.pruned) == (None, 1)
    # from now on it is known, even if nothing that is here is left there
    for session_id in list(server.sessions):
        server.purge(session_id)
    assert device.mirror.foregrounded().pruned == 4


def test_a_new_token_that_sees_nothing_is_known_when_the_client_says_so(
    server: SessionServer, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    device.mirror.connected()
    monkeypatch.setattr("doubles.session_server.TOKEN", "ada, logged in again")
    device.token = "ada, logged in again"
    for session_id in list(server.sessions):
        server.purge(session_id)
    assert device.mirror.foregrounded().stopped
    assert len(device.has()) == 5
    device.mirror.trust()
    assert device.mirror.foregrounded().pruned == 5


@pytest.mark.parametrize("trap", ["repeats its cursor", "goes round", "never ends", "is empty and goes on"])
def test_an_index_without_an_end_is_stopped(server: SessionServer, device: Device, trap: str) -> None:
    device.mirror.connected()
    server.purge("s1")
    count = 0

    def page() -> httpx2.Response:
        nonlocal count
        count += 1
        shown = {"never ends": f"x{count}", "repeats its cursor": f"x{count}"}.get(trap, "s4")
        server.touch(shown)
        cursor = "same" if trap == "repeats its cursor" else f"c{count}"
        sessions = [] if trap == "is empty and goes on" else [server.view(shown)]
        return httpx2.Response(200, json={"sessions": sessions, "next_cursor": cursor})

    server.script.extend([page] * 100)
    device.mirror = Mirror(server.client(), device.local, lambda: TOKEN, most_pages=20)
    done = device.mirror.connected()
    assert done.stopped
    assert done.pruned == 0
    assert count <= (20 if trap == "never ends" else 3)
    assert {"s0", "s1", "s2", "s3"} <= device.has().keys()


def test_a_pass_every_thirty_seconds_while_it_is_seen(server: SessionServer, device: Device) -> None:
    assert device.mirror.tick() is None  # nobody has connected
    device.mirror.connected()
    for now, passes in ((1.0, False), (29.9, False), (30.0, True), (31.0, False), (60.0, True)):
        device.now = now
        assert (device.mirror.tick() is not None) is passes
        assert device.mirror.tick(now) is None
    device.mirror.backgrounded()
    device.now = 1000.0
    assert device.mirror.tick() is None
    device.mirror.foregrounded()
    assert device.mirror.tick(1030.0) is not None


def test_a_server_that_asks_for_time_gets_it(server: SessionServer, device: Device) -> None:
    server.script.append(lambda: problem(503, "unavailable", Retry_After="90"))
    assert device.mirror.connected().retry_after_seconds == 90
    assert device.mirror.tick(89.0) is None
    assert device.mirror.tick(90.0) is not None
    assert device.has() == titles(server)


def test_a_delete_is_server_first(server: SessionServer, device: Device) -> None:
    device.mirror.connected()
    assert device.local.cache("s1", "a.png", b"secret")
    assert device.mirror.delete("s1").gone
    assert "s1" not in server.sessions
    assert "s1" not in device.has()
    assert device.folders() == 0
    assert device.mirror.delete("s1").status == 204


@pytest.mark.parametrize("fault", FAULTS)
def test_a_delete_that_is_not_confirmed_leaves_it_here(server: SessionServer, device: Device, fault: str) -> None:
    device.mirror.connected()
    assert device.local.cache("s1", "a.png", b"secret")
    server.script.append(FAULTS[fault])
    answer = device.mirror.delete("s1")
    assert not answer.gone
    assert device.local.cached("s1", "a.png") == b"secret"
    assert device.mirror.delete("s1").gone


def test_a_lost_answer_to_a_delete_is_asked_for_again(server: SessionServer, device: Device) -> None:
    device.mirror.connected()

    def lost() -> httpx2.Response:
        server.purge("s1")
        return FAULTS["timeout"]()

    server.script.append(lost)
    assert device.mirror.delete("s1").status is None
    assert "s1" in device.has()
    assert device.mirror.delete("s1").gone
    assert "s1" not in device.has()


def test_an_active_run_is_named(server: SessionServer, device: Device) -> None:
    device.mirror.connected()
    server.active.add("s1")
    answer = device.mirror.delete("s1")
    assert (answer.gone, answer.status, answer.code, answer.run_id) == (False, 409, "invalid_state", "r1")
    assert "s1" in device.has()


def test_a_delete_during_a_pass_is_not_undone_by_its_pages(server: SessionServer, device: Device) -> None:
    device.mirror.connected()

    def meanwhile() -> None:
        server.script.clear()
        assert device.mirror.delete("s3").gone
        # and the page that is answered now was read before that
        server.sessions["s3"] = 4
        server.script.append(lambda: server.sessions.pop("s3") and None)

    server.script.append(meanwhile)
    assert device.mirror.foregrounded().stopped is None
    assert "s3" not in device.has()


def test_many_that_are_never_confirmed_do_not_starve_the_others(server: SessionServer, tmp_path: Path) -> None:
    device = Device(server, tmp_path, page_size=200, most_reads=2)
    device.mirror.connected()
    for session_id in list(server.sessions):
        server.purge(session_id)
    server.sick = {"s0", "s1"}
    assert [device.mirror.foregrounded().pruned for _ in range(4)] == [0, 2, 1, 0]
    assert device.has().keys() == server.sick
    server.sick = set()
    device.mirror.foregrounded()
    assert device.has() == {}


@pytest.mark.parametrize("odd", ["a/b", "x" * 201, "\\"])
def test_what_no_path_can_name_is_not_mirrored(server: SessionServer, device: Device, odd: str) -> None:
    server.touch(odd)
    device.mirror.connected()
    assert odd not in device.has()
    asked = len(server.asked)
    assert not device.mirror.delete(odd).gone
    assert len(server.asked) == asked


@pytest.mark.parametrize("odd", ["..", ".", "a?b#c", "100%25", "ä ö", ";,=&+"])
def test_odd_ids_are_named_whole(server: SessionServer, device: Device, odd: str) -> None:
    server.touch(odd)
    device.mirror.connected()
    server.purge(odd)
    assert device.mirror.foregrounded().pruned == 1
    assert device.has() == titles(server)
    server.purged.discard(odd)
    server.touch(odd)
    device.mirror.foregrounded()
    assert device.mirror.delete(odd).gone


def test_cached_bytes(server: SessionServer, device: Device) -> None:
    assert not device.local.cache("s1", "a", b"early")
    device.mirror.connected()
    assert device.local.cache("s1", "../../a", b"one")
    assert device.local.cache("s1", "../../a", b"two")
    assert device.local.cached("s1", "../../a") == b"two"
    assert device.local.cached("s1", "b") is None
    assert [path.name for path in device.folder.parent.iterdir()] == ["mirror"]
    server.purge("s1")
    device.mirror.foregrounded()
    assert device.local.cached("s1", "../../a") is None
    assert device.folders() == 0


@pytest.mark.parametrize("dies", ["before the bytes", "among the bytes", "before the row"])
def test_an_interrupted_removal_is_finished_by_the_next_pass(
    server: SessionServer, device: Device, monkeypatch: pytest.MonkeyPatch, dies: str
) -> None:
    device.mirror.connected()
    for name in ("a", "b", "c"):
        device.local.cache("s1", name, b"secret")

    class Killed(BaseException):
        pass

    def rmtree(folder: Path, **_: Any) -> None:
        files = sorted(folder.iterdir())
        for file in files[: {"before the bytes": 0, "among the bytes": 1, "before the row": 3}[dies]]:
            file.unlink()
        if dies == "before the row":
            folder.rmdir()
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(mirror_file.shutil, "rmtree", rmtree)
        with pytest.raises(Killed):
            device.mirror.delete("s1")
    again = Device(server, device.folder)
    assert "s1" not in again.has()  # whoever opens it is not shown half of it
    assert again.local.cached("s1", "c") is None
    assert not again.local.cache("s1", "d", b"late")
    again.mirror.connected()
    assert again.folders() == 0
    again.local.close()


def test_bytes_that_will_not_go_are_tried_again(
    server: SessionServer, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    device.mirror.connected()
    device.local.cache("s1", "a", b"secret")

    def rmtree(folder: Path, **_: Any) -> None:
        raise PermissionError

    with monkeypatch.context() as patch:
        patch.setattr(mirror_file.shutil, "rmtree", rmtree)
        assert device.mirror.delete("s1").gone
    assert "s1" not in device.has()
    assert device.folders() == 1
    device.mirror.foregrounded()
    assert device.folders() == 0


def test_orphaned_bytes_go(server: SessionServer, device: Device) -> None:
    device.mirror.connected()
    device.local.cache("s1", "a", b"keep")
    orphan = device.folder / "bytes" / "0123"
    orphan.mkdir()
    (orphan / "x").write_bytes(b"whose?")
    device.mirror.foregrounded()
    assert not orphan.exists()
    assert device.local.cached("s1", "a") == b"keep"


def test_nothing_that_was_removed_can_be_read_in_the_file(server: SessionServer, device: Device) -> None:
    server.touch("needle")
    device.mirror.connected()
    raw = (device.folder / "mirror.db").read_bytes
    assert b"needle at" in raw()
    server.purge("needle")
    device.mirror.foregrounded()
    assert b"needle" not in raw()
    assert device.folder.stat().st_mode & 0o077 == 0


SESSIONS = st.sampled_from([f"s{number}" for number in range(6)])
EVENTS = st.one_of(
    st.tuples(st.just("touch"), SESSIONS),
    st.tuples(st.just("purge"), SESSIONS),
    st.tuples(st.just("fault"), st.sampled_from(sorted(FAULTS))),
    st.tuples(st.just("nothing"), SESSIONS),
    st.tuples(st.just("nothing"), SESSIONS),
)


class Machine(RuleBasedStateMachine):
    """Everything happens at once: between two requests of a pass sessions move, appear and vanish, and answers fail."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.server = SessionServer()
        self.cached: set[str] = set()
        self.open()

    def open(self) -> None:
        self.device = Device(self.server, self.folder, page_size=2)
        remove = self.device.local.remove

        def watched(session_id: str) -> bool:
            assert session_id not in self.server.sessions, "a living conversation is pruned"
            return remove(session_id)

        self.device.local.remove = watched  # type: ignore[method-assign]

    def teardown(self) -> None:
        self.device.local.close()
        shutil.rmtree(self.folder)

    @rule(session=SESSIONS)
    def touch(self, session: str) -> None:
        self.server.touch(session)

    @rule(session=SESSIONS)
    def purge(self, session: str) -> None:
        self.server.purge(session)

    @rule(session=SESSIONS)
    def cache(self, session: str) -> None:
        self.device.local.cache(session, "a", b"bytes")

    @rule(
        events=st.lists(st.lists(EVENTS, max_size=2), max_size=9), token=st.sampled_from([TOKEN] * 3 + [STRANGER, "?"])
    )
    def reconcile(self, events: list[list[tuple[str, str]]], token: str) -> None:
        before = self.device.has()
        self.plan(events)
        self.device.token = token
        done = self.device.mirror.foregrounded()
        if token != TOKEN and before:
            assert done.stopped
            assert self.device.has() == before
        self.server.script.clear()
        self.device.token = TOKEN

    @rule(session=SESSIONS, events=st.lists(st.lists(EVENTS, max_size=2), max_size=1))
    def delete(self, session: str, events: list[list[tuple[str, str]]]) -> None:
        self.plan(events)
        had = session in self.device.has()
        if self.device.mirror.delete(session).gone:
            assert session in self.server.purged
            assert session not in self.device.has()
        else:
            assert (session in self.device.has()) is had
        self.server.script.clear()

    @rule()
    def restart(self) -> None:
        self.device.local.close()
        self.open()

    @rule()
    def quiet(self) -> None:
        """Two passes while nothing happens are enough, whatever was before."""
        for _ in range(2):
            self.device.mirror.foregrounded()
        assert self.device.has() == titles(self.server)
        assert self.device.folders() <= len(self.server.sessions)

    def plan(self, events: list[list[tuple[str, str]]]) -> None:
        def happen(some: list[tuple[str, str]]) -> httpx2.Response | None:
            for what, which in some:
                if what == "fault":
                    return FAULTS[which]()
                if what != "nothing":
                    getattr(self.server, what)(which)
            return None

        self.server.script.extend([lambda some=some: happen(some) for some in events])

    @invariant()
    def bytes_belong_to_somebody(self) -> None:
        for session in self.server.purged - self.device.has().keys():
            assert self.device.local.cached(session, "a") is None


@pytest.mark.timeout(120 * (1 + ROUNDS))
def test_every_order() -> None:
    run_machine(Machine, examples=30, steps=25)
