"""The metrics that runbook, alert rules and dashboard name are those that a worker serves, labels included."""

import json
import re
from datetime import timedelta
from pathlib import Path

import pytest
import yaml
from rows import NOW, receipt

from expunge.models.database import Database
from expunge.models.states import EntryState, PausedBy, ReceiptStatus
from expunge.worker.metrics import Metrics

ROOT = Path(__file__).resolve().parents[2]
DASHBOARDS = ROOT / "deploy" / "dashboards"
VALUES = {
    "status": set(ReceiptStatus),
    "by": set(PausedBy),
    "state": {*EntryState, "open", "overdue", "held"},
}


@pytest.fixture
def served(sqlite_url) -> dict[str, set[str]]:
    """The labels of every series by its name."""
    database = Database.open(sqlite_url)
    metrics = Metrics(database, ["artifacts"])
    metrics.settled("artifacts", [receipt("c", "b/1", called_at=NOW - timedelta(seconds=1))])
    names: dict[str, set[str]] = {"expunge_lane_last_success_seconds": {"lane"}}  # only of lanes with due entries
    for family in metrics.registry.collect():
        for sample in family.samples:
            if not sample.name.endswith("_created"):
                names.setdefault(sample.name, set()).update(sample.labels)
        if family.name.endswith(("_entries", "_paused", "_cases")):
            names.setdefault(family.name, set())
    database.close()
    return names


def bare(name: str) -> str:
    return re.sub(r"_(bucket|count|sum)$", "", name)


def expressions() -> list[str]:
    """Of the rules and of the dashboard."""
    rules = yaml.safe_load((DASHBOARDS / "alerts.yaml").read_text())["groups"][0]["rules"]
    board = json.loads((DASHBOARDS / "expunge.json").read_text())
    return [rule["expr"] for rule in rules] + [each["expr"] for panel in board["panels"] for each in panel["targets"]]


def test_the_runbook_tells_of_each_and_of_no_other(served):
    text = (ROOT / "docs" / "RUNBOOK.md").read_text()
    rows = re.findall(r"^\| `(expunge_\w+)` \|[^|]*\|([^|]*)\|", text, re.MULTILINE)
    told = {name: set(re.findall(r"`(\w+)`", labels)) for name, labels in rows}
    assert told == {bare(name): labels - {"le"} for name, labels in served.items()}


def test_what_is_watched_exists(served):
    watched = set()
    for expression in expressions():
        for name, labels in re.findall(r"\b(expunge_\w+)(?:\{([^}]*)\})?", expression):
            watched.add(bare(name))
            assert name in served, expression
            for label, value in re.findall(r'(\w+)="(\w+)"', labels):
                assert label in served[name]
                assert value in VALUES[label]
    assert watched == {bare(name) for name in served}


def test_grouping_is_by_labels_that_exist(served):
    for expression in expressions():
        for labels, rest in re.findall(r"by \(([\w, ]+)\) \((.*)", expression):
            name = re.search(r"expunge_\w+", rest)
            assert name is not None
            assert set(labels.split(", ")) <= served[name[0]], expression


def test_every_rule_says_how_grave_it_is_and_what_is_wrong():
    rules = yaml.safe_load((DASHBOARDS / "alerts.yaml").read_text())["groups"][0]["rules"]
    assert len({rule["alert"] for rule in rules}) == len(rules)
    for rule in rules:
        assert rule["labels"]["severity"] in ("page", "ticket")
        assert rule["annotations"]["summary"]
