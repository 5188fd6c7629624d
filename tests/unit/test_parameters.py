"""Options that several commands take."""

from datetime import UTC, datetime

import click
import pytest
from click.testing import CliRunner

from expunge.worker.parameters import MOMENT, TEXT, who_and_why


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-10-18", datetime(2026, 10, 18, tzinfo=UTC)),
        ("2026-10-18T09:30:00", datetime(2026, 10, 18, 9, 30, tzinfo=UTC)),
        ("2026-10-18T09:30:00Z", datetime(2026, 10, 18, 9, 30, tzinfo=UTC)),
        ("2026-10-18 09:30:00.5+02:00", datetime(2026, 10, 18, 7, 30, 0, 500_000, tzinfo=UTC)),
    ],
)
def test_times_are_iso_8601_and_utc_unless_they_say_otherwise(text, moment):
    assert MOMENT.convert(text, None, None) == moment


@pytest.mark.parametrize("text", ["", "yesterday", "18.10.2026", "2026-13-01", "0001-01-01T00:00:00+23:00"])
def test_anything_else_is_no_time(text):
    with pytest.raises(click.BadParameter, match="ISO 8601"):
        MOMENT.convert(text, None, None)


@pytest.mark.parametrize("text", ["", "  ", "\udcff"])
def test_text_is_neither_blank_nor_broken(text):
    with pytest.raises(click.BadParameter):
        TEXT.convert(text, None, None)


@pytest.mark.parametrize(("required", "arguments", "code"), [(False, [], 0), (True, ["--by", "d"], 2), (True, [], 2)])
def test_who_and_why(required, arguments, code, monkeypatch):
    monkeypatch.setenv("LOGNAME", "dana")

    @click.command()
    @who_and_why(required=required)
    def decide(by, why):
        click.echo(f"{by} {why}")

    result = CliRunner().invoke(decide, arguments)
    assert result.exit_code == code
    if code == 0:
        assert result.output == "dana None\n"
