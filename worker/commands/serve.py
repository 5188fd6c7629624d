"""expunge serve."""

import click

from expunge.models import schema
from expunge.models.database import Database
from expunge.models.errors import ConfigurationError
from expunge.models.session_schema import require_sessions
from expunge.worker.bell import hang_for
from expunge.worker.invocation import Invocation, pass_invocation
from expunge.worker.logging import configure_logging
from expunge.worker.output import warn

_CONNECTIONS = 20
"""Kept open to PostgreSQL; twice as many at the most, one for each of the framework's threads."""


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, metavar="HOST", help="The address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), required=True, metavar="N", help="0 takes any that is free.")
@pass_invocation
def serve(invocation: Invocation, host: str, port: int) -> None:
    """The reference host: conversations over HTTP.

    It needs the tables of `expunge migrate --with-sessions` and a token of `expunge token create`, and it deletes rows
    only: `expunge up`, or a fleet, empties the outbox. Standard error says where it listens. SIGTERM and SIGINT end it
    when the requests under way are answered.

    \b
    Examples:
      expunge serve --port 8080
      curl -H "Authorization: Bearer $TOKEN" http://127.0.0.1:8080/v1/sessions
    """
    try:
        from expunge.worker.http import create_app
        from expunge.worker.serve import bind, url_of
        from expunge.worker.serve import serve as run
    except ModuleNotFoundError as error:
        if error.name not in ("fastapi", "starlette", "uvicorn"):
            raise
        raise ConfigurationError("the reference host is not installed: python -m pip install 'expunge[http]'") from None

    settings = invocation.settings
    configure_logging(settings.log_level)
    database = Database.open(settings.database_url, pool_size=_CONNECTIONS)
    try:
        schema.require(database)
        require_sessions(database)
        hang_for(settings, at_once=True)
        with bind(host, port) as listener:
            run(create_app(database), listener, lambda: warn(f"Listening on {url_of(listener)}"))
    finally:
        database.close()
