"""The reference host's own reads and writes. Every one is scoped to a principal, so that a conversation of somebody
else and one that never existed are the same to it, by the same statements."""

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine, Row

from expunge.models.database import Transaction
from expunge.models.errors import ConversationNotFound, ConversationPurged, InvalidCursor, InvalidEvent
from expunge.models.purge_tables import Tombstone
from expunge.models.purged import Principal
from expunge.models.session_title import derive_title
from expunge.models.sessions import (
    ACTIVE_STATES,
    MESSAGE_TYPES,
    SESSIONS,
    TERMINAL_STATES,
    event,
    run,
    session,
)

_MESSAGES_LOOKED_AT = 64
"""A conversation in which so many messages are nobody's has no title."""
_IS_MESSAGE = sa.text(f"event.type IN {MESSAGE_TYPES!r}")
"""In the words of the partial index."""


@dataclass(frozen=True, slots=True)
class SessionView:
    """A conversation as its owner sees it."""

    id: str
    title: str | None
    version: int
    created_at: datetime
    updated_at: datetime
    active_run_id: str | None
    """The latest run that is queued, running or waiting."""
    last_run_id: str | None
    """The latest run that is over."""


@dataclass(frozen=True, slots=True)
class SessionPage:
    """Some conversations, the most recently active first."""

    sessions: tuple[SessionView, ...]
    next_cursor: str | None
    """Where the next page begins; None if this is the last."""


@dataclass(frozen=True, slots=True)
class Appended:
    """An event that was appended."""

    id: str
    position: int


def answer_soon(engine: Engine, seconds: float) -> None:
    """Connections of this engine wait for a lock no longer than this: somebody waits for the answer."""
    milliseconds = int(seconds * 1000)
    statement = (
        f"SET lock_timeout = {milliseconds}"
        if engine.dialect.name == "postgresql"
        else f"PRAGMA busy_timeout = {milliseconds}"
    )

    @sa.event.listens_for(engine, "connect")
    def _connect(connection: Any, _: Any) -> None:
        cursor = connection.cursor()
        cursor.execute(statement)
        cursor.close()
        connection.commit()

    if not isinstance(engine.pool, sa.pool.StaticPool):
        engine.dispose()  # those that are open already would wait for longer


def list_sessions(tx: Transaction, principal: Principal, *, limit: int, cursor: str | None = None) -> SessionPage:
    """A page by (updated_at DESC, id DESC).

    A cursor names a place, not a row: it stays good when its row is deleted or moves. Raises InvalidCursor.
    """
    updated_at = _raw_updated_at(tx.dialect)
    statement = _views(principal).order_by(updated_at.desc(), session.c.id.desc()).limit(limit + 1)
    if cursor is not None:
        place, last_id = _read_cursor(cursor, tx.dialect)
        after = sa.tuple_(sa.literal(place, updated_at.type), sa.literal(last_id))
        statement = statement.where(sa.tuple_(updated_at, session.c.id) < after)
    rows = tx.connection.execute(statement.add_columns(updated_at.label("place"))).all()
    more = len(rows) > limit
    return SessionPage(
        sessions=tuple(_view(tx.connection, row) for row in rows[:limit]),
        next_cursor=_cursor(rows[limit - 1]) if more else None,
    )


def read_session(tx: Transaction, principal: Principal, session_id: str) -> SessionView:
    """One conversation. Raises ConversationNotFound, for a purged one too."""
    row = tx.connection.execute(_views(principal).where(session.c.id == session_id)).one_or_none()
    if row is None:
        raise ConversationNotFound("there is no such conversation")
    return _view(tx.connection, row)


def create_session(tx: Transaction, principal: Principal, *, title: str | None = None) -> SessionView:
    """A new conversation, with a new random id: none is ever used again."""
    created = sa.insert(session).values(tenant_id=principal.tenant, principal_id=principal.id, title=title)
    session_id = tx.connection.execute(created.returning(session.c.id)).scalar_one()
    return read_session(tx, principal, session_id)


def append_event(
    tx: Transaction,
    principal: Principal,
    session_id: str,
    *,
    type: str,
    payload: Mapping[str, Any],
    run_id: str | None = None,
) -> Appended:
    """Append an event; a conversation without a title gets one when it can. `payload` is stored as JSON in ASCII.

    Raises ConversationNotFound, ConversationPurged (this principal's own), or InvalidEvent for a payload that JSON
    cannot say or a run that is not of this conversation.
    """
    try:
        text = json.dumps(payload, ensure_ascii=True, allow_nan=False)
    except RecursionError:
        raise InvalidEvent("payload: too deep") from None
    except ValueError:
        raise InvalidEvent("payload: NaN and infinity are not JSON") from None
    found = tx.connection.execute(
        sa.select(session.c.title).where(session.c.id == session_id, *_is_of(principal))
    ).one_or_none()
    if found is None:
        _raise_missing(tx.connection, principal, session_id)
    if run_id is not None:
        theirs = sa.select(run.c.id).where(run.c.id == run_id, run.c.session_id == session_id)
        if tx.connection.execute(theirs).first() is None:
            raise InvalidEvent("run_id: the conversation has no such run")
    row = tx.connection.execute(
        sa.insert(event)
        .values(session_id=session_id, run_id=run_id, type=type, payload=text)
        .returning(event.c.id, event.c.position)
    ).one()
    if found is not None and _is_blank(found.title) and type in MESSAGE_TYPES:
        title = derive_title(_messages(tx.connection, session_id))
        if title is not None:
            tx.connection.execute(sa.update(session).where(session.c.id == session_id).values(title=title))
    return Appended(row.id, row.position)


