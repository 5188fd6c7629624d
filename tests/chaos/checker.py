"""Compares what the stores saw with what the receipts say, and with what is left. It shares no code with the product.

The stores' access logs are the truth about calls; the stores' own listings are the truth about what is there.
"""

import json
import sqlite3
import urllib.request
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
from psycopg.rows import dict_row

Row = dict[str, Any]
SETTLING = ("deleted", "already_absent")


@dataclass(frozen=True)
class Stores:
    """Where the two stores are, and where they log."""

    s3_url: str
    s3_log: Path
    provider_url: str
    provider_log: Path
    buckets: tuple[str, ...] = ("plain", "old")


@dataclass
class DeleteCall:
    """One delete call about one object: of a batch, one for each key."""

    request_id: str
    store: str
    locator: str
    versions: set[str | None] = field(default_factory=set)
    done: bool = False


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
                call = calls.setdefault(locator, DeleteCall(line["request_id"], "s3", locator, done=line["done"]))
                call.versions.add(version)
            yield from calls.values()
    for line in log_lines(stores.provider_log):
        if line["method"] == "DELETE":
            locator = line["path"].split("/", 3)[3].replace("/items/", "/")
            yield DeleteCall(line["request_id"], "openai", locator, {None}, line["acted"])


def left_at_s3(stores: Stores) -> set[tuple[str, str]]:
    """(bucket/key, version) of everything that the buckets still hold, delete markers included."""
    found = set()
    for bucket in stores.buckets:
        request = urllib.request.Request(
            f"{stores.s3_url}/{bucket}?versions", headers={"authorization": "x Credential=stubstubstubstub/x"}
        )
        with urllib.request.urlopen(request, timeout=10) as answer:
            root = ElementTree.fromstring(answer.read())
        names = {"Version", "DeleteMarker"}
        for element in root:
            if element.tag.rpartition("}")[2] in names:
                fields = {child.tag.rpartition("}")[2]: child.text or "" for child in element}
                found.add((f"{bucket}/{fields['Key']}", fields["VersionId"]))
        assert "<IsTruncated>true" not in ElementTree.tostring(root).decode(), "more than a page is left"
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


def findings(url: str, stores: Stores, *, wanted: Iterable[str], keep: Iterable[str]) -> list[str]:
    """What does not add up, in words; empty if all is well. `wanted` are the locators that the cases were opened with,
    `keep` those that belong to others and must still be there."""
    receipts = query(url, "SELECT * FROM erasure_record")
    s3, provider = left_at_s3(stores), left_at_provider(stores)
    return [
        *_calls_without_receipts(receipts, list(delete_calls(stores))),
        *_receipts_without_calls(receipts, stores),
        *_cases(url, receipts, set(wanted)),
        *_left(s3, provider, set(keep)),
        *_too_good(receipts, s3, provider),
    ]


def _calls_without_receipts(receipts: list[Row], calls: list[DeleteCall]) -> Iterator[str]:
    by_call: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in receipts:
        if row["request_id"]:
            by_call[row["request_id"], row["locator"]].append(row)
    asked = {(call.request_id, call.locator) for call in calls}
    answered = {_attempt(row) for row in receipts if (row["request_id"], row["locator"]) in asked}
    # an attempt is one call: of those whose call is known by its id, the unknown receipt stands for no other
    standing: dict[tuple[str | None, str], set[Any]] = defaultdict(set)
    for row in receipts:
        if row["status"] == "unknown" and not row["request_id"] and _attempt(row) not in answered:
            standing[row["store"], row["locator"]].add(_attempt(row))
    unexplained: dict[tuple[str, str], list[str]] = defaultdict(list)
    for call in calls:
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
    for row in query(url, "SELECT locator, state, reason FROM erasure_outbox"):
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
        if row["status"] not in SETTLING:
            continue
        if row["version"] is not None:
            false = (row["locator"], row["version"]) in s3
        elif row["kind"] == "prefix":
            false = any(locator.startswith(row["locator"]) for locator in there)
        else:
            false = row["locator"] in there
        if false:
            yield f"receipt {row['id']}: {row['locator']} is {row['status']}, and still there"
