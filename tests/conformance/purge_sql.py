"""SQLite or PostgreSQL as a World: the same graph, read from the database, behind its triggers."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa
from conformance.purge_world import ADA, CHATS, Case, Stone, metadata
from sqlalchemy.engine import Connection
from sqlalchemy.exc import DBAPIError, IntegrityError

from expunge.models import fence
from expunge.models.database import Database
from expunge.models.errors import InvalidWrite, translate
from expunge.models.graph_live import read_graph
from expunge.models.holds import place_hold
from expunge.models.purge import purge
from expunge.models.purged import Principal, Purged
from expunge.models.targets import Target
from expunge.models.tombstones import is_purged


class SqlTx:
    def __init__(self, database: Database, connection: Connection) -> None:
        self.database = database
        self.connection = connection

    def insert(self, table: str, row: Mapping[str, Any]) -> None:
        self.write(sa.insert(metadata.tables[table]).values(**row))

    def update(self, table: str, key: str, changes: Mapping[str, Any]) -> None:
        target = metadata.tables[table]
        self.write(sa.update(target).where(target.c.id == key).values(**changes))

    def delete(self, table: str, key: str) -> None:
        target = metadata.tables[table]
        self.write(sa.delete(target).where(target.c.id == key))

    def write(self, statement: Any) -> None:
        try:
            self.connection.execute(statement)
        except DBAPIError as error:
            known = translate(error)
            if known is None and isinstance(error, IntegrityError):
                known = InvalidWrite(str(error.orig))
            if known is None:
                raise
            raise known from error

    def rows(self, table: str) -> dict[str, dict[str, Any]]:
        found = self.connection.execute(sa.select(metadata.tables[table])).mappings()
        return {row["id"]: {str(column): value for column, value in row.items() if value is not None} for row in found}

    def is_purged(self, conversation: str) -> bool:
        return is_purged(self.connection, CHATS, conversation)

    def purge(self, conversation: str, *, principal: Principal = ADA, **how: Any) -> Purged:
        return purge(self.connection, CHATS, conversation, principal=principal, **how)

    def place_hold(self, **whom: str) -> None:
        place_hold(self.database.on(self.connection), **{"subject": None, **whom}, by="lawyer", why="a matter")

    def cases(self) -> dict[str, Case]:
        targets: dict[str, set[Target]] = {}
        entries = self.connection.execute(sa.text("SELECT case_id, account, kind, locator FROM erasure_outbox"))
        for case_id, *target in entries:
            targets.setdefault(case_id, set()).add(Target(*target))
        return {
            row.id: Case(row.subject, row.tenant, row.conversation, frozenset(targets.get(row.id, ())))
            for row in self.connection.execute(sa.text("SELECT id, subject, tenant, conversation FROM erasure_case"))
        }

    def tombstones(self) -> Sequence[Stone]:
        found = self.connection.execute(
            sa.text("SELECT graph, conversation, tenant, principal FROM erasure_tombstone ORDER BY purged_at")
        )
        return [Stone(*row) for row in found]


class SqlWorld:
    def __init__(self, url: str) -> None:
        self.database = Database.open(url)
        # a copy: creating tables in PostgreSQL marks those foreign keys that SQLite must have in the table
        copied = sa.MetaData()
        for table in metadata.tables.values():
            table.to_metadata(copied)
        with self.database.engine.begin() as connection:
            copied.create_all(connection)
        with self.database.engine.begin() as connection:
            fence.install(connection, read_graph(connection, CHATS))
        self._outer: Connection | None = None

    @contextmanager
    def rolled_back(self) -> Iterator[None]:
        """Everything in one transaction, and what would be transactions in savepoints of it."""
        with self.database.engine.connect() as connection, connection.begin() as transaction:
            self._outer = connection
            try:
                yield
            finally:
                self._outer = None
                transaction.rollback()

    @contextmanager
    def begin(self) -> Iterator[SqlTx]:
        if self._outer is not None:
            with self._outer.begin_nested():
                yield SqlTx(self.database, self._outer)
        else:
            with self.database.engine.begin() as connection:
                yield SqlTx(self.database, connection)

    @contextmanager
    def read(self) -> Iterator[SqlTx]:
        if self._outer is not None:
            yield SqlTx(self.database, self._outer)
        else:
            with self.database.read() as tx:
                yield SqlTx(self.database, tx.connection)

    def remove_tombstone(self, conversation: str) -> None:
        statement = sa.text("DELETE FROM erasure_tombstone WHERE conversation = :conversation")
        with self.begin() as tx:
            tx.write(statement.bindparams(conversation=conversation))

    def open_fence(self) -> None:
        with self.begin() as tx:
            tx.write(sa.text("DELETE FROM erasure_fence"))

    def close(self) -> None:
        self.database.close()