def _raise_missing(connection: Connection, principal: Principal, session_id: str) -> None:
    tombstone = sa.select(Tombstone.purged_at).where(
        Tombstone.graph == SESSIONS.name,
        Tombstone.conversation == session_id,
        Tombstone.tenant == principal.tenant,
        Tombstone.principal == principal.id,
    )
    if connection.execute(tombstone).first() is not None:
        raise ConversationPurged("the conversation was purged: its identity may never be used again")
    raise ConversationNotFound("there is no such conversation")


def _is_of(principal: Principal) -> tuple[sa.ColumnElement[bool], ...]:
    return session.c.tenant_id == principal.tenant, session.c.principal_id == principal.id


def _is_not_purged() -> sa.ColumnElement[bool]:
    """A backup that was restored without the fence brings rows back; to a reader they are gone all the same."""
    stone = Tombstone.__table__.c
    return ~sa.exists().where(stone.graph == SESSIONS.name, stone.conversation == session.c.id)


def _views(principal: Principal) -> sa.Select[Any]:
    def latest_run(states: Sequence[str]) -> sa.ScalarSelect[Any]:
        return (
            sa.select(run.c.id)
            .where(run.c.session_id == session.c.id, run.c.state.in_(states))
            .order_by(run.c.created_at.desc(), run.c.id.desc())
            .limit(1)
            .correlate(session)
            .scalar_subquery()
        )

    return sa.select(
        session.c.id,
        session.c.title,
        session.c.version,
        session.c.created_at,
        session.c.updated_at,
        latest_run(ACTIVE_STATES).label("active_run_id"),
        latest_run(TERMINAL_STATES).label("last_run_id"),
    ).where(*_is_of(principal), _is_not_purged())


def _view(connection: Connection, row: Row[Any]) -> SessionView:
    title = derive_title(_messages(connection, row.id)) if _is_blank(row.title) else row.title
    return SessionView(row.id, title, row.version, row.created_at, row.updated_at, row.active_run_id, row.last_run_id)


def _is_blank(title: str | None) -> bool:
    return title is None or not title.strip()


def _messages(connection: Connection, session_id: str) -> Iterator[str]:
    """Payloads, one statement each: nearly always the first is enough, and each may be long."""
    position = 0
    for _ in range(_MESSAGES_LOOKED_AT):
        row = connection.execute(
            sa.select(event.c.position, event.c.payload)
            .where(event.c.session_id == session_id, event.c.position > position, _IS_MESSAGE)
            .order_by(event.c.position)
            .limit(1)
        ).first()
        if row is None:
            return
        position = row.position
        yield row.payload


def _raw_updated_at(dialect: str) -> sa.ColumnElement[Any]:
    """SQLite keeps times as text, and plain SQL may have written one with fewer digits than we do: read as a time and
    bound again it would be another text, and rows would be skipped or shown twice."""
    return sa.type_coerce(session.c.updated_at, sa.Text()) if dialect == "sqlite" else session.c.updated_at


def _cursor(row: Row[Any]) -> str:
    place = row.place if isinstance(row.place, str) else row.place.isoformat()
    return base64.urlsafe_b64encode(json.dumps([place, row.id]).encode()).decode().rstrip("=")


def _read_cursor(cursor: str, dialect: str) -> tuple[Any, str]:
    try:
        raw = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        place, last_id = json.loads(raw)
        if not isinstance(place, str) or not isinstance(last_id, str) or "\x00" in last_id:
            raise ValueError
        last_id.encode()
        moment = datetime.fromisoformat(place)
        if (moment.tzinfo is None) != (dialect == "sqlite") or not place.isascii():
            raise ValueError
    except (ValueError, TypeError, RecursionError):
        raise InvalidCursor("cursor: it is not one that this host gave; begin with the first page") from None
    return (place if dialect == "sqlite" else moment), last_id


def ping(tx: Transaction) -> None:
    """Raises what the database raises if it cannot answer."""
    tx.first("SELECT 1 FROM session_token LIMIT 1")
