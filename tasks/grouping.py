"""Which claimed entries are looked at and called together.

One sick entry never takes its neighbours down for good: what lost its lease once while it was called is called at half
the size, from the second time on alone. Of a paused bucket only one entry goes, as a probe.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from expunge.models.claim import Claim
from expunge.models.entry import Entry
from expunge.models.lanes import Lane
from expunge.models.targets import find_kind, locator_complaint
from expunge.tasks.erasers.contract import Eraser


@dataclass(slots=True)
class Group:
    """Entries that go together."""

    entries: list[Entry]
    probe: bool = False
    """It tries whether a store is back, and uses no try."""


@dataclass(slots=True)
class Deferred:
    """Entries of a paused bucket, to be put off."""

    lane: Lane
    entries: list[Entry]


def complaint(eraser: Eraser, entry: Entry) -> str | None:
    """Why an entry can never be tried: plain SQL may bring anything. None if it can."""
    kind = find_kind(entry.kind)
    if kind is None or (kind not in eraser.kinds and all(kind.name != ours.name for ours in eraser.kinds)):
        return f"kind: store {eraser.store} cannot erase this kind"
    return locator_complaint(kind, entry.locator) or eraser.refuse(entry.kind, entry.locator)


def group(claim: Claim, entries: Sequence[Entry], batch: int) -> tuple[list[Group], list[Deferred]]:
    """Split a claim's entries; `batch` is the most that one call can carry."""
    entries, probes, deferred = _by_scope(claim, entries)
    groups = [Group([probe], probe=True) for probe in probes]
    sound = [entry for entry in entries if entry.lost_leases == 0]
    if sound:
        groups.append(Group(sound, claim.probe))
    once = [entry for entry in entries if entry.lost_leases == 1]
    half = max(1, min(batch, len(once)) // 2)
    groups += [Group(once[start : start + half], claim.probe) for start in range(0, len(once), half)]
    groups += [Group([entry], claim.probe) for entry in entries if entry.lost_leases > 1]
    return groups, deferred


def _by_scope(claim: Claim, entries: Sequence[Entry]) -> tuple[list[Entry], list[Entry], list[Deferred]]:
    left, probes, deferred = list(entries), [], []
    for scope, lane in claim.lanes.items():
        if not scope or lane.paused_by is None:
            continue
        mine = [entry for entry in left if in_scope(entry.locator, scope)]
        if not mine:
            continue
        left = [entry for entry in left if not in_scope(entry.locator, scope)]
        if not lane.is_paused:
            probes.append(mine.pop(0))
        deferred.append(Deferred(lane, mine))
    return left, probes, deferred


def in_scope(locator: str, scope: str) -> bool:
    """Whether a locator lies in a bucket."""
    return locator == scope or locator.startswith(scope + "/")
