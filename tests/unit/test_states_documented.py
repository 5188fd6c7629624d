"""docs/ARCHITECTURE.md says what the code says: states, transitions, outcomes, tables, and which test shows what."""

import re
from pathlib import Path

import pytest

from expunge.models.states import TRANSITIONS, EntryState, NoticeKind, ReceiptStatus
from expunge.models.tables import Base
from expunge.tasks.drain import claim_size
from expunge.tasks.erasers.openai import OpenAIEraser, OpenAIOptions
from expunge.tasks.erasers.s3 import S3Eraser
from expunge.tasks.erasers.s3_options import S3Options
from expunge.tasks.verdict import RULES, Rule

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = ("docs/ARCHITECTURE.md", "docs/LIMITS.md", "docs/RUNBOOK.md", "README.md", "CONTRIBUTING.md")
TEXT = (ROOT / "docs" / "ARCHITECTURE.md").read_text()


def section(title: str) -> str:
    """What stands between this heading and the next of its level."""
    found = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", TEXT, re.DOTALL | re.MULTILINE)
    assert found is not None, title
    return found[1]


def diagram() -> list[str]:
    """The lines of the diagram, as the code would draw it."""
    movers: dict[tuple[str, str], list[str]] = {}
    for move in TRANSITIONS:
        edge = (str(move.source), "[*]" if move.target is None else str(move.target))
        by = movers.setdefault(edge, [])
        if move.by not in by:
            by.append(str(move.by))
    return [
        "    [*] --> ready: open_case",
        *(f"    {source} --> {target}: {', '.join(by)}" for (source, target), by in movers.items()),
    ]


def transition_rows() -> list[str]:
    """The rows of the table of transitions."""
    return [
        f"| `{move.source}` | {f'`{move.target}`' if move.target else 'gone'} | {move.by} | {move.when} |"
        for move in TRANSITIONS
    ]


def outcome_rows() -> list[str]:
    """The rows of the table of outcomes."""

    def row(name: str, rule: Rule) -> str:
        lane = "ends failures in a row" if rule.store_is_well else ""
        if rule.store_is_down:
            lane = "counts towards the breaker"
        error = f"`{rule.error}`" if rule.error else ""
        if rule.error and not rule.fixed_error:
            error += ", or the store's own code"
        return f"| `{name}` | `{rule.status}` | {error} | {rule.tries} | {rule.refusals} | {lane} |"

    return [row(str(outcome), rule) for outcome, rule in RULES.items()]


def test_the_diagram_is_the_table_of_transitions():
    (drawn,) = re.findall(r"^```mermaid\nstateDiagram-v2\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)
    assert drawn.splitlines() == diagram()


def test_every_transition_is_told():
    assert re.findall(r"^\| `\w+` \| (?:`\w+`|gone) \| \w+ \| .* \|$", section("Entry states"), re.MULTILINE) == (
        transition_rows()
    )


def test_every_outcome_is_told():
    rows = re.findall(r"^\| `\w+` \| `\w+` \| .* \| \d \| \d \| .* \|$", section("Failing"), re.MULTILINE)
    assert rows == outcome_rows()


@pytest.mark.parametrize("word", [*EntryState, *ReceiptStatus])
def test_every_state_and_status_has_a_line_of_its_own(word):
    assert re.search(rf"^\| `{word}` \| ", TEXT, re.MULTILINE)


def test_every_table_is_told():
    told = re.findall(r"^\| `(erasure_\w+)` \| ", section("Tables"), re.MULTILINE)
    assert sorted(told) == sorted(Base.metadata.tables)


def test_every_notice_is_told():
    runbook = (ROOT / "docs" / "RUNBOOK.md").read_text()
    assert [kind for kind in NoticeKind if f"`{kind}`" not in runbook] == []


def test_each_of_the_twelve_has_its_tests():
    rows = re.findall(r"^\| (\d+) \| (.*) \| (.*) \| (.*) \|$", section("What always holds"), re.MULTILINE)
    assert [int(number) for number, *_ in rows] == list(range(1, 13))
    for number, _, modules, tests in rows:
        assert re.search(r"`(models|tasks|worker)/\w", modules), number
        assert f"`test_{int(number):02}_" in tests


def test_each_point_of_the_sources_has_its_module_and_its_tests():
    rows = re.findall(
        r"^\| ([ABC]) \| (.*) \| (.*) \| (.*) \|$", section("Where the requirements come from"), re.MULTILINE
    )
    assert {source for source, *_ in rows} == {"A", "B", "C"}
    for _, point, modules, tests in rows:
        assert re.search(r"`(models|tasks|worker)/\w", modules), point
        assert "`test_" in tests, point


def test_the_runbook_counts_a_claim_as_the_drain_does():
    s3 = S3Eraser("a", S3Options(allow=("b",)), lease_seconds=300)
    openai = OpenAIEraser("b", OpenAIOptions(), lease_seconds=300)
    told = f"`openai` {claim_size(openai, 300)}; `s3` {claim_size(s3, 300):,}"
    assert f"| {told} |" in (ROOT / "docs" / "RUNBOOK.md").read_text()
    assert f"| {openai.timeout:.0f} s; {s3.timeout:.0f} s |" in (ROOT / "docs" / "RUNBOOK.md").read_text()


@pytest.mark.parametrize("document", DOCUMENTS)
def test_what_the_documents_name_exists(document):
    """Tests by their names, files and folders by their paths."""
    text = (ROOT / document).read_text()
    code = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("*.py"))
    tests = set(re.findall(r"`(test_\w+)`", text))
    assert {name for name in tests if f"def {name}(" not in code} == set()
    paths = set(re.findall(r"`((?:models|tasks|worker|tests|deploy|benchmarks|docs)/[\w./@-]*)`", text))
    assert {path for path in paths if not (ROOT / path).exists()} == set()
