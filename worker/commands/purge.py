"""expunge purge."""

import sys
from collections.abc import Sequence
from typing import Any

import click

from expunge.models import bell
from expunge.models.database import Database
from expunge.models.graph import Graph
from expunge.models.purge import purge as purge_conversation
from expunge.models.purge_again import came_back, purge_again
from expunge.models.purge_targets import accounts_of
from expunge.models.purged import Principal, Purged, PurgeStatus
from expunge.worker import output
from expunge.worker.cli import Failure
from expunge.worker.invocation import Invocation, pass_invocation
from expunge.worker.parameters import TEXT, json_option


@click.command()
@click.option("--graph", "graph_name", metavar="NAME", type=TEXT, help="Of the settings.  [default: the only one]")
@click.option("--principal", metavar="P", type=TEXT, help="On whose behalf: the owner.")
@click.option("--tenant", metavar="T", type=TEXT, help="The owner's tenant.")
@click.option("--expected-version", metavar="V", type=TEXT, help="Refuse if the conversation is at another version.")
@click.option("--again", is_flag=True, help="Remove what a restore brought back of conversations that were purged.")
@click.option("--all", "everything", is_flag=True, help="With --again: of all of them.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
@click.argument("conversations", metavar="CONVERSATION...", type=TEXT, nargs=-1)
@pass_invocation
def purge(
    invocation: Invocation,
    /,
    graph_name: str | None,
    principal: str | None,
    tenant: str | None,
    expected_version: str | None,
    again: bool,
    everything: bool,
    yes: bool,
    as_json: bool,
    conversations: tuple[str, ...],
) -> None:
    """Remove a conversation for ever: its rows, and what they name at stores. Its id can never be used again.

    It asks first, since nothing brings it back; without a terminal it needs --yes. An id that does not exist is
    reserved for the principal. A call that is repeated says "already purged".

    With --again, what a restore brought back of conversations that were purged is removed, each in a transaction of its
    own, and their cases are open again.

    \b
    Exit code 1, and nothing of the conversation is changed, if
      a run of the conversation is active (its id is said)
      the conversation is not at the expected version
      there is no such conversation for this principal
      a legal hold covers it
      somebody writes to it just now: try again
      the fence is missing or not this graph's: run expunge fence install

    \b
    Examples:
      expunge purge c-7 --principal u-88213 --tenant acme
      expunge purge c-7 --principal u-88213 --tenant acme --expected-version 12 --yes --json
      expunge purge --again --all --yes
    """
    if again:
        _check_again(conversations, everything, principal, tenant, expected_version)
    elif len(conversations) != 1 or principal is None or everything:
        raise click.UsageError("give one CONVERSATION and --principal, or --again")
    graph = invocation.settings.graph(graph_name)
    database = invocation.database
    if again:
        found = _find(database, graph) if everything else list(dict.fromkeys(conversations))
        if found:
            _ask(yes, f"Remove the rows that came back of {output.plural(len(found), 'purged conversation')}?")
        _again(database, graph, found, as_json)
        return
    conversation = conversations[0]
    _ask(yes, f"Remove conversation {output.shown(conversation)} for ever? Nothing brings it back.")
    with database.begin() as tx:
        purged = purge_conversation(
            tx.connection,
            graph,
            conversation,
            principal=Principal(str(principal), tenant),
            expected_version=expected_version,
        )
    _require_supported(purged)
    _ring(database, purged)
    _tell(conversation, purged, as_json)


def _check_again(conversations: Sequence[str], everything: bool, *given: str | None) -> None:
    if bool(conversations) == everything:
        raise click.UsageError("--again: give the conversations, or --all")
    if any(value is not None for value in given):
        raise click.UsageError("--again goes by the tombstones: leave --principal, --tenant and --expected-version out")


def _ask(yes: bool, question: str) -> None:
    if yes:
        return
    if not _has_terminal():
        raise click.UsageError("nothing brings it back, and there is no terminal to ask at: say --yes if it is meant")
    if not click.confirm(question, err=True):
        raise Failure("nothing was purged")


def _has_terminal() -> bool:
    return sys.stdin.isatty()


def _find(database: Database, graph: Graph) -> list[str]:
    with database.read() as tx:
        return list(came_back(tx.connection, graph))


def _again(database: Database, graph: Graph, conversations: Sequence[str], as_json: bool) -> None:
    for conversation in conversations:
        with database.begin() as tx:
            purged = purge_again(tx.connection, graph, conversation)
        _require_supported(purged)
        _ring(database, purged)
        _tell(conversation, purged, as_json)
    if not conversations and not as_json:
        output.say("No purged conversation has rows.")


def _require_supported(purged: Purged) -> None:
    if purged.status == PurgeStatus.UNSUPPORTED:
        raise Failure(f"unsupported, nothing was changed: {output.shown(purged.reason)}")


def _ring(database: Database, purged: Purged) -> None:
    """The ring that was announced comes a moment after the commit, and this process may be gone by then."""
    with database.read() as tx:
        lanes = accounts_of(tx.connection, str(purged.case_id))
    bell.ring(lanes)


def _tell(conversation: str, purged: Purged, as_json: bool) -> None:
    if as_json:
        output.print_json([[_row(conversation, purged)]])
        return
    name = output.shown(conversation)
    if purged.status == PurgeStatus.ALREADY_PURGED:
        output.say(f"{name}: already purged; case {output.shown(purged.case_id)}.")
        return
    parts = [f"{output.plural(sum(purged.deleted.values()), 'row')} removed{_each(purged.deleted)}"]
    if purged.detached:
        parts.append(f"{output.plural(sum(purged.detached.values()), 'row')} detached{_each(purged.detached)}")
    output.say(f"{name}: purged, {'; '.join(parts)}; case {output.shown(purged.case_id)}.")


def _each(counts: dict[str, int]) -> str:
    told = ", ".join(f"{output.shown(table)} {count:,}" for table, count in sorted(counts.items()))
    return f" ({told})" if told else ""


def _row(conversation: str, purged: Purged) -> dict[str, Any]:
    return {
        "conversation": conversation,
        "status": str(purged.status),
        "case_id": purged.case_id,
        "deleted": purged.deleted,
        "detached": purged.detached,
    }
