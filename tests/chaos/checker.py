"""Compares what the stores saw with what the receipts say, and with what is left. It shares no code with the product.

The stores' access logs are the truth about calls; the stores' own listings are the truth about what is there.
"""

import json
import sqlite3
import urllib.request
import xml.etree.ElementTree as ElementTree
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
from psycopg.rows import dict_row

Row = dict[str, Any]
SETTLING = ("deleted", "already_absent")
GONE = (*SETTLING, "absent")
"""With the word of a second look."""


@dataclass(frozen=True)
class Stores:
    """Where the two stores are, and where they log."""

    s3_url: str
    s3_log: Path
    provider_url: str
    provider_log: Path
    buckets: tuple[str, ...] = ("plain", "old")
    project: str = "proj_demo"
    """Whose key the provider's receipts of success are of."""


@dataclass
class DeleteCall:
    """One delete call about one object: of a batch, one for each key."""

    request_id: str
    store: str
    locator: str
    versions: set[str | None] = field(default_factory=set)
    done: bool = False
    begun: float = 0.0
    names_itself: bool = True
    """False: its answer was somebody else's page, without a request id."""


@dataclass(frozen=True)
class Hold:
    """What its placer saw, on the stores' own clock: a hold that covers all locators with one of these beginnings."""

    prefixes: tuple[str, ...]
    committed: float
    """When its commit had returned."""
    released: float
    """Before its release began."""
    in_flight: frozenset[int]
    """The entries that it named as being called."""


