"""P10 to P14: what providers do to those who delete. Each symptom is a public report; what is right is shown to happen,
through the whole drain, on SQLite and on PostgreSQL."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from doubles.running import Bench
from servers.provider import KEY_VARIABLE

from expunge.models import Target, open_case
from expunge.tasks.drain import drain
from expunge.tasks.erasers.openai import OpenAIOptions
from expunge.worker.demo_provider import DEMO_KEY, DemoProvider
from expunge.worker.demo_provider_faults import Fault, Reply


class World:
    """A bench whose account is the provider's."""

    def __init__(self, database, provider: DemoProvider, **options) -> None:
        self.bench = Bench(database, attempts_before_escalation=4)
        self.provider = provider
        self.restart(**options)

    def add(self, account: str, **options) -> None:
        """An account of the settings, with a fresh process's eraser."""
        made = OpenAIOptions(**{"base_url": self.provider.base_url, "api_key_env": KEY_VARIABLE, **options})
        self.bench.runtime.accounts[account] = made
        old = self.bench.runtime._erasers.pop(account, None)
        if old is not None:
            old.close()

    def restart(self, **options) -> None:
        """Another process."""
        self.add("openai_eu", **options)

    def open(self, *targets: tuple[str, str], case: str = "c1") -> None:
        wanted = [Target("openai_eu", kind, locator) for kind, locator in targets]
        with self.bench.database.engine.begin() as connection:
            open_case(connection, subject="ada", case_id=case, targets=wanted)

    def run(self, rounds: int = 12, seconds: float = 3600.0) -> None:
        """Drain until nothing is left that moves, as time goes by."""
        for _ in range(rounds):
            drain(self.bench.runtime, "openai_eu")
            if not self.bench.entries():
                return
            self.bench.later(seconds)
            self.bench.sweep()

    def receipts(self, kind: str) -> list[tuple[str, str, str | None]]:
        return [(r.action, r.status, r.error) for r in self.bench.receipts() if r.kind == kind]

    def state(self) -> dict:
        return self.provider.state()["proj_demo"]


@contextmanager
def world_of(database, monkeypatch, **options) -> Iterator[World]:
    monkeypatch.setenv(KEY_VARIABLE, DEMO_KEY)
    with DemoProvider() as provider:
        world = World(database, provider, **options)
        try:
            yield world
        finally:
            for eraser in world.bench.runtime._erasers.values():
                eraser.close()


@pytest.fixture
def world(database, monkeypatch) -> Iterator[World]:
    with world_of(database, monkeypatch) as made:
        yield made


@pytest.mark.parametrize("attached", ["detached", "refused", "counted"])
def test_p10_detach_then_file_then_store(world, attached):
    """A file that was deleted before it was detached stays counted in its vector store (openai/openai-dotnet#540);
    elsewhere the deletion of an attached file is said to be refused (VRSEN/agency-swarm#423)."""
    world.provider.seed(files=["file-1", "file-2"], vector_stores={"vs_1": ["file-1", "file-2"]})
    world.provider.modes(attached=attached)
    world.open(("vector_store", "vs_1"), ("file", "file-1"))
    world.run()
    assert world.state()["vector_stores"] == {}
    assert world.state()["files"] == ["file-2"]
    for kind in ("vector_store_file", "file", "vector_store"):
        assert ("delete", "deleted", None) in world.receipts(kind), kind
    paths = [line["path"] for line in world.provider.log.lines("DELETE") if line["status"] == 200]
    assert paths.index("/v1/vector_stores/vs_1/files/file-1") < paths.index("/v1/files/file-1")
    assert paths[-1] == "/v1/vector_stores/vs_1" or attached != "counted"
    assert world.bench.case("c1").completed_at is not None


