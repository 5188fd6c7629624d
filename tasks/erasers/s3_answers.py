"""What the answer to a DeleteObjects call says about each key, judged without any doubt in its favour.

Sources: Amazon S3 API Reference, DeleteObjects (Deleted, Error); Amazon S3 User Guide, "Working with delete markers".
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from expunge.tasks.erasers.s3_errors import by_code, error_name, refused_code
from expunge.tasks.outcomes import Outcome

Pair = tuple[str, str | None]
"""Key and version id; None for a plain delete."""

MARKER = "DeleteMarker"
"""The error of a plain delete that only hid the object: the bucket has versions."""

STILL_THERE = "StillThere"
"""The error of what the store says is gone, and shows all the same."""


@dataclass(frozen=True, slots=True)
class Judged:
    """What became of one pair."""

    outcome: Outcome
    error: str | None = None


def judge_batch(parsed: dict[str, Any], asked: Collection[Pair]) -> dict[Pair, Judged]:
    """One verdict for every pair that was asked for. Keys that nobody asked for are ignored."""
    deleted, errors = parsed.get("Deleted") or [], parsed.get("Errors") or []
    if not deleted and not errors:
        return dict.fromkeys(asked, Judged(Outcome.UNCONFIRMED, "Unconfirmed"))
    wanted = set(asked)
    judged: dict[Pair, Judged] = {}
    gone = Judged(Outcome.DELETED)
    for item in deleted:
        if len(item) == 1 and (item.get("Key"), None) in wanted:  # nearly all: a key, and nothing said of versions
            judged[item["Key"], None] = gone
            continue
        for pair, verdict in _of_deleted(item, wanted):
            judged[pair] = verdict
    for item in errors:  # after the successes: a key in both lists is not deleted
        for pair in _of_error(item, wanted, judged):
            code = refused_code(str(item.get("Code", "")), item.get("Message"))
            judged[pair] = Judged(by_code(code), error_name(code))
    left_out = Judged(Outcome.LEFT_OUT, "LeftOut")
    return {pair: judged.get(pair, left_out) for pair in wanted}


def _of_deleted(item: dict[str, Any], wanted: set[Pair]) -> list[tuple[Pair, Judged]]:
    key, version = item.get("Key", ""), item.get("VersionId") or None
    marker_version = item.get("DeleteMarkerVersionId") or None
    if (key, None) in wanted:
        hidden = version or marker_version or item.get("DeleteMarker")
        verdict = Judged(Outcome.UNCONFIRMED, MARKER) if hidden else Judged(Outcome.DELETED)
        return [((key, None), verdict)]
    # deleting a delete marker by its version may be answered with the marker's version alone
    named = {version, marker_version if item.get("DeleteMarker") else None} - {None}
    return [((key, each), Judged(Outcome.DELETED)) for each in named if (key, each) in wanted]


def _of_error(item: dict[str, Any], wanted: set[Pair], judged: dict[Pair, Judged]) -> list[Pair]:
    key, version = item.get("Key", ""), item.get("VersionId") or None
    if (key, version) in wanted:
        return [(key, version)]
    if version is None:  # some servers leave the version out of an error
        return [pair for pair in wanted if pair[0] == key and pair not in judged]
    return []
