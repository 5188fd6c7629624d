"""expunge export."""

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from expunge.models.database import Database
from expunge.models.export import export_pages
from expunge.models.journal import Writer
from expunge.tasks.archive_stores import write_whole
from expunge.worker import output
from expunge.worker.cli import Failure
from expunge.worker.invocation import Invocation, pass_invocation
from expunge.worker.parameters import MOMENT, json_option

_BLOCK = 1 << 20


@click.command()
@click.option(
    "--since", metavar="TIME", type=MOMENT, help="Recorded at this time or later (ISO 8601).  [default: everything]"
)
@click.option(
    "--output",
    "path",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write a file, whole or not at all.  [default: standard output]",
)
@json_option
@pass_invocation
def export(invocation: Invocation, /, since: datetime | None, path: Path | None, as_json: bool) -> None:
    """Write what a restore of the database would lose, as JSON lines: keep them elsewhere.

    Receipts, decisions and cases since then; every tombstone and hold, and what the outbox owes, whatever their age.
    `expunge replay` reads it. The last line holds the count and a hash: a file without it is not whole. It holds
    subjects and locators, as receipts do. A row is seen a moment after the time it carries: let exports overlap by some
    minutes. Standard output gets the rows and nothing else; --json is for what is said of a file.

    \b
    Examples:
      expunge export --output /mnt/witness/expunge.jsonl
      expunge export --since 2026-10-01 | gzip > october.jsonl.gz
    """
    database = invocation.database
    if path is None:
        sys.stdout.flush()
        _write(database, since, sys.stdout.buffer)
        sys.stdout.buffer.flush()
        return
    written: list[int] = []
    try:
        write_whole(path, lambda stream: written.append(_write(database, since, stream)))
    except OSError as error:
        raise Failure(f"{output.shown(str(path))}: cannot be written: {error.strerror}") from None
    if as_json:
        output.print_json([[{"path": str(path), "rows": written[0]}]])
        return
    output.say(f"{output.plural(written[0], 'row')} written to {output.shown(str(path))}.")


def _write(database: Database, since: datetime | None, stream: Any) -> int:
    block = bytearray()

    def write(line: bytes) -> None:
        block.extend(line)
        if len(block) >= _BLOCK:
            stream.write(bytes(block))
            block.clear()

    writer = Writer(write, content="export", since=since, at=datetime.now(UTC))
    for kind, page in export_pages(database, since):
        for row in page:
            writer.add(kind, row)
    writer.end()
    stream.write(bytes(block))
    return writer.count
