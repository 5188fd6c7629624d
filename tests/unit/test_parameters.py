"""Options that several commands take."""

from datetime import UTC, datetime

import click
import pytest
from click.testing import CliRunner

from expunge.worker.cli import COMMANDS, main
from expunge.worker.parameters import MOMENT, SECONDS, TEXT, who_and_why


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


@pytest.mark.parametrize("text", ["", "yesterday", "18.10.2026", "2026-13-01"])
def test_anything_else_is_no_time(text):
    with pytest.raises(click.BadParameter, match="ISO 8601"):
        MOMENT.convert(text, None, None)


@pytest.mark.parametrize("text", ["0001-01-01T00:00:00+23:00", "9999-12-31T23:59:59-12:00"])
def test_a_time_may_be_out_of_range(text):
    with pytest.raises(click.BadParameter, match="out of range"):
        MOMENT.convert(text, None, None)


@pytest.mark.parametrize("text", ["", "  ", "\udcff"])
def test_text_is_neither_blank_nor_broken(text):
    with pytest.raises(click.BadParameter):
        TEXT.convert(text, None, None)


@pytest.mark.parametrize(("text", "seconds"), [("0", 0.0), ("0.5", 0.5), ("90", 90.0), ("1e300", 1e300)])
def test_seconds_are_finite(text, seconds):
    assert SECONDS.convert(text, None, None) == seconds


NO_NUMBERS = ["nan", "-nan", "inf", "-inf", "Infinity", "1e400", "-1", "-0.001", "x", ""]


@pytest.mark.parametrize("text", NO_NUMBERS)
def test_anything_else_is_no_number_of_seconds(text):
    with pytest.raises(click.BadParameter, match=r"is not a number|is not in the range x>=0\."):
        SECONDS.convert(text, None, None)


def _numeric_options() -> list[tuple[str, str]]:
    """Every option and argument of every command that takes a number."""
    context = click.Context(main)
    commands = [(name, main.get_command(context, name)) for name in COMMANDS]
    return [
        (name, parameter.opts[0])
        for name, command in commands
        if command is not None
        for parameter in command.params
        if isinstance(parameter.type, (type(click.INT), type(click.FLOAT)))
    ]


def test_the_options_that_take_a_number_are_found():
    assert ("up", "--timeout") in _numeric_options()
    assert ("waive", "entries") in _numeric_options()
    assert ("inventory", "--within") in _numeric_options()


@pytest.mark.parametrize(("command", "option"), _numeric_options())
@pytest.mark.parametrize("text", NO_NUMBERS)
def test_what_is_no_number_is_wrong_usage(command, option, text):
    who = ["--by", "d", "--why", "w"] if command == "waive" else []
    given = [f"{option}={text}"] if option.startswith("--") else ["--", text]
    result = CliRunner().invoke(main, [command, *who, *given])
    assert result.exit_code == 2
    assert "Invalid value" in result.stderr
    assert result.stdout == ""


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
