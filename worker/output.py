"""How the commands print: JSON lines, CSV, and tables.

Everything takes pages of rows and prints each page before it asks for the next, so that a long listing streams. What is
shown may come from outside (locators are the store's own text, and plain SQL can bring any), so control characters are
shown as escapes and never reach a terminal.
"""

import csv
import io
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import click

from expunge.models.types import iso

Row = Mapping[str, Any]
Pages = Iterable[Sequence[Row]]

_STATE_COLOURS = {
    "escalated": "bold red",
    "failed": "red",
    "unknown": "yellow",
    "held": "yellow",
    "retained": "yellow",
    "waived": "magenta",
    "complete": "green",
    "deleted": "green",
    "already_absent": "green",
    "ended": "green",
}


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table for people. `value` is a row's field, or makes the cell from the row."""

    title: str
    value: str | Callable[[Row], Any]
    right: bool = False

    def cell(self, row: Row) -> str:
        """The cell's text, printable."""
        if isinstance(self.value, str):
            return shown(row[self.value])
        return shown(self.value(row))


def print_json(pages: Pages) -> int:
    """One object a line, in ASCII (a locator may hold characters that other programs take for line ends); gives how
    many."""
    return _print_blocks((len(page), "".join(f"{json_text(row)}\n" for row in page)) for page in pages)


def print_csv(pages: Pages, columns: Sequence[str]) -> int:
    """A line with the columns' names, then the rows: UTF-8, empty for null, JSON for objects; gives how many rows.

    Values are exact: text that a spreadsheet would take for a formula is not changed. On a terminal, where nobody
    parses them, they are shown as in a table.
    """
    terminal = on_terminal()

    def cell(value: Any) -> Any:
        return shown(_flat(value)) if terminal else _flat(value)

    def blocks() -> Iterator[tuple[int, str]]:
        yield 0, _csv_lines([columns])
        for page in pages:
            yield len(page), _csv_lines([[cell(row[name]) for name in columns] for row in page])

    return _print_blocks(blocks())


def print_table(pages: Pages, columns: Sequence[Column], *, title: str | None = None) -> int:
    """A table for people: with lines and colour on a terminal, aligned text elsewhere; gives how many rows. Prints
    nothing for no rows."""
    rows = 0
    terminal = on_terminal()
    widths = [len(column.title) for column in columns]
    for page in pages:
        if terminal:
            _rich_page(page, columns, title if rows == 0 else None)
        else:
            _plain_page(page, columns, widths, title if rows == 0 else None, head=rows == 0)
        rows += len(page)
    sys.stdout.flush()
    return rows


def say(text: str) -> None:
    """A line for people, on standard output."""
    click.echo(text)


def warn(text: str) -> None:
    """A line on standard error."""
    click.echo(text, err=True)


def on_terminal() -> bool:
    """Whether people read standard output directly."""
    return sys.stdout.isatty()


def json_text(row: Row) -> str:
    """A row as JSON: times in ISO 8601, UTC."""
    return json.dumps(row, default=_json_value, ensure_ascii=True)


def shown(value: Any) -> str:
    """A value as people read it, with control characters as escapes."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M:%SZ")
    text = str(value)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def plural(n: int, one: str, many: str | None = None) -> str:
    """`1 receipt`, `2 receipts`."""
    return f"{n:,} {one if n == 1 else many or one + 's'}"


def _print_blocks(blocks: Iterable[tuple[int, str]]) -> int:
    rows = 0
    sys.stdout.flush()
    stream = sys.stdout.buffer
    for size, text in blocks:
        stream.write(text.encode())
        stream.flush()
        rows += size
    return rows


def _csv_lines(rows: Iterable[Sequence[Any]]) -> str:
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows(rows)
    return buffer.getvalue()


def _json_value(value: Any) -> Any:
    if isinstance(value, datetime):
        return iso(value)
    return str(value)


def _flat(value: Any) -> Any:
    if isinstance(value, datetime):
        return iso(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return json_text(value)
    return value


def _rich_page(page: Sequence[Row], columns: Sequence[Column], title: str | None) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(
        box=box.SIMPLE_HEAD,
        title=Text(title) if title else None,
        title_justify="left",
        title_style="bold",
        pad_edge=False,
    )
    for column in columns:
        table.add_column(column.title, justify="right" if column.right else "left", overflow="fold")
    for row in page:
        # Text, not str: a locator may look like markup
        cells = [column.cell(row) for column in columns]
        table.add_row(*(Text(cell, style=_STATE_COLOURS.get(cell, "")) for cell in cells))
    Console(file=sys.stdout).print(table)


def _plain_page(
    page: Sequence[Row], columns: Sequence[Column], widths: list[int], title: str | None, *, head: bool
) -> None:
    cells = [[column.cell(row) for column in columns] for row in page]
    for line in cells:
        widths[:] = map(max, widths, map(len, line))
    if title:
        click.echo(title)
    if head:
        click.echo(_aligned([column.title for column in columns], columns, widths))
    for line in cells:
        click.echo(_aligned(line, columns, widths))


def _aligned(cells: Sequence[str], columns: Sequence[Column], widths: Sequence[int]) -> str:
    padded = (
        cell.rjust(width) if column.right else cell.ljust(width)
        for cell, column, width in zip(cells, columns, widths, strict=True)
    )
    return "  ".join(padded).rstrip()
