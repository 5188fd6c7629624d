"""expunge extend."""

import click

from expunge.models.extend import extend_case
from expunge.models.list_cases import read_case
from expunge.worker import output
from expunge.worker.invocation import Invocation, pass_invocation
from expunge.worker.parameters import TEXT, json_option, who_and_why


@click.command()
@click.argument("case", metavar="CASE", type=TEXT)
@who_and_why(required=True)
@json_option
@pass_invocation
def extend(invocation: Invocation, /, case: str, by: str, why: str, as_json: bool) -> None:
    """Take the further time that a law gives for a case: two months (gdpr, uk_gdpr) or 45 days (ccpa, vcdpa).

    Once, and before the first date has passed: until then the person must be told of it, and of the reason. Telling
    is yours. --json prints the case as it stands then.

    \b
    Example:
      expunge extend 88213 --by dana --why "forty requests of the same person"
    """
    with invocation.database.begin() as tx:
        due_at = extend_case(tx, case, by, why)
        row = read_case(tx, case)
    if as_json:
        output.print_json([[row]])
        return
    output.say(f"Case {case} is due on {due_at:%Y-%m-%d} now. Tell the person, with the reason, before the first date.")
