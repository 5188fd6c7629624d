"""Each of the public reports P01 to P23 has a test that names it, and the thread in which it was told."""

import ast
import re
from collections import defaultdict
from pathlib import Path

INTEGRATION = Path(__file__).parents[1] / "integration"
CASES = [f"p{number:02}" for number in range(1, 24)]
THREAD = re.compile(r"[A-Za-z][\w./-]*(?: PR)?#\d+")
"""`boto/boto3#2005`, `redpanda PR#7191`."""
DOCUMENTED = {"p12": "API reference"}
"""Not told in any thread: what the documentation says is the report."""


def _tests() -> dict[str, dict[str, str]]:
    """By case: the names of its tests, and their docstrings."""
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for file in sorted(INTEGRATION.glob("test_*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and (named := re.match(r"test_(p\d\d)_", node.name)):
                found[named.group(1)][f"{file.name}::{node.name}"] = " ".join((ast.get_docstring(node) or "").split())
    return found


def _names_a_source(case: str, docstring: str) -> bool:
    return bool(THREAD.search(docstring)) or DOCUMENTED.get(case, "\0") in docstring


def test_each_case_has_a_test() -> None:
    assert sorted(_tests()) == CASES


def test_each_case_names_its_thread() -> None:
    without = {
        case: list(tests)
        for case, tests in _tests().items()
        if not any(_names_a_source(case, docstring) for docstring in tests.values())
    }
    assert without == {}


def test_what_counts_as_a_thread() -> None:
    assert _names_a_source("p01", "All of it (boto/boto3#2005).")
    assert _names_a_source("p23", "No permission: redpanda PR#7191")
    assert not _names_a_source("p01", "See #5, and the API reference.")