def test_p10_in_use_is_order_and_not_a_refusal(world):
    """409 for a file that is attached to a store which is nobody's to erase: it is tried again with longer and longer
    waits, uses no refusal, and is for a person after all tries only (VRSEN/agency-swarm#423)."""
    world.provider.seed(files=["file-1"], vector_stores={"vs_other": ["file-1"]})
    world.provider.modes(attached="refused")
    world.open(("file", "file-1"))
    world.run(rounds=3)
    (entry,) = world.bench.entries()
    assert (entry.state, entry.refusals, entry.reason) == ("ready", 0, "Conflict")
    assert set(world.receipts("file")) == {("delete", "failed", "Conflict")}
    most = world.bench.runtime.policy.attempts_before_escalation
    world.run(rounds=most)
    assert world.bench.entry().state == "escalated"
    assert len(world.receipts("file")) >= most
    world.provider.project().attached["vs_other"].clear()
    world.bench.later(2 * 86_400)
    world.bench.sweep()
    world.run(rounds=2)
    assert world.bench.entries() == []


def test_p10_a_store_that_counts_what_it_does_not_list_is_not_claimed(world):
    """Its file was deleted before by somebody else: the listing is empty, and the count is not
    (openai/openai-dotnet#540)."""
    world.provider.seed(vector_stores={"vs_1": []})
    world.provider.project().ghosts["vs_1"] = 1
    world.open(("vector_store", "vs_1"))
    world.run(rounds=3)
    assert set(world.receipts("vector_store")) == {("look", "failed", "StillCounted")}
    assert world.provider.log.lines("DELETE") == []
    world.provider.project().ghosts.clear()
    world.run()
    assert world.receipts("vector_store")[-1] == ("delete", "deleted", None)


def test_p10_every_page_of_a_store(world):
    """Entries beyond the first page stay behind when only one is read (openai/openai-dotnet#540 is about one of
    them)."""
    files = [f"file-{number}" for number in range(230)]
    world.provider.seed(files=files, vector_stores={"vs_1": files})
    world.open(("vector_store", "vs_1"))
    world.run()
    assert world.receipts("vector_store_file") == [("delete", "deleted", None)] * 230
    assert world.receipts("vector_store") == [("delete", "deleted", None)]
    assert world.state()["files"] == files


@pytest.mark.parametrize(
    ("kind", "shown"),
    [
        ("file", {"deleted": False}),
        ("file", {"id": "file-other"}),
        ("file", {"deleted": None}),
        ("vector_store", {"deleted": "true"}),
        ("conversation", {"deleted": False}),
        ("response", {"id": "resp_other"}),
        ("vector_store_file", {"id": "vs_2"}),
    ],
)
def test_p12_a_body_that_confirms_nothing(world, kind, shown):
    """200 with `deleted: false`, or about another object (the response schema `{id, deleted, object}` of OpenAI's API
    reference and of Azure AI Foundry): not success."""
    world.provider.seed(
        files=["file-1"],
        vector_stores={"vs_1": [], "vs_2": ["file-1"]},
        conversations={"conv_1": []},
        responses=["resp_1"],
    )
    locator = {"file": "file-1", "vector_store": "vs_1", "conversation": "conv_1", "response": "resp_1"}
    world.provider.faults.add(Fault(Reply.TRUE, method="DELETE", body=shown))
    world.open((kind, locator.get(kind, "vs_2/file-1")))
    drain(world.bench.runtime, "openai_eu")
    assert world.receipts(kind) == [("delete", "failed", "Unconfirmed")]
    assert world.bench.entry().state == "ready"
    world.run()
    assert world.receipts(kind)[-1][1:] == ("already_absent", None)


def test_p12_an_empty_object(world):
    """200 with `{}` (the same schema): not success, and the file is still there."""
    world.provider.seed(files=["file-1"])
    world.provider.faults.add(Fault(Reply.JSON, method="DELETE", body={}))
    world.open(("file", "file-1"))
    world.run()
    assert world.receipts("file") == [("delete", "failed", "Unconfirmed"), ("delete", "deleted", None)]


