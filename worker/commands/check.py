"""expunge check."""

import click

from expunge.worker.check import Line, check_all
from expunge.worker.invocation import Invocation, pass_invocation
from expunge.worker.output import Column, print_json, print_table, say

_WORDS = {True: "ok", False: "WRONG", None: "note"}


@click.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line: name, ok (true, false or null), text.")
@click.option(
    "--probe",
    is_flag=True,
    help="Ask S3 buckets that never had versions whether they honour conditional deletes: one DeleteObject with "
    "If-Match: * of a random absent key, expunge-probe-…, in each.",
)
@click.pass_context
@pass_invocation
def check(invocation: Invocation, context: click.Context, as_json: bool, probe: bool) -> None:
    """Settings, database, broker, and each account: who are we there, what may we do, what is missing.

    Without --probe it sends reads only, deletes nothing and changes nothing. Exit code 1 if anything is wrong.

    \b
    Examples:
      expunge check
      expunge check --json | jq 'select(.ok == false)'
      expunge check --probe
    """
    wrong = 0

    def counted(line: Line) -> dict[str, object]:
        nonlocal wrong
        wrong += line.ok is False
        return {"name": line.name, "ok": line.ok, "text": line.text}

    rows = [counted(line) for line in check_all(invocation.config, probe=probe)]
    if as_json:
        print_json([rows])
    else:
        columns = [Column("", lambda row: _WORDS[row["ok"]]), Column("what", "name"), Column("", "text")]
        print_table([rows], columns)
        say(f"{wrong} wrong." if wrong else "All is well.")
    if wrong:
        context.exit(1)
