"""expunge up."""

import time

import click

from expunge.models.database import Database
from expunge.worker.follow import ReceiptFollower
from expunge.worker.invocation import Invocation, pass_invocation
from expunge.worker.logging import configure_logging
from expunge.worker.metrics import serving_metrics
from expunge.worker.output import print_json
from expunge.worker.parameters import PORT, SECONDS
from expunge.worker.progress import Bar, Tally, summarise
from expunge.worker.run import prepare, run, when_unlocked
from expunge.worker.signals import StopSignals

SOMETHING_LEFT = 3


@click.command()
@click.option("--until-idle", is_flag=True, help="End when nothing is left that can move by itself.")
@click.option("--timeout", type=SECONDS, metavar="S", help="End after so many seconds.")
@click.option("--json", "as_json", is_flag=True, help="Print receipts as they come, one JSON object a line.")
@click.option("--metrics-port", type=PORT, metavar="N", help="Serve metrics to Prometheus on this port.")
@click.pass_context
@pass_invocation
def up(
    invocation: Invocation,
    context: click.Context,
    until_idle: bool,
    timeout: float | None,
    as_json: bool,
    metrics_port: int | None,
) -> None:
    """Worker and beat in one process.

    Without settings: a SQLite file and a broker in memory. Creates the tables on SQLite. SIGTERM and SIGINT end it
    cleanly: calls under way are settled, the rest is ready for the next worker; a second one ends it at once.

    With --until-idle it waits for retries that come within retry_max_seconds. Exit code 3 says that something is left:
    escalated, held, retained, paused, or the time was up. Whoever stops it with a signal gets 0, whatever is left.

    \b
    Examples:
      expunge up
      expunge up --until-idle --timeout 600 --json > receipts.jsonl
    """
    settings = invocation.settings
    if metrics_port is not None:
        settings = settings.model_copy(update={"metrics_port": metrics_port})
    configure_logging(settings.log_level)
    database = invocation.any_database
    began = time.monotonic()

    def begin() -> ReceiptFollower:
        prepare(database)
        return ReceiptFollower(database)

    follower = when_unlocked(begin, timeout)
    if timeout is not None:
        timeout = max(0.0, timeout - (time.monotonic() - began))
    tally = Tally()
    # until here nothing was begun, and a signal ends the process at once (start.py)
    with (
        serving_metrics(settings) as served,
        StopSignals() as signals,
        Bar(tally, shown=False if as_json else None) as bar,
    ):

        def look(database: Database, last: bool) -> None:
            for rows in follower.look(last=last):
                tally.add(rows)
                if as_json:
                    print_json([rows])
            bar.update(database)

        ran = run(settings, signals, until_idle=until_idle, timeout=timeout, on_look=look, on_settled=served.settled)
    if not as_json:
        summarise(ran, tally)
    if until_idle and not signals.asked and not ran.nothing_left:
        context.exit(SOMETHING_LEFT)