def test_p13_one_that_always_fails_holds_up_no_other(world):
    """500 for certain files (danny-avila/LibreChat#5748), 409 on every delete (run-llama/llama_cloud_services#1079,
    #854): tried again up to a limit, then for a person with code and request id; the others go on."""
    world.provider.seed(files=[f"file-{number}" for number in range(4)])
    world.provider.faults.add(
        Fault(Reply.ERROR, method="DELETE", path="*/file-1", status=500, times=None, code="backend_gone"),
        Fault(Reply.ERROR, method="DELETE", path="*/file-2", status=409, times=None),
    )
    world.open(*(("file", f"file-{number}") for number in range(4)))
    drain(world.bench.runtime, "openai_eu")
    assert sorted(world.state()["files"]) == ["file-1", "file-2"]
    most = world.bench.runtime.policy.attempts_before_escalation
    for _ in range(most * 4):
        if all(entry.state == "escalated" for entry in world.bench.entries()):
            break
        world.bench.later(3600)
        drain(world.bench.runtime, "openai_eu")
    assert [entry.state for entry in world.bench.entries()] == ["escalated"] * 2
    failed = [r for r in world.bench.receipts() if r.status == "failed"]
    assert {(r.locator, r.error, r.http_status) for r in failed} == {
        ("file-1", "backend_gone", 500),
        ("file-2", "Conflict", 409),
    }
    assert all(r.request_id for r in failed)


def test_p14_a_missing_key_parks_its_own_lane_only(database, monkeypatch):
    """Files of Azure could not be deleted without a key of OpenAI (danny-avila/LibreChat#7463, PR#3893)."""
    monkeypatch.setenv(KEY_VARIABLE, DEMO_KEY)
    monkeypatch.delenv("EXPUNGE_TEST_NO_KEY", raising=False)
    with DemoProvider() as provider:
        provider.modes(dialect="azure")
        provider.seed(files=["file-1"])
        azure = provider.base_url.replace("/v1", "/openai/v1")
        world = World(database, provider)
        bench = world.bench
        world.restart(api_key_env="EXPUNGE_TEST_NO_KEY")
        world.add("azure", base_url=azure, azure=True)
        bench.store.put("b/1")
        with database.engine.begin() as connection:
            open_case(
                connection,
                subject="ada",
                case_id="c1",
                targets=[
                    Target("openai_eu", "file", "file-9"),
                    Target("azure", "file", "file-1"),
                    Target("mem", "object", "b/1"),
                ],
            )
        for account in ("openai_eu", "azure", "mem"):
            drain(bench.runtime, account)
        assert [(e.account, e.state, e.tries) for e in bench.entries()] == [("openai_eu", "ready", 0)]
        assert sorted((r.account, r.status) for r in bench.receipts()) == sorted(
            [("azure", "deleted"), ("mem", "deleted")]
        )
        for eraser in bench.runtime._erasers.values():
            eraser.close()


@pytest.mark.parametrize("verify_after", [None, 60.0])
@pytest.mark.parametrize("polls", [1, -1])
def test_p11_deleted_and_still_there(database, monkeypatch, polls, verify_after):
    """A deletion is confirmed, and the file is there all the same, for a while or for ever (LibreChat#7478, masaic
    AgC#114; ogx#2685 for content that stays): the receipt of the call says what the call said, and nothing of a later
    moment. With `verify_after` a later look tells: it is erased again, and what comes back twice needs a person."""
    with world_of(database, monkeypatch, verify_after=verify_after) as world:
        world.provider.seed(files=["file-1"])
        world.provider.modes(lingers=polls)
        world.open(("file", "file-1"))
        world.run(rounds=1)
        assert world.receipts("file") == [("delete", "deleted", None)]
        assert world.state()["files"] == ["file-1"]
        assert world.bench.case().completed_at is not None
        world.run(rounds=8)
        told = [status for _, status, _ in world.receipts("file")]
        if verify_after is None:
            assert told == ["deleted"]
        elif polls > 0:
            assert told[:2] == ["deleted", "present"]
            assert told[-1] == "absent"
            assert world.bench.case().completed_at is not None
            assert world.state()["files"] == []
        else:
            assert told[:4] == ["deleted", "present", "deleted", "present"]
            assert "absent" not in told
            assert world.bench.case().completed_at is None
            kinds = [notice.kind for notice in world.bench.notices()]
            assert "entry.reappeared" in kinds
            assert "entry.escalated" in kinds


OTHER = {"openai-organization": "org-other", "openai-project": "proj_elsewhere"}


