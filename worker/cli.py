"""The command line: the group, and what all commands share.

Commands, and everything heavy, are imported when they are asked for, so that `expunge --help` is quick and a broken
extra breaks its own command only. To add one: its file in commands/, and its line in COMMANDS.
"""

from importlib import import_module
from typing import Any

import click

COMMANDS: dict[str, tuple[str, str]] = {
    "demo": ("demo", "The whole story on one machine, nothing to configure."),
    "up": ("up", "Worker and beat in one process."),
    "migrate": ("migrate", "Create or upgrade the tables."),
    "check": ("check", "Settings, database, broker, and each account: what is missing or wrong."),
    "erase": ("erase", "Open a case: targets from a file or standard input."),
    "cases": ("cases", "The cases, or one with its entries and receipts."),
    "receipts": ("receipts", "The receipts, as a table, JSON lines or CSV."),
    "outbox": ("outbox", "What waits to be erased, and the lanes that are paused."),
    "graph": ("graph", "How a conversation hangs together, and what nobody declared."),
    "fence": ("fence", "The triggers that keep purged conversations from coming back."),
    "purge": ("purge", "Remove a conversation for ever."),
    "inventory": ("inventory", "What was created at stores, and what of it needs a look."),
    "export": ("export", "What a restore would lose, as JSON lines to keep elsewhere."),
    "replay": ("replay", "After a restore: erase again what was erased since."),
    "hold": ("hold", "Legal orders to keep: place, release, list."),
    "extend": ("extend", "Take the further time that a law gives, with the reason."),
    "retry": ("decide", "Try entries again, at once."),
    "waive": ("decide", "Decide that entries will not be erased."),
    "pause": ("decide", "Stop the calls of one account."),
    "resume": ("decide", "Let a paused account go on."),
    "serve": ("serve", "The reference host: conversations over HTTP."),
    "token": ("token", "Bearer tokens for the reference host."),
}
"""Name: the module in commands/ that has it, and its line in the overview."""

READERS = frozenset({"cases", "outbox", "receipts"})
"""They read the database and log nothing, so they need not wait for what logging imports."""

_GENERIC_FAILURE = 1


class Failure(click.ClickException):
    """One clear line on standard error, and exit code 1."""

    exit_code = _GENERIC_FAILURE


def _remember_config(context: click.Context, _: click.Parameter, value: str | None) -> None:
    from expunge.worker.invocation import Invocation

    if value is not None:
        context.ensure_object(Invocation).config = value


def _config_option() -> click.Option:
    return click.Option(
        ["--config"],
        type=click.Path(),
        metavar="FILE",
        expose_value=False,
        callback=_remember_config,
        help="The settings.  [default: EXPUNGE_CONFIG, else expunge.toml]",
    )


def add_config(command: click.Command) -> click.Command:
    """Give a command, and those below it, the option that every command takes."""
    if not any(parameter.name == "config" for parameter in command.params):
        command.params.append(_config_option())
    if isinstance(command, click.Group):
        for inner in command.commands.values():
            add_config(inner)
    return command


class Commands(click.Group):
    """Imports its commands by COMMANDS."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"expunge.worker.commands.{COMMANDS[cmd_name][0]}")
        command: click.Command = getattr(module, cmd_name)
        return add_config(command)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        if name not in READERS:
            from expunge.worker.logging import configure_logging

            # unconfigured, structlog prints to standard output; `up` and `demo` set levels of their own
            configure_logging("warning")
        return name, command, rest

    def invoke(self, ctx: click.Context) -> Any:
        from expunge.models.errors import ExpungeError
        from expunge.worker.output import shown

        try:
            return super().invoke(ctx)
        except ExpungeError as error:
            raise Failure(shown(str(error))) from error
        except Exception as error:
            said = _database_trouble(error)
            if said is None:
                raise
            raise Failure(shown(said)) from error


def _database_trouble(error: Exception) -> str | None:
    """One line about a database that is the trouble; None if it is something else."""
    from sqlalchemy.exc import SQLAlchemyError

    if not isinstance(error, SQLAlchemyError):
        return None
    from expunge.models.database import describe_trouble, is_damaged, is_unreachable
    from expunge.models.errors import translate

    known = translate(error)
    if known is not None:
        return str(known)
    return f"the database {describe_trouble(error)}" if is_unreachable(error) or is_damaged(error) else None


@click.group(
    cls=Commands,
    params=[_config_option()],
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: 0 done, 1 error, 2 wrong usage, 3 from `up --until-idle`: something is left.",
)
@click.version_option(package_name="expunge", message="%(prog)s %(version)s")
def main() -> None:
    """Finish erasures, and keep receipts.

    \b
    Examples:
      expunge demo
      expunge erase --subject u-88213 --basis gdpr targets.jsonl
      expunge up --until-idle
      expunge receipts --case 88213
    """
