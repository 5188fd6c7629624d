"""What every eraser must hold, whatever its store: the contract, judged by the store's own state and access log."""

import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from conformance.harness import Fault, Played, World, entry, play, world_modules

from expunge.models.targets import complaint
from expunge.tasks.erasers.contract import Answer, NotSent
from expunge.tasks.outcomes import Outcome

GOOD = (Outcome.DELETED, Outcome.ABSENT, Outcome.ENDED)
ON_THE_WAY = (*GOOD, Outcome.ACCEPTED, Outcome.PRESENT)

UNDER_FAULT = {
    Fault.THROTTLE: Outcome.THROTTLED,
    Fault.UNAVAILABLE: Outcome.UNAVAILABLE,
    Fault.DROP_AFTER: Outcome.NO_ANSWER,
    Fault.DROP_BEFORE: Outcome.NO_ANSWER,
    Fault.GARBAGE: Outcome.UNCONFIRMED,
    Fault.MISSING_PAGE: Outcome.UNCONFIRMED,
}


_MODULES = {module.name: module for module in world_modules()}


@pytest.fixture(scope="module")
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    with _MODULES[request.param].open_world() as opened:
        yield opened


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Every test runs in every world; one that asks for a kind, for every kind there."""
    if "kind" in metafunc.fixturenames:
        pairs = [(module.name, kind) for module in _MODULES.values() for kind in module.kinds]
        metafunc.parametrize(("world", "kind"), pairs, indirect=["world"], scope="module")
    elif "world" in metafunc.fixturenames:
        metafunc.parametrize("world", list(_MODULES), indirect=True, scope="module")


def closes_as(world: World, kind: str, *, again: bool = False) -> Outcome:
    """How a target that exists closes, or one that has been closed before."""
    if kind in world.ends:
        return Outcome.ENDED
    return Outcome.ABSENT if again else Outcome.DELETED


def every_answer(played: Played) -> list[Answer]:
    return [answer for answers in played.answers.values() for answer in answers]


def test_what_exists_is_deleted(world: World, kind: str) -> None:
    locator = world.make(kind)
    assert world.exists(kind, locator)
    played = play(world.eraser(), [(kind, locator)])
    assert played.closing(locator).outcome is closes_as(world, kind)
    assert not world.exists(kind, locator)
    assert not played.open


def test_what_never_existed_is_absent(world: World, kind: str) -> None:
    locator = world.absent(kind)
    assert play(world.eraser(), [(kind, locator)]).closing(locator).outcome is Outcome.ABSENT


def test_again_is_absent(world: World, kind: str) -> None:
    locator = world.make(kind)
    play(world.eraser(), [(kind, locator)])
    closing = play(world.eraser(), [(kind, locator)]).closing(locator)
    assert closing.outcome is closes_as(world, kind, again=True)


def test_neighbours_stay(world: World, kind: str) -> None:
    locators = [world.make(kind) for _ in range(12)]
    play(world.eraser(), [(kind, locator) for locator in locators[::3]])
    assert [world.exists(kind, locator) for locator in locators] == [number % 3 != 0 for number in range(12)]


def test_every_delete_call_has_its_answer(world: World, kind: str) -> None:
    before = len(world.deletes())
    locators = [world.make(kind) for _ in range(3)] + [world.absent(kind)]
    played = play(world.eraser(), [(kind, locator) for locator in locators])
    logged = {call.request_id for call in world.deletes()[before:]}
    answered = {answer.request_id for answer in every_answer(played)}
    assert logged <= answered
    assert len(world.deletes()) - before == played.calls, "one Call is one delete call"


def test_answers_are_complete_and_carry_no_content(world: World, kind: str) -> None:
    locators = [world.make(kind), world.absent(kind)]
    played = play(world.eraser(), [(kind, locator) for locator in locators])
    with world.fault(Fault.UNAVAILABLE):
        bad = play(world.eraser(), [(kind, world.make(kind))])
    for answer in every_answer(played) + every_answer(bad):
        assert answer.operation
        assert answer.called_at <= answer.at
        assert answer.called_at.tzinfo is not None
        assert answer.request_id
        assert answer.endpoint
        assert answer.http_status
        assert answer.error is None or re.fullmatch(r"[A-Za-z0-9_.:-]{1,64}", answer.error)
        assert (answer.error is None) or answer.outcome not in GOOD


@pytest.mark.parametrize("fault", Fault)
def test_a_fault_is_called_what_it_is(world: World, kind: str, fault: Fault) -> None:
    locator, before = world.make(kind), len(world.deletes())
    with world.fault(fault):
        played = play(world.eraser(), [(kind, locator)])
    named = {item for call in world.deletes()[before:] for item in call.items}
    assert named == {(locator, a.version) for locator, answers in played.answers.items() for a in answers}
    bad = [answer for answer in every_answer(played) if answer.outcome not in ON_THE_WAY]
    assert {answer.outcome for answer in bad} == {UNDER_FAULT[fault]}
    assert not [answer for answer in played.answers.get(locator, []) if answer.outcome in GOOD and not answer.version]
    assert played.open
    if fault is Fault.THROTTLE:
        assert {answer.retry_after for answer in bad} == {7.0}
    if fault is not Fault.DROP_AFTER:
        assert world.exists(kind, locator)
    assert play(world.eraser(), [(kind, locator)]).closing(locator).outcome in GOOD
    assert not world.exists(kind, locator)


def test_without_credentials_nothing_is_sent_and_nothing_is_said_of_the_store(world: World, kind: str) -> None:
    entries = [entry(kind, world.make(kind)) for _ in range(3)]
    eraser, before = world.eraser(), len(world.deletes())
    eraser.close()
    with world.without_credentials():
        looked = eraser.look(entries, time.monotonic() + 60)
        assert not looked.answers
        assert not looked.calls
        assert not looked.parts
        assert {each.entry_id for each in looked.not_sent} <= {each.id for each in entries}
        assert [line for line in eraser.check() if line.ok is False]
    assert [each for each in looked.not_sent if each.whole_account and re.fullmatch(r"[A-Za-z]{1,64}", each.reason)]
    assert len(world.deletes()) == before
    played = play(eraser, [(each.kind, each.locator) for each in entries])
    assert {played.closing(each.locator).outcome for each in entries} == {closes_as(world, kind)}


def test_credentials_that_go_between_look_and_call_send_nothing(world: World, kind: str) -> None:
    entries = [entry(kind, world.make(kind)) for _ in range(2)]
    eraser = world.eraser()
    calls = eraser.look(entries, time.monotonic() + 60).calls
    before = len(world.deletes())
    eraser.close()
    with world.without_credentials():
        came = [each for call in calls for each in call.send(call.entry_ids)]
    assert len(world.deletes()) == before
    assert all(isinstance(each, NotSent) and each.whole_account for each in came)
    assert {each.entry_id for each in came} == {entry_id for call in calls for entry_id in call.entry_ids}


def test_send_is_about_the_marked_entries_only(world: World, kind: str) -> None:
    entries = [entry(kind, world.make(kind)) for _ in range(4)]
    looked = world.eraser().look(entries, time.monotonic() + 60)
    marked = {entries[1].id, entries[2].id}
    for call in looked.calls:
        ids = marked & set(call.entry_ids)
        if ids:
            assert {answer.entry_id for answer in call.send(ids)} == ids
    assert world.exists(kind, entries[0].locator)
    assert world.exists(kind, entries[3].locator)


def test_no_request_is_begun_after_the_deadline(world: World, kind: str) -> None:
    before = len(world.deletes())
    looked = world.eraser().look([entry(kind, world.make(kind)) for _ in range(3)], time.monotonic() - 1)
    assert not looked.answers
    assert not looked.parts
    assert len(world.deletes()) == before


def test_threads_share_an_eraser(world: World, kind: str) -> None:
    locators = [world.make(kind) for _ in range(16)]
    with ThreadPoolExecutor(4) as pool:
        shares = [[(kind, locator) for locator in locators[number::4]] for number in range(4)]
        played = list(pool.map(lambda share: play(world.eraser(), share), shares))
    for number, each in enumerate(played):
        for _, locator in shares[number]:
            assert each.closing(locator).outcome is closes_as(world, kind)


def test_locators_are_valid_and_not_refused(world: World, kind: str) -> None:
    locator = world.make(kind)
    assert kind in {known.name for known in world.eraser().kinds}
    assert complaint("account", kind, locator) is None
    assert world.eraser().refuse(kind, locator) is None


def test_check_says_something_and_leaks_nothing(world: World) -> None:
    lines = world.eraser().check()
    assert lines
    assert all(line.name and line.text for line in lines)
    assert not [line for line in lines if line.ok is False]