def query(url: str, sql: str) -> list[Row]:
    """Rows of one statement without parameters; plain drivers."""
    if url.startswith("sqlite:///"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"), timeout=30)) as connection:
            connection.row_factory = sqlite3.Row
            return [dict(row) for row in connection.execute(sql)]
    with psycopg.connect(url.replace("postgresql+psycopg", "postgresql"), row_factory=dict_row) as server:
        return server.execute(sql).fetchall()  # type: ignore[call-overload]


def log_lines(path: Path) -> list[Row]:
    """A log of JSON lines."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def delete_calls(stores: Stores) -> Iterator[DeleteCall]:
    """Every delete call of both logs, object by object."""
    for line in log_lines(stores.s3_log):
        if line["operation"] in ("DeleteObjects", "DeleteObject"):
            calls: dict[str, DeleteCall] = {}
            for key, version in zip(line["keys"], line["versions"], strict=True):
                locator = f"{line['bucket']}/{key}"
                call = calls.setdefault(locator, DeleteCall(line["request_id"], "s3", locator))
                call.done, call.begun = line["done"], line["begun"]
                call.names_itself = line["request_id"] is not None
                call.versions.add(version)
            yield from calls.values()
    for line in log_lines(stores.provider_log):
        if line["method"] == "DELETE":
            locator = line["path"].split("/", 3)[3].replace("/items/", "/")
            named = line["fault"] != "page"
            yield DeleteCall(line["request_id"], "openai", locator, {None}, line["acted"], line["begun"], named)


def left_at_s3(stores: Stores) -> set[tuple[str, str]]:
    """(bucket/key, version) of everything that the buckets still hold, delete markers included."""
    found = set()
    for bucket in stores.buckets:
        page = ""
        while True:
            request = urllib.request.Request(
                f"{stores.s3_url}/{bucket}?versions{page}", headers={"authorization": "x Credential=stubstubstubstub/x"}
            )
            with urllib.request.urlopen(request, timeout=10) as answer:
                root = ElementTree.fromstring(answer.read())
            told = {element.tag.rpartition("}")[2]: element.text or "" for element in root}
            for element in root:
                if element.tag.rpartition("}")[2] in ("Version", "DeleteMarker"):
                    fields = {child.tag.rpartition("}")[2]: child.text or "" for child in element}
                    found.add((f"{bucket}/{fields['Key']}", fields["VersionId"]))
            if told["IsTruncated"] != "true":
                break
            page = f"&key-marker={quote(told['NextKeyMarker'])}&version-id-marker={told['NextVersionIdMarker']}"
    return found


def left_at_provider(stores: Stores) -> set[str]:
    """Locators of everything that the provider still holds; items also when their conversation is gone."""
    base = stores.provider_url.removesuffix("/v1")
    with urllib.request.urlopen(f"{base}/__control__/state", timeout=10) as answer:
        state = json.loads(answer.read())
    found: set[str] = set()
    for project in state.values():
        found |= {*project["files"], *project["responses"], *project["vector_stores"], *project["conversations"]}
        for items in (project["conversations"], project["left_behind_items"]):
            found |= {f"{conversation}/{item}" for conversation, ids in items.items() for item in ids}
    return found


def findings(
    url: str, stores: Stores, *, wanted: Iterable[str], keep: Iterable[str], holds: Sequence[Hold] = ()
) -> list[str]:
    """What does not add up, in words; empty if all is well. `wanted` are the locators that the cases were opened with,
    `keep` those that belong to others and must still be there, `holds` all that were placed."""
    receipts = query(url, "SELECT * FROM erasure_record")
    s3, provider = left_at_s3(stores), left_at_provider(stores)
    return [
        *calls_without_receipts(receipts, list(delete_calls(stores))),
        *_receipts_without_calls(receipts, stores),
        *_cases(url, receipts, set(wanted)),
        *_left(s3, provider, set(keep)),
        *_too_good(receipts, s3, provider),
        *_wrong_account(receipts, stores),
        *called_while_held(receipts, list(delete_calls(stores)), holds),
    ]


def calls_without_receipts(receipts: list[Row], calls: Sequence[DeleteCall]) -> Iterator[str]:
    by_call: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in receipts:
        if row["request_id"]:
            by_call[row["request_id"], row["locator"]].append(row)
    asked = {(call.request_id, call.locator) for call in calls if call.names_itself}
    answered = {_attempt(row) for row in receipts if (row["request_id"], row["locator"]) in asked}
    # an attempt is one call: of those whose call is known by its id, the unknown receipt stands for no other
    standing: dict[tuple[str | None, str], set[Any]] = defaultdict(set)
    pages: dict[tuple[str | None, str], set[Any]] = defaultdict(set)
    for row in receipts:
        if row["request_id"] or _attempt(row) in answered:
            continue
        if row["status"] == "unknown":
            standing[row["store"], row["locator"]].add(_attempt(row))
        elif row["status"] == "failed" and row["http_status"]:
            pages[row["store"], row["locator"]].add(_attempt(row))
    unexplained: dict[tuple[str, str], list[str]] = defaultdict(list)
    for call in calls:
        failed = pages[call.store, call.locator]
        if not call.names_itself and not call.done and failed:
            failed.pop()  # a page that nothing was done for, and one `failed` receipt of it
            continue
        rows = by_call.get((call.request_id, call.locator), [])
        if not rows:
            unexplained[call.store, call.locator].append(call.request_id)
        elif not any(row["version"] is None for row in rows):
            missing = call.versions - {row["version"] for row in rows}
            if missing:
                yield f"call {call.request_id} about {call.locator}: no receipt for {sorted(map(str, missing))}"
    for (store, locator), ids in unexplained.items():
        found = len(standing.get((store, locator), ()))
        if len(ids) > found:
            yield f"{locator}: {len(ids)} delete calls without a receipt {ids}, {found} unknown receipts stand for them"


def _attempt(row: Row) -> tuple[int, int]:
    return row["entry_id"], row["attempt"]


def _receipts_without_calls(receipts: list[Row], stores: Stores) -> Iterator[str]:
    known = {line["request_id"] for path in (stores.s3_log, stores.provider_log) for line in log_lines(path)}
    calls = {(call.request_id, call.locator): call for call in delete_calls(stores)}
    for row in receipts:
        if row["request_id"] is None:
            if row["status"] in SETTLING:
                yield f"receipt {row['id']}: {row['status']} of {row['locator']} without a request id"
        elif row["request_id"] not in known:
            yield f"receipt {row['id']} of {row['locator']}: no log knows the request id {row['request_id']}"
        elif row["status"] == "deleted" and row["action"] == "delete":
            call = calls.get((row["request_id"], row["locator"]))
            if call is None or row["version"] not in call.versions:
                yield f"receipt {row['id']}: {row['request_id']} did not ask for {row['locator']} {row['version']}"
            elif not call.done:
                yield f"receipt {row['id']}: the store did not carry out {row['request_id']}"


def _cases(url: str, receipts: list[Row], wanted: set[str]) -> Iterator[str]:
    for row in query(url, "SELECT id, completed_at FROM erasure_case"):
        if row["completed_at"] is None:
            yield f"case {row['id']} is not complete"
    for row in query(url, "SELECT locator, state, reason FROM erasure_outbox WHERE action <> 'verify' OR NOT settled"):
        yield f"an entry is left: {row['locator']} is {row['state']} ({row['reason']})"
    closed = {row["locator"] for row in receipts if row["version"] is None and row["status"] in SETTLING}
    for locator in sorted(wanted - closed):
        yield f"{locator}: no receipt closes it"


def _left(s3: set[tuple[str, str]], provider: set[str], keep: set[str]) -> Iterator[str]:
    there = {locator for locator, _ in s3} | provider
    for locator in sorted(there - keep):
        yield f"{locator} is still there"
    for locator in sorted(keep - there):
        yield f"{locator} is gone, and was nobody's to erase"


def _too_good(receipts: list[Row], s3: set[tuple[str, str]], provider: set[str]) -> Iterator[str]:
    there = {locator for locator, _ in s3} | provider
    for row in receipts:
        if row["status"] not in GONE:
            continue
        if row["version"] is not None:
            false = (row["locator"], row["version"]) in s3
        elif row["kind"] == "prefix":
            false = any(locator.startswith(row["locator"]) for locator in there)
        else:
            false = row["locator"] in there
        if false:
            yield f"receipt {row['id']}: {row['locator']} is {row['status']}, and still there"


def _wrong_account(receipts: list[Row], stores: Stores) -> Iterator[str]:
    """Nothing that another account answered is a success, in either direction."""
    others = {
        line["request_id"] for line in log_lines(stores.provider_log) if line["project"] not in (stores.project, None)
    }
    for row in receipts:
        if row["request_id"] in others and row["status"] in (*GONE, "accepted"):
            yield f"receipt {row['id']}: {row['locator']} is {row['status']} by the word of another account"


def called_while_held(receipts: list[Row], calls: Sequence[DeleteCall], holds: Sequence[Hold]) -> Iterator[str]:
    """Delete calls that began while a hold stood, but for one attempt of each entry that it named as in flight."""
    locators: dict[int, set[str]] = defaultdict(set)
    attempts: dict[tuple[str, str], set[tuple[int, int]]] = defaultdict(set)
    for row in receipts:
        locators[row["entry_id"]].add(row["locator"])
        if row["request_id"]:
            attempts[row["request_id"], row["locator"]].add(_attempt(row))
    by_locator: dict[str, list[DeleteCall]] = defaultdict(list)
    for call in calls:
        by_locator[call.locator].append(call)
    names = sorted(by_locator)
    for hold in holds:
        flying = {name for entry in hold.in_flight for name in locators[entry]}
        for locator in _beginning(names, hold.prefixes):
            during = [call for call in by_locator[locator] if hold.committed < call.begun < hold.released]
            told = {each for call in during for each in attempts[call.request_id, locator]}
            if during and locator not in flying:
                yield f"{locator}: called while held, and not named as in flight: {[c.request_id for c in during]}"
            elif len(during) > 1 or len(told) > 1:  # an attempt is one call, answered or not
                yield f"{locator}: called by more than the attempt that was in flight when it was held"


def _beginning(names: list[str], prefixes: Sequence[str]) -> set[str]:
    """Those of the sorted names that begin with one of the prefixes: a long run has as many holds as names."""
    found: set[str] = set()
    for prefix in prefixes:
        at = bisect_left(names, prefix)
        while at < len(names) and names[at].startswith(prefix):
            found.add(names[at])
            at += 1
    return found
