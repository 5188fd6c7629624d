"""Types of options and arguments that several commands take. A wrong value is wrong usage: exit code 2."""

import getpass
import math
import os
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import click

_MAX_ID = 2**63 - 1


class _WholeNumber(click.IntRange):
    name = "whole number"  # what a message calls it; click's own word is "integer range"


ENTRY_ID = _WholeNumber(1, _MAX_ID)
PORT = _WholeNumber(1, 65_535)
HOLD_ID = _WholeNumber(1, _MAX_ID)


class _Text(click.ParamType[str]):
    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = str(value)
        if not text.strip():
            self.fail("must not be empty", param, ctx)
        try:
            text.encode()
        except UnicodeEncodeError:
            self.fail("is not valid UTF-8", param, ctx)
        return text


class _Moment(click.ParamType[datetime]):
    name = "time"

    def __init__(self, *, keeps_zone: bool = False) -> None:
        self.keeps_zone = keeps_zone

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        if isinstance(value, datetime):
            return value
        try:
            moment = datetime.fromisoformat(value)
            if moment.tzinfo is None:
                return moment.replace(tzinfo=UTC)
            in_utc = moment.astimezone(UTC)
            return moment if self.keeps_zone else in_utc
        except OverflowError:
            self.fail(f"{value!r} is out of range: in UTC it is no time of the years 1 to 9999", param, ctx)
        except ValueError:
            self.fail(
                f"{value!r} is not a time in ISO 8601: 2026-10-18, 2026-10-18T09:30:00Z (UTC if it names no zone)",
                param,
                ctx,
            )


class FiniteRange(click.FloatRange):
    """click's own takes `nan`, which is neither less nor more than anything, and `inf`: a run that was to end would go
    on for ever."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            finite = math.isfinite(float(value))
        except ValueError:
            finite = False
        if not finite:
            self.fail(f"{value!r} is not a number", param, ctx)
        return super().convert(value, param, ctx)


TEXT = _Text()
"""Text that is not blank and that every database can keep."""
MOMENT = _Moment()
"""ISO 8601, a date or a date and time; UTC if it names no zone."""
RECEIVED = _Moment(keeps_zone=True)
"""The same, with the zone as it was named: a statutory date counts from the day it was there."""
SECONDS = FiniteRange(min=0)


def json_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--json`."""
    return click.option("--json", "as_json", is_flag=True, help="One JSON object a line, and nothing else.")(command)


def who_and_why(*, required: bool) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """`--by` and `--why`; where they may be left out, `by` is the user of the operating system."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        command = click.option(
            "--why", metavar="TEXT", type=TEXT, required=required, help="The reason, for the record."
        )(command)
        said = "Who decides." if required else "Who decides.  [default: the user who runs this]"
        default = None if required else operating_system_user
        return click.option(
            "--by", metavar="WHO", type=TEXT, required=required, default=default, show_default=False, help=said
        )(command)

    return decorate


def operating_system_user() -> str:
    """Who runs this, as far as the operating system knows."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"
