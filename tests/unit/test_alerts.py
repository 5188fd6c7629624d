"""The alert rules by Prometheus's own tool where there is one (Debian: `prometheus`); and each has its test."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

DASHBOARDS = Path(__file__).resolve().parents[2] / "deploy" / "dashboards"
RULES = DASHBOARDS / "alerts.yaml"
TESTS = DASHBOARDS / "alerts_test.yaml"


def promtool(*arguments: str | Path) -> None:
    tool = shutil.which("promtool")
    if tool is None:
        pytest.skip("no promtool here")
    ran = subprocess.run([tool, *map(str, arguments)], cwd=DASHBOARDS, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def expected() -> list[dict[str, Any]]:
    """What the rules' own tests expect of one rule at one time."""
    return [each for test in yaml.safe_load(TESTS.read_text())["tests"] for each in test["alert_rule_test"]]


def test_each_rule_is_seen_to_speak_and_to_be_silent():
    rules = {rule["alert"]: rule for rule in yaml.safe_load(RULES.read_text())["groups"][0]["rules"]}
    assert {each["alertname"] for each in expected() if not each["exp_alerts"]} == set(rules)
    assert {each["alertname"] for each in expected() if each["exp_alerts"]} == set(rules)
    for each in expected():
        for alert in each["exp_alerts"]:
            assert alert["exp_labels"]["severity"] == rules[each["alertname"]]["labels"]["severity"]


def test_the_rules_do_what_their_tests_say():
    promtool("check", "rules", RULES)
    promtool("test", "rules", TESTS)


def test_the_dashboards_expressions_can_be_read(tmp_path):
    board = json.loads((DASHBOARDS / "expunge.json").read_text())
    asked = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    assert asked
    rules = [
        {"record": f"panel:{number}", "expr": expression.replace("$__rate_interval", "5m")}
        for number, expression in enumerate(asked)
    ]
    path = tmp_path / "rules.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    promtool("check", "rules", path)