@pytest.mark.parametrize("settings", [{}, {"organization": "org-demo"}, {"project": "proj_demo"}])
def test_an_account_that_is_not_who_it_was_has_nothing_believed(database, monkeypatch, settings):
    """A key of another project sees 404 for everything: not one of them counts, whether or not the settings say who the
    account is; the lane pauses, and somebody is told."""
    with world_of(database, monkeypatch, **settings) as world:
        world.provider.seed(files=["file-1"])
        world.open(("file", "file-1"), ("file", "file-2"), ("file", "file-3"), ("file", "file-4"))
        drain_one = world.bench.runtime
        world.provider.faults.add(Fault(Reply.TRUE, path="*/file-2", times=None, headers=OTHER))
        drain(drain_one, "openai_eu")
        bad = [r for r in world.bench.receipts() if r.status == "failed"]
        assert [(r.locator, r.error) for r in bad] == [
            (
                "file-2",
                {"project": "WrongProject", "organization": "WrongOrganization"}.get(*settings, "IdentityChanged")
                if settings
                else "IdentityChanged",
            )
        ]
        assert not [r for r in world.bench.receipts() if r.locator == "file-2" and r.status == "already_absent"]
        (lane,) = world.bench.lanes(account="openai_eu")
        assert (lane.paused_by, lane.reason) == ("breaker", f"refused: {bad[0].error}")
        assert [notice.kind for notice in world.bench.notices()] == ["lane.paused"]


def test_the_account_is_asked_before_the_first_delete(world):
    """One harmless read, once a process; not again."""
    world.provider.seed(files=["file-1", "file-2"])
    world.open(("file", "file-1"), ("file", "file-2"))
    world.run()
    assert [line["method"] for line in world.provider.log.lines()] == ["GET", "DELETE", "DELETE"]
    assert world.receipts("file") == [("delete", "deleted", None)] * 2


def test_a_wrong_account_is_found_out_before_anything_is_deleted(database, monkeypatch):
    with world_of(database, monkeypatch, project="proj_demo") as world:
        world.provider.faults.add(Fault(Reply.TRUE, method="GET", times=None, headers=OTHER))
        world.open(("file", "file-1"))
        world.run(rounds=1)
        assert world.receipts("file") == [("look", "failed", "WrongProject")]
        assert world.provider.log.lines("DELETE") == []


def test_after_a_change_nothing_more_is_deleted_until_a_restart(world):
    """Nobody knows which of the two accounts is the right one: a person looks, resumes the lane and restarts."""
    world.provider.seed(files=["file-1", "file-2"])
    world.open(("file", "file-1"))
    world.run()
    world.provider.faults.add(Fault(Reply.TRUE, method="DELETE", headers=OTHER))
    world.open(("file", "file-9"), case="c2")
    world.run(rounds=3)
    assert len(world.provider.log.lines("DELETE")) == 2
    assert {r[2] for r in world.receipts("file") if r[1] == "failed"} == {"IdentityChanged"}
    world.restart()
    world.bench.later(4000)
    world.run()
    assert world.receipts("file")[-1] == ("delete", "already_absent", None)


@pytest.mark.parametrize(
    "fault", [Fault(Reply.ERROR, status=500), Fault(Reply.ERROR, status=429), Fault(Reply.DROP), Fault(Reply.PAGE)]
)
def test_an_account_that_cannot_be_asked_has_nothing_deleted_yet(world, fault):
    fault.method, fault.times = "GET", 1
    world.provider.seed(files=["file-1", "file-2"])
    world.provider.faults.add(fault)
    world.open(("file", "file-1"), ("file", "file-2"))
    drain(world.bench.runtime, "openai_eu")
    assert sum(entry.tries for entry in world.bench.entries()) <= 1
    assert not [entry for entry in world.bench.entries() if entry.refusals]
    world.run()
    assert world.bench.entries() == []
    assert world.state()["files"] == []


@pytest.mark.parametrize(
    "fault", [Fault(Reply.ERROR, status=403), Fault(Reply.JSON, status=404, body={"detail": "Not Found"})]
)
def test_a_key_that_may_not_list_may_delete(world, fault):
    fault.method, fault.times = "GET", None
    world.provider.seed(files=["file-1"])
    world.provider.faults.add(fault)
    world.open(("file", "file-1"))
    world.run(rounds=1)
    assert world.receipts("file") == [("delete", "deleted", None)]
