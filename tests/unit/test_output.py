"""Printing for people and programs."""

import csv
import io
import json
from datetime import UTC, datetime, timedelta, timezone

import pytest

from expunge.worker import output
from expunge.worker.output import Column

ROWS = [
    {"id": 1, "locator": 'b/a,"q"\n\x1b[31m\u2028', "at": datetime(2026, 10, 18, 9, 30, tzinfo=UTC), "ok": True},
    {"id": 2, "locator": None, "at": None, "ok": False},
]


def test_json_has_one_ascii_line_a_row_and_times_in_utc(capsysbinary):
    rows = [*ROWS, {"id": 3, "at": datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=1))), "detail": {"n": 1}}]
    assert output.print_json([rows[:2], rows[2:]]) == 3
    printed = capsysbinary.readouterr().out.decode("ascii")
    lines = [json.loads(line) for line in printed.splitlines()]
    assert lines[0] == {**ROWS[0], "at": "2026-10-18T09:30:00.000Z"}
    assert lines[1] == ROWS[1]
    assert lines[2] == {"id": 3, "at": "2025-12-31T23:00:00.000Z", "detail": {"n": 1}}


def test_csv_reads_back(capsysbinary):
    rows = [{**row, "detail": {"existed": "unknown"}} for row in ROWS]
    assert output.print_csv([rows], ["id", "locator", "at", "ok", "detail"]) == 2
    lines = list(csv.reader(io.StringIO(capsysbinary.readouterr().out.decode(), newline="")))
    assert lines == [
        ["id", "locator", "at", "ok", "detail"],
        ["1", ROWS[0]["locator"], "2026-10-18T09:30:00.000Z", "true", '{"existed": "unknown"}'],
        ["2", "", "", "false", '{"existed": "unknown"}'],
    ]


def test_csv_of_nothing_is_its_header(capsysbinary):
    assert output.print_csv([], ["id", "locator"]) == 0
    assert capsysbinary.readouterr().out == b"id,locator\n"


COLUMNS = [Column("number", "id", right=True), Column("locator", "locator"), Column("when", "at")]


def test_off_a_terminal_a_table_is_aligned_text_without_control_characters(capsys):
    assert output.print_table([ROWS[:1], ROWS[1:]], COLUMNS) == 2
    head, first, second = capsys.readouterr().out.splitlines()
    assert head.split() == ["number", "locator", "when"]
    assert first.startswith('     1  b/a,"q"\\n\\x1b[31m\\u2028  2026-10-18 09:30:00Z')
    assert second == "     2"


def test_on_a_terminal_a_locator_is_neither_markup_nor_an_escape_sequence(capsys, monkeypatch):
    monkeypatch.setattr(output, "on_terminal", lambda: True)
    monkeypatch.setenv("COLUMNS", "120")
    row = {"id": 1, "locator": "b/[red]x[/red]\x1b]0;title\x07", "at": None}
    output.print_table([[row]], COLUMNS, title="[bold]t")
    printed = capsys.readouterr().out
    assert "b/[red]x[/red]\\x1b]0;title\\x07" in printed
    assert "[bold]t" in printed


def test_csv_on_a_terminal_is_for_people(capsysbinary, monkeypatch):
    monkeypatch.setattr(output, "on_terminal", lambda: True)
    output.print_csv([ROWS], ["id", "locator", "at"])
    assert capsysbinary.readouterr().out.decode().splitlines() == [
        "id,locator,at",
        '1,"b/a,""q""\\n\\x1b[31m\\u2028",2026-10-18T09:30:00.000Z',
        "2,,",
    ]


OBEYED = [*map(chr, range(32)), *map(chr, range(0x7F, 0xA0)), *"\u202a\u202e\u2066\u2069\u2028\u200b\ufeff", "\ud800"]


@pytest.mark.parametrize("character", OBEYED, ids=ascii)
def test_nothing_that_a_terminal_obeys_or_hides_is_shown_as_it_is(character):
    said = output.shown(f"a{character}b")
    assert said.isprintable()
    assert said.encode().decode() == said
    assert said[:2] + said[-1:] == "a\\b"


def test_nothing_prints_no_table(capsys):
    assert output.print_table([], COLUMNS, title="t") == 0
    assert capsys.readouterr().out == ""


def test_counts_have_their_plural():
    assert [output.plural(1, "entry", "entries"), output.plural(1200, "line")] == ["1 entry", "1,200 lines"]
