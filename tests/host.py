"""The reference host in a test: its tables, callers with tokens, and rows by plain SQL, as outside programs write."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa
from starlette.testclient import TestClient

from expunge.models.database import Database
from expunge.models.session_schema import create_sessions
from expunge.models.session_token import TokenScope, create_token
from expunge.worker.http import create_app

BOTH = (TokenScope.READ, TokenScope.WRITE)


class Host:
    """An application over a database, without a socket."""

    def __init__(self, database: Database) -> None:
        self.database = database
        create_sessions(database)
        self.app = create_app(database)
        self.client = TestClient(self.app, raise_server_exceptions=False)

    def token(self, tenant: str = "acme", principal: str = "ann", scopes: Sequence[str] = BOTH, **more: Any) -> str:
        with self.database.begin() as tx:
            _, token = create_token(tx, tenant=tenant, principal=principal, scopes=scopes, **more)
        return token

    def caller(self, tenant: str = "acme", principal: str = "ann", scopes: Sequence[str] = BOTH) -> "Caller":
        return Caller(self, self.token(tenant, principal, scopes))

    def sql(self, statement: str, **parameters: Any) -> list[Any]:
        """As any program would: no type of ours, no function of ours."""
        with self.database.engine.begin() as connection:
            result = connection.execute(sa.text(statement), parameters)
            return list(result) if result.returns_rows else []

    def session(self, id: str, *, tenant: str = "acme", principal: str = "ann", title: str | None = None) -> str:
        self.sql(
            "INSERT INTO session (id, tenant_id, principal_id, title) VALUES (:id, :tenant, :principal, :title)",
            id=id,
            tenant=tenant,
            principal=principal,
            title=title,
        )
        return id

    def message(self, session_id: str, text: str, *, role: str = "user") -> None:
        payload = json.dumps({"role": role, "content": [{"type": "text", "text": text}], "parent": None})
        self.sql(
            "INSERT INTO event (session_id, type, payload) VALUES (:session, 'message', :payload)",
            session=session_id,
            payload=payload,
        )

    def run(self, id: str, session_id: str, state: str) -> None:
        self.sql("INSERT INTO run (id, session_id, state) VALUES (:id, :s, :state)", id=id, s=session_id, state=state)


class Caller:
    """Somebody with a token."""

    def __init__(self, host: Host, token: str) -> None:
        self.host = host
        self.token = token

    def request(self, method: str, path: str, **more: Any) -> Any:
        headers = {"Authorization": f"Bearer {self.token}", **more.pop("headers", {})}
        return self.host.client.request(method, path, headers=headers, **more)

    def get(self, path: str, **more: Any) -> Any:
        return self.request("GET", path, **more)

    def post(self, path: str, **more: Any) -> Any:
        return self.request("POST", path, **more)

    def delete(self, path: str, **more: Any) -> Any:
        return self.request("DELETE", path, **more)


@contextmanager
def statements(database: Database) -> Iterator[list[str]]:
    """Every statement that the database's engine sends inside."""
    sent: list[str] = []

    def before(_: Any, __: Any, statement: str, *___: Any) -> None:
        sent.append(statement)

    sa.event.listen(database.engine, "before_cursor_execute", before)
    try:
        yield sent
    finally:
        sa.event.remove(database.engine, "before_cursor_execute", before)
