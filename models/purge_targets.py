"""What the rows of a conversation name at stores goes into the outbox, by the INSERT … SELECT that plain SQL would use:
nothing passes through this process.

A locator of the wrong shape neither stops the purge nor is it lost: as with any entry from plain SQL, it is escalated
with its reason. What the outbox cannot hold (an empty text, a locator of more than 1,100 bytes) is the name of nothing
at any store; an entry of the kind `unusable` says in which column it was, for a person.
"""

from collections.abc import Iterator

from sqlalchemy import text
from sqlalchemy.engine import Connection

from expunge.models.graph import Rule, TargetColumns
from expunge.models.graph_live import LiveGraph
from expunge.models.purge_rows import ConversationRows
from expunge.models.second_look import BACK_TO_ERASE
from expunge.models.tables import MAX_ACCOUNT, MAX_LOCATOR_BYTES

UNUSABLE = "unusable"
"""The kind of an entry that stands for rows whose target no outbox can hold."""
_MAX_KIND = 64

_INSERT = "INSERT INTO erasure_outbox (case_id, account, kind, locator)"
_ONCE = (
    "ON CONFLICT (case_id, account, kind, locator) DO UPDATE SET"
    f" {BACK_TO_ERASE.replace('{now}', 'excluded.due_at')} WHERE erasure_outbox.settled"
)
"""What waits for its second look only is erased again: rows that came back may have come with their objects."""


def queue_targets(connection: Connection, live: LiveGraph, rows: ConversationRows, case_id: str) -> frozenset[str]:
    """Put them into a case that exists; gives the accounts of all its entries. Those that the case has an entry for
    are left out, those that it has a receipt for are not: rows that came back may have come with their objects."""
    for name, table in live.tables.items():
        if table.rule != Rule.DELETE:
            continue
        for columns in table.targets:
            for condition in rows.conditions(name):
                _queue(connection, rows, name, columns, condition, case_id)
    return accounts_of(connection, case_id)


def accounts_of(connection: Connection, case_id: str) -> frozenset[str]:
    """The lanes that have entries of a case."""
    found = connection.execute(
        text("SELECT DISTINCT account FROM erasure_outbox WHERE case_id = :case"), {"case": case_id}
    )
    return frozenset(found.scalars())


def _queue(
    connection: Connection, rows: ConversationRows, name: str, columns: TargetColumns, condition: str, case_id: str
) -> None:
    parameters: dict[str, object] = {"case": case_id}
    account, kind, locator = _values(rows, columns, parameters)
    named = f"{condition} AND {account} IS NOT NULL AND {kind} IS NOT NULL AND {locator} IS NOT NULL"
    size = f"octet_length({locator})" if connection.dialect.name == "postgresql" else f"length(CAST({locator} AS BLOB))"
    fits = (
        f"length({account}) BETWEEN 1 AND {MAX_ACCOUNT} AND length({kind}) BETWEEN 1 AND {_MAX_KIND}"
        f" AND {size} BETWEEN 1 AND {MAX_LOCATOR_BYTES}"
    )
    table = rows.name(name)
    connection.execute(
        text(
            f"{_INSERT} SELECT DISTINCT CAST(:case AS text), {account}, {kind}, {locator} FROM {table}"
            f" WHERE {named} AND {fits} {_ONCE}"
        ),
        parameters,
    )
    connection.execute(
        text(
            f"{_INSERT} SELECT CAST(:case AS text), CAST(:unusable AS text), CAST(:unusable AS text),"
            f" CAST(:where AS text) FROM {table} WHERE {named} AND NOT ({fits}) LIMIT 1 {_ONCE}"
        ),
        {**parameters, "unusable": UNUSABLE, "where": f"{name}.{columns.locator}"},
    )


def _values(rows: ConversationRows, columns: TargetColumns, parameters: dict[str, object]) -> Iterator[str]:
    for field, said in (("account", columns.account), ("kind", columns.kind), ("locator", columns.locator)):
        if said.startswith("="):
            parameters[field] = said[1:]
            yield f"CAST(:{field} AS text)"
        else:
            yield f"CAST({rows.column(said)} AS text)"
